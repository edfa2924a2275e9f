"""One row per method, setting, data set and split, with every score that methods are ranked by.

Records and the scores of methods that others trained (`baselines.parquet`) are one table here. What
was trained under different settings never shares the identity of a row (`IDENTITY`).
"""

import re

import numpy as np
import pandas as pd

from dlmexp.experiment.plan.cell import assignments
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import ChangesByText
from dlmexp.experiment.records.table import as_text, rows_for
from dlmexp.presentation.claims.overlap import validation_rows
from dlmexp.presentation.ranking.metrics import METRICS, NOMINAL

OURS = "dlmexp"
"""The value of `trained_by` for our own records."""
KERNEL = ["kernel", "ard"]
SETTING = [
    "trained_by",
    "estimator",
    "samples",
    "parameterisation",
    "protocol",
    "changes",
    "other",
]
IDENTITY = ["method", *KERNEL, *SETTING]
"""What makes two results the same row of a leaderboard."""
SPLIT = ["dataset", "task", "data", "test_rows", "seed", "n", "M"]
COVERAGE = "coverage_95"
"""The observed coverage, of which `coverage` is the distance from nominal."""
FACTS = ["role", "key", "status", "converged", "device", COVERAGE]
SCORES = list(METRICS)
NO_FITS = ("curve", "gradient", "timing")
"""Roles of results that were not made to be compared with one another."""
# Settings that a method may have only one value of on a data set. Where it has several, they make
# rows of their own. `changes` does not have what an experiment declares as its factor: a comparison
# may select by folds on small data sets, and have more inducing inputs on large ones.
DISTINGUISHING = [
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
# `published-10000-train-v1` is kind, limit of test rows, use of validation rows and version.
VALIDATION = re.compile(r"-([a-z]\w*)(?=-v\d)")
READ = [
    *("method", *KERNEL, "estimator", "samples", "parameterisation", "protocol", "changes"),
    *("dataset", "task", "data", "split", "seed", "n", "group", "base"),
    *("key", "status", "converged", "device"),
    *("test_nll", "test_crps", "test_error", "test_coverage_95"),
    *DISTINGUISHING,
]
"""Columns of the tidy table that are read; the table may lack some."""
Key = tuple[object, ...]  # the values of some columns in a row
LEAST_SHARE = 0.8
"""Training sets smaller than this share of the largest one are not compared with it."""
COLUMNS = [*IDENTITY, *SPLIT, *FACTS, *SCORES]


def scores_of_splits(results: ResultsFolder, protocol: str | None = None) -> pd.DataFrame:
    """Return the scores of every split, ours and those of others.

    Of each data set the largest training set counts. It may differ between methods that train on
    validation rows and others. Where a data set was run with several contents or test rows, those
    with the most results are taken.

    Args:
        results: A results folder.
        protocol: The only protocol to read; None: all.
    """
    ours = _ours(results, protocol)
    others = _others(results.baselines)
    with_rows = [scores for scores in (ours, others) if len(scores)]
    if not with_rows:
        return ours
    return pd.concat(with_rows, ignore_index=True)


def notes_on_contents(results: ResultsFolder, protocol: str | None = None) -> list[str]:
    """Return a note for each data set whose results are of several contents or test rows.

    A leaderboard has those of one of them (`scores_of_splits`).
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
    """Return the rows of the table that were made to be compared."""
    table = results.table
    is_fit = ~table["role"].isin(NO_FITS)
    if protocol is not None:
        is_fit &= table["protocol"] == protocol
    return table[is_fit]


def _ours(results: ResultsFolder, protocol: str | None) -> pd.DataFrame:
    """Return the scores of our own records."""
    fits = _fits(results, protocol)
    by_nll = as_text(rows_for(fits, "nll").reindex(columns=READ))
    by_mse = rows_for(fits, "mse").reindex(columns=["group", "test_mse"]).set_index("group")
    frame = by_nll.assign(
        trained_by=OURS,
        ard=by_nll["ard"].eq(True),
        changes=by_nll["changes"].map(_changes_besides_kernel(results.changes)),
        validation=by_nll["split"].astype(str).map(_validation),
        test_rows=by_nll["split"].astype(str).map(_test_rows),
        nll=by_nll["test_nll"],
        crps=by_nll["test_crps"],
        rmse=np.sqrt(by_nll["group"].map(by_mse["test_mse"]).astype(float)),
        error=by_nll["test_error"],
        coverage_95=by_nll["test_coverage_95"],
        coverage=(by_nll["test_coverage_95"] - NOMINAL).abs(),
        seconds=by_nll["group"].map(_seconds_of_groups(results.candidates)),
    )
    frame = _largest_training_sets(frame.assign(n=_trained_rows(frame)))
    frame = _usual_contents(frame)
    frame = _without_repetitions(frame)
    frame = frame.assign(other=_distinctions(frame))
    return _without_equal_rows(frame[COLUMNS])


def _trained_rows(frame: pd.DataFrame) -> pd.Series:
    """Return the rows that were trained on: `n`, and those for validation where they are, too."""
    counts = {}
    for dataset, task in frame[["dataset", "task"]].drop_duplicates().itertuples(index=False):
        counts[dataset] = validation_rows(str(dataset), str(task))
    of_dataset = frame["dataset"].astype(object).map(counts)
    is_trained_on = frame["validation"] == "train"
    further_rows = of_dataset.where(is_trained_on, 0).astype("int64")
    return (frame["n"].astype("int64") + further_rows).astype("int64")


def _changes_besides_kernel(changes: ChangesByText) -> dict[str, str]:
    """Return changed values as text, by the text in the table, without those of the kernel."""
    texts = {}
    for text, values in changes.items():
        rest = {name: value for name, value in values.items() if name not in KERNEL}
        texts[text] = ", ".join(assignments(rest))
    return texts


def _validation(split: str) -> str:
    """Return what a split says of validation rows: `train` of `published-train-v1`."""
    match = VALIDATION.search(split)
    return match[1] if match else "all"


def _test_rows(split: str) -> str:
    """Return what a split says of test rows; splits with the same text have the same ones."""
    return VALIDATION.sub("", split)


def _seconds_of_groups(candidates: pd.DataFrame) -> pd.Series:
    """Return the seconds to train all candidates of a selection, and the fits they start from."""
    seconds_of_cell = candidates.drop_duplicates("key").set_index("key")["seconds"].astype(float)
    members = candidates[["group", "key", "base", "seconds"]].astype({"base": object})
    of_members = members.groupby("group")["seconds"].sum(min_count=1)
    # Several members may start from the same fit, whose time counts once.
    bases = members.drop_duplicates(["group", "base"])
    seconds_of_base = bases["base"].map(seconds_of_cell).fillna(0.0)
    of_bases = seconds_of_base.groupby(bases["group"]).sum()
    return of_members + of_bases


def _largest_training_sets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the largest training set of their data set and use of validation rows.

    Those are left out, too, that have fewer than `LEAST_SHARE` of the most rows on the data set.
    """
    by_validation = frame.groupby(["dataset", "validation"])["n"].transform("max")
    largest = frame.groupby("dataset")["n"].transform("max")
    return frame[(frame["n"] == by_validation) & (frame["n"] >= LEAST_SHARE * largest)]


def _usual_contents(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, of each data set, the rows with the contents and test rows that most have."""
    contents = ["dataset", "data", "test_rows"]
    counts = frame.groupby(contents, dropna=False).size().reset_index(name="rows")
    ranked = counts.sort_values("rows", ascending=False, kind="stable")
    usual = ranked.drop_duplicates("dataset").drop(columns="rows")
    return frame.merge(usual, on=contents, how="inner")


def _without_repetitions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell and identity; several experiments may ask for the same cell."""
    ranked = frame.assign(is_study=frame["role"] != "fit")
    ranked = ranked.sort_values("is_study", kind="stable").drop(columns="is_study")
    identity = [name for name in IDENTITY if name != "other"]
    return ranked.drop_duplicates([*identity, "dataset", "seed", "key"]).sort_index()


def _distinctions(frame: pd.DataFrame) -> pd.Series:
    """Return, as text, the settings that tell apart results of a method on the same split."""
    identity = [frame[name] for name in IDENTITY if name != "other"]
    split = [frame["dataset"], frame["seed"]]
    texts = pd.Series("", index=frame.index)
    for name in DISTINGUISHING:
        values = frame[name].astype(object).where(frame[name].notna(), "none").astype(str)
        count = values.groupby([*identity, texts, *split], dropna=False).transform("nunique")
        needed = (count > 1).groupby(identity, dropna=False).transform("any")
        separator = texts.map(lambda text: ", " if text else "")
        texts = texts.where(~needed, texts + separator + name + "=" + values)
    return texts


def _without_equal_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out identities of a method all of whose cells another one has, too.

    With `beta.values=[1]` typed, a method without a beta has the cells that it has anyway.
    """
    identities = list(frame[IDENTITY].astype(str).itertuples(index=False, name=None))
    results = frame[["dataset", "seed", "key"]].itertuples(index=False, name=None)
    cells: dict[Key, set[Key]] = {}
    for identity, result in zip(identities, results, strict=True):
        cells.setdefault(identity, set()).add(result)
    distinct = _without_subsets(cells)
    return frame[[identity in distinct for identity in identities]]


def _without_subsets(cells: dict[Key, set[Key]]) -> set[Key]:
    """Return the identities whose cells are not all those of another one of the same method.

    Of identities with the same cells, the first one by name remains.

    Args:
        cells: The cells of each identity, whose first value is the method.
    """
    largest_first = sorted(cells, key=lambda identity: (-len(cells[identity]), str(identity)))
    distinct: set[Key] = set()
    for identity in largest_first:
        of_method = [other for other in distinct if other[0] == identity[0]]
        if not any(cells[identity] <= cells[other] for other in of_method):
            distinct.add(identity)
    return distinct


def _others(baselines: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of methods that others trained."""
    frame = baselines.assign(
        nll=baselines["test_nll"],
        crps=baselines["test_crps"],
        rmse=np.sqrt(baselines["test_mse"]),
        error=baselines["test_error"],
        coverage=(baselines["coverage_95"] - NOMINAL).abs(),
        validation="all",
        status="done",
    )
    frame = _largest_training_sets(frame)
    return frame.reindex(columns=COLUMNS)
