"""Draw the figures of leaderboards: `ranks`, `gains` and `cost` (docs/SPEC.md, section 8).

They show the boards that `dlmexp rank` prints. As a board is over all data sets, these figures are
not made of objects `Panel`, each of which is on one data set; in this module, a panel is a pair of
axes. Each subject of a board, that is each task and kernel, has a figure to itself.

Arrays `[K, D]` are of K methods and D data sets, in the order of the board.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dlmexp.presentation.figures.axes import log_ticks
from dlmexp.presentation.figures.looks import (
    GREY,
    INK,
    METHOD_LOOKS,
    PAGE_HEIGHT,
    TEXT_WIDTH,
    Look,
    method_look,
    paper_style,
)
from dlmexp.presentation.figures.panels import COST, GAINS, RANKS
from dlmexp.presentation.ranking.board import Board, Subject
from dlmexp.presentation.ranking.render import distinct_labels, remarks, subject_lines
from dlmexp.presentation.ranking.statistics import ReferenceComparison

LOSSES = ("nll", "crps", "rmse", "error")
RANKED_METRICS = (*LOSSES, "coverage")
ROW_HEIGHT = 0.17  # inches of a row of a method or a data set
# The figure `gains` has one of three forms. With at most this many methods, it has a panel for each
# board, with a row for each data set.
MAX_FOREST_METHODS = 5
# Otherwise, with at most this many data sets, it has a panel for each data set and board, with a
# row for each method. Otherwise it is a heat map.
MAX_DATA_SETS_WITH_PANELS = 4
METHOD_SPREAD = 0.7  # the part of a data set's row over which methods are spread
MAX_TICK_INTERVALS = 4  # on the x-axis of a panel with a row for each method
# In such a panel, differences larger than the median by this factor are written at the edge.
OFF_SCALE_FACTOR = 5.0
BAR_DISTANCE = 0.035  # between bars that join methods, as a share of all ranks
# Methods without a look in `METHOD_LOOKS` take these colours and markers in turn.
OTHER_COLOURS = ("#555555", "#8C6239", "#4B6A88", "#6B8E23")
OTHER_MARKERS = ("H", "h", "p", "8")
THIN_MARKERS = "1234x+|_"  # markers without a face, which are drawn larger by `THIN_FACTOR`
THIN_FACTOR = 1.6
PANELS_IN_A_ROW = 3
# Colours of a heat map are numbers from -1 to 1, which are lightest at 0. Where the absolute value
# is larger than this, marks are white.
DARK = 0.55


@dataclass(frozen=True)
class BoardFigure:
    """The definition of a figure of leaderboards.

    Attributes:
        name: Its name in commands and files.
        title: Its title.
        caption: Its caption.
        metrics: The metrics whose boards it shows.
        render: The function that draws the boards of one subject.
        numbers: The function that returns the numbers in the picture, with a row for each point.
    """

    name: str
    title: str
    caption: str
    metrics: tuple[str, ...]
    render: Callable[[Sequence[Board]], MatplotlibFigure]
    numbers: Callable[[Sequence[Board]], pd.DataFrame]


@dataclass(frozen=True)
class DrawnBoards:
    """The figure of one subject, with its numbers and the text of its caption file."""

    name: str
    picture: MatplotlibFigure
    numbers: pd.DataFrame
    text: str


def draw_boards(figure: BoardFigure, boards: dict[Subject, list[Board]]) -> Iterator[DrawnBoards]:
    """Yield the figure of each subject that has boards of the figure's metrics."""
    for subject, boards_of_subject in boards.items():
        boards_to_draw = [
            board for board in boards_of_subject if board.metric.name in figure.metrics
        ]
        if not boards_to_draw:
            continue
        name = figure.name
        if len(boards) > 1:
            words = f"{figure.name}-{subject.task}-{subject.kernel}"
            name = re.sub(r"[^\w.=+-]+", "_", words)
        with paper_style():
            picture = figure.render(boards_to_draw)
        numbers = figure.numbers(boards_to_draw)
        yield DrawnBoards(name, picture, numbers, _caption_file(figure, boards_to_draw))


def _caption_file(figure: BoardFigure, boards: Sequence[Board]) -> str:
    """Return the caption file, in Markdown."""
    notes: list[str] = []
    for board in boards:
        notes += [*subject_lines(board), *remarks(board)]
    items = [f"- {note}" for note in dict.fromkeys(notes)]
    return "\n".join([f"# {figure.title}", "", figure.caption, "", *items, ""])


def looks_of(board: Board) -> list[Look]:
    """Return the look of each method.

    Methods without a look in `METHOD_LOOKS` get colours and markers in turn.
    """
    looks: list[Look] = []
    count_without_look = 0
    for contender, label in zip(board.contenders, distinct_labels(board), strict=True):
        if contender.method in METHOD_LOOKS:
            usual = method_look(contender.method)
            looks.append(Look(label, usual.colour, usual.marker))
        else:
            colour = OTHER_COLOURS[count_without_look % len(OTHER_COLOURS)]
            marker = OTHER_MARKERS[count_without_look % len(OTHER_MARKERS)]
            looks.append(Look(label, colour, marker))
            count_without_look += 1
    return looks


def _marker_size(look: Look, size: float) -> float:
    """Return the size at which a method's marker looks as large as others of the given size."""
    return THIN_FACTOR * size if look.marker in THIN_MARKERS else size


def _legend_entry(look: Look, size: float) -> Line2D:
    """Return a method's marker for a legend."""
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=look.marker,
        color=look.colour,
        markersize=_marker_size(look, size),
        label=look.label,
    )


# ranks -------------------------------------------------------------------------------------------


def cliques(better: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last position of each clique.

    A clique is a run of neighbouring methods no two of which are separated by a test. Cliques of a
    single method and cliques within longer cliques are left out.

    Args:
        better: Whether method i is better than method j, and a test separates them `[i, j]`.
            Methods are ordered by rank.
    """
    is_separated = better | better.T
    ends: list[tuple[int, int]] = []
    last_of_previous = 0
    for first in range(len(better)):
        last = _last_of_clique(is_separated, first)
        is_single = last == first
        is_in_previous = last <= last_of_previous
        if not is_single and not is_in_previous:
            ends.append((first, last))
            last_of_previous = last
    return ends


def _last_of_clique(is_separated: np.ndarray, first: int) -> int:
    """Return the last position of the longest clique that begins at a position."""
    last = first
    for candidate in range(first + 1, len(is_separated)):
        run = slice(first, candidate + 1)
        if is_separated[run, run].any():
            break
        last = candidate
    return last


def render_ranks(boards: Sequence[Board]) -> MatplotlibFigure:
    """Draw mean ranks with intervals, and bars that join methods that no test separates."""
    rows = math.ceil(len(boards) / PANELS_IN_A_ROW)
    columns = math.ceil(len(boards) / rows)
    method_count = max(len(board.contenders) for board in boards)
    height = min(rows * (0.45 + ROW_HEIGHT * method_count), PAGE_HEIGHT)
    picture = MatplotlibFigure(figsize=(TEXT_WIDTH, height), layout="constrained")
    grid = picture.add_gridspec(rows, columns)
    for number, board in enumerate(boards):
        row, column = divmod(number, columns)
        ax = picture.add_subplot(grid[row, column])
        _draw_ranks(ax, board)
    return picture


def _draw_ranks(ax: Axes, board: Board) -> None:
    """Draw a panel with a row for each method, the best method on top."""
    looks = looks_of(board)
    count = len(looks)
    for k, look in enumerate(looks):
        ax.plot(board.interval[:, k], [k, k], "-", color=look.colour, linewidth=1.4, alpha=0.6)
        size = _marker_size(look, 4)
        ax.plot([board.mean_rank[k]], [k], look.marker, color=look.colour, markersize=size)
    edge = _draw_cliques(ax, board)
    ax.set_yticks(range(count), [look.label for look in looks])
    ax.set(xlim=(0.6, edge), ylim=(count - 0.4, -0.6), xlabel="mean rank")
    ticks = MaxNLocator(5, integer=True).tick_values(1, count)
    ax.set_xticks([tick for tick in ticks if 1 <= tick <= count])
    ax.set_title(f"{board.metric.label}, {len(board.data_sets)} data sets", loc="left")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")


def _draw_cliques(ax: Axes, board: Board) -> float:
    """Draw a bar for each clique, which joins its methods; the bars stand side by side.

    Returns:
        The x of the right edge of the panel, beyond the bars.
    """
    count = len(board.contenders)
    x = count + 0.6  # right of the last rank
    for first, last in cliques(board.better):
        ax.plot([x, x], [first - 0.3, last + 0.3], color=INK, linewidth=1.6)
        x += BAR_DISTANCE * count
    return x


def numbers_of_ranks(boards: Sequence[Board]) -> pd.DataFrame:
    """Return the rows of the CSV of `ranks`: one for each method and metric."""
    rows = []
    for board in boards:
        low, high = board.interval
        for k, label in enumerate(distinct_labels(board)):
            row = {
                "metric": board.metric.name,
                "method": label,
                "rank": board.rank[k],
                "mean_rank": board.mean_rank[k],
                "low": low[k],
                "high": high[k],
                "mean": board.means[k].mean(),
                "data_sets": len(board.data_sets),
            }
            rows.append(row)
    return pd.DataFrame(rows)


# gains -------------------------------------------------------------------------------------------


def render_gains(boards: Sequence[Board]) -> MatplotlibFigure:
    """Draw the difference to the reference by data set: forests of intervals, or a heat map."""
    with_reference = [board for board in boards if board.reference is not None]
    challenger_count = max(len(_challengers(board)) for board in with_reference)
    data_set_count = max(len(board.data_sets) for board in with_reference)
    if challenger_count <= MAX_FOREST_METHODS:
        return _render_forests(with_reference)
    if data_set_count <= MAX_DATA_SETS_WITH_PANELS:
        return _render_method_forests(with_reference)
    return _render_heat_maps(with_reference)


def _comparison(board: Board) -> ReferenceComparison:
    """Return the comparisons of the methods of a board with its reference, which it must have."""
    comparison = board.against_reference
    assert comparison is not None
    return comparison


def _differences(comparison: ReferenceComparison) -> np.ndarray:
    """Return the mean score of each method minus that of the reference `[K, D]`.

    It is negative where the method is better. `ReferenceComparison.difference` has the other sign.
    """
    return -comparison.difference


def _challengers(board: Board, order: Sequence[str] = ()) -> list[int]:
    """Return the positions on the board of all methods but the reference.

    They are sorted like their labels in `order`; methods whose labels are not in it come last.
    """
    labels = distinct_labels(board)
    challengers = [k for k in range(len(labels)) if k != board.reference]
    position_of = {label: position for position, label in enumerate(order)}
    return sorted(challengers, key=lambda k: position_of.get(labels[k], len(position_of)))


def _reference_label(board: Board) -> str:
    """Return the label of the reference of a board, which the board must have."""
    assert board.reference is not None
    return distinct_labels(board)[board.reference]


def _render_forests(boards: Sequence[Board]) -> MatplotlibFigure:
    """Draw a panel for each board, with a row for each data set and an interval per method."""
    data_set_count = max(len(board.data_sets) for board in boards)
    challenger_count = max(len(_challengers(board)) for board in boards)
    row_height = max(ROW_HEIGHT, 0.07 * challenger_count)
    height = min(0.8 + row_height * data_set_count, PAGE_HEIGHT)
    picture = MatplotlibFigure(figsize=(TEXT_WIDTH, height), layout="constrained")
    axes = picture.subplots(1, len(boards), squeeze=False)[0]
    order = distinct_labels(boards[0])
    handles: dict[str, Line2D] = {}
    for ax, board in zip(axes, boards, strict=True):
        handles |= _draw_forest(ax, board, order)
        ax.tick_params(axis="y", length=0, labelleft=ax is axes[0])
    picture.legend(handles=list(handles.values()), loc="outside upper center", ncols=5)
    return picture


def _draw_forest(ax: Axes, board: Board, order: Sequence[str]) -> dict[str, Line2D]:
    """Draw a row per data set with an interval per method; return legend entries by label."""
    comparison = _comparison(board)
    differences = _differences(comparison)
    challengers = _challengers(board, order)
    looks = looks_of(board)
    # Methods stand at different heights within the row of a data set, away from its edges.
    edges_and_shifts = np.linspace(-METHOD_SPREAD / 2, METHOD_SPREAD / 2, len(challengers) + 2)
    shifts = edges_and_shifts[1:-1]
    heights = np.arange(len(board.data_sets))
    handles: dict[str, Line2D] = {}
    for shift, k in zip(shifts, challengers, strict=True):
        look = looks[k]
        half_width = comparison.half_width[k]
        ax.errorbar(
            differences[k],
            heights + shift,
            xerr=np.where(np.isfinite(half_width), half_width, 0.0),
            fmt=look.marker,
            color=look.colour,
            markersize=_marker_size(look, 2.6),
            elinewidth=0.8,
            capsize=0,
        )
        handles[look.label] = _legend_entry(look, 3.6)
    ax.set_xscale("symlog", linthresh=_linear_range(differences[challengers]))
    ax.axvline(0.0, color=INK, linewidth=0.6)
    ax.set_yticks(heights, board.data_sets)
    ax.set_ylim(len(heights) - 0.5, -0.5)
    ax.set_xlabel(f"Δ {board.metric.label} to {_reference_label(board)}")
    ax.grid(visible=True, axis="x")
    return handles


def _render_method_forests(boards: Sequence[Board]) -> MatplotlibFigure:
    """Draw panels by data set (rows) and metric (columns), each with a row per method."""
    data_sets = _all_data_sets(boards)
    labels = distinct_labels(boards[0])
    order = [labels[k] for k in _challengers(boards[0])]
    height = 0.55 + len(data_sets) * (0.45 + 0.8 * ROW_HEIGHT * len(order))
    picture = MatplotlibFigure(figsize=(TEXT_WIDTH, min(height, PAGE_HEIGHT)), layout="constrained")
    axes = picture.subplots(len(data_sets), len(boards), squeeze=False, sharey=True)
    for data_set, axes_of_row in zip(data_sets, axes, strict=True):
        for ax, board in zip(axes_of_row, boards, strict=True):
            _draw_methods(ax, board, data_set, order)
    for ax in axes[:, 0]:
        ax.set_yticks(range(len(order)), order)
    for ax, board in zip(axes[-1], boards, strict=True):
        ax.set_xlabel(f"Δ {board.metric.label} to {_reference_label(board)}")
    return picture


def _all_data_sets(boards: Sequence[Board]) -> list[str]:
    """Return the data sets of all boards, each once."""
    names: dict[str, None] = {}  # an ordered set
    for board in boards:
        names.update(dict.fromkeys(board.data_sets))
    return list(names)


def _draw_methods(ax: Axes, board: Board, data_set: str, order: Sequence[str]) -> None:
    """Draw a panel of one data set, with a row for each method in `order`.

    The panel is empty if the board lacks the data set.
    """
    ax.axvline(0.0, color=INK, linewidth=0.6)
    ax.set_title(data_set, loc="left")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(MAX_TICK_INTERVALS))
    if data_set in board.data_sets:
        _draw_intervals(ax, board, data_set, order)


def _draw_intervals(ax: Axes, board: Board, data_set: str, order: Sequence[str]) -> None:
    """Draw the difference of each method to the reference on one data set, with its interval.

    Large differences do not fit on the scale; they are written at the edge. Methods that are not in
    `order` have no row and are left out.
    """
    comparison = _comparison(board)
    d = board.data_sets.index(data_set)
    looks = looks_of(board)
    challengers = _challengers(board, order)
    differences = _differences(comparison)[challengers, d]
    largest = _largest_on_scale(differences)
    for difference, k in zip(differences, challengers, strict=True):
        look = looks[k]
        if look.label not in order:
            continue
        row = order.index(look.label)
        if abs(difference) > largest:
            _write_at_edge(ax, difference, row, look)
            continue
        half_width = comparison.half_width[k, d]
        ax.errorbar(
            [difference],
            [row],
            xerr=[half_width if np.isfinite(half_width) else 0.0],
            fmt=look.marker,
            color=look.colour,
            markersize=_marker_size(look, 3),
            elinewidth=1.0,
            capsize=0,
        )


def _largest_on_scale(differences: np.ndarray) -> float:
    """Return the largest absolute difference that a panel draws as a point."""
    absolute = np.abs(differences[np.isfinite(differences)])
    if not len(absolute):
        return 0.0
    on_scale = absolute[absolute <= OFF_SCALE_FACTOR * np.median(absolute)]
    return float(on_scale.max(initial=0.0))


def _write_at_edge(ax: Axes, difference: float, row: int, look: Look) -> None:
    """Write a difference that is off the scale at the left or right edge of its row."""
    is_low = difference < 0
    words = f"◂ {difference:.3g}" if is_low else f"{difference:.3g} ▸"
    ax.text(
        0.01 if is_low else 0.99,
        row,
        words,
        transform=ax.get_yaxis_transform(),
        ha="left" if is_low else "right",
        va="center",
        fontsize=6,
        color=look.colour,
    )


def _linear_range(differences: np.ndarray) -> float:
    """Return the end of the linear part of a symmetric log scale, which begins at 0.

    It is the largest power of ten that is at most the median absolute difference. Differences of 0
    are left out of the median.
    """
    is_known = np.isfinite(differences) & (differences != 0)
    if not is_known.any():
        return 1.0
    usual = np.median(np.abs(differences[is_known]))
    return 10.0 ** np.floor(np.log10(usual))


def _render_heat_maps(boards: Sequence[Board]) -> MatplotlibFigure:
    """Draw a heat map for each board, with a row for each data set and a column per method."""
    data_set_count = max(len(board.data_sets) for board in boards)
    height = min(1.4 + ROW_HEIGHT * data_set_count, PAGE_HEIGHT)
    picture = MatplotlibFigure(figsize=(TEXT_WIDTH, height), layout="constrained")
    axes = picture.subplots(1, len(boards), squeeze=False)[0]
    order = distinct_labels(boards[0])
    for ax, board in zip(axes, boards, strict=True):
        _draw_heat_map(picture, ax, board, order)
        ax.tick_params(axis="y", length=0, labelleft=ax is axes[0])
    return picture


def _draw_heat_map(picture: MatplotlibFigure, ax: Axes, board: Board, order: Sequence[str]) -> None:
    """Draw a cell per data set and method.

    A dot marks a method that a test finds better than the reference, a cross one that it finds
    worse.
    """
    comparison = _comparison(board)
    challengers = _challengers(board, order)
    looks = looks_of(board)
    differences = _differences(comparison)[challengers].T  # [D, K]
    largest = float(np.nanmax(np.abs(differences))) or 1.0
    linear = min(_linear_range(differences), largest)
    norm = SymLogNorm(linthresh=linear, vmin=-largest, vmax=largest)
    image = ax.imshow(differences, aspect="auto", cmap="RdBu_r", norm=norm)
    # `norm` returns numbers from 0 to 1, and the colour map is lightest at 0.5.
    colour_numbers = 2 * norm(differences) - 1
    is_dark = np.abs(colour_numbers) > DARK
    _mark(ax, comparison.won[challengers].T, is_dark, ".")
    _mark(ax, comparison.lost[challengers].T, is_dark, "x")
    labels = [looks[k].label for k in challengers]
    ax.set_xticks(range(len(challengers)), labels, rotation=90)
    ax.set_yticks(range(len(board.data_sets)), board.data_sets)
    ax.grid(visible=False)
    ax.tick_params(axis="x", length=0)
    ax.set_title(f"Δ {board.metric.label} to {_reference_label(board)}", loc="left")
    colour_bar = picture.colorbar(image, ax=ax, location="bottom", aspect=25, pad=0.02)
    colour_bar.ax.tick_params(labelsize=5.5)


def _mark(ax: Axes, is_marked: np.ndarray, is_dark: np.ndarray, marker: str) -> None:
    """Draw marks on cells of a heat map, white on dark cells.

    Args:
        ax: The axes.
        is_marked: Which cells have a mark `[D, K]`.
        is_dark: Which cells are dark `[D, K]`.
        marker: The marker.
    """
    cells_by_colour = {INK: is_marked & ~is_dark, "white": is_marked & is_dark}
    for colour, cells in cells_by_colour.items():
        rows, columns = np.nonzero(cells)
        ax.plot(columns, rows, marker, color=colour, markersize=2.2, markeredgewidth=0.6)


def numbers_of_gains(boards: Sequence[Board]) -> pd.DataFrame:
    """Return the rows of the CSV of `gains`: one for each method, data set and metric."""
    rows: list[dict[str, Any]] = []
    for board in boards:
        comparison = board.against_reference
        if comparison is not None:
            rows += _gains_of_board(board, comparison)
    return pd.DataFrame(rows)


def _gains_of_board(board: Board, comparison: ReferenceComparison) -> list[dict[str, Any]]:
    """Return a row for each method and data set of a board."""
    labels = distinct_labels(board)
    differences = _differences(comparison)
    rows = []
    for k in _challengers(board):
        for d, name in enumerate(board.data_sets):
            row = {
                "metric": board.metric.name,
                "dataset": name,
                "method": labels[k],
                "difference": differences[k, d],
                "half_width": comparison.half_width[k, d],
                "won": comparison.won[k, d],
                "lost": comparison.lost[k, d],
                "splits": board.split_counts[name],
            }
            rows.append(row)
    return rows


# cost --------------------------------------------------------------------------------------------


def pareto_front(seconds: np.ndarray, losses: np.ndarray) -> list[int]:
    """Return the numbers of the points on the Pareto front, the fastest first.

    A point is on the front if no other point is better in both seconds and loss.
    """
    front: list[int] = []
    lowest_loss = np.inf
    by_seconds_then_loss = np.lexsort((losses, seconds))
    for k in by_seconds_then_loss:
        is_known = np.isfinite(seconds[k]) and np.isfinite(losses[k])
        if is_known and losses[k] < lowest_loss:
            front.append(int(k))
            lowest_loss = losses[k]
    return front


def _costs(board: Board) -> np.ndarray:
    """Return the seconds to train a split by method, geometric means over data sets `[K]`."""
    with np.errstate(divide="ignore"):  # 0 seconds have the logarithm -inf
        return np.exp(np.log(board.seconds()).mean(axis=1))


def render_cost(boards: Sequence[Board]) -> MatplotlibFigure:
    """Draw the mean loss against seconds to train, with the Pareto front.

    Methods whose seconds are not known are left out.
    """
    (board,) = boards  # the figure has a single metric
    picture = MatplotlibFigure(figsize=(TEXT_WIDTH, 3.0), layout="constrained")
    ax = picture.subplots()
    seconds = _costs(board)
    losses = board.means.mean(axis=1)
    front = pareto_front(seconds, losses)
    ax.step(seconds[front], losses[front], where="post", color=GREY, linewidth=0.9, zorder=1)
    looks = looks_of(board)
    best_first = [k for k in np.argsort(losses, kind="stable") if np.isfinite(seconds[k])]
    for k in best_first:
        look = looks[k]
        size = _marker_size(look, 5)
        ax.plot([seconds[k]], [losses[k]], look.marker, color=look.colour, markersize=size)
    picture.legend(
        handles=[_legend_entry(looks[k], 4.5) for k in best_first],
        labelcolor=[INK if k in front else GREY for k in best_first],
        loc="outside right upper",
    )
    ax.set_xscale("log")
    ax.margins(x=0.05, y=0.1)
    log_ticks(ax.xaxis)
    ax.set_xlabel("seconds to train a split, geometric mean over data sets")
    ax.set_ylabel(f"mean {board.metric.label} over {len(board.data_sets)} data sets")
    return picture


def numbers_of_cost(boards: Sequence[Board]) -> pd.DataFrame:
    """Return the rows of the CSV of `cost`: one for each method, with its seconds and loss."""
    (board,) = boards  # the figure has a single metric
    seconds = _costs(board)
    losses = board.means.mean(axis=1)
    front = pareto_front(seconds, losses)
    rows = []
    for k, label in enumerate(distinct_labels(board)):
        row = {
            "method": label,
            "seconds": seconds[k],
            board.metric.name: losses[k],
            "on_front": k in front,
        }
        rows.append(row)
    return pd.DataFrame(rows)


BOARD_FIGURES = {
    figure.name: figure
    for figure in (
        BoardFigure(
            RANKS,
            "Mean ranks over data sets.",
            "Mean ranks with bootstrap intervals over data sets; a bar joins methods of which no "
            "pair is separated.",
            RANKED_METRICS,
            render_ranks,
            numbers_of_ranks,
        ),
        BoardFigure(
            GAINS,
            "Differences to ELBO on every data set.",
            "Differences to ELBO by data set, negative where a method is better; intervals (95 %) "
            "and tests are corrected for overlapping splits. In a heat map, a dot marks a method "
            "that a test finds better than ELBO, and a cross one that it finds worse. A number at "
            "the edge of a panel is a difference outside of it.",
            LOSSES,
            render_gains,
            numbers_of_gains,
        ),
        BoardFigure(
            COST,
            "NLL against seconds to train.",
            "Mean NLL over data sets against the seconds to train a split with all candidates; the "
            "line is the Pareto front, whose methods have dark names; names are sorted by NLL, the "
            "best on top.",
            ("nll",),
            render_cost,
            numbers_of_cost,
        ),
    )
}
