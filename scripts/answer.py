"""The numbers of results/paper/README.md: means by method, and differences to joint DLM.

    python -m scripts.answer results/more results/paper > results/more/answer.csv

The table has a row per experiment (`role`), dataset, size, M and method.

- `use` is what the validation rows are for: select (they select beta), recalibrate (also that),
  train (they are training rows, too), tenth (n / 10 of them select beta).
- `over_joint` is the test NLL minus that of joint DLM in the same repetition: the mean, the median
  and a 95 % interval by Student's t, with the correction of Nadeau and Bengio (2003) for the rows
  that repetitions share. `over_recalibrated` is the same for recalibrated joint DLM.
- `noise` is the median noise variance, `converged` the share of fits that met the stopping rule.
- Rows of the role `decay` compare fits under the protocol `annealed` with those of twice the decay:
  the mean and the largest change of the test NLL, and the share of repetitions that select the same
  beta.
- Rows of the role `calibration` compare published regression fits of joint DLM and ELBO:
  `further_off` is how much further the coverage of 95 % intervals is from 0.95 for joint DLM, and
  `further_off_50` is the same for 50 % intervals.
"""

import sys

import numpy as np
import pandas as pd
from scipy import stats

import dlmexp
from dlmexp.presentation.claims.overlap import split_overlap

# The columns that identify a row of the table, and a repetition of it for any method.
KEYS = ["role", "dataset", "n", "M", "changes", "method", "use", "estimator", "samples"]
REPETITION = ["role", "dataset", "n", "M", "seed"]
COLUMNS = [  # of the tidy table
    *(name for name in KEYS if name != "use"),
    "seed",
    "split",
    "edge",
    "beta",
    "protocol",
    "task",
    "hyper_noise",
    "converged",
]
METRICS = ["test_nll", "test_crps", "test_coverage_95"]
RECALIBRATED_ROLES = ("rivals", "gain")


def selected(folder: str) -> pd.DataFrame:
    """Return the fits whose beta the NLL selects, with their test metrics.

    Fits of `RECALIBRATED_ROLES` have a second row, with the metrics of recalibrated predictions.
    """
    table = dlmexp.results(folder).table.query("selected_by == 'nll' and status == 'done'")
    table = table[table["parameterisation"] == "whitened"]
    fits = table.filter(regex=f"^({'|'.join(COLUMNS)}|test_.*)$").copy()
    use_of_split = fits["split"].str.extract(r"-(train|tenth)-", expand=False)
    fits["use"] = use_of_split.fillna("select")
    is_recalibrated = fits["role"].isin(RECALIBRATED_ROLES) & (fits["use"] == "select")
    recalibrated = fits[is_recalibrated].assign(use="recalibrate")
    for name in METRICS:
        recalibrated_name = name.replace("test_", "test_recalibrated_")
        recalibrated[name] = recalibrated.get(recalibrated_name, np.nan)
    both = pd.concat([fits, recalibrated], ignore_index=True)
    return both.drop_duplicates([*KEYS, "protocol", "seed"])


def half_width(values: pd.Series, overlap: float) -> float:
    """Return half of the width of the 95 % interval of a mean over repetitions.

    Args:
        values: A value per repetition.
        overlap: The number of test rows of a repetition, divided by that of its other rows.
    """
    count = len(values)
    standard_error = values.std() * (1 / count + overlap) ** 0.5
    return float(stats.t.ppf(0.975, count - 1) * standard_error)


def half_widths(table: pd.DataFrame, column: str, keys: list[str]) -> pd.Series:
    """Return half of the width of the interval of a column's mean, for each group of rows."""
    largest = table.groupby("dataset")["n"].max()
    tasks = table.groupby("dataset")["task"].first()
    overlaps = {}
    for name in map(str, largest.index):
        overlaps[name] = split_overlap(name, tasks[name], int(largest[name]))
    groups = table.groupby(keys, dropna=False)
    widths = []
    for _, rows in groups:
        dataset = rows["dataset"].iloc[0]  # a group has rows of one dataset
        widths.append(half_width(rows[column], overlaps[dataset]))
    return pd.Series(widths, index=groups.size().index)


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Return means over repetitions, and differences to joint DLM in the same repetitions."""
    # Methods are compared whatever their M, but for experiments on M itself.
    table = table.assign(M=table["M"].where(table["role"] == "inducing", 0)).reset_index(drop=True)
    table["over_joint"] = table["test_nll"] - nll_of_joint_dlm(table, use="select")
    table["over_recalibrated"] = table["test_nll"] - nll_of_joint_dlm(table, use="recalibrate")
    groups = table.groupby(KEYS, dropna=False)
    names = [*METRICS, "test_mse", "over_joint", "over_recalibrated"]
    means = groups[names].mean()
    means["over_joint_median"] = groups["over_joint"].median()
    for name, low, high in (
        ("over_joint", "low", "high"),
        ("over_recalibrated", "low_recalibrated", "high_recalibrated"),
    ):
        half = half_widths(table, name, KEYS)
        means[low] = means[name] - half
        means[high] = means[name] + half
    means["noise"] = groups["hyper_noise"].median()
    means["converged"] = groups["converged"].agg(lambda values: float(values.eq(True).mean()))
    means["smallest_beta"] = groups["edge"].agg(lambda edges: float(edges.eq("smallest").mean()))
    means["repetitions"] = groups["seed"].nunique()
    return means.reset_index()


def nll_of_joint_dlm(table: pd.DataFrame, use: str) -> pd.Series:
    """Return for every row the test NLL of joint DLM in the same repetition, NaN if it has none."""
    is_joint = (table["method"] == "joint_log_dlm") & (table["changes"] == "")
    joint = table[is_joint & (table["use"] == use)]
    nll = joint[[*REPETITION, "test_nll"]].rename(columns={"test_nll": "joint_nll"})
    return table.merge(nll, "left", REPETITION, validate="m:1")["joint_nll"]


def decay(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return how much fits under `annealed` change if the learning rate decays twice as long."""
    same = ["dataset", "n", "seed", "method", "estimator"]
    usual = published.query("protocol == 'annealed' and role == 'fit' and changes == ''")
    both = table[table["role"] == "decay"].merge(usual, on=same, suffixes=("", "_usual"))
    both = both.assign(
        change=(both["test_nll"] - both["test_nll_usual"]).abs(),
        has_same_beta=both["beta"] == both["beta_usual"],
    )
    groups = both.groupby(["dataset", "n", "method"])
    summary = groups.agg(
        mean_change=("change", "mean"),
        largest_change=("change", "max"),
        beta_kept=("has_same_beta", "mean"),
        repetitions=("change", "size"),
    )
    return summary.reset_index().assign(role="decay")


def calibration(published: pd.DataFrame) -> pd.DataFrame:
    """Return how much further joint DLM's coverage is from 0.95 than ELBO's, by dataset and size.

    The fits are those of regression under the protocol `paper`.
    """
    fits = published.query(
        "protocol == 'paper' and role == 'fit' and changes == '' and test_mse.notna()"
    ).copy()
    fits["off"] = (fits["test_coverage_95"] - 0.95).abs()
    fits["off_50"] = (fits["test_coverage_50"] - 0.5).abs()
    values = ["off", "off_50", "test_coverage_95", "test_coverage_50"]
    by_method = fits.pivot_table(index=["dataset", "n", "seed"], columns="method", values=values)
    further = by_method["off"]["joint_log_dlm"] - by_method["off"]["elbo"]
    further_50 = by_method["off_50"]["joint_log_dlm"] - by_method["off_50"]["elbo"]
    dataset_and_size = ["dataset", "n"]
    rows = further.rename("further").reset_index().assign(task="regression")
    groups = further.groupby(level=dataset_and_size)
    half = half_widths(rows, "further", dataset_and_size)
    means = pd.DataFrame({"further_off": groups.mean(), "repetitions": groups.size()})
    means["low"] = means["further_off"] - half
    means["high"] = means["further_off"] + half
    means["further_off_50"] = further_50.groupby(level=dataset_and_size).mean()
    for name in ("test_coverage_95", "test_coverage_50"):
        coverage = by_method[name].groupby(level=dataset_and_size).mean()
        means[name] = coverage["joint_log_dlm"]
        means[f"elbo_{name}"] = coverage["elbo"]
    return means.reset_index().assign(role="calibration", method="joint_log_dlm")


def main() -> None:
    """Write the table of two results folders as CSV to standard output."""
    more_folder, paper_folder = sys.argv[1:]
    table = selected(more_folder)
    published = selected(paper_folder)
    parts = [
        means(table[table["role"] != "decay"]),
        decay(table, published),
        calibration(published),
    ]
    pd.concat(parts, ignore_index=True).to_csv(sys.stdout, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
