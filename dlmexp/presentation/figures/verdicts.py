"""The figure `claims`: the paper's claims by data set, a mark for each test.

It is drawn from the verdicts that `dlmexp claims` prints, and not from panels. Each protocol has a
figure of its own.
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
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from dlmexp.common.catalogue import PAPER, family
from dlmexp.presentation.claims.claim import ClaimTest, Part
from dlmexp.presentation.claims.judge import ClaimVerdict, Judged, by_section
from dlmexp.presentation.claims.rules import Outcome, Verdict
from dlmexp.presentation.figures.looks import GREY, INK, PAGE, TEXT, paper_style

TITLE = "The paper's claims by data set."
CAPTION = (
    "Each mark is a test of a claim at one size of a data set (and one parameterisation of q): "
    "supported, contradicted, no difference, or can't tell. Right: the verdict, with the number of "
    "tests that support it. Light boxes: the claim names the data set, which is not available. "
    "Stars: stand-ins. No data: the claim needs none."
)
NO_DATA = "none"
"""The column of claims that need no data."""
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
"""Of shapes that differ in grey as well; their colours are those of Okabe and Ito."""
BOX = {"facecolor": "#f0f0f0", "edgecolor": "none", "zorder": 0}
# In inches.
LABELS = 2.25
VERDICTS = 1.1
STEP = 0.047  # from mark to mark
LINE = 0.052  # from one line of marks to the next
LETTERS = 0.081  # a line of words
GAP = 0.035  # between rows
SECTION = 0.15
HEAD = 0.74  # the legend, what it leaves open, and the names of data sets
WORDS_ACROSS = 60
SMALL = 5.0
EXPLANATION = (
    "Protocol: {}.  Right: supported of all tests.\n"
    "* stand-in for the paper's data.  no data: needs none."
)


@dataclass(frozen=True)
class Row:
    """A claim in the figure.

    Attributes:
        words: Its number and sentence, in lines.
        tests: Its tests that count, by column.
        absent: Columns of data sets that are not available.
    """

    verdict: ClaimVerdict
    words: list[str]
    tests: dict[str, list[ClaimTest]]
    absent: list[str]

    def height(self, across: int) -> float:
        """Return its height in inches, with so many marks side by side."""
        most = max((len(tests) for tests in self.tests.values()), default=0)
        marks = LINE * math.ceil(most / across)
        return max(marks, LETTERS * len(self.words)) + GAP


@dataclass(frozen=True)
class DrawnVerdicts:
    """The figure of one protocol, with its numbers and the text of its caption file."""

    name: str
    canvas: Canvas
    numbers: pd.DataFrame
    text: str


def draw_verdicts(judged: Judged) -> list[DrawnVerdicts]:
    """Return a figure for each column of verdicts; the first has the plain name."""
    drawn = []
    for position, column in enumerate(judged.columns):
        name = "claims" if position == 0 else f"claims-{column.label.split(',')[0]}"
        sections = _sections(judged, column.label)
        with paper_style():
            canvas = render(sections, column.label)
        text = f"# {TITLE}\n\n{CAPTION}\n\n- Setting: {column.label}.\n"
        drawn.append(DrawnVerdicts(name, canvas, numbers(sections), text))
    return drawn


def _sections(judged: Judged, column: str) -> list[tuple[str, list[Row]]]:
    """Return the claims with tests under a column, by section of the paper."""
    sections = []
    for section, claims in by_section(judged):
        rows = [_row(by_column[column]) for _, by_column in claims if column in by_column]
        tested = [row for row in rows if row.tests]
        if tested:
            sections.append((section, tested))
    return sections


def _row(verdict: ClaimVerdict) -> Row:
    """Return a claim with the tests that count, by column."""
    tests: dict[str, list[ClaimTest]] = {}
    for part in verdict.parts_run:
        if not part.supplementary:
            tests.setdefault(_column_of(part), []).extend(part.tests)
    words = textwrap.wrap(f"{verdict.claim.number}  {verdict.claim.text}", WORDS_ACROSS)
    return Row(verdict, words, tests, verdict.not_available)


def _column_of(part: Part) -> str:
    """Return the column of a part: its dataset, with a star if that is a stand-in."""
    if part.stands_for:
        return f"{part.dataset}*"
    return part.dataset or NO_DATA


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return the data sets that were run in the order of the paper, then those that were not."""
    run: set[str] = set()
    absent: dict[str, None] = {}
    for row in rows:
        run.update(row.tests)
        absent |= dict.fromkeys(row.absent)
    families = {family(_base_name(column)) for column in run}
    not_run = [name for name in absent if family(name) not in families and name not in run]
    columns = [*sorted(run - {NO_DATA}, key=_place_in_paper), *not_run]
    if NO_DATA in run:
        columns.append(NO_DATA)
    return columns


def _base_name(column: str) -> str:
    """Return `peds1` for the column `peds1_dir2*`."""
    return column.rstrip("*").split("_")[0]


def _place_in_paper(column: str) -> tuple[int, str]:
    """Return the key that sorts columns like the paper's data sets; others come last, by name."""
    places = {family(name): position for position, name in enumerate(PAPER)}
    of_family = places.get(family(column.rstrip("*")))
    if of_family is None:
        of_family = places.get(family(_base_name(column)), len(places))
    return of_family, column


def render(sections: Sequence[tuple[str, Sequence[Row]]], setting: str) -> Canvas:
    """Draw the claims from top to bottom under the name of a setting; all places are in inches."""
    rows = [row for _, of_section in sections for row in of_section]
    columns = _columns(rows)
    width = (TEXT - LABELS - VERDICTS) / max(len(columns), 1)
    across = max(int((width - STEP) / STEP), 1)
    height = HEAD + SECTION * len(sections) + sum(row.height(across) for row in rows)
    canvas = Canvas(figsize=(TEXT, min(height, PAGE)))
    ax = canvas.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, TEXT), ylim=(height, 0))
    ax.set_axis_off()
    lefts = {column: LABELS + number * width for number, column in enumerate(columns)}
    _draw_head(ax, lefts)
    words = EXPLANATION.format(setting)
    ax.text(0.03, HEAD - 0.03, words, fontsize=SMALL, va="bottom", linespacing=1.15, color=INK)
    y = HEAD
    for section, of_section in sections:
        ax.text(0.03, y + 0.11, section, fontsize=6, weight="bold", color=INK)
        ax.plot([0.03, TEXT - 0.03], [y + 0.02] * 2, color="#cccccc", linewidth=0.5)
        y += SECTION
        for row in of_section:
            _draw_row(ax, row, y, lefts, width, across)
            y += row.height(across)
    return canvas


def _draw_head(ax: Axes, lefts: dict[str, float]) -> None:
    """Draw the legend, and the names of data sets above their columns."""
    handles = [
        Line2D([], [], linestyle="none", label=str(outcome), **style)
        for outcome, style in MARKS.items()
    ]
    handles.append(Rectangle((0, 0), 1, 1, label="not available", **BOX))  # pyright: ignore[reportArgumentType]
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=2,
        fontsize=5.5,
        markerscale=1.4,
        handlelength=1.2,
    )
    for column, left in lefts.items():
        name = "no data" if column == NO_DATA else column
        ax.text(left + 0.06, HEAD - 0.03, name, rotation=45, fontsize=5.5, color=INK)


def _draw_row(
    ax: Axes, row: Row, y: float, lefts: dict[str, float], width: float, across: int
) -> None:
    """Draw the sentence, the marks and the verdict of a claim."""
    ax.text(0.03, y, "\n".join(row.words), fontsize=SMALL, va="top", linespacing=1.15, color=INK)
    height = row.height(across) - GAP
    for column in row.absent:
        if column in lefts:
            ax.add_patch(Rectangle((lefts[column], y), 0.9 * width, height, **BOX))
    for column, tests in row.tests.items():
        _draw_marks(ax, tests, lefts[column] + STEP, y + LINE / 2, across)
    _draw_verdict(ax, row.verdict, y)


def _draw_verdict(ax: Axes, verdict: ClaimVerdict, y: float) -> None:
    """Write a verdict with the number of tests that support it, at the right."""
    tally = verdict.tally
    weight = "bold" if verdict.verdict == Verdict.REPRODUCED else "normal"
    words = f"{verdict.verdict}, {tally.supported} of {tally.tests}"
    left = TEXT - VERDICTS + 0.05
    ax.text(left, y, words, fontsize=SMALL, va="top", weight=weight, color=INK)


def _draw_marks(ax: Axes, tests: Sequence[ClaimTest], x: float, y: float, across: int) -> None:
    """Draw a mark for each test, line by line.

    Args:
        ax: The axes.
        tests: The tests.
        x: Place of the first mark.
        y: Likewise.
        across: Number of marks in a line.
    """
    for outcome, style in MARKS.items():
        numbers = [number for number, test in enumerate(tests) if test.outcome == outcome]
        lines, places = np.divmod(np.array(numbers, dtype=int), across)
        ax.plot(x + STEP * places, y + LINE * lines, linestyle="none", **style)


def numbers(sections: Sequence[tuple[str, Sequence[Row]]]) -> pd.DataFrame:
    """Return a row for each claim and data set: how many tests have which outcome."""
    rows: list[dict[str, Any]] = []
    for section, of_section in sections:
        for row in of_section:
            rows += _numbers_of_claim(section, row)
    return pd.DataFrame(rows)


def _numbers_of_claim(section: str, row: Row) -> list[dict[str, Any]]:
    """Return a row for each data set of a claim."""
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
