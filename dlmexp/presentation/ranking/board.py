"""Make leaderboards: methods ranked by one metric over the data sets that they have in common."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.claims.overlap import split_overlap
from dlmexp.presentation.labels import estimator_label, method_label
from dlmexp.presentation.ranking.metrics import METRICS, RANKED_METRICS, RankedMetric
from dlmexp.presentation.ranking.splits import (
    IDENTITY_COLUMNS,
    KERNEL_COLUMNS,
    OURS,
    SETTING_COLUMNS,
    identity_texts,
    notes_on_contents,
    scores_of_splits,
)
from dlmexp.presentation.ranking.statistics import (
    ReferenceComparison,
    Scores,
    bootstrap_interval,
    common_means,
    compare_with_reference,
    friedman_p,
    nemenyi_difference,
    ranks_of,
    separations,
    shared_ranks,
)

REFERENCE = "elbo"  # the method that others are compared with unless users name another
TOO_FEW_METHODS = (
    "a leaderboard needs two methods with results on the same data set; run another one"
)

Identity = tuple[str, ...]
"""A method with its settings: its values of `IDENTITY_COLUMNS`, as texts."""
DataSetsByMethod = dict[Identity, frozenset[str]]
"""The names of the data sets of each method."""
Method = TypeVar("Method")


@dataclass(frozen=True)
class Contender:
    """A method under one setting: a row of a leaderboard.

    Attributes:
        method: Its name in `conf/method`, or in a file of baselines.
        trained_by: `dlmexp`, or the software that trained a baseline.
        setting: The settings that distinguish rows of the same method, by name; '' where a setting
            does not apply.
        training_rows: The number of training rows, by data set.
        inducing: The number of inducing inputs, by data set.
        seconds: The mean seconds to train the method on a split, by data set.
        data_set_count: The number of data sets with results of the method, also of those that are
            not on the board.
        unconverged: The number of selected fits that stopped at their limit of iterations.
        fits: The number of selected fits.
    """

    method: str
    trained_by: str
    setting: dict[str, str]
    training_rows: dict[str, int]
    inducing: dict[str, int]
    seconds: dict[str, float]
    data_set_count: int
    unconverged: int
    fits: int

    @property
    def label(self) -> str:
        """The method as tables and figures write it."""
        return method_label(self.method)


@dataclass(frozen=True)
class Subject:
    """The kernel and the task of a leaderboard, which all results on it share."""

    kernel: str
    task: str


@dataclass(frozen=True, eq=False)
class Board:
    """K methods ranked on D data sets that all of them have.

    Arrays are in the order of the contenders, that is of the rows of the table.

    Attributes:
        metric: The metric that the methods are ranked by.
        subject: The kernel and the task.
        contenders: The methods with their settings.
        data_sets: The names of the data sets.
        split_counts: The number of splits that all methods have, by data set.
        scores: The scores by split [K, D, R]; NaN where missing.
        means: The mean scores over the splits that all methods have [K, D].
        overlaps: The number of test rows of a split, divided by that of its other rows [D]. It
            corrects variances for the rows that splits share.
        mean_rank: The mean rank over data sets [K].
        interval: The ends of the bootstrap interval of the mean rank [2, K].
        better: Whether method i is better than method j, and a test separates them [i, j].
        friedman: The p-value of Friedman's test.
        nemenyi: The critical difference of Nemenyi.
        reference: The position of the reference; None where it is not on the board.
        data_sets_in_all: The number of data sets of this kernel and task that any method has.
        notes: Remarks for users on what was left out.
    """

    metric: RankedMetric
    subject: Subject
    contenders: list[Contender]
    data_sets: list[str]
    split_counts: dict[str, int]
    scores: Scores
    means: np.ndarray
    overlaps: np.ndarray
    mean_rank: np.ndarray
    interval: np.ndarray
    better: np.ndarray
    friedman: float
    nemenyi: float
    reference: int | None
    data_sets_in_all: int
    notes: list[str] = field(default_factory=list)

    @property
    def rank(self) -> np.ndarray:
        """The ranks of methods, which share a rank unless a test separates them [K]."""
        return shared_ranks(self.better)

    @property
    def against_reference(self) -> ReferenceComparison | None:
        """The comparisons of all methods with the reference; None without a reference."""
        if self.reference is None:
            return None
        return compare_with_reference(self.scores, self.scores[self.reference], self.overlaps)

    @property
    def gain(self) -> np.ndarray | None:
        """The relative gain over the reference [K, D]; None without a reference."""
        if self.reference is None:
            return None
        return self.metric.gain(self.means, self.means[self.reference])

    def seconds(self) -> np.ndarray:
        """Return the mean seconds to train on a split [K, D]; NaN where they are not known."""
        seconds = np.full((len(self.contenders), len(self.data_sets)), np.nan)
        for k, contender in enumerate(self.contenders):
            for d, name in enumerate(self.data_sets):
                seconds[k, d] = contender.seconds.get(name, np.nan)
        return seconds

    def setting(self, name: str) -> str:
        """Return the distinct values of a setting among contenders trained by dlmexp, as a text.

        It is '' where the setting applies to none of them.
        """
        values: dict[str, None] = {}  # an ordered set
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

    There are one or two boards for each kernel and task. The main board has the methods and data
    sets of the largest block (`largest_block`). If more methods have fewer data sets in common, a
    second board ranks these methods on these data sets.

    Args:
        results: The folder.
        metric: The metric to rank by.
        against: The method to compare with; None means ELBO, if it has results.
        protocol: The only protocol to rank; None means all.

    Raises:
        UserError: There is nothing to rank, or no such method.
    """
    scores = _scores(results, protocol)
    methods = sorted(set(scores["method"]))
    if against is not None and against not in methods:
        raise UserError(f"--against {against}: {nearest(against, methods)}")
    _check_metric(metric, scores)
    all_boards = _boards_of_scores(scores, metric, against or REFERENCE)
    if not all_boards:
        raise UserError(TOO_FEW_METHODS)
    if against is not None:
        _note_missing_reference(all_boards, against)
    # `scores_of_splits` drops results on smaller training sets or on other rows.
    left_out = sorted(set(results.table["method"]) - set(methods))
    if protocol is None and left_out:
        names = ", ".join(map(method_label, left_out))
        all_boards[0].notes.append(f"left out, as trained on fewer rows or other rows: {names}")
    all_boards[0].notes.extend(notes_on_contents(results, protocol))
    return all_boards


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
    """Return the main boards (see `boards`) of each subject, one per metric of `RANKED_METRICS`.

    Raises:
        UserError: There is nothing to rank.
    """
    scores = _scores(results, protocol)
    boards_by_subject: dict[Subject, list[Board]] = {}
    for metric in RANKED_METRICS:
        with_main_board: set[Subject] = set()
        for board in _boards_of_scores(scores, metric, REFERENCE):
            # The first board of a subject is its main board; the second one has more methods.
            if board.subject not in with_main_board:
                with_main_board.add(board.subject)
                boards_by_subject.setdefault(board.subject, []).append(board)
    if not boards_by_subject:
        raise UserError(TOO_FEW_METHODS)
    return boards_by_subject


def _scores(results: ResultsFolder, protocol: str | None) -> pd.DataFrame:
    """Return the scores of every split (`scores_of_splits`).

    Raises:
        UserError: There are no scores.
    """
    scores = scores_of_splits(results, protocol)
    if scores.empty:
        known = ", ".join(sorted(map(str, results.table["protocol"].dropna().unique())))
        raise UserError(f"--protocol {protocol}: nothing was run under it; there is {known}")
    return scores


def _boards_of_scores(scores: pd.DataFrame, metric: RankedMetric, reference: str) -> list[Board]:
    """Return the boards of all subjects by one metric."""
    usable = scores[np.isfinite(scores[metric.name].astype(float))]
    # Methods other than Gaussian processes have no kernel. They are on the boards of every kernel.
    without_kernel = usable[usable["kernel"].isna()]
    boards_of_metric: list[Board] = []
    for subject, rows in _by_subject(usable[usable["kernel"].notna()]):
        on_same_data = without_kernel["dataset"].isin(rows["dataset"])
        rows_of_subject = pd.concat([rows, without_kernel[on_same_data]])
        boards_of_metric += _boards_of_subject(rows_of_subject, metric, subject, reference)
    return boards_of_metric


def _by_subject(with_kernel: pd.DataFrame) -> list[tuple[Subject, pd.DataFrame]]:
    """Return the rows of each kernel and task, the subject with the most rows first."""
    subjects: list[tuple[Subject, pd.DataFrame]] = []
    for (kernel, ard, task), rows in with_kernel.groupby([*KERNEL_COLUMNS, "task"], sort=True):
        name = f"{kernel}, ARD" if ard else str(kernel)
        subjects.append((Subject(name, str(task)), rows))
    return sorted(subjects, key=lambda subject: -len(subject[1]))


def _boards_of_subject(
    rows: pd.DataFrame, metric: RankedMetric, subject: Subject, reference: str
) -> list[Board]:
    """Return the main board of a kernel and task, then the board with more methods, if any."""
    rows = rows.assign(identity=_identities(rows))
    data_sets: DataSetsByMethod = {}
    for identity, rows_of_method in rows.groupby("identity", sort=True):
        data_sets[cast(Identity, identity)] = frozenset(rows_of_method["dataset"])
    data_set_count = len(frozenset().union(*data_sets.values()))
    main_block = largest_block(data_sets)
    wide_block, left_out = _block_of_most_methods(data_sets)
    boards_of_subject: list[Board] = []
    has_main_board = len(main_block) > 1  # a single method has no rank
    if has_main_board:
        board = _board(rows, metric, subject, main_block, reference, data_set_count)
        board.notes.extend(_notes_on_missing(data_sets, main_block, wide_block))
        boards_of_subject.append(board)
    has_second_board = len(wide_block) > len(main_block)
    if has_second_board:
        board = _board(rows, metric, subject, wide_block, reference, data_set_count)
        boards_of_subject.append(board)
    if boards_of_subject and left_out:
        labels = _labels(data_sets)
        names = ", ".join(sorted(labels[identity] for identity in left_out))
        note = f"left out, as they share no data set with the others: {names}"
        boards_of_subject[0].notes.append(note)
    return boards_of_subject


def _identities(rows: pd.DataFrame) -> pd.Series:
    """Return the identity of each row."""
    texts = identity_texts(rows)
    return pd.Series(list(texts.itertuples(index=False, name=None)), index=rows.index)


def _notes_on_missing(
    data_sets: DataSetsByMethod, main_block: DataSetsByMethod, wide_block: DataSetsByMethod
) -> list[str]:
    """Return a note on the methods that only the second board has; [] if there are none.

    Args:
        data_sets: The data sets of each method.
        main_block: The methods of the main board.
        wide_block: The methods of the second board.
    """
    missing = [identity for identity in wide_block if identity not in main_block]
    if not missing:
        return []
    labels = _labels(data_sets)
    names = sorted(f"{labels[identity]} ({len(data_sets[identity])})" for identity in missing)
    return [
        f"not in this table, as they lack data sets: {', '.join(names)}; "
        f"the table of all {len(wide_block)} methods has them"
    ]


def largest_block(data_sets: Mapping[Method, frozenset[str]]) -> dict[Method, frozenset[str]]:
    """Return the largest block: methods, and data sets that each of these methods has.

    Every method gives a candidate: its data sets, and all methods that have results on all of them.
    The largest candidate is the one with the most pairs of a method and a data set.

    Args:
        data_sets: The data sets of each method.

    Returns:
        The methods of the block, each with all data sets of the block.
    """
    largest: dict[Method, frozenset[str]] = {}
    largest_size = (-1, -1)
    for shared in sorted(set(data_sets.values()), key=_count_and_names):
        methods = [method for method, names in data_sets.items() if shared <= names]
        # One method is not counted, so that a block of a single method, which compares nothing, has
        # no pairs.
        pairs = (len(methods) - 1) * len(shared)
        size = (pairs, len(methods))
        if size > largest_size:
            largest_size = size
            largest = dict.fromkeys(methods, shared)
    return largest


def _count_and_names(names: frozenset[str]) -> tuple[int, list[str]]:
    """Return a sort key for sets of names, with which the order is the same on every machine."""
    return len(names), sorted(names)


def _block_of_most_methods(
    data_sets: DataSetsByMethod,
) -> tuple[DataSetsByMethod, list[Identity]]:
    """Return a block with as many methods as have a data set in common, and the methods left out.

    The methods with the fewest data sets are left out one by one, until the remaining methods have
    a data set in common.
    """
    remaining = sorted(data_sets, key=lambda identity: -len(data_sets[identity]))
    left_out: list[Identity] = []
    common = _common_data_sets(remaining, data_sets)
    while not common:
        left_out.append(remaining.pop())
        common = _common_data_sets(remaining, data_sets)
    return dict.fromkeys(remaining, common), left_out


def _common_data_sets(
    identities: Iterable[Identity], data_sets: DataSetsByMethod
) -> frozenset[str]:
    """Return the data sets that all of these methods have."""
    return frozenset.intersection(*[data_sets[identity] for identity in identities])


def _board(
    rows: pd.DataFrame,
    metric: RankedMetric,
    subject: Subject,
    block: DataSetsByMethod,
    reference: str,
    data_sets_in_all: int,
) -> Board:
    """Return the board of the methods of a block on the data sets that they share.

    Args:
        rows: The scores of every split, with the identities of all methods of the subject.
        metric: The metric to rank by.
        subject: The kernel and the task.
        block: The methods with their common data sets.
        reference: The method to compare with.
        data_sets_in_all: The number of data sets that any method of the subject has.
    """
    identities = list(block)
    data_sets = sorted(next(iter(block.values())))
    rows_of_methods = rows[rows["identity"].isin(identities)]
    rows_on_board = rows_of_methods[rows_of_methods["dataset"].isin(data_sets)]
    scores = _arranged(rows_on_board, metric.name, identities, data_sets)
    split_counts = _count_common_splits(scores)
    notes = []
    if not split_counts.all():
        dropped = [data_sets[d] for d in np.flatnonzero(split_counts == 0)]
        notes.append(f"no split in common: {', '.join(dropped)}")
        data_sets = [name for name in data_sets if name not in dropped]
        scores = scores[:, split_counts > 0]
        split_counts = split_counts[split_counts > 0]
    order = _order_by_mean_rank(scores)
    scores = scores[order]
    contenders = _contenders([identities[k] for k in order], rows_on_board, rows_of_methods)
    means = common_means(scores)
    ranks = ranks_of(means)
    overlaps = _overlaps(rows_on_board, data_sets)
    return Board(
        metric=metric,
        subject=subject,
        contenders=contenders,
        data_sets=data_sets,
        split_counts=dict(zip(data_sets, map(int, split_counts), strict=True)),
        scores=scores,
        means=means,
        overlaps=overlaps,
        mean_rank=ranks.mean(axis=0),
        interval=bootstrap_interval(ranks),
        better=separations(scores, overlaps),
        friedman=friedman_p(means),
        nemenyi=nemenyi_difference(len(means), len(data_sets)),
        reference=_position_of(reference, contenders),
        data_sets_in_all=data_sets_in_all,
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


def _count_common_splits(scores: Scores) -> Int[np.ndarray, " D"]:
    """Return the number of splits that all methods have, by data set."""
    return np.isfinite(scores).all(axis=0).sum(axis=-1)


def _order_by_mean_rank(scores: Scores) -> Int[np.ndarray, " K"]:
    """Return the positions of the methods in the order of their mean ranks, the best one first."""
    mean_rank: Float[np.ndarray, " K"] = ranks_of(common_means(scores)).mean(axis=0)
    return np.argsort(mean_rank, kind="stable")


def _overlaps(rows: pd.DataFrame, data_sets: Sequence[str]) -> Float[np.ndarray, " D"]:
    """Return the number of test rows, divided by that of other rows, by data set."""
    return np.array([_overlap(rows[rows["dataset"] == name]) for name in data_sets])


def _overlap(rows: pd.DataFrame) -> float:
    """Return the number of test rows, divided by that of other rows, in splits of a data set."""
    with_task = rows[rows["task"].notna()]
    first = with_task.iloc[0]
    return split_overlap(str(first["dataset"]), str(first["task"]), int(with_task["n"].max()))


def _labels(identities: Iterable[Identity]) -> dict[Identity, str]:
    """Return the label of each identity: the method, and settings that not all identities share."""
    settings = {identity: _setting_values(identity) for identity in identities}
    shared = set.intersection(*map(set, settings.values()))
    labels = {}
    for identity, values in settings.items():
        differing = [value for value in values if value not in shared]
        labels[identity] = " ".join([method_label(identity[0]), *differing])
    return labels


def _setting_values(identity: Identity) -> list[str]:
    """Return the values of the settings of an identity. One column may have several of them."""
    by_column = dict(zip(IDENTITY_COLUMNS, identity, strict=True))
    values: list[str] = []
    for column in SETTING_COLUMNS:
        if by_column[column]:
            values += by_column[column].split(", ")
    return values


def _contenders(
    identities: Sequence[Identity], rows: pd.DataFrame, rows_on_all_data: pd.DataFrame
) -> list[Contender]:
    """Return the contenders of a board, in the order of the identities.

    Args:
        identities: The methods with their settings.
        rows: Their rows on the data sets of the board.
        rows_on_all_data: Their rows on all data sets of the kernel and task.
    """
    data_set_counts = rows_on_all_data.groupby("identity")["dataset"].nunique()
    contenders = []
    for identity in identities:
        rows_of_method = rows[rows["identity"] == identity]
        data_set_count = int(data_set_counts[identity])
        contenders.append(_contender(rows_of_method, identity, data_set_count))
    return contenders


def _contender(rows: pd.DataFrame, identity: Identity, data_set_count: int) -> Contender:
    """Return a contender from its rows on the data sets of a board."""
    values = dict(zip(IDENTITY_COLUMNS, identity, strict=True))
    # `trained_by` is a field of its own, and the label of the estimator has the samples.
    own_fields = ("trained_by", "samples")
    setting = {name: values[name] for name in SETTING_COLUMNS if name not in own_fields}
    if values["estimator"]:
        samples = float(values["samples"]) if values["samples"] else None
        setting["estimator"] = estimator_label(values["estimator"], samples)
    by_data_set = rows.groupby("dataset", sort=True)
    with_inducing = rows[rows["M"].notna()].groupby("dataset", sort=True)
    converged = rows["converged"].dropna()  # baselines do not say whether they converged
    return Contender(
        method=values["method"],
        trained_by=values["trained_by"],
        setting=setting,
        training_rows=_whole_numbers(by_data_set["n"].max()),
        inducing=_whole_numbers(with_inducing["M"].max()),
        seconds={str(name): float(mean) for name, mean in by_data_set["seconds"].mean().items()},
        data_set_count=data_set_count,
        unconverged=int((converged == False).sum()),  # noqa: E712 -- a column of objects
        fits=len(converged),
    )


def _whole_numbers(column: pd.Series) -> dict[str, int]:
    """Return the values of a column as whole numbers, by its index as text."""
    return {str(name): int(value) for name, value in column.items()}


def _position_of(method: str, contenders: Sequence[Contender]) -> int | None:
    """Return the position of a method on the board; None if it is not on the board.

    If the method has several rows, the position is that of the row with the shortest settings.
    """
    positions = [k for k, contender in enumerate(contenders) if contender.method == method]
    if not positions:
        return None

    def length_and_text(position: int) -> tuple[int, str]:
        text = " ".join(contenders[position].setting.values())
        return len(text), text

    return min(positions, key=length_and_text)
