"""Scales and tick labels."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Canvas

from dlmexp.figures import style
from dlmexp.figures.axes import compact, draw, scale_of
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.series import Series, summary


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.1, 0.2, 0.3], "linear"),
        ([0.01, 0.2, 0.3], "log"),
        ([-1.0, 0.0, 1.0], "linear"),
        ([-1.0, -0.9, -0.8, -0.7, 500.0], "symlog"),
        ([0.5], "linear"),
        ([0.3, 0.3], "linear"),
        ([0.1, np.inf, np.nan, 0.2], "linear"),
        ([], "linear"),
    ],
)
def test_scale(values: list[float], scale: str) -> None:
    assert scale_of(np.array(values)) == scale


@pytest.mark.parametrize(("value", "text"), [(500, "500"), (1000, "1k"), (11063, "11.1k"), (2e6, "2M"), (0, "0")])
def test_compact(value: float, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize(("kind", "scale"), [("sizes", "log"), ("curve", "linear")])
@pytest.mark.filterwarnings("error")
def test_a_curve_that_nears_zero_is_not_on_a_log_axis(kind, scale) -> None:
    line = Line("joint_log_dlm")
    panel = Panel(kind, "pol", "nll", (line,), "reg-learning")
    points = pd.DataFrame(summary(x, [y - 0.01, y + 0.01], 2) for x, y in ((50, 1.3), (1000, 0.5), (5000, 0.05)))
    ax = Canvas().subplots()
    draw(ax, panel, [Series(line, points)], [style.METHODS["joint_log_dlm"]], "std")
    assert ax.get_yscale() == scale
