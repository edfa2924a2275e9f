"""Scales and tick labels."""

import numpy as np
import pytest

from dlmexp.figures.axes import compact, scale_of


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
