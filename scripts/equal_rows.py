"""Scores of methods that use the same training rows: means with shared ranks, and differences.

    python -m scripts.equal_rows results/fair results/controls

writes its tables into the first folder. `means.csv` has a row per setting, data set and method:
means over repetitions, and by metric the rank that the method shares with those that no test
separates from it (paired tests on this data set with Nadeau and Bengio's correction, Holm over all
pairs). `differences.csv` has the differences of test NLL, CRPS and RMSE to a reference in the same
repetitions, with 95 % intervals by Student's t and the same correction, and the median.

`table.md` has the tables of results/paper/README.md, made of the means under RBF.

A setting is an experiment (`role`), a kernel with or without ARD, the M of sparse methods, a
likelihood and an optimiser. Fits are those that the NLL selects, but `rmse_by_mse` is the RMSE of
those that the MSE selects. Mixtures on pol are not ranked: its targets have 11 distinct values, on
which a mixture puts narrow peaks.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import dlmexp
from dlmexp.presentation.claims.overlap import split_overlap
from dlmexp.presentation.ranking.statistics import separations, shared_ranks

MEANS_FILE = "means.csv"
DIFFERENCES_FILE = "differences.csv"
SETTING = ["role", "task", "kernel", "ard", "M", "likelihood", "optimizer", "dataset"]
LOSSES = ["nll", "recalibrated_nll", "crps", "rmse", "rmse_by_mse", "error", "mre"]
MEANS = [*LOSSES, "coverage_50", "coverage_95"]
COMPARED = ("nll", "recalibrated_nll", "crps", "rmse", "rmse_by_mse")
REFERENCES = ("elbo", "fitc", "joint_log_dlm", "exact")
COLUMNS = [
    *SETTING,
    "method",
    "n",
    "repetitions",
    *MEANS,
    *(f"rank_{name}" for name in LOSSES),
    "noise",
    "objective",
    "converged",
]
REPETITION = ["role", "dataset", "kernel", "ard", "M", "likelihood", "optimizer", "n", "seed"]
"""What identifies a repetition of a setting."""
UNRANKED = {("pol", "mixture_log_dlm")}
SPARSE_M = {"fair": 100, "truth": 100}
"""By experiment, the M of the sparse methods that the exact Gaussian process is compared with.

Its own M is the number of rows."""

TABLE_FILE = "table.md"
REGRESSION = ("pol", "cadata", "sarcos_test")
OTHERS = ("banana", "ringnorm", "thyroid", "twonorm", "abalone", "peds1_left")
ROWS = {
    "elbo": "ELBO",
    "beta_elbo": "β-ELBO",
    "tighter": "tighter ELBO",
    "power_ep": "power EP, α = 0.5",
    "t_pep": "T-PEP, α = 0.5",
    "fitc": "FITC",
    "loo": "leave-one-out",
    "ppgpr": "PPGPR (joint DLM, β = 1)",
    "fixed_log_dlm": "fixed DLM",
    "joint_log_dlm": "joint DLM",
    "mixture_log_dlm": "mixture DLM",
    "exact": "exact GP",
}


def selected_fits(folder: str) -> pd.DataFrame:
    """Return the fits of a results folder that the NLL selects, with their losses on test rows."""
    table = dlmexp.results(folder).table
    is_selected = (table["selected_by"] == "nll") & (table["status"] == "done")
    fits = with_rmse_by_mse(table[is_selected & (table["missing"] == 0)], table)
    fits["ard"] = fits["ard"].astype(bool)
    is_exact = fits["method"] == "exact"
    fits["M"] = fits["M"].where(~is_exact, fits["role"].map(SPARSE_M))
    for name in MEANS:
        if name not in fits:
            fits[name] = fits.get(f"test_{name}", np.nan)
    fits["rmse"] = np.sqrt(fits["test_mse"])
    return fits


def with_rmse_by_mse(fits: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the fits with the RMSE of those that the MSE selects in the same repetitions."""
    by_mse = table[(table["selected_by"] == "mse") & (table["status"] == "done")]
    same = [*REPETITION, "method"]
    rmse = by_mse[same].assign(rmse_by_mse=np.sqrt(by_mse["test_mse"]))
    return fits.merge(rmse.drop_duplicates(same), "left", same)


def scores_of(fits: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the losses of one setting and data set, a row per method and a column per seed."""
    scores = fits.pivot_table(index="method", columns="seed", values=metric)
    order = scores.mean(axis=1).sort_values(kind="stable").index
    return scores.loc[order]


def ranks(scores: pd.DataFrame, overlap: float) -> pd.Series:
    """Return the shared rank of each method on one data set."""
    array = scores.to_numpy()[:, None, :]
    better = separations(array, np.array([overlap]))
    return pd.Series(shared_ranks(better), index=scores.index)


def is_unranked(fits: pd.DataFrame) -> pd.Series:
    """Return which fits are left out of ranks."""
    pairs = zip(fits["dataset"], fits["method"], strict=True)
    return pd.Series([pair in UNRANKED for pair in pairs], index=fits.index)


def means_of(fits: pd.DataFrame, overlap: float) -> pd.DataFrame:
    """Return means and ranks by method for one setting and data set."""
    by_method = fits.groupby("method")
    means = by_method[MEANS].mean()
    for metric in LOSSES:
        scores = scores_of(fits[~is_unranked(fits)], metric)
        if len(scores) > 1:
            means[f"rank_{metric}"] = ranks(scores, overlap)
    means["noise"] = by_method["hyper_noise"].median()
    means["objective"] = by_method["objective_value"].mean()
    means["converged"] = by_method["converged"].mean()
    means["repetitions"] = by_method["seed"].nunique()
    means["n"] = by_method["n"].first()
    return means


def differences_of(fits: pd.DataFrame, overlap: float) -> Iterator[dict]:
    """Yield the differences of all methods to the references on one data set."""
    for metric in COMPARED:
        scores = fits.pivot_table(index="method", columns="seed", values=metric)
        for against in REFERENCES:
            if against not in scores.index:
                continue
            for method in scores.index.drop(against):
                differences = (scores.loc[method] - scores.loc[against]).dropna()
                if len(differences) > 1:
                    row = interval(differences.to_numpy(), overlap)
                    yield {"metric": metric, "method": method, "against": against, **row}


def interval(differences: np.ndarray, overlap: float) -> dict[str, float]:
    """Return mean, median and 95 % interval of paired differences, [R]."""
    count = len(differences)
    mean = differences.mean()
    # Nadeau and Bengio (2003) add the overlap, test rows divided by all other rows, to 1 / count:
    # repetitions share training rows, so that they are not independent.
    standard_error = differences.std(ddof=1) * np.sqrt(1 / count + overlap)
    half_width = stats.t.ppf(0.975, count - 1) * standard_error
    return {
        "difference": mean,
        "low": mean - half_width,
        "high": mean + half_width,
        "median": np.median(differences),
        "repetitions": count,
    }


def write_tables(folders: Sequence[str], target: str) -> None:
    """Write both tables of what these results folders have into a folder."""
    fits = pd.concat([selected_fits(folder) for folder in folders], ignore_index=True)
    largest = fits.groupby("dataset")["n"].max()
    means = []
    differences = []
    for values, rows in fits.groupby(SETTING, dropna=False):
        setting: dict[str, Any] = dict(zip(SETTING, values, strict=True))
        dataset = str(setting["dataset"])
        overlap = split_overlap(dataset, str(setting["task"]), int(largest[dataset]))
        means.append(means_of(rows, overlap).reset_index().assign(**setting))
        differences += [setting | row for row in differences_of(rows, overlap)]
    tables = {MEANS_FILE: pd.concat(means)[COLUMNS], DIFFERENCES_FILE: pd.DataFrame(differences)}
    for name, table in tables.items():
        table.to_csv(Path(target) / name, index=False, float_format="%.6g")
    text = tables_of_page(pd.read_csv(Path(target) / MEANS_FILE))
    (Path(target) / TABLE_FILE).write_text(text, encoding="utf-8")


def tables_of_page(means: pd.DataFrame) -> str:
    """Return the tables of results/paper/README.md in Markdown; first ranks are bold."""
    is_main = (means["role"] == "fair") & (means["kernel"] == "rbf")
    is_main &= means["ard"] & (means["M"] == SPARSE_M["fair"])
    rows = means[is_main].set_index(["dataset", "method"])
    shown = ("nll", "crps", "rmse_by_mse")
    regression = markdown_table(rows, "NLL / CRPS / RMSE", REGRESSION, shown)
    others = markdown_table(rows, "NLL / recalibrated", OTHERS, ("nll", "recalibrated_nll"))
    return f"{regression}\n{others}"


def markdown_table(
    rows: pd.DataFrame, corner: str, datasets: Sequence[str], metrics: Sequence[str]
) -> str:
    """Return a table with a row per method and a column per data set."""
    row_of = rows.to_dict("index")  # by dataset and method
    lines = [f"| {corner} | {' | '.join(datasets)} |", "|---" * (len(datasets) + 1) + "|"]
    for method, label in ROWS.items():
        if (datasets[0], method) not in row_of:
            continue
        cells = [table_cell(row_of[dataset, method], metrics) for dataset in datasets]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def table_cell(row: Mapping[Any, float], metrics: Sequence[str]) -> str:
    """Return the means of a method on a data set; those of the first rank are bold."""
    words = []
    for metric in metrics:
        number = f"{row[metric]:.3f}"
        words.append(f"**{number}**" if row[f"rank_{metric}"] == 1 else number)
    return " / ".join(words)


if __name__ == "__main__":
    write_tables(sys.argv[1:], sys.argv[1])
