"""Make the leaderboards of the report: a table per kernel and task, with ranks by all metrics."""

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

MIN_DATA_SETS = 2  # a leaderboard in the report is over at least this many data sets


@dataclass(frozen=True)
class Cell:
    """A cell of the table of a leaderboard.

    Attributes:
        text: The text that is shown.
        value: The number that the column is sorted by; None means that it is sorted by the text.
    """

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Leaderboard:
    """The boards of one kernel and task by all metrics, as one table.

    Attributes:
        title: The task, the number of data sets and the kernel.
        headers: The headers of its columns.
        rows: The cells of each method.
        notes: Lines on the training rows, the settings and what was left out, of all boards.
    """

    title: str
    headers: list[str]
    rows: list[list[Cell]]
    notes: list[str]


def leaderboards(results: ResultsFolder) -> list[Leaderboard]:
    """Return the leaderboards of a results folder; [] if there is nothing to rank."""
    try:
        boards_by_subject = main_boards(results)
    except UserError:
        return []
    large_leaderboards: list[Leaderboard] = []
    for boards in boards_by_subject.values():
        data_set_count = len(boards[0].data_sets)
        if data_set_count >= MIN_DATA_SETS:
            large_leaderboards.append(_leaderboard(boards))
    return large_leaderboards


def _leaderboard(boards: Sequence[Board]) -> Leaderboard:
    """Return the boards of a subject as one table, with methods in the order of the first board."""
    first = boards[0]
    headers = ["method"]
    notes: list[str] = []
    for board in boards:
        label = board.metric.label
        headers += [f"{label} rank", f"{label} mean rank", f"mean {label}"]
        notes += [*subject_lines(board), *remarks(board)]
    further_columns = _further_columns(first)
    headers += list(further_columns)
    title = f"{first.subject.task}, {len(first.data_sets)} data sets, kernel {first.subject.kernel}"
    rows = _rows(boards, further_columns)
    return Leaderboard(title, headers, rows, notes=list(dict.fromkeys(notes)))


def _rows(boards: Sequence[Board], further_columns: Mapping[str, list[Cell]]) -> list[list[Cell]]:
    """Return a row for each method: its label, its ranks on each board, and further columns.

    Args:
        boards: The boards of a subject. The methods are those of the first board.
        further_columns: The further columns by header, with a cell for each method.
    """
    ranks_by_metric = [_rank_cells(board) for board in boards]
    not_ranked = [Cell("–", float("nan"))] * 3  # for the three cells of `_rank_cells`
    rows = []
    for k, label in enumerate(distinct_labels(boards[0])):
        row = [Cell(label)]
        for rank_cells in ranks_by_metric:
            row += rank_cells.get(label, not_ranked)
        row += [cells[k] for cells in further_columns.values()]
        rows.append(row)
    return rows


def _rank_cells(board: Board) -> dict[str, list[Cell]]:
    """Return cells with the shared rank, mean rank and mean score of each method, by its label."""
    cells = {}
    for k, label in enumerate(distinct_labels(board)):
        low, high = board.interval[:, k]
        mean = board.means[k].mean()
        cells[label] = [
            Cell(str(board.rank[k]), float(board.rank[k])),
            Cell(f"{board.mean_rank[k]:.2f} ({low:.1f} to {high:.1f})", board.mean_rank[k]),
            Cell(f"{mean:#.4g}", mean),
        ]
    return cells


def _further_columns(board: Board) -> dict[str, list[Cell]]:
    """Return the columns to the right of the ranks, by header, with a cell for each method."""
    columns: dict[str, list[Cell]] = {}
    positions = range(len(board.contenders))
    if board.reference is not None:
        label = board.metric.label
        reference = distinct_labels(board)[board.reference]
        outcomes_header = f"{label}: won/tied/lost against {reference}"
        columns[outcomes_header] = [_outcomes_cell(board, k) for k in positions]
        columns[f"{label}: median gain"] = [_gain_cell(board, k) for k in positions]
    columns["seconds"] = [_seconds_cell(board, k) for k in positions]
    columns["data sets"] = [_data_sets_cell(board, k) for k in positions]
    return columns


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
