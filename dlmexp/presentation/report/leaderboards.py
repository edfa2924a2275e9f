"""Leaderboards on the page: a table for each kernel and task, with ranks by all metrics."""

from collections.abc import Mapping, Sequence
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
    enough = [group for group in boards.values() if len(group[0].data_sets) >= FEWEST_DATA_SETS]
    return [_leaderboard(of_subject) for of_subject in enough]


def _leaderboard(boards: Sequence[Board]) -> Leaderboard:
    """Return the boards of one subject as a table, in the order of the first metric."""
    first = boards[0]
    headers = ["method"]
    notes: list[str] = []
    for board in boards:
        label = board.metric.label
        headers += [f"{label} rank", f"{label} mean rank", f"mean {label}"]
        notes += [*subject_lines(board), *remarks(board)]
    facts = _facts(first)
    headers += list(facts)
    title = f"{first.subject.task}, {len(first.data_sets)} data sets, kernel {first.subject.kernel}"
    return Leaderboard(title, headers, _rows(boards, facts), list(dict.fromkeys(notes)))


def _rows(boards: Sequence[Board], facts: Mapping[str, list[Cell]]) -> list[list[Cell]]:
    """Return a row for each method: its label, its ranks on each board, and further columns.

    Args:
        boards: The boards of one subject; the first one has the methods.
        facts: The further columns, with a cell for each method.
    """
    ranks_by_metric = [_ranks(board) for board in boards]
    not_ranked = [Cell("–", float("nan"))] * 3
    rows = []
    for k, label in enumerate(distinct_labels(boards[0])):
        row = [Cell(label)]
        for ranks in ranks_by_metric:
            row += ranks.get(label, not_ranked)
        row += [cells[k] for cells in facts.values()]
        rows.append(row)
    return rows


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
        label = board.metric.label
        reference = distinct_labels(board)[board.reference]
        outcomes_header = f"{label}: won/tied/lost against {reference}"
        facts[outcomes_header] = [_outcomes_cell(board, k) for k in positions]
        facts[f"{label}: median gain"] = [_gain_cell(board, k) for k in positions]
    facts["seconds"] = [_seconds_cell(board, k) for k in positions]
    facts["data sets"] = [_data_sets_cell(board, k) for k in positions]
    return facts


def _outcomes_cell(board: Board, k: int) -> Cell:
    """Return the data sets that a method wins, ties and loses, sorted by wins minus losses."""
    won, tied, lost = outcomes(board, k)
    return Cell(f"{won}/{tied}/{lost}", float(won - lost))


def _gain_cell(board: Board, k: int) -> Cell:
    gain = median_gain(board, k)
    return Cell(f"{100 * gain:+.1f} %", gain)


def _seconds_cell(board: Board, k: int) -> Cell:
    seconds = median_seconds(board, k)
    return Cell(f"{seconds:.3g}", seconds)


def _data_sets_cell(board: Board, k: int) -> Cell:
    count = board.contenders[k].data_set_count
    return Cell(f"{count} of {board.data_sets_in_all}", float(count))
