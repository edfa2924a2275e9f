"""Leaderboards as tables for people, and as JSON for programs.

JSON is a list of boards, each with `metric`, `kernel`, `task`, `data_sets` (name, splits, overlap),
`friedman_p`, `nemenyi_difference`, `against`, `notes` and `methods`: method, setting,
rank, mean rank with its interval, mean score, wins, ties and losses, median gain, seconds, and the
scores by data set. Numbers have 6 significant digits, so that files are the same on every machine;
null stands for what is not known.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.common.console import counted
from dlmexp.presentation.ranking.board import Board, Contender
from dlmexp.presentation.ranking.splits import OURS
from dlmexp.presentation.ranking.statistics import ALPHA, separations

BEST = "*"
"""Marks the best score of a data set and those that are not separated from it."""
SAME_ROWS = 0.98
"""Training sets of at least this share of the largest one count as the same."""
HEADERS = {
    "estimator": "estimator",
    "parameterisation": "q",
    "protocol": "protocol",
    "changes": "changes",
    "other": "setting",
}


def board_table(board: Board) -> Table:
    """Return a board with a row for each method."""
    table = Table(box=SIMPLE)
    columns = _differing(board)
    table.add_column("rank", justify="right")
    table.add_column("method", no_wrap=True)
    for name in columns:
        table.add_column(HEADERS[name])
    table.add_column("mean rank", justify="right", no_wrap=True)
    table.add_column("95 %", no_wrap=True)
    table.add_column(board.metric.label, justify="right", no_wrap=True)
    if board.reference is not None:
        table.add_column("won/tied/lost", justify="right", no_wrap=True)
        table.add_column("median gain", justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("data sets", justify="right", no_wrap=True)
    rows = [_row(board, k, columns) for k in range(len(board.contenders))]
    for row in rows:
        table.add_row(*row)
    return table


def _row(board: Board, k: int, columns: Sequence[str]) -> list[str]:
    """Return the cells of a method's row."""
    contender = board.contenders[k]
    low, high = board.interval[:, k]
    cells = [str(board.rank[k]), method_words(contender)]
    cells += [contender.setting[name] for name in columns]
    cells += [f"{board.mean_rank[k]:.2f}", f"{low:.1f} to {high:.1f}"]
    cells.append(f"{board.means[k].mean():.4g}")
    if board.reference is not None:
        won, tied, lost = outcomes(board, k)
        cells += [f"{won}/{tied}/{lost}", _percent(median_gain(board, k))]
    cells.append(_number(_median(board.seconds()[k]), ".3g"))
    cells.append(f"{contender.data_sets} of {board.of}")
    return cells


def method_words(contender: Contender) -> str:
    """Return a method with who trained it, where that is somebody else."""
    if contender.trained_by == OURS:
        return contender.label
    return f"{contender.label} ({contender.trained_by})"


def distinct_labels(board: Board) -> list[str]:
    """Return a label for each method, with those settings that others of its name do not share."""
    columns = _differing(board)
    words = [method_words(contender) for contender in board.contenders]
    labels = []
    for contender, word in zip(board.contenders, words, strict=True):
        parts = [word]
        if words.count(word) > 1:
            parts += [contender.setting[name] for name in columns if contender.setting[name]]
        labels.append(", ".join(parts))
    return labels


def _differing(board: Board) -> list[str]:
    """Return the settings in which our rows differ."""
    names = []
    for name in HEADERS:
        values = {
            contender.setting[name]
            for contender in board.contenders
            if contender.trained_by == OURS
        }
        if len(values) > 1:
            names.append(name)
    return names


def outcomes(board: Board, k: int) -> tuple[int, int, int]:
    """Return on how many data sets a method wins, ties and loses against the reference."""
    duel = board.duel
    assert duel is not None
    won = int(duel.won[k].sum())
    lost = int(duel.lost[k].sum())
    return won, len(board.data_sets) - won - lost, lost


def median_gain(board: Board, k: int) -> float:
    """Return the median over data sets of the relative gain over the reference."""
    gain = board.gain
    assert gain is not None
    return _median(gain[k])


def _median(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan


def caption(board: Board) -> list[str]:
    """Return the lines below a board: what was ranked on which rows, and how to read it."""
    lines = subject_lines(board)
    lines.append(
        "rank: shared, unless the best method of a rank is separated from it (paired tests over "
        f"data sets and splits, Nadeau and Bengio's correction, Holm over all pairs, level {ALPHA})"
    )
    if board.reference is not None:
        reference = distinct_labels(board)[board.reference]
        lines.append(
            f"won/tied/lost: data sets, by tests against {reference} with Holm's correction; "
            f"median gain: in {board.metric.gain_of}, over data sets"
        )
    lines.append("seconds: median over data sets to train on a split, all candidates included")
    if math.isfinite(board.friedman):
        lines.append(
            f"Friedman's test: p = {board.friedman:.2g}; "
            f"Nemenyi's critical difference of mean ranks: {board.nemenyi:.2f}"
        )
    return lines + remarks(board)


def data_set_caption(board: Board) -> list[str]:
    """Return the lines below scores by data set."""
    lines = subject_lines(board)
    lines.append(f"{BEST}: the best, and what no test separates from it on that data set")
    return lines + remarks(board)


def subject_lines(board: Board) -> list[str]:
    """Return what a board is about: metric, data sets, splits, kernel, M, rows and settings."""
    metric = board.metric
    count = counted(len(board.data_sets), f"{board.subject.task} data set")
    splits = _range(board.splits.values())
    inducing = _range(_values(board, "inducing"))
    lines = [
        f"{metric.label} ({metric.unit}; lower is better) on {count} of {board.of}, "
        f"{splits} splits in common; kernel {board.subject.kernel}; M {inducing}",
        _rows_words(board),
    ]
    differing = _differing(board)
    same = []
    for name, header in HEADERS.items():
        text = board.setting(name)
        if text and name not in differing:
            same.append(f"{header} {text}")
    if same:
        lines.append(f"the same for all: {', '.join(same)}")
    return lines


def remarks(board: Board) -> list[str]:
    """Return what a reader must know besides: fits that did not converge, what was left out."""
    unconverged = _unconverged(board)
    if not unconverged:
        return board.notes
    return [f"stopped at their limit of iterations: {unconverged}", *board.notes]


def _values(board: Board, name: str) -> list[int]:
    """Return the rows or the inducing inputs of all methods on all data sets of the board."""
    values: list[int] = []
    for contender in board.contenders:
        values += getattr(contender, name).values()
    return values


def _range(values: Iterable[int]) -> str:
    numbers = sorted(set(values))
    if not numbers:
        return "-"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _rows_words(board: Board) -> str:
    """Return on how many rows methods were trained, and who had fewer than others."""
    words = f"trained on {_range(_values(board, 'rows'))} rows"
    largest = {
        name: max(contender.rows[name] for contender in board.contenders)
        for name in board.data_sets
    }
    fewer = []
    labels = distinct_labels(board)
    for label, contender in zip(labels, board.contenders, strict=True):
        share = min(contender.rows[name] / largest[name] for name in board.data_sets)
        if share < SAME_ROWS:
            fewer.append(f"{label} {100 * share:.0f} %")
    if not fewer:
        return f"{words}, the same for all methods"
    return f"{words}; not on all of them: {', '.join(fewer)}"


def _unconverged(board: Board) -> str:
    """Return the methods with fits that stopped at their limit, with their number."""
    words = []
    for label, contender in zip(distinct_labels(board), board.contenders, strict=True):
        if contender.unconverged:
            words.append(f"{label} {contender.unconverged} of {counted(contender.fits, 'fit')}")
    return ", ".join(words)


def data_set_table(board: Board) -> Table:
    """Return the mean scores by data set, with a column for each method."""
    table = Table(box=SIMPLE)
    table.add_column("data set")
    table.add_column("rows", justify="right")
    table.add_column("splits", justify="right")
    for label in distinct_labels(board):
        table.add_column(label, justify="right")
    for d, name in enumerate(board.data_sets):
        best = best_on(board, d)
        values = [
            f"{mean:.4g}{BEST if is_best else ' '}"
            for mean, is_best in zip(board.means[:, d], best, strict=True)
        ]
        rows = max(contender.rows[name] for contender in board.contenders)
        table.add_row(name, str(rows), str(board.splits[name]), *values)
    return table


def best_on(board: Board, d: int) -> np.ndarray:
    """Return which methods are not separated from the best one on a data set, [K]."""
    better = separations(board.scores[:, [d]], board.overlaps[[d]])
    return ~better[np.argmin(board.means[:, d])]


def as_json(boards: Iterable[Board]) -> list[dict[str, Any]]:
    """Return boards as plain values."""
    return [_board_values(board) for board in boards]


def _board_values(board: Board) -> dict[str, Any]:
    reference = board.reference
    return {
        "metric": board.metric.name,
        "unit": board.metric.unit,
        "kernel": board.subject.kernel,
        "task": board.subject.task,
        "data_sets": [
            {"data_set": name, "splits": board.splits[name], "overlap": rounded(overlap)}
            for name, overlap in zip(board.data_sets, board.overlaps, strict=True)
        ],
        "of": board.of,
        "friedman_p": rounded(board.friedman),
        "nemenyi_difference": rounded(board.nemenyi),
        "against": None if reference is None else board.contenders[reference].method,
        "methods": [_method_values(board, k) for k in range(len(board.contenders))],
        "notes": board.notes,
    }


def _method_values(board: Board, k: int) -> dict[str, Any]:
    contender = board.contenders[k]
    values: dict[str, Any] = {
        "method": contender.method,
        "trained_by": contender.trained_by,
        "setting": {name: text for name, text in contender.setting.items() if text},
        "rank": int(board.rank[k]),
        "mean_rank": rounded(board.mean_rank[k]),
        "interval": [rounded(bound) for bound in board.interval[:, k]],
        "score": rounded(board.means[k].mean()),
        "seconds": rounded(_median(board.seconds()[k])),
        "data_sets": contender.data_sets,
        "unconverged": contender.unconverged,
        "fits": contender.fits,
    }
    if board.reference is not None:
        won, tied, lost = outcomes(board, k)
        values |= {"won": won, "tied": tied, "lost": lost}
        values["median_gain"] = rounded(median_gain(board, k))
    values["by_data_set"] = [_cell_values(board, k, d) for d in range(len(board.data_sets))]
    return values


def _cell_values(board: Board, k: int, d: int) -> dict[str, Any]:
    """Return what is known of a method on a data set."""
    contender = board.contenders[k]
    name = board.data_sets[d]
    values: dict[str, Any] = {
        "data_set": name,
        "score": rounded(board.means[k, d]),
        "rows": contender.rows[name],
        "inducing": contender.inducing.get(name),
        "seconds": rounded(contender.seconds.get(name, math.nan)),
    }
    duel = board.duel
    if duel is not None:
        values["difference"] = rounded(duel.difference[k, d])
        values["half_width"] = rounded(duel.half_width[k, d])
    return values


def rounded(value: float) -> float | None:
    """Return a number with 6 significant digits; None for one that is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %" if math.isfinite(value) else "-"
