"""The numbers of results/paper/README.md: means by method, and differences to joint DLM in the same
repetitions.

    python -m scripts.answer results/more results/paper > results/more/answer.csv

A row per experiment (`role`), dataset, size, M and method. `use` is what the validation rows are
for: select (beta), recalibrate, train (they are training rows too), tenth (as many as n / 10 select
beta). `over_joint` is the test NLL minus joint DLM's (its median: `over_joint_median`), with a 95 %
interval: Student's t over paired repetitions, with the correction of Nadeau and Bengio (2003) for
the rows that repetitions share. `noise` is the median noise variance, `converged` the share of
fits that met the stopping rule. `over_recalibrated` is that minus recalibrated joint DLM's.
`decay`: the mean and the largest absolute change of test NLLs under the protocol `annealed` with
twice the decay, and the share of repetitions that keep their beta. `calibration`: `further_off` is
how much further from 0.95 the coverage of joint DLM's 95 % intervals is than that of ELBO's, in the
published regression fits; likewise `further_off_50`."""

import sys

import numpy as np
import pandas as pd
from scipy import stats

import dlmexp
from dlmexp.presentation.claims.overlap import split_overlap

KEYS = ["role", "dataset", "n", "M", "changes", "method", "use", "estimator", "samples"]
PLACE = ["role", "dataset", "n", "M", "seed"]
COLUMNS = [
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
RECALIBRATED = ("rivals", "gain")


def selected(folder: str) -> pd.DataFrame:
    """Rows of the tidy table whose beta is selected by NLL, once more where predictions are
    recalibrated."""
    table = dlmexp.results(folder).table.query("selected_by == 'nll' and status == 'done'")
    table = (
        table[table["parameterisation"] == "whitened"]
        .filter(regex=f"^({'|'.join(COLUMNS)}|test_.*)$")
        .copy()
    )
    table["use"] = table["split"].str.extract(r"-(train|tenth)-", expand=False).fillna("select")
    again = table[table["role"].isin(RECALIBRATED) & (table["use"] == "select")].assign(
        use="recalibrate"
    )
    for name in METRICS:
        again[name] = again.get(name.replace("test_", "test_recalibrated_"), np.nan)
    return pd.concat([table, again], ignore_index=True).drop_duplicates([*KEYS, "protocol", "seed"])


def half_width(values: pd.Series, overlap: float) -> float:
    """Half of the 95 % interval of the mean; `overlap`: test rows over the other rows."""
    spread = values.std() * (1 / len(values) + overlap) ** 0.5
    return float(stats.t.ppf(0.975, len(values) - 1) * spread)


def half_widths(table: pd.DataFrame, column: str, keys: list[str]) -> pd.Series:
    """Half of the interval of each group, whose keys have the dataset."""
    largest = table.groupby("dataset")["n"].max()
    tasks = table.groupby("dataset")["task"].first()
    overlaps = {}
    for name in map(str, largest.index):
        overlaps[name] = split_overlap(name, tasks[name], int(largest[name]))
    groups = table.groupby(keys, dropna=False)
    halves = {
        key: half_width(rows[column], overlaps[rows["dataset"].iloc[0]]) for key, rows in groups
    }
    return pd.Series(list(halves.values()), index=groups.size().index)


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Means over repetitions, and the difference to joint DLM with a selected beta; M of the exact
    GP is left out."""
    table = table.assign(M=table["M"].where(table["role"] == "inducing", 0))
    is_joint = (table["method"] == "joint_log_dlm") & (table["changes"] == "")
    joint = table[is_joint & (table["use"] == "select")]
    table = table.merge(joint[[*PLACE, "test_nll"]], "left", PLACE, suffixes=("", "_joint"))
    table["over_joint"] = table["test_nll"] - table["test_nll_joint"]
    again = table[
        (table["method"] == "joint_log_dlm")
        & (table["changes"] == "")
        & (table["use"] == "recalibrate")
    ]
    table = table.merge(again[[*PLACE, "test_nll"]], "left", PLACE, suffixes=("", "_again"))
    table["over_recalibrated"] = table["test_nll"] - table["test_nll_again"]
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
    means["converged"] = groups["converged"].agg(lambda met: float((met == True).mean()))  # noqa: E712
    means["smallest_beta"] = groups["edge"].agg(lambda edge: float((edge == "smallest").mean()))
    means["repetitions"] = groups["seed"].nunique()
    return means.reset_index()


def decay(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """How far fits under `annealed` move with twice the decay."""
    same = ["dataset", "n", "seed", "method", "estimator"]
    once = published[
        (published["protocol"] == "annealed")
        & (published["role"] == "fit")
        & (published["changes"] == "")
    ]
    both = table[table["role"] == "decay"].merge(once, on=same, suffixes=("", "_once"))
    both = both.assign(
        change=(both["test_nll"] - both["test_nll_once"]).abs(),
        kept=both["beta"] == both["beta_once"],
    )
    groups = both.groupby(["dataset", "n", "method"])
    return (
        groups.agg(
            mean_change=("change", "mean"),
            largest_change=("change", "max"),
            beta_kept=("kept", "mean"),
            repetitions=("change", "size"),
        )
        .reset_index()
        .assign(role="decay")
    )


def calibration(published: pd.DataFrame) -> pd.DataFrame:
    """How much further from 0.95 joint DLM's coverage is than ELBO's, by size, in regression under
    `paper`."""
    fits = published.query(
        "protocol == 'paper' and role == 'fit' and changes == '' and test_mse.notna()"
    ).copy()
    fits["off"] = (fits["test_coverage_95"] - 0.95).abs()
    fits["off_50"] = (fits["test_coverage_50"] - 0.5).abs()
    values = ["off", "off_50", "test_coverage_95", "test_coverage_50"]
    by_method = fits.pivot_table(index=["dataset", "n", "seed"], columns="method", values=values)
    further = by_method["off"]["joint_log_dlm"] - by_method["off"]["elbo"]
    further_50 = by_method["off_50"]["joint_log_dlm"] - by_method["off_50"]["elbo"]
    place = ["dataset", "n"]
    long = further.rename("further").reset_index().assign(task="regression")
    groups = further.groupby(level=place)
    half = half_widths(long, "further", place)
    means = pd.DataFrame({"further_off": groups.mean(), "repetitions": groups.size()})
    means["low"] = means["further_off"] - half
    means["high"] = means["further_off"] + half
    means["further_off_50"] = further_50.groupby(level=place).mean()
    for name in ("test_coverage_95", "test_coverage_50"):
        means[name] = by_method[name]["joint_log_dlm"].groupby(level=place).mean()
        means[f"elbo_{name}"] = by_method[name]["elbo"].groupby(level=place).mean()
    return means.reset_index().assign(role="calibration", method="joint_log_dlm")


def main() -> None:
    """Write the answer of two results folders as CSV."""
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
