"""A leaderboard: methods ranked by one metric over the data sets that they have in common."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import pandas as pd
from jaxtyping import Int

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
        seconds = np.full((len(self.contenders), len(self.data_sets)), np.nan)
        for k, contender in enumerate(self.contenders):
            for d, name in enumerate(self.data_sets):
                seconds[k, d] = contender.seconds.get(name, np.nan)
        return seconds

    def setting(self, name: str) -> str:
        """Return the values of a setting over our rows, as text; '' where it never applies."""
        values: dict[str, None] = {}
        for contender in self.contenders:
            if contender.trained_by == OURS and contender.setting[name]:
                values[contender.setting[name]] = None
        return ", ".join(values)


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
    _check_metric(metric, scores)
    boards = _boards_of_scores(scores, metric, against or REFERENCE)
    if not boards:
        raise UserError(TOO_FEW)
    if against is not None:
        _note_missing_reference(boards, against)
    left_out = sorted(set(results.table["method"]) - set(methods))
    if protocol is None and left_out:
        names = ", ".join(map(method_label, left_out))
        boards[0].notes.append(f"left out, as trained on fewer rows or other rows: {names}")
    boards[0].notes.extend(notes_on_contents(results, protocol))
    return boards


def _check_metric(metric: RankedMetric, scores: pd.DataFrame) -> None:
    """Raise UserError if no result has a metric."""
    if scores[metric.name].isna().all():
        known = [name for name in METRICS if scores[name].notna().any()]
        raise UserError(f"--metric {metric.name}: no result has it; there is {', '.join(known)}")


def _note_missing_reference(boards: Sequence[Board], against: str) -> None:
    """Add a note to each board that the reference is not on."""
    for board in boards:
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
    # Methods that are no Gaussian processes have no kernel: they are compared with all of them.
    without_kernel = usable[usable["kernel"].isna()]
    boards: list[Board] = []
    for subject, rows in _by_subject(usable[usable["kernel"].notna()]):
        on_same_data = without_kernel["dataset"].isin(rows["dataset"])
        of_subject = pd.concat([rows, without_kernel[on_same_data]])
        boards += _boards_of(of_subject, metric, subject, reference)
    return boards


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
    rows = rows.assign(identity=_identities(rows))
    data_sets: DataSets = {}
    for identity, of_identity in rows.groupby("identity", sort=True):
        data_sets[cast(Identity, identity)] = frozenset(of_identity["dataset"])
    count = len(frozenset().union(*data_sets.values()))
    main = largest_block(data_sets)
    overlapping, apart = _with_common_data_sets(data_sets)
    boards: list[Board] = []
    if len(main) > 1:
        board = _board(rows, metric, subject, main, reference, count)
        board.notes.extend(_notes_on_missing(data_sets, main, overlapping))
        boards.append(board)
    if len(overlapping) > len(main):
        boards.append(_board(rows, metric, subject, overlapping, reference, count))
    if boards and apart:
        words = _words(data_sets)
        names = ", ".join(sorted(words[identity] for identity in apart))
        boards[0].notes.append(f"left out, as they share no data set with the others: {names}")
    return boards


def _identities(rows: pd.DataFrame) -> pd.Series:
    """Return the values that tell apart methods, as texts, a tuple for each row."""
    values = rows[IDENTITY]
    texts = values.astype(object).where(values.notna(), "").astype(str)
    return pd.Series(list(texts.itertuples(index=False, name=None)), index=rows.index)


def _notes_on_missing(
    data_sets: "DataSets", main: "DataSets", overlapping: "DataSets"
) -> list[str]:
    """Return which methods are not on the main board, though another one has them."""
    missing = [identity for identity in overlapping if identity not in main]
    if not missing:
        return []
    words = _words(data_sets)
    names = sorted(f"{words[identity]} ({len(data_sets[identity])})" for identity in missing)
    where = f"the table of all {len(overlapping)} methods has them"
    return [f"not in this table, as they lack data sets: {', '.join(names)}; {where}"]


# The values of a method and its settings that tell it apart, in the order of `IDENTITY`.
Identity = tuple[str, ...]
# Names of data sets by method.
DataSets = dict[Identity, frozenset[str]]
Method = TypeVar("Method")


def largest_block(data_sets: Mapping[Method, frozenset[str]]) -> dict[Method, frozenset[str]]:
    """Return the methods that share the data sets of one of them, the most cells of all choices.

    A cell is a method on a data set.

    Args:
        data_sets: The data sets of each method.
    """
    largest: dict[Method, frozenset[str]] = {}
    most = (-1, -1)
    for shared in sorted(set(data_sets.values()), key=_count_and_names):
        methods = [method for method, names in data_sets.items() if shared <= names]
        # A single method is no comparison, so the first one does not count.
        cells = (len(methods) - 1) * len(shared)
        size = (cells, len(methods))
        if size > most:
            most = size
            largest = dict.fromkeys(methods, shared)
    return largest


def _count_and_names(names: frozenset[str]) -> tuple[int, list[str]]:
    """Return the key that sorts sets of names in the same way on every machine."""
    return len(names), sorted(names)


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
    identities = list(block)
    data_sets = sorted(next(iter(block.values())))
    of_methods = rows[rows["identity"].isin(identities)]
    used = of_methods[of_methods["dataset"].isin(data_sets)]
    scores = _arranged(used, metric.name, identities, data_sets)
    splits = _common_splits(scores)
    notes = []
    if not splits.all():
        dropped = [data_sets[d] for d in np.flatnonzero(splits == 0)]
        notes.append(f"no split in common: {', '.join(dropped)}")
        data_sets = [name for name in data_sets if name not in dropped]
        scores = scores[:, splits > 0]
        splits = splits[splits > 0]
    overlaps = np.array([_overlap(used[used["dataset"] == name]) for name in data_sets])
    better = separations(scores, overlaps)
    mean_rank = ranks_of(common_means(scores)).mean(axis=0)
    order = np.argsort(mean_rank, kind="stable")
    contenders = _contenders([identities[k] for k in order], used, of_methods)
    scores = scores[order]
    means = common_means(scores)
    ranks = ranks_of(means)
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
    position = {identity: k for k, identity in enumerate(identities)}
    k = rows["identity"].map(position).to_numpy()
    d = rows["dataset"].map(data_sets.index).to_numpy()
    r = np.searchsorted(seeds, rows["seed"])
    scores[k, d, r] = rows[metric].to_numpy(float)
    return scores


def _common_splits(scores: Scores) -> Int[np.ndarray, " D"]:
    """Return the number of splits that all methods have, by data set."""
    return np.isfinite(scores).all(axis=0).sum(axis=-1)


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
    for identity, setting in settings.items():
        differing = [word for word in setting if word not in shared]
        words[identity] = " ".join([method_label(identity[0]), *differing])
    return words


def _setting_words(identity: Identity) -> list[str]:
    """Return the settings of an identity, each change by itself."""
    values = dict(zip(IDENTITY, identity, strict=True))
    words: list[str] = []
    for name in SETTING:
        if values[name]:
            words += values[name].split(", ")
    return words


def _contenders(
    identities: Sequence[Identity], rows: pd.DataFrame, rows_on_all_data: pd.DataFrame
) -> list[Contender]:
    """Return methods in the order of a board.

    Args:
        identities: The methods.
        rows: Their rows on the data sets of the board.
        rows_on_all_data: Those on all data sets of the kernel and task.
    """
    data_sets = rows_on_all_data.groupby("identity")["dataset"].nunique()
    contenders = []
    for identity in identities:
        of_identity = rows[rows["identity"] == identity]
        contenders.append(_contender(of_identity, identity, int(data_sets[identity])))
    return contenders


def _contender(rows: pd.DataFrame, identity: Identity, data_sets: int) -> Contender:
    """Return a method with what is known of its rows on the data sets of a board."""
    values = dict(zip(IDENTITY, identity, strict=True))
    setting = {name: values[name] for name in SETTING if name not in ("trained_by", "samples")}
    if values["estimator"]:
        samples = float(values["samples"]) if values["samples"] else None
        setting["estimator"] = estimator_label(values["estimator"], samples)
    by_data_set = rows.groupby("dataset", sort=True)
    with_inducing = rows[rows["M"].notna()].groupby("dataset", sort=True)
    converged = rows["converged"].dropna()
    return Contender(
        method=values["method"],
        trained_by=values["trained_by"],
        setting=setting,
        rows=_whole_numbers(by_data_set["n"].max()),
        inducing=_whole_numbers(with_inducing["M"].max()),
        seconds={str(name): float(mean) for name, mean in by_data_set["seconds"].mean().items()},
        data_sets=data_sets,
        unconverged=int((converged == False).sum()),  # noqa: E712 -- a column of objects
        fits=len(converged),
    )


def _whole_numbers(column: pd.Series) -> dict[str, int]:
    """Return a column as whole numbers by the texts of its index."""
    return {str(name): int(value) for name, value in column.items()}


def _position_of(method: str, contenders: Sequence[Contender]) -> int | None:
    """Return the position of a method's row with the fewest words of settings."""
    positions = [k for k, contender in enumerate(contenders) if contender.method == method]
    if not positions:
        return None

    def words(position: int) -> tuple[int, str]:
        text = " ".join(contenders[position].setting.values())
        return len(text), text

    return min(positions, key=words)
