"""The figure `importance`: how much each column of a user's own table matters to a model."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from dlmexp.common.errors import UserError
from dlmexp.experiment.models.diagnosis import Diagnosis
from dlmexp.presentation.figures.looks import COLUMN, paper_style

MOST = 20
"""Columns that are drawn, the most important ones."""
LINE_HEIGHT = 0.16
BLUE = "#0072B2"
GREY = "#777777"
AXIS_LABELS = {
    "nll_increase": "increase of NLL per row",
    "squared_error_increase": "increase of the squared error",
}
CAPTION = (
    "How much the loss on test rows grows when the values of one column are permuted among the "
    "rows, with 95 % intervals over the rows. Columns that say the same share their importance."
)


def render(diagnosis: Diagnosis) -> Canvas:
    """Return the figure.

    Raises:
        UserError: the model is not of a user's own table.
    """
    table = numbers(diagnosis)
    with paper_style():
        height = LINE_HEIGHT * min(len(table), MOST) + 0.8
        canvas = Canvas(figsize=(COLUMN, height), layout="constrained")
        draw(canvas.add_subplot(), table)
        canvas.suptitle(diagnosis.model.cell.describe(), fontsize=6)
        return canvas


def draw(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the most important columns, the first on top."""
    name = next(name for name in AXIS_LABELS if name in table)
    drawn = table.head(MOST)[::-1]
    places = np.arange(len(drawn))
    errors = [drawn[name] - drawn["lower_95"], drawn["upper_95"] - drawn[name]]
    ax.barh(places, drawn[name], 0.65, color=BLUE, alpha=0.75)
    ax.errorbar(drawn[name], places, xerr=errors, fmt="none", ecolor="black", lw=0.7, capsize=1.5)
    ax.axvline(0, color=GREY, lw=0.7)
    ax.set_yticks(places, drawn["column"])
    left_out = len(table) - len(drawn)
    title = "importance" if not left_out else f"importance ({left_out} columns left out)"
    ax.set(title=title, xlabel=AXIS_LABELS[name])


def numbers(diagnosis: Diagnosis) -> pd.DataFrame:
    """Return the importance of every column.

    Raises:
        UserError: the model is not of a user's own table.
    """
    if diagnosis.importance is None:
        raise UserError(
            "the figure 'importance' is of your own tables (dataset=csv) with at least two test "
            "rows: choose such a model with --by"
        )
    return diagnosis.importance


def text(diagnosis: Diagnosis, model: str) -> str:
    """Return the caption file, in Markdown."""
    rows = len(diagnosis.targets)
    return f"# {diagnosis.model.cell.describe()}\n\n{CAPTION}\n\n- {model}\n- Test rows: {rows}.\n"
