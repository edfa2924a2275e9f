"""Draw the figure `claims`: the paper's claims by data set, with a mark for each test.

It shows the verdicts that `dlmexp claims` prints, and is not made of panels. That command prints a
column of verdicts for each protocol; each of these columns has a figure to itself. A figure has a
row for each claim and a column for each data set.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from dlmexp.common.catalogue import PAPER, family
from dlmexp.presentation.claims.claim import ClaimTest, Part
from dlmexp.presentation.claims.judge import ClaimVerdict, Judged, by_section
from dlmexp.presentation.claims.rules import Outcome, Verdict
from dlmexp.presentation.figures.looks import GREY, INK, PAGE_HEIGHT, TEXT_WIDTH, paper_style

TITLE = "The paper's claims by data set."
CAPTION = (
    "Each mark is a test of a claim at one size of a data set (and one parameterisation of q): "
    "supported, contradicted, no difference, or can't tell. Right: the verdict, with the number of "
    "tests that support it. Light boxes: the claim names the data set, which is not available. "
    "Stars: stand-ins. No data: the claim needs none."
)
NO_DATA = "none"  # the column of claims that need no data
# The colours are those of Okabe and Ito. Shapes differ too, so that a print without colours can be
# read.
MARKS: dict[Outcome, dict[str, Any]] = {
    Outcome.SUPPORTED: {"marker": "o", "color": "#0072B2", "markersize": 2.6},
    Outcome.CONTRADICTED: {"marker": "x", "color": "#D55E00", "markersize": 2.8},
    Outcome.NO_DIFFERENCE: {
        "marker": "s",
        "color": INK,
        "markersize": 2.4,
        "markerfacecolor": "white",
        "markeredgewidth": 0.5,
    },
    Outcome.UNCLEAR: {"marker": ".", "color": GREY, "markersize": 1.8},
}
NOT_AVAILABLE_BOX = {"facecolor": "#f0f0f0", "edgecolor": "none", "zorder": 0}
# In inches:
CLAIM_WIDTH = 2.25  # of the column of claims, at the left
VERDICT_WIDTH = 1.1  # of the column of verdicts, at the right
MARK_WIDTH = 0.047  # from one mark to the next
MARK_HEIGHT = 0.052  # from one line of marks to the next
TEXT_LINE_HEIGHT = 0.081  # of a line of text of a claim
GAP = 0.035  # between two claims
SECTION_HEIGHT = 0.15  # of the title of a section
HEAD_HEIGHT = 0.74  # of the legend, its explanation and the names of data sets
LETTERS_IN_A_LINE = 60  # of the text of a claim
FONT_SIZE = 5.0
EXPLANATION = (
    "Protocol: {}.  Right: supported of all tests.\n"
    "* stand-in for the paper's data.  no data: needs none."
)


@dataclass(frozen=True)
class Row:
    """A claim in the figure.

    Attributes:
        verdict: The verdict, with the claim that it is about.
        words: The number and the text of the claim, wrapped into lines.
        tests: The tests that count for the verdict, by column of the figure.
        not_available: The columns of data sets that the claim names and that are not available.
    """

    verdict: ClaimVerdict
    words: list[str]
    tests: dict[str, list[ClaimTest]]
    not_available: list[str]

    def height(self, marks_across: int) -> float:
        """Return the height of the row in inches.

        Args:
            marks_across: The number of marks side by side in a column.
        """
        largest_count = max((len(tests) for tests in self.tests.values()), default=0)
        height_of_marks = MARK_HEIGHT * math.ceil(largest_count / marks_across)
        height_of_words = TEXT_LINE_HEIGHT * len(self.words)
        return max(height_of_marks, height_of_words) + GAP


@dataclass(frozen=True)
class DrawnVerdicts:
    """The figure of one protocol, with its numbers and the text of its caption file."""

    name: str
    picture: MatplotlibFigure
    numbers: pd.DataFrame
    text: str


def draw_verdicts(judged: Judged) -> list[DrawnVerdicts]:
    """Return a figure for each protocol, that is for each column of verdicts.

    The figure of the first protocol is called `claims`; the names of others contain their protocol.
    """
    drawn = []
    for position, column in enumerate(judged.columns):
        # A label is the protocol; changed settings follow after a comma.
        setting = column.label
        protocol = setting.split(",")[0]
        name = "claims" if position == 0 else f"claims-{protocol}"
        sections = _sections(judged, setting)
        with paper_style():
            picture = render(sections, setting)
        text = f"# {TITLE}\n\n{CAPTION}\n\n- Setting: {setting}.\n"
        drawn.append(DrawnVerdicts(name, picture, numbers(sections), text))
    return drawn


def _sections(judged: Judged, setting: str) -> list[tuple[str, list[Row]]]:
    """Return the sections of the paper, each with its claims that have tests under a setting."""
    sections = []
    for section, claims in by_section(judged):
        rows: list[Row] = []
        for _, verdict_by_setting in claims:
            if setting in verdict_by_setting:
                rows.append(_row(verdict_by_setting[setting]))
        tested = [row for row in rows if row.tests]
        if tested:
            sections.append((section, tested))
    return sections


def _row(verdict: ClaimVerdict) -> Row:
    """Return the row of a claim in the figure."""
    tests: dict[str, list[ClaimTest]] = {}
    for part in verdict.parts_run:
        if not part.supplementary:
            tests.setdefault(_column_of(part), []).extend(part.tests)
    words = textwrap.wrap(f"{verdict.claim.number}  {verdict.claim.text}", LETTERS_IN_A_LINE)
    return Row(verdict, words, tests, verdict.not_available)


def _column_of(part: Part) -> str:
    """Return the column of a part of a claim: its data set, with a star if it is a stand-in."""
    if part.stands_for:
        return f"{part.dataset}*"
    return part.dataset or NO_DATA


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns of the figure.

    Data sets with tests come first, in the order of the paper. Then come data sets that are not
    available, unless a data set of the same family has tests. The last column is `NO_DATA`, if it
    has tests.
    """
    tested: set[str] = set()
    not_available: dict[str, None] = {}  # an ordered set
    for row in rows:
        tested.update(row.tests)
        not_available.update(dict.fromkeys(row.not_available))
    columns = sorted(tested - {NO_DATA}, key=_order_of_paper)
    tested_families = {family(_base_name(column)) for column in tested}
    for name in not_available:
        if name not in tested and family(name) not in tested_families:
            columns.append(name)
    if NO_DATA in tested:
        columns.append(NO_DATA)
    return columns


def _base_name(column: str) -> str:
    """Return the data set of a column without star and version: `peds1` for `peds1_dir2*`."""
    return column.rstrip("*").split("_")[0]


def _order_of_paper(column: str) -> tuple[int, str]:
    """Return a sort key: data sets of the paper in its order, then other data sets by name.

    If the paper has no data set of the name, the base name decides: `sarcos_test` has the position
    of `sarcos`.
    """
    positions = {family(name): position for position, name in enumerate(PAPER)}
    position = positions.get(family(column.rstrip("*")))
    if position is None:
        position = positions.get(family(_base_name(column)), len(positions))
    return position, column


def render(sections: Sequence[tuple[str, Sequence[Row]]], setting: str) -> MatplotlibFigure:
    """Draw the claims from top to bottom under the name of a setting; lengths are in inches."""
    rows: list[Row] = []
    for _, rows_of_section in sections:
        rows += rows_of_section
    columns = _columns(rows)
    column_width = (TEXT_WIDTH - CLAIM_WIDTH - VERDICT_WIDTH) / max(len(columns), 1)
    marks_across = max(int((column_width - MARK_WIDTH) / MARK_WIDTH), 1)
    height_of_rows = sum(row.height(marks_across) for row in rows)
    height = HEAD_HEIGHT + SECTION_HEIGHT * len(sections) + height_of_rows
    picture = MatplotlibFigure(figsize=(TEXT_WIDTH, min(height, PAGE_HEIGHT)))
    ax = picture.add_axes((0, 0, 1, 1))
    # Coordinates are inches from the upper left corner.
    ax.set(xlim=(0, TEXT_WIDTH), ylim=(height, 0))
    ax.set_axis_off()
    left_edges: dict[str, float] = {}
    for number, column in enumerate(columns):
        left_edges[column] = CLAIM_WIDTH + number * column_width
    _draw_head(ax, left_edges, setting)
    y = HEAD_HEIGHT
    for section, rows_of_section in sections:
        ax.text(0.03, y + 0.11, section, fontsize=6, weight="bold", color=INK)
        ax.plot([0.03, TEXT_WIDTH - 0.03], [y + 0.02] * 2, color="#cccccc", linewidth=0.5)
        y += SECTION_HEIGHT
        for row in rows_of_section:
            _draw_row(ax, row, y, left_edges, column_width, marks_across)
            y += row.height(marks_across)
    return picture


def _draw_head(ax: Axes, left_edges: dict[str, float], setting: str) -> None:
    """Draw the legend with its explanation, and the names of data sets above their columns.

    Args:
        ax: The axes.
        left_edges: The left edge of each column.
        setting: The setting under which the verdicts hold.
    """
    handles: list[Line2D | Rectangle] = []
    for outcome, style in MARKS.items():
        mark = Line2D([], [], linestyle="none", label=str(outcome), **style)
        handles.append(mark)
    handles.append(Rectangle((0, 0), 1, 1, label="not available", **NOT_AVAILABLE_BOX))  # pyright: ignore[reportArgumentType]
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=2,
        fontsize=5.5,
        markerscale=1.4,
        handlelength=1.2,
    )
    bottom = HEAD_HEIGHT - 0.03
    for column, left in left_edges.items():
        name = "no data" if column == NO_DATA else column
        ax.text(left + 0.06, bottom, name, rotation=45, fontsize=5.5, color=INK)
    words = EXPLANATION.format(setting)
    ax.text(0.03, bottom, words, fontsize=FONT_SIZE, va="bottom", linespacing=1.15, color=INK)


def _draw_row(
    ax: Axes,
    row: Row,
    y: float,
    left_edges: dict[str, float],
    column_width: float,
    marks_across: int,
) -> None:
    """Draw the text, the marks and the verdict of a claim.

    Args:
        ax: The axes.
        row: The claim.
        y: The top of the row.
        left_edges: The left edge of each column.
        column_width: The width of a column.
        marks_across: The number of marks side by side in a column.
    """
    ax.text(
        0.03, y, "\n".join(row.words), fontsize=FONT_SIZE, va="top", linespacing=1.15, color=INK
    )
    height = row.height(marks_across) - GAP
    for column in row.not_available:
        if column in left_edges:
            corner = (left_edges[column], y)
            ax.add_patch(Rectangle(corner, 0.9 * column_width, height, **NOT_AVAILABLE_BOX))
    for column, tests in row.tests.items():
        x_of_first = left_edges[column] + MARK_WIDTH
        y_of_first = y + MARK_HEIGHT / 2
        _draw_marks(ax, tests, x_of_first, y_of_first, marks_across)
    _draw_verdict(ax, row.verdict, y)


def _draw_verdict(ax: Axes, verdict: ClaimVerdict, y: float) -> None:
    """Write a verdict with the number of tests that support it, at the right."""
    tally = verdict.tally
    weight = "bold" if verdict.verdict == Verdict.REPRODUCED else "normal"
    words = f"{verdict.verdict}, {tally.supported} of {tally.tests}"
    left = TEXT_WIDTH - VERDICT_WIDTH + 0.05
    ax.text(left, y, words, fontsize=FONT_SIZE, va="top", weight=weight, color=INK)


def _draw_marks(
    ax: Axes, tests: Sequence[ClaimTest], x: float, y: float, marks_across: int
) -> None:
    """Draw a mark for each test, from left to right in lines below each other.

    Args:
        ax: The axes.
        tests: The tests.
        x: The x of the first mark.
        y: The y of the first mark.
        marks_across: The number of marks in a line.
    """
    for outcome, style in MARKS.items():
        has_outcome = [test.outcome == outcome for test in tests]
        lines, columns = np.divmod(np.flatnonzero(has_outcome), marks_across)
        ax.plot(x + MARK_WIDTH * columns, y + MARK_HEIGHT * lines, linestyle="none", **style)


def numbers(sections: Sequence[tuple[str, Sequence[Row]]]) -> pd.DataFrame:
    """Return a row for each claim and data set, with the number of tests of each outcome."""
    rows: list[dict[str, Any]] = []
    for section, rows_of_section in sections:
        for row in rows_of_section:
            rows += _numbers_of_claim(section, row)
    return pd.DataFrame(rows)


def _numbers_of_claim(section: str, row: Row) -> list[dict[str, Any]]:
    """Return a row for each data set of a claim, with the number of tests of each outcome."""
    rows: list[dict[str, Any]] = []
    for column, tests in row.tests.items():
        values: dict[str, Any] = {
            "section": section,
            "claim": row.verdict.claim.number,
            "dataset": column,
            "verdict": str(row.verdict.verdict),
        }
        counts = Counter(test.outcome for test in tests)
        for outcome in Outcome:
            values[str(outcome)] = counts[outcome]
        rows.append(values)
    return rows
