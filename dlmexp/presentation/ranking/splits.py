"""Make a table of scores with a row per method, setting, data set and split.

It has our own results and those of methods that others trained (`baselines.parquet`). Results under
different settings differ in `IDENTITY_COLUMNS`.
"""

import re

import numpy as np
import pandas as pd

from dlmexp.experiment.plan.cell import assignments
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import ChangesByText
from dlmexp.experiment.records.table import as_text, rows_for
from dlmexp.presentation.claims.overlap import validation_rows
from dlmexp.presentation.ranking.metrics import METRICS, NOMINAL_COVERAGE

OURS = "dlmexp"  # the value of `trained_by` for our own records
KERNEL_COLUMNS = ["kernel", "ard"]
# The column `other` has the values of `DISTINGUISHING_SETTINGS` that distinguish rows of a method.
SETTING_COLUMNS = [
    "trained_by",
    "estimator",
    "samples",
    "parameterisation",
    "protocol",
    "changes",
    "other",
]
# Results with equal values in these columns are in the same row of a leaderboard.
IDENTITY_COLUMNS = ["method", *KERNEL_COLUMNS, *SETTING_COLUMNS]
SPLIT_COLUMNS = ["dataset", "task", "data", "test_rows", "seed", "n", "M"]
# The observed coverage. Methods are ranked by its distance from the nominal coverage, `coverage`.
COVERAGE_COLUMN = "coverage_95"
FURTHER_COLUMNS = ["role", "key", "status", "converged", "device", COVERAGE_COLUMN]
SCORE_COLUMNS = list(METRICS)
# The roles of results that are not fits to be compared with one another.
ROLES_WITHOUT_FITS = ("curve", "gradient", "timing")
# A method that was run with several values of such a setting on the same split has a row on a
# leaderboard for each value. Values that differ between data sets only do not distinguish rows: a
# comparison may have more inducing inputs on large data sets, for instance.
DISTINGUISHING_SETTINGS = [
    "validation",
    "cv",
    "M",
    "likelihood",
    "mean",
    "inducing",
    "initial",
    "noise_floor",
    "optimizer",
    "objective_options",
    "lr",
    "minibatch",
    "max_iterations",
    "epochs",
    "dtype",
    "evaluate",
    "candidates",
    "role",
]
# The name of a split, such as `published-10000-train-v1`, consists of its kind, the limit of test
# rows, the use of validation rows and a version. This expression finds the use of validation rows,
# here `train`.
VALIDATION_USE = re.compile(r"-([a-z]\w*)(?=-v\d)")
# The columns of the tidy table that are read, as far as the table has them.
COLUMNS_READ = [
    *("method", *KERNEL_COLUMNS, "estimator", "samples", "parameterisation", "protocol", "changes"),
    *("dataset", "task", "data", "split", "seed", "n", "group", "base"),
    *("key", "status", "converged", "device"),
    *("test_nll", "test_crps", "test_error", "test_coverage_95"),
    *DISTINGUISHING_SETTINGS,
]
RowValues = tuple[object, ...]  # the values of some columns in a row
# Training sets with less than this share of the rows of the largest training set are left out.
MIN_SHARE_OF_ROWS = 0.8
# All columns of the table of scores.
COLUMNS = [*IDENTITY_COLUMNS, *SPLIT_COLUMNS, *FURTHER_COLUMNS, *SCORE_COLUMNS]


def scores_of_splits(results: ResultsFolder, protocol: str | None = None) -> pd.DataFrame:
    """Return the scores of every split, ours and those of others.

    Only results on the largest training set of a data set count. The largest training set of
    methods that also train on the validation rows may be larger than that of other methods. If a
    data set was run with several contents or test rows, those with the most results are taken.

    Args:
        results: A results folder.
        protocol: The only protocol to read; None means all.
    """
    ours = _scores_of_records(results, protocol)
    baselines = _scores_of_baselines(results.baselines)
    with_rows = [scores for scores in (ours, baselines) if len(scores)]
    if not with_rows:
        return ours  # an empty table with all columns
    return pd.concat(with_rows, ignore_index=True)


def identity_texts(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the values of `IDENTITY_COLUMNS` as texts; '' where a value is missing."""
    values = scores[IDENTITY_COLUMNS]
    return values.astype(object).where(values.notna(), "").astype(str)


def notes_on_contents(results: ResultsFolder, protocol: str | None = None) -> list[str]:
    """Return a note on each data set that was run with several contents or test rows.

    A leaderboard has the results with the most frequent ones (`scores_of_splits`).
    """
    fits = _fits(results, protocol)
    test_rows = fits["split"].astype(str).map(_test_rows)
    contents = fits.assign(test_rows=test_rows)[["dataset", "data", "test_rows"]]
    counts = contents.drop_duplicates().groupby("dataset").size()
    notes = []
    for dataset, count in counts[counts > 1].items():
        notes.append(
            f"{dataset}: run with {count} different contents or test rows; only those with the "
            "most results are ranked"
        )
    return notes


def _fits(results: ResultsFolder, protocol: str | None) -> pd.DataFrame:
    """Return the rows of the tidy table without learning curves, gradient draws and timings."""
    table = results.table
    is_fit = ~table["role"].isin(ROLES_WITHOUT_FITS)
    if protocol is not None:
        is_fit &= table["protocol"] == protocol
    return table[is_fit]


def _scores_of_records(results: ResultsFolder, protocol: str | None) -> pd.DataFrame:
    """Return the scores of our own records."""
    fits = _fits(results, protocol)
    by_nll = as_text(rows_for(fits, "nll").reindex(columns=COLUMNS_READ))
    by_mse = rows_for(fits, "mse").reindex(columns=["group", "test_mse"]).set_index("group")
    frame = by_nll.assign(
        trained_by=OURS,
        ard=by_nll["ard"].eq(True),
        changes=by_nll["changes"].map(_changes_except_kernel(results.changes)),
        validation=by_nll["split"].astype(str).map(_use_of_validation),
        test_rows=by_nll["split"].astype(str).map(_test_rows),
        nll=by_nll["test_nll"],
        crps=by_nll["test_crps"],
        rmse=np.sqrt(by_nll["group"].map(by_mse["test_mse"]).astype(float)),
        error=by_nll["test_error"],
        coverage_95=by_nll["test_coverage_95"],
        coverage=(by_nll["test_coverage_95"] - NOMINAL_COVERAGE).abs(),
        seconds=by_nll["group"].map(_seconds_of_groups(results.candidates)),
    )
    frame = _largest_training_sets(frame.assign(n=_training_row_counts(frame)))
    frame = _most_frequent_contents(frame)
    frame = _without_repetitions(frame)
    frame = frame.assign(other=_distinguishing_settings(frame))
    return _without_equal_rows(frame[COLUMNS])


def _training_row_counts(frame: pd.DataFrame) -> pd.Series:
    """Return the number of rows that each fit was trained on.

    It is `n`, plus the number of validation rows if the fit was trained on them.
    """
    validation_row_counts = {}
    for dataset, task in frame[["dataset", "task"]].drop_duplicates().itertuples(index=False):
        validation_row_counts[dataset] = validation_rows(str(dataset), str(task))
    counts = frame["dataset"].astype(object).map(validation_row_counts)
    trained_on_validation = frame["validation"] == "train"
    further_rows = counts.where(trained_on_validation, 0).astype("int64")
    return (frame["n"].astype("int64") + further_rows).astype("int64")


def _changes_except_kernel(changes: ChangesByText) -> dict[str, str]:
    """Return, for each text of the column `changes`, the text without changes of the kernel."""
    texts = {}
    for text, values in changes.items():
        other_changes = {
            name: value for name, value in values.items() if name not in KERNEL_COLUMNS
        }
        texts[text] = ", ".join(assignments(other_changes))
    return texts


def _use_of_validation(split: str) -> str:
    """Return the use of validation rows in the name of a split: `train` in `published-train-v1`.

    Return `all` if the name has none.
    """
    match = VALIDATION_USE.search(split)
    return match[1] if match else "all"


def _test_rows(split: str) -> str:
    """Return the name of a split without the use of validation rows.

    Splits whose names are equal without it have the same test rows.
    """
    return VALIDATION_USE.sub("", split)


def _seconds_of_groups(candidates: pd.DataFrame) -> pd.Series:
    """Return, by group of candidates, the seconds to train these and the fits they start from."""
    seconds_of_cell = candidates.drop_duplicates("key").set_index("key")["seconds"].astype(float)
    rows = candidates[["group", "key", "base", "seconds"]].astype({"base": object})
    seconds_of_candidates = rows.groupby("group")["seconds"].sum(min_count=1)
    # Several candidates may start from the same fit (their base), whose time counts once.
    bases = rows.drop_duplicates(["group", "base"])
    seconds_of_base = bases["base"].map(seconds_of_cell).fillna(0.0)
    seconds_of_bases = seconds_of_base.groupby(bases["group"]).sum()
    return seconds_of_candidates + seconds_of_bases


def _largest_training_sets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the results on the largest training set of each data set and use of validation rows.

    A use of validation rows with far fewer training rows than another one on the data set is left
    out (`MIN_SHARE_OF_ROWS`).
    """
    largest_of_use = frame.groupby(["dataset", "validation"])["n"].transform("max")
    largest = frame.groupby("dataset")["n"].transform("max")
    return frame[(frame["n"] == largest_of_use) & (frame["n"] >= MIN_SHARE_OF_ROWS * largest)]


def _most_frequent_contents(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, for each data set, the rows with the most frequent contents and test rows."""
    contents = ["dataset", "data", "test_rows"]
    counts = frame.groupby(contents, dropna=False).size().reset_index(name="rows")
    ranked = counts.sort_values("rows", ascending=False, kind="stable")
    most_frequent = ranked.drop_duplicates("dataset").drop(columns="rows")
    return frame.merge(most_frequent, on=contents, how="inner")


def _without_repetitions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell and identity, if possible with the role `fit`.

    A cell that belongs to several experiments has several rows.
    """
    has_other_role = frame["role"] != "fit"
    fits_first = frame.loc[has_other_role.sort_values(kind="stable").index]
    # The column `other` is computed later, from the rows that remain.
    identity = [name for name in IDENTITY_COLUMNS if name != "other"]
    return fits_first.drop_duplicates([*identity, "dataset", "seed", "key"]).sort_index()


def _distinguishing_settings(frame: pd.DataFrame) -> pd.Series:
    """Return texts such as `M=50, lr=0.01` that distinguish results of a method on the same split.

    The settings are added one by one, in the order of `DISTINGUISHING_SETTINGS`. A setting is added
    to the texts of a method if, on some split, results with equal texts so far have several values
    of it.
    """
    identity = [frame[name] for name in IDENTITY_COLUMNS if name != "other"]
    split = [frame["dataset"], frame["seed"]]
    texts = pd.Series("", index=frame.index)
    for name in DISTINGUISHING_SETTINGS:
        values = frame[name].astype(object).where(frame[name].notna(), "none").astype(str)
        value_count = values.groupby([*identity, texts, *split], dropna=False).transform("nunique")
        is_needed = (value_count > 1).groupby(identity, dropna=False).transform("any")
        separator = texts.map(lambda text: ", " if text else "")
        texts = texts.where(~is_needed, texts + separator + name + "=" + values)
    return texts


def _without_equal_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without redundant identities: another one of the method has all their cells.

    For instance, a run with `beta.values=[1]` has another identity than a run without this change.
    But a method without a beta has the same cells in both runs.
    """
    identities = list(frame[IDENTITY_COLUMNS].astype(str).itertuples(index=False, name=None))
    cells = frame[["dataset", "seed", "key"]].itertuples(index=False, name=None)
    cells_of: dict[RowValues, set[RowValues]] = {}
    for identity, cell in zip(identities, cells, strict=True):
        cells_of.setdefault(identity, set()).add(cell)
    kept = _without_subsets(cells_of)
    return frame[[identity in kept for identity in identities]]


def _without_subsets(cells_of: dict[RowValues, set[RowValues]]) -> set[RowValues]:
    """Return the identities whose cells are not a subset of those of another one of the method.

    Of identities with equal cells, the first one by name remains.

    Args:
        cells_of: The cells of each identity, whose first value is the method.
    """
    largest_first = sorted(cells_of, key=lambda identity: (-len(cells_of[identity]), str(identity)))
    kept: set[RowValues] = set()
    for identity in largest_first:
        method = identity[0]
        kept_of_method = [kept_identity for kept_identity in kept if kept_identity[0] == method]
        cells = cells_of[identity]
        if not any(cells <= cells_of[kept_identity] for kept_identity in kept_of_method):
            kept.add(identity)
    return kept


def _scores_of_baselines(baselines: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of methods that others trained."""
    frame = baselines.assign(
        nll=baselines["test_nll"],
        crps=baselines["test_crps"],
        rmse=np.sqrt(baselines["test_mse"]),
        error=baselines["test_error"],
        coverage=(baselines["coverage_95"] - NOMINAL_COVERAGE).abs(),
        validation="all",
        status="done",
    )
    frame = _largest_training_sets(frame)
    return frame.reindex(columns=COLUMNS)
