"""Write leaderboards as tables for people, and as JSON for programs.

The JSON is a list of boards. Each has `metric`, `kernel`, `task`, `data_sets` (name, splits,
overlap), `friedman_p`, `nemenyi_difference`, `against`, `notes` and `methods`. A method has its
label, setting, rank, mean rank with its interval, mean score, wins, ties and losses, median gain,
seconds, and the scores by data set. Numbers have 6 significant digits, so that files are the same
on every machine. Unknown numbers are null.
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

BEST_MARK = "*"  # of the best score on a data set, and of scores that no test separates from it
SAME_ROWS = 0.98  # training sets of at least this share of the largest one count as equal
# The settings that have a column of their own, each with its header.
SETTING_HEADERS = {"estimator": "estimator", "parameterisation": "q", "protocol": "protocol"}
# Widths in letters, in the tables by data set: of a method's column with the space around it, and
# of the columns `rows` and `splits` with the edges of the table.
SCORE_WIDTH = 12
WIDTH_OF_COUNTS = 22
# The smallest width of the column `setting` in the table of a board.
MIN_SETTING_WIDTH = 24
# On at most this many data sets, tests separate hardly any methods.
FEW_DATA_SETS = 5


def board_table(board: Board) -> Table:
    """Return the table of a board, with a row for each method."""
    table = Table(box=SIMPLE)
    for header, options in _columns(board).items():
        table.add_column(header, **options)
    for k in range(len(board.contenders)):
        table.add_row(*_row(board, k))
    return table


def _columns(board: Board) -> dict[str, dict[str, Any]]:
    """Return the headers of the table of a board, each with the options of its column."""
    right_aligned: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns: dict[str, dict[str, Any]] = {"rank": right_aligned, "method": {"no_wrap": True}}
    columns |= {SETTING_HEADERS[name]: {} for name in _differing_settings(board)}
    if any(_distinctive_changes(board)):
        columns["setting"] = {"min_width": MIN_SETTING_WIDTH}
    columns |= {"mean\nrank": right_aligned, "95 %\ninterval": {"no_wrap": True}}
    columns[f"mean\n{board.metric.label}"] = right_aligned
    if board.reference is not None:
        columns |= {"won/tied\n/lost": right_aligned, "median\ngain": right_aligned}
    if not _is_of_time(board):
        columns["seconds"] = right_aligned
    if _unconverged(board):
        columns["at\nlimit"] = right_aligned
    columns["data\nsets"] = right_aligned
    return columns


def _row(board: Board, k: int) -> list[str]:
    """Return the cells of a method's row, in the order of `_columns`."""
    contender = board.contenders[k]
    cells = [str(board.rank[k]), method_words(contender)]
    cells += [contender.setting[name] for name in _differing_settings(board)]
    changes = _distinctive_changes(board)
    if any(changes):
        cells.append(", ".join(changes[k]))
    cells.append(f"{board.mean_rank[k]:.2f}")
    cells.append(_interval(board, k))
    cells.append(f"{board.means[k].mean():#.4g}")
    if board.reference is not None:
        cells += _cells_against_reference(board, k)
    if not _is_of_time(board):
        cells.append(_number(median_seconds(board, k), ".3g"))
    if _unconverged(board):
        cells.append(_share(contender.unconverged, contender.fits))
    cells.append(f"{contender.data_set_count} of {board.data_sets_in_all}")
    return cells


def _interval(board: Board, k: int) -> str:
    """Return the interval of a mean rank as a text; `-` on one data set, which gives none."""
    if len(board.data_sets) == 1:
        return "-"
    low, high = board.interval[:, k]
    return f"{low:.1f} to {high:.1f}"


def _cells_against_reference(board: Board, k: int) -> list[str]:
    """Return two cells: data sets won, tied and lost, and the median gain.

    They are `-` for the reference itself.
    """
    if k == board.reference:
        return ["-", "-"]
    won, tied, lost = outcomes(board, k)
    gain = _percent(median_gain(board, k))
    return [f"{won}/{tied}/{lost}", gain]


def _is_of_time(board: Board) -> bool:
    """Return whether methods are ranked by their training time."""
    return board.metric.name == "seconds"


def _share(part: int, whole: int) -> str:
    """Return a share as a text such as `25 %`; `-` if the whole is 0."""
    if not whole:
        return "-"
    return f"{100 * part / whole:.0f} %"


def method_words(contender: Contender) -> str:
    """Return the label of a method; a baseline has the software that trained it in brackets."""
    if contender.trained_by == OURS:
        return contender.label
    return f"{contender.label} ({contender.trained_by})"


def distinct_labels(board: Board) -> list[str]:
    """Return a label for each row, with the settings in which rows with the same method differ."""
    settings_by_name: dict[str, list[list[str]]] = {}
    for contender in board.contenders:
        settings = settings_by_name.setdefault(method_words(contender), [])
        settings.append(_setting_values(contender))
    labels = []
    for contender in board.contenders:
        name = method_words(contender)
        shared = _common_items(settings_by_name[name])
        differing = [value for value in _setting_values(contender) if value not in shared]
        labels.append(", ".join([name, *differing]))
    return labels


def _common_items(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the items of the first list that all other lists have too."""
    first, *rest = lists
    return [item for item in first if all(item in items for items in rest)]


def _setting_values(contender: Contender) -> list[str]:
    """Return the values of all settings that a method has."""
    values = [contender.setting[name] for name in SETTING_HEADERS if contender.setting[name]]
    return values + _changes_of(contender)


def _changes_of(contender: Contender) -> list[str]:
    """Return the changed values and other settings of a method, each as `name=value`."""
    changes: list[str] = []
    for text in (contender.setting["changes"], contender.setting["other"]):
        if text:
            changes += text.split(", ")
    return changes


def _differing_settings(board: Board) -> list[str]:
    """Return the settings of `SETTING_HEADERS` in which the rows of dlmexp differ."""
    differing = []
    for name in SETTING_HEADERS:
        values = {contender.setting[name] for contender in _own_contenders(board)}
        if len(values) > 1:
            differing.append(name)
    return differing


def _own_contenders(board: Board) -> list[Contender]:
    """Return the contenders that dlmexp trained."""
    return [contender for contender in board.contenders if contender.trained_by == OURS]


def _distinctive_changes(board: Board) -> list[list[str]]:
    """Return, for each method, its changes (`_changes_of`) without those that all of ours have."""
    shared = _shared_changes(board)
    changes = []
    for contender in board.contenders:
        not_shared = [change for change in _changes_of(contender) if change not in shared]
        changes.append(not_shared)
    return changes


def _shared_changes(board: Board) -> list[str]:
    """Return the changes (`_changes_of`) that all rows of dlmexp have."""
    return _common_items([_changes_of(contender) for contender in _own_contenders(board)])


def outcomes(board: Board, k: int) -> tuple[int, int, int]:
    """Return on how many data sets a method wins, ties and loses against the board's reference."""
    comparison = board.against_reference
    assert comparison is not None
    won = int(comparison.won[k].sum())
    lost = int(comparison.lost[k].sum())
    tied = len(board.data_sets) - won - lost
    return won, tied, lost


def median_gain(board: Board, k: int) -> float:
    """Return the median over data sets of the relative gain over the board's reference."""
    gain = board.gain
    assert gain is not None
    return _median(gain[k])


def median_seconds(board: Board, k: int) -> float:
    """Return the median over data sets of the seconds to train a method on a split."""
    return _median(board.seconds()[k])


def _median(values: np.ndarray) -> float:
    """Return the median of the finite values; NaN if no value is finite."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return math.nan
    return float(np.median(finite))


def title(board: Board) -> str:
    """Return the line above a board: metric, data sets, splits, kernel and M."""
    metric = board.metric
    data_sets = counted(board.data_sets_in_all, f"{board.subject.task} data set")
    if len(board.data_sets) < board.data_sets_in_all:
        data_sets = f"{len(board.data_sets)} of {data_sets}"
    split_range = _range(board.split_counts.values())
    splits = "1 split" if split_range == "1" else f"{split_range} splits"
    counts = _inducing_counts(board)
    inducing = f"M {_range(counts)}" if counts else "M = n"
    return (
        f"{metric.label} ({metric.unit}; lower is better) on {data_sets}, "
        f"{splits} in common; kernel {board.subject.kernel}; {inducing}"
    )


def caption(board: Board) -> list[str]:
    """Return the lines below the table of a board: rows, settings, meaning of columns, notes."""
    lines = [*_setting_lines(board), *_reading_lines(board)]
    if _unconverged(board):
        lines.append("at limit: share of fits that stopped at their limit of iterations")
    if len(board.data_sets) <= FEW_DATA_SETS:
        lines.append(
            f"{counted(len(board.data_sets), 'data set')}: hardly any methods are separated with "
            "so few; --by dataset says more"
        )
    return lines + board.notes


def _reading_lines(board: Board) -> list[str]:
    """Return lines that say what the columns mean."""
    lines = [
        "rank: shared, unless the best method of a rank is separated from it (paired tests over "
        f"data sets and splits, Nadeau and Bengio's correction, Holm over all pairs, level {ALPHA})"
    ]
    if board.reference is not None:
        reference = distinct_labels(board)[board.reference]
        lines.append(
            f"won/tied/lost: data sets, by tests against {reference} with Holm's correction; "
            f"median gain: in {board.metric.gain_of}, over data sets"
        )
    if not _is_of_time(board):
        lines.append("seconds: median over data sets to train on a split, all candidates included")
    if math.isfinite(board.friedman):
        lines.append(
            f"Friedman's test: p = {board.friedman:.2g}; "
            f"Nemenyi's critical difference of mean ranks: {board.nemenyi:.2f}"
        )
    return lines


def data_set_caption(board: Board) -> list[str]:
    """Return the lines below scores by data set."""
    lines = _setting_lines(board)
    lines.append(f"{BEST_MARK} the best, and what no test separates from it on that data set")
    return lines + remarks(board)


def subject_lines(board: Board) -> list[str]:
    """Return lines with the metric, data sets, splits, kernel, M, rows and settings of a board."""
    return [title(board), *_setting_lines(board)]


def _setting_lines(board: Board) -> list[str]:
    """Return a line on the training rows, and a line on the settings that all methods share."""
    differing = _differing_settings(board)
    shared = []
    for name, header in SETTING_HEADERS.items():
        text = board.setting(name)
        if text and name not in differing:
            shared.append(f"{header} {text}")
    shared += _shared_changes(board)
    lines = [_training_rows_in_words(board)]
    if shared:
        lines.append(f"the same for all: {', '.join(shared)}")
    return lines


def remarks(board: Board) -> list[str]:
    """Return remarks on fits that did not converge, and the notes of a board."""
    unconverged = _unconverged(board)
    if not unconverged:
        return board.notes
    return [f"stopped at their limit of iterations: {unconverged}", *board.notes]


def _training_rows(board: Board) -> list[int]:
    """Return the training rows of all methods on all data sets of the board."""
    counts: list[int] = []
    for contender in board.contenders:
        counts += contender.training_rows.values()
    return counts


def _inducing_counts(board: Board) -> list[int]:
    """Return the inducing inputs of all methods on all data sets of the board.

    Exact models, which have an inducing input for each training row, do not count.
    """
    counts = []
    for contender in board.contenders:
        for name, count in contender.inducing.items():
            if count < contender.training_rows[name]:
                counts.append(count)
    return counts


def _range(values: Iterable[int]) -> str:
    """Return the range of numbers as a text: `3 to 10`, `3` if all are equal, `-` if none."""
    numbers = set(values)
    if not numbers:
        return "-"
    least = min(numbers)
    most = max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _most_rows(board: Board, data_set: str) -> int:
    """Return the largest number of training rows of a method on a data set."""
    return max(contender.training_rows[data_set] for contender in board.contenders)


def _training_rows_in_words(board: Board) -> str:
    """Return a line on the numbers of training rows, with the methods that had fewer than others.

    On a data set, a method has a share of the largest number of rows of any method. The line has
    its smallest share on any data set.
    """
    words = f"trained on {_range(_training_rows(board))} rows"
    most_rows = {name: _most_rows(board, name) for name in board.data_sets}
    with_fewer = []
    for label, contender in zip(distinct_labels(board), board.contenders, strict=True):
        shares = [contender.training_rows[name] / most_rows[name] for name in board.data_sets]
        smallest = min(shares)
        if smallest < SAME_ROWS:
            with_fewer.append(f"{label} {100 * smallest:.0f} %")
    if not with_fewer:
        return f"{words}, the same for all methods"
    return f"{words}; not on all of them: {', '.join(with_fewer)}"


def _unconverged(board: Board) -> str:
    """Return a text with the methods that have fits that stopped at their limit; '' if none."""
    words = []
    for label, contender in zip(distinct_labels(board), board.contenders, strict=True):
        if contender.unconverged:
            words.append(f"{label} {contender.unconverged} of {counted(contender.fits, 'fit')}")
    return ", ".join(words)


def data_set_tables(board: Board, width: int) -> list[Table]:
    """Return tables of the mean scores, with a row per data set and a column per method.

    Args:
        board: The leaderboard.
        width: The width of the terminal in letters. If not all methods fit into it, there are
            several tables.
    """
    longest_name = max(map(len, board.data_sets))
    room = width - longest_name - WIDTH_OF_COUNTS
    methods_across = max(room // SCORE_WIDTH, 1)
    methods = range(len(board.contenders))
    best = [best_on(board, d) for d in range(len(board.data_sets))]
    tables: list[Table] = []
    for first in methods[::methods_across]:
        methods_of_table = methods[first : first + methods_across]
        tables.append(_data_set_table(board, methods_of_table, best))
    return tables


def _data_set_table(board: Board, methods: range, best: Sequence[np.ndarray]) -> Table:
    """Return the mean scores of some methods by data set; the best ones have a mark.

    Args:
        board: The leaderboard.
        methods: The positions of the methods.
        best: For each data set, the result of `best_on`.
    """
    table = Table(box=SIMPLE)
    table.add_column("data set", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("splits", justify="right", no_wrap=True)
    labels = distinct_labels(board)
    for k in methods:
        table.add_column(labels[k], justify="right", max_width=SCORE_WIDTH - 2, overflow="fold")
    for d, name in enumerate(board.data_sets):
        cells = [name, str(_most_rows(board, name)), str(board.split_counts[name])]
        for k in methods:
            mark = BEST_MARK if best[d][k] else " "
            cells.append(f"{board.means[k, d]:#.4g}{mark}")
        table.add_row(*cells)
    return table


def best_on(board: Board, d: int) -> np.ndarray:
    """Return which methods are the best on a data set, or not separated from the best [K]."""
    better = separations(board.scores[:, [d]], board.overlaps[[d]])
    return ~better[np.argmin(board.means[:, d])]


def as_json(boards: Iterable[Board]) -> list[dict[str, Any]]:
    """Return boards as values of JSON, with the fields in the docstring of this module."""
    return [_board_values(board) for board in boards]


def _board_values(board: Board) -> dict[str, Any]:
    """Return the fields of a board."""
    reference = board.reference
    methods = range(len(board.contenders))
    return {
        "metric": board.metric.name,
        "unit": board.metric.unit,
        "kernel": board.subject.kernel,
        "task": board.subject.task,
        "data_sets": _data_set_values(board),
        "of": board.data_sets_in_all,
        "friedman_p": rounded(board.friedman),
        "nemenyi_difference": rounded(board.nemenyi),
        "against": None if reference is None else board.contenders[reference].method,
        "methods": [_method_values(board, k) for k in methods],
        "notes": board.notes,
    }


def _data_set_values(board: Board) -> list[dict[str, Any]]:
    """Return the fields of each data set: its name, splits and overlap."""
    data_sets = []
    for name, overlap in zip(board.data_sets, board.overlaps, strict=True):
        splits = board.split_counts[name]
        data_sets.append({"data_set": name, "splits": splits, "overlap": rounded(overlap)})
    return data_sets


def _method_values(board: Board, k: int) -> dict[str, Any]:
    """Return the fields of a method, over all data sets and on each."""
    contender = board.contenders[k]
    data_sets = range(len(board.data_sets))
    values: dict[str, Any] = {
        "method": contender.method,
        "label": distinct_labels(board)[k],
        "trained_by": contender.trained_by,
        "setting": {name: text for name, text in contender.setting.items() if text},
        "rank": int(board.rank[k]),
        "mean_rank": rounded(board.mean_rank[k]),
        "interval": [rounded(bound) for bound in board.interval[:, k]],
        "score": rounded(board.means[k].mean()),
        "seconds": rounded(median_seconds(board, k)),
        "data_sets": contender.data_set_count,
        "unconverged": contender.unconverged,
        "fits": contender.fits,
    }
    if board.reference is not None:
        won, tied, lost = outcomes(board, k)
        values |= {"won": won, "tied": tied, "lost": lost}
        values["median_gain"] = rounded(median_gain(board, k))
    values["by_data_set"] = [_values_on_data_set(board, k, d) for d in data_sets]
    return values


def _values_on_data_set(board: Board, k: int, d: int) -> dict[str, Any]:
    """Return the fields of a method on a data set."""
    contender = board.contenders[k]
    name = board.data_sets[d]
    values: dict[str, Any] = {
        "data_set": name,
        "score": rounded(board.means[k, d]),
        "rows": contender.training_rows[name],
        "inducing": contender.inducing.get(name),
        "seconds": rounded(contender.seconds.get(name, math.nan)),
    }
    comparison = board.against_reference
    if comparison is not None:
        values["difference"] = rounded(comparison.difference[k, d])
        values["half_width"] = rounded(comparison.half_width[k, d])
    return values


def rounded(value: float) -> float | None:
    """Return a number with 6 significant digits; None for one that is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _number(value: float, form: str) -> str:
    """Return a number in a format; `-` if it is not finite."""
    if not math.isfinite(value):
        return "-"
    return format(value, form)


def _percent(share: float) -> str:
    """Return `+2.5 %` for 0.025; `-` if it is not finite."""
    if not math.isfinite(share):
        return "-"
    return f"{100 * share:+.1f} %"
