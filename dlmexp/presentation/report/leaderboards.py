"""Leaderboards on the page: a table for each kernel and task, with ranks by all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlmexp.common.errors import UserError
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.ranking.board import Board, main_boards
from dlmexp.presentation.ranking.render import (
    distinct_labels,
    median_gain,
    median_seconds,
    outcomes,
    remarks,
    subject_lines,
)

FEWEST_DATA_SETS = 2
"""A leaderboard on the page is over at least this many data sets."""


@dataclass(frozen=True)
class Cell:
    """A value of the table: its text, and the number that it is sorted by (None: the text)."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Leaderboard:
    """The boards of one kernel and task by all metrics, as one table.

    Attributes:
        title: The task, the number of data sets and the kernel.
        headers: Its columns.
        rows: A row for each method.
        notes: What was ranked on which rows, and what was left out.
    """

    title: str
    headers: list[str]
    rows: list[list[Cell]]
    notes: list[str]


def leaderboards(results: ResultsFolder) -> list[Leaderboard]:
    """Return the leaderboards of a results folder; none where there is nothing to rank."""
    try:
        boards = main_boards(results)
    except UserError:
        return []
    return [
        _leaderboard(of_subject)
        for of_subject in boards.values()
        if len(of_subject[0].data_sets) >= FEWEST_DATA_SETS
    ]


def _leaderboard(boards: Sequence[Board]) -> Leaderboard:
    """Return the boards of one subject as a table, in the order of the first metric."""
    first = boards[0]
    headers = ["method"]
    columns: list[dict[str, list[Cell]]] = []
    for board in boards:
        label = board.metric.label
        headers += [f"{label} rank", f"{label} mean rank", f"mean {label}"]
        columns.append(_ranks(board))
    facts = _facts(first)
    headers += list(facts)
    rows = []
    for k, label in enumerate(distinct_labels(first)):
        row = [Cell(label)]
        for ranks in columns:
            row += ranks.get(label, [Cell("–", float("nan"))] * 3)
        rows.append(row + [values[k] for values in facts.values()])
    notes: list[str] = []
    for board in boards:
        notes += [*subject_lines(board), *remarks(board)]
    title = f"{first.subject.task}, {len(first.data_sets)} data sets, kernel {first.subject.kernel}"
    return Leaderboard(title, headers, rows, list(dict.fromkeys(notes)))


def _ranks(board: Board) -> dict[str, list[Cell]]:
    """Return shared rank, mean rank and mean score of each method, by its label."""
    ranks = {}
    for k, label in enumerate(distinct_labels(board)):
        low, high = board.interval[:, k]
        mean = board.means[k].mean()
        ranks[label] = [
            Cell(str(board.rank[k]), float(board.rank[k])),
            Cell(f"{board.mean_rank[k]:.2f} ({low:.1f} to {high:.1f})", board.mean_rank[k]),
            Cell(f"{mean:#.4g}", mean),
        ]
    return ranks


def _facts(board: Board) -> dict[str, list[Cell]]:
    """Return further columns, by their headers, with a cell for each method."""
    facts: dict[str, list[Cell]] = {}
    positions = range(len(board.contenders))
    if board.reference is not None:
        reference = distinct_labels(board)[board.reference]
        won = [outcomes(board, k) for k in positions]
        gains = [median_gain(board, k) for k in positions]
        label = board.metric.label
        facts[f"{label}: won/tied/lost against {reference}"] = [
            Cell("/".join(map(str, counts)), float(counts[0] - counts[2])) for counts in won
        ]
        facts[f"{label}: median gain"] = [Cell(f"{100 * gain:+.1f} %", gain) for gain in gains]
    seconds = [median_seconds(board, k) for k in positions]
    facts["seconds"] = [Cell(f"{value:.3g}", value) for value in seconds]
    facts["data sets"] = [
        Cell(f"{row.data_sets} of {board.of}", float(row.data_sets)) for row in board.contenders
    ]
    return facts
