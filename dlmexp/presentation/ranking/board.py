"""A leaderboard: methods ranked by one metric over the data sets that they have in common."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.claims.overlap import split_overlap
from dlmexp.presentation.labels import estimator_label, method_label
from dlmexp.presentation.ranking.metrics import METRICS, RANKED, RankedMetric
from dlmexp.presentation.ranking.splits import (
    IDENTITY,
    KERNEL,
    OURS,
    SETTING,
    notes_on_contents,
    scores_of_splits,
)
from dlmexp.presentation.ranking.statistics import (
    Duel,
    Scores,
    bootstrap_interval,
    common_means,
    duel,
    friedman_p,
    nemenyi_difference,
    ranks_of,
    separations,
    shared_ranks,
)

REFERENCE = "elbo"
"""The method that others are compared with, if users name no other one."""
TOO_FEW = "a leaderboard needs two methods with results on the same data set; run another one"


@dataclass(frozen=True)
class Contender:
    """A method under one setting: a row of a leaderboard.

    Attributes:
        method: Its name in `conf/method`, or as others wrote it.
        trained_by: `dlmexp`, or who else.
        setting: What else tells it apart, by name; values that do not apply are ''.
        rows: Its training rows by data set.
        inducing: Its inducing inputs by data set.
        seconds: Mean seconds to train it on a split, by data set.
        data_sets: Number of data sets that it has, also where they are not on the board.
        unconverged: Selected fits that stopped at their limit.
        fits: Selected fits.
    """

    method: str
    trained_by: str
    setting: dict[str, str]
    rows: dict[str, int]
    inducing: dict[str, int]
    seconds: dict[str, float]
    data_sets: int
    unconverged: int
    fits: int

    @property
    def label(self) -> str:
        """The method as tables and figures write it."""
        return method_label(self.method)


@dataclass(frozen=True)
class Subject:
    """What a leaderboard is about: the kernel of its Gaussian processes, and the task."""

    kernel: str
    task: str


@dataclass(frozen=True, eq=False)
class Board:
    """Methods ranked on data sets that all of them have.

    Arrays are in the order of the contenders, which is that of the table.

    Attributes:
        metric: What they are ranked by.
        subject: The kernel and the task.
        contenders: K methods with their settings.
        data_sets: Names of D data sets.
        splits: Number of splits that all methods have, by data set.
        scores: Scores [K, D, R] by split; NaN: missing.
        means: Means [K, D] over common splits.
        overlaps: Test rows over all other rows, [D].
        mean_rank: [K].
        interval: Bootstrap interval of the mean rank, [2, K].
        better: `[i, j]` says that i is separated from j and better.
        friedman: P-value of Friedman's test.
        nemenyi: Nemenyi's critical difference.
        reference: Position of the reference; None where it is not on the board.
        of: Number of data sets that some method of this kernel and task has.
        notes: What was left out, for people.
    """

    metric: RankedMetric
    subject: Subject
    contenders: list[Contender]
    data_sets: list[str]
    splits: dict[str, int]
    scores: Scores
    means: np.ndarray
    overlaps: np.ndarray
    mean_rank: np.ndarray
    interval: np.ndarray
    better: np.ndarray
    friedman: float
    nemenyi: float
    reference: int | None
    of: int
    notes: list[str] = field(default_factory=list)

    @property
    def rank(self) -> np.ndarray:
        """Ranks that methods share unless they are separated, [K]."""
        return shared_ranks(self.better)

    @property
    def duel(self) -> Duel | None:
        """All methods against the reference on every data set."""
        if self.reference is None:
            return None
        return duel(self.scores, self.scores[self.reference], self.overlaps)

    @property
    def gain(self) -> np.ndarray | None:
        """The relative gain over the reference, [K, D]."""
        if self.reference is None:
            return None
        return self.metric.gain(self.means, self.means[self.reference])

    def seconds(self) -> np.ndarray:
        """Mean seconds to train on a split, [K, D]; NaN where they are not known."""
        rows = [
            [contender.seconds.get(name, np.nan) for name in self.data_sets]
            for contender in self.contenders
        ]
        return np.array(rows)

    def setting(self, name: str) -> str:
        """Return the values of a setting over our rows, as text; '' where it never applies."""
        values = [
            contender.setting[name] for contender in self.contenders if contender.trained_by == OURS
        ]
        return ", ".join(value for value in dict.fromkeys(values) if value)


def boards(
    results: ResultsFolder,
    metric: RankedMetric,
    against: str | None = None,
    protocol: str | None = None,
) -> list[Board]:
    """Return the leaderboards of a results folder.

    Each kernel and task has one over the data sets that most methods have. Where some methods lack
    data sets of it, a second one has all methods on the data sets that they have in common.

    Args:
        results: The folder.
        metric: What to rank by.
        against: The method to compare with; None: ELBO, where there is one.
        protocol: The only protocol; None: all.

    Raises:
        UserError: There is nothing to rank, or no such method.
    """
    scores = _scores(results, protocol)
    methods = sorted(set(scores["method"]))
    if against is not None and against not in methods:
        raise UserError(f"--against {against}: {nearest(against, methods)}")
    if scores[metric.name].isna().all():
        known = ", ".join(name for name in METRICS if scores[name].notna().any())
        raise UserError(f"--metric {metric.name}: no result has it; there is {known}")
    found = _boards_of_scores(scores, metric, against or REFERENCE)
    if not found:
        raise UserError(TOO_FEW)
    if against is not None:
        _note_missing(found, against)
    smaller = sorted(set(results.table["method"]) - set(methods))
    if protocol is None and smaller:
        names = ", ".join(map(method_label, smaller))
        found[0].notes.append(f"left out, as trained on fewer rows or other rows: {names}")
    found[0].notes.extend(notes_on_contents(results, protocol))
    return found


def _note_missing(found: Sequence[Board], against: str) -> None:
    """Add a note to each board that the reference is not on."""
    for board in found:
        if board.reference is None:
            board.notes.append(f"no wins and gains: {method_label(against)} is not in this table")


def main_boards(results: ResultsFolder, protocol: str | None = None) -> dict[Subject, list[Board]]:
    """Return the boards over the data sets that most methods have, one per metric, by subject.

    Raises:
        UserError: There is nothing to rank.
    """
    scores = _scores(results, protocol)
    main: dict[Subject, list[Board]] = {}
    for metric in RANKED:
        is_ranked: set[Subject] = set()
        for board in _boards_of_scores(scores, metric, REFERENCE):
            if board.subject not in is_ranked:
                is_ranked.add(board.subject)
                main.setdefault(board.subject, []).append(board)
    if not main:
        raise UserError(TOO_FEW)
    return main


def _scores(results: ResultsFolder, protocol: str | None) -> pd.DataFrame:
    """Return the scores of every split; raise UserError where there are none."""
    scores = scores_of_splits(results, protocol)
    if scores.empty:
        known = ", ".join(sorted(map(str, results.table["protocol"].dropna().unique())))
        raise UserError(f"--protocol {protocol}: nothing was run under it; there is {known}")
    return scores


def _boards_of_scores(scores: pd.DataFrame, metric: RankedMetric, reference: str) -> list[Board]:
    """Return the boards of all subjects by one metric."""
    usable = scores[np.isfinite(scores[metric.name].astype(float))]
    others = usable[usable["kernel"].isna()]
    found: list[Board] = []
    for subject, ours in _by_subject(usable[usable["kernel"].notna()]):
        rows = pd.concat([ours, others[others["dataset"].isin(ours["dataset"])]])
        found += _boards_of(rows, metric, subject, reference)
    return found


def _by_subject(ours: pd.DataFrame) -> list[tuple[Subject, pd.DataFrame]]:
    """Return each kernel and task with its rows, that with the most rows first."""
    subjects: list[tuple[Subject, pd.DataFrame]] = []
    for (kernel, ard, task), rows in ours.groupby([*KERNEL, "task"], sort=True):
        name = f"{kernel}, ARD" if ard else str(kernel)
        subjects.append((Subject(name, str(task)), rows))
    return sorted(subjects, key=lambda subject: -len(subject[1]))


def _boards_of(
    rows: pd.DataFrame, metric: RankedMetric, subject: Subject, reference: str
) -> list[Board]:
    """Return the boards of one kernel and task: the main one, and that of all methods."""
    texts = rows[IDENTITY].astype(object).where(rows[IDENTITY].notna(), "").astype(str)
    identity = pd.Series(list(texts.itertuples(index=False, name=None)), index=rows.index)
    rows = rows.assign(identity=identity)
    data_sets: DataSets = {}
    for name, own_rows in rows.groupby("identity", sort=True):
        data_sets[cast(Identity, name)] = frozenset(own_rows["dataset"])
    every = frozenset().union(*data_sets.values())
    found: list[Board] = []
    main = largest_block(data_sets)
    if len(main) > 1:
        found.append(_board(rows, metric, subject, main, reference, len(every)))
    overlapping, apart = _with_common_data_sets(data_sets)
    if len(overlapping) > len(main):
        found.append(_board(rows, metric, subject, overlapping, reference, len(every)))
    if len(main) > 1:
        found[0].notes.extend(_notes_on_missing(data_sets, main, overlapping))
    if found and apart:
        words = _words(data_sets)
        names = ", ".join(sorted(words[name] for name in apart))
        found[0].notes.append(f"left out, as they share no data set with the others: {names}")
    return found


def _notes_on_missing(
    data_sets: "DataSets", main: "DataSets", overlapping: "DataSets"
) -> list[str]:
    """Return which rows are not on the main board, though another one has them."""
    missing = [name for name in overlapping if name not in main]
    if not missing:
        return []
    words = _words(data_sets)
    named = sorted(f"{words[name]} ({len(data_sets[name])})" for name in missing)
    where = f"the table of all {len(overlapping)} methods has them"
    return [f"not in this table, as they lack data sets: {', '.join(named)}; {where}"]


Identity = tuple[str, ...]
DataSets = dict[Identity, frozenset[str]]
Row = TypeVar("Row")


def largest_block(data_sets: Mapping[Row, frozenset[str]]) -> dict[Row, frozenset[str]]:
    """Return the rows that share the data sets of one of them, the most cells of all choices.

    Args:
        data_sets: The data sets of each row.
    """

    def block(shared: frozenset[str]) -> dict[Row, frozenset[str]]:
        return {name: shared for name, own in data_sets.items() if shared <= own}

    choices = sorted(set(data_sets.values()), key=lambda shared: (len(shared), sorted(shared)))
    return max(map(block, choices), key=_cells)


def _cells(block: Mapping[Any, frozenset[str]]) -> tuple[int, int]:
    """Return the number of cells of a block, then that of its rows; one row is no comparison."""
    shared = next(iter(block.values()))
    return (len(block) - 1) * len(shared), len(block)


def _with_common_data_sets(data_sets: DataSets) -> tuple[DataSets, list[Identity]]:
    """Return the rows that have data sets in common, with those, and the rows left out.

    Rows with the fewest data sets are left out first.
    """
    remaining = dict(sorted(data_sets.items(), key=lambda item: -len(item[1])))
    apart: list[Identity] = []
    while not (common := frozenset.intersection(*remaining.values())):
        name, _ = remaining.popitem()
        apart.append(name)
    return dict.fromkeys(remaining, common), apart


def _board(
    rows: pd.DataFrame,
    metric: RankedMetric,
    subject: Subject,
    block: DataSets,
    reference: str,
    of: int,
) -> Board:
    """Return the board of these rows on the data sets that they share."""
    data_sets = sorted(next(iter(block.values())))
    names = list(block)
    of_methods = rows[rows["identity"].isin(names)]
    counts = of_methods.groupby("identity")["dataset"].nunique()
    used = of_methods[of_methods["dataset"].isin(data_sets)]
    scores = _arranged(used, metric.name, names, data_sets)
    common_splits = np.isfinite(scores).all(axis=0).sum(axis=-1)
    has_common = common_splits > 0
    notes = []
    if not has_common.all():
        dropped = [name for name, count in zip(data_sets, common_splits, strict=True) if not count]
        notes.append(f"no split in common: {', '.join(dropped)}")
        data_sets = [name for name in data_sets if name not in dropped]
        scores = scores[:, has_common]
    overlaps = np.array([_overlap(used[used["dataset"] == name]) for name in data_sets])
    better = separations(scores, overlaps)
    mean_rank = ranks_of(common_means(scores)).mean(axis=0)
    order = np.argsort(mean_rank, kind="stable")
    scores = scores[order]
    means = common_means(scores)
    ranks = ranks_of(means)
    contenders = []
    for k in order:
        own_rows = used[used["identity"] == names[k]]
        contenders.append(_contender(own_rows, names[k], int(counts[names[k]])))
    splits = np.isfinite(scores).all(axis=0).sum(axis=-1)
    return Board(
        metric=metric,
        subject=subject,
        contenders=contenders,
        data_sets=data_sets,
        splits=dict(zip(data_sets, map(int, splits), strict=True)),
        scores=scores,
        means=means,
        overlaps=overlaps,
        mean_rank=ranks.mean(axis=0),
        interval=bootstrap_interval(ranks),
        better=better[np.ix_(order, order)],
        friedman=friedman_p(means),
        nemenyi=nemenyi_difference(len(means), len(data_sets)),
        reference=_position_of(reference, contenders),
        of=of,
        notes=notes,
    )


def _arranged(
    rows: pd.DataFrame, metric: str, identities: Sequence[Identity], data_sets: Sequence[str]
) -> Scores:
    """Return scores [K, D, R] by identity, data set and seed."""
    seeds = sorted(rows["seed"].unique())
    scores = np.full((len(identities), len(data_sets), len(seeds)), np.nan)
    row = rows["identity"].map({name: k for k, name in enumerate(identities)})
    column = rows["dataset"].map({name: d for d, name in enumerate(data_sets)})
    split = np.searchsorted(seeds, rows["seed"])
    scores[row.to_numpy(), column.to_numpy(), split] = rows[metric].to_numpy(float)
    return scores


def _overlap(rows: pd.DataFrame) -> float:
    """Return the number of test rows of a data set's splits over that of all other rows."""
    ours = rows[rows["task"].notna()]
    first = ours.iloc[0]
    return split_overlap(str(first["dataset"]), str(first["task"]), int(ours["n"].max()))


def _words(identities: Iterable[Identity]) -> dict[Identity, str]:
    """Return identities for people: the method, and the settings that not all of them share."""
    settings = {identity: _setting_words(identity) for identity in identities}
    shared = set.intersection(*map(set, settings.values()))
    words = {}
    for identity, own in settings.items():
        differing = [word for word in own if word not in shared]
        words[identity] = " ".join([method_label(identity[0]), *differing])
    return words


def _setting_words(identity: Identity) -> list[str]:
    """Return the settings of an identity, each change by itself."""
    values = dict(zip(IDENTITY, identity, strict=True))
    texts = [values[name] for name in SETTING if values[name]]
    return [word for text in texts for word in text.split(", ")]


def _contender(rows: pd.DataFrame, identity: Identity, data_sets: int) -> Contender:
    """Return a method with what is known of its rows on the data sets of a board."""
    values = dict(zip(IDENTITY, identity, strict=True))
    setting = {name: values[name] for name in SETTING if name not in ("trained_by", "samples")}
    if values["estimator"]:
        samples = float(values["samples"]) if values["samples"] else None
        setting["estimator"] = estimator_label(values["estimator"], samples)
    of_data_set = rows.groupby("dataset", sort=True)
    inducing = rows[rows["M"].notna()].groupby("dataset", sort=True)["M"].max()
    converged = rows["converged"].dropna()
    return Contender(
        method=values["method"],
        trained_by=values["trained_by"],
        setting=setting,
        rows={str(name): int(n) for name, n in of_data_set["n"].max().items()},
        inducing={str(name): int(M) for name, M in inducing.items()},
        seconds={str(name): float(mean) for name, mean in of_data_set["seconds"].mean().items()},
        data_sets=data_sets,
        unconverged=int((converged == False).sum()),  # noqa: E712 -- a column of objects
        fits=len(converged),
    )


def _position_of(method: str, contenders: Sequence[Contender]) -> int | None:
    """Return the position of a method's row with the fewest words of settings."""
    positions = [k for k, contender in enumerate(contenders) if contender.method == method]
    if not positions:
        return None

    def words(position: int) -> tuple[int, str]:
        text = " ".join(contenders[position].setting.values())
        return len(text), text

    return min(positions, key=words)
