"""Draw the figure `importance`: how much each column of a user's own table matters to a model."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.common.errors import UserError
from dlmexp.experiment.models.diagnosis import Diagnosis
from dlmexp.presentation.figures.looks import COLUMN_WIDTH, paper_style

MAX_COLUMNS = 20  # at most this many columns are drawn
ROW_HEIGHT = 0.16  # inches of a row of the figure, which shows a column of the table
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


def render(diagnosis: Diagnosis) -> MatplotlibFigure:
    """Return the figure.

    Raises:
        UserError: The model has no importance of columns (`numbers`).
    """
    table = numbers(diagnosis)
    with paper_style():
        height = ROW_HEIGHT * min(len(table), MAX_COLUMNS) + 0.8
        picture = MatplotlibFigure(figsize=(COLUMN_WIDTH, height), layout="constrained")
        draw(picture.add_subplot(), table)
        picture.suptitle(diagnosis.model.cell.describe(), fontsize=6)
        return picture


def draw(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the importance of columns with intervals, the most important column on top.

    Args:
        ax: The axes.
        table: The importance of each column, the most important ones first.
    """
    measure = "nll_increase" if "nll_increase" in table else "squared_error_increase"
    drawn = table.head(MAX_COLUMNS)[::-1]  # rows are counted from the bottom
    heights = np.arange(len(drawn))
    increase = drawn[measure]
    errors = [increase - drawn["lower_95"], drawn["upper_95"] - increase]
    ax.barh(heights, increase, 0.65, color=BLUE, alpha=0.75)
    ax.errorbar(increase, heights, xerr=errors, fmt="none", ecolor="black", lw=0.7, capsize=1.5)
    ax.axvline(0, color=GREY, lw=0.7)
    ax.set_yticks(heights, drawn["column"])
    count_left_out = len(table) - len(drawn)
    title = "importance"
    if count_left_out:
        title = f"importance ({count_left_out} columns left out)"
    ax.set(title=title, xlabel=AXIS_LABELS[measure])


def numbers(diagnosis: Diagnosis) -> pd.DataFrame:
    """Return the importance of every column.

    Raises:
        UserError: The model was not trained on a user's own table, or has too few test rows.
    """
    if diagnosis.importance is None:
        raise UserError(
            "the figure 'importance' shows models of your own tables (dataset=csv) with at least "
            "two test rows: choose such a model with --by"
        )
    return diagnosis.importance


def text(diagnosis: Diagnosis, model: str) -> str:
    """Return the caption file, in Markdown."""
    rows = len(diagnosis.targets)
    return f"# {diagnosis.model.cell.describe()}\n\n{CAPTION}\n\n- {model}\n- Test rows: {rows}.\n"
