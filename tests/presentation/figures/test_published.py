"""The published figures: their numbers are made from the records, their pictures look as they did."""

import warnings
from functools import cache
from io import StringIO
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text

from dlmexp.presentation.figures.declared.parts import (
    against_size,
    cadata_against_beta,
    gradient_histogram,
    methods_at_betas,
)
from dlmexp.presentation.figures.declared.worth import effects_panel
from dlmexp.presentation.figures.looks import PAGE_HEIGHT
from dlmexp.presentation.figures.panels import FIGURES, Figure, Panel, estimators, methods
from dlmexp.presentation.figures.plot import DrawnFigure, Request, draw, drawings, save
from tests.support.tidy import METHODS, RESULTS, published

pytestmark = pytest.mark.published
SHOWN = {
    "paper": [
        "selection",
        "reg-log",
        "class-log",
        "count-learning",
        "bias",
        "calibration",
        "anatomy",
    ],
    "more": ["samples", "edges", "inducing", "gain", "truth"],
}


@cache
def drawn_from_paper(name: str) -> DrawnFigure:
    """Return a figure of results/paper, which all tests share."""
    return draw(published("paper"), name)


@cache
def all_drawn(folder: str) -> list[DrawnFigure]:
    """Return the figures that a folder shows, which are drawn once for both tests."""
    return list(drawings(published(folder), SHOWN[folder], Request()))


@pytest.mark.parametrize("folder", SHOWN)
def test_published_numbers_are_made_from_the_records(folder):
    for drawn in all_drawn(folder):
        expected = pd.read_csv(RESULTS / folder / "figures" / f"{drawn.name}.csv")
        numbers = pd.read_csv(StringIO(drawn.csv.to_csv(index=False)))
        pd.testing.assert_frame_equal(numbers, expected, check_dtype=False, rtol=2e-5, atol=1e-9)
        assert "paper" in drawn.notes[0]


@pytest.mark.parametrize("folder", SHOWN)
def test_published_figures_fit_on_a_page_without_their_caption(folder):
    for drawn in all_drawn(folder):
        with warnings.catch_warnings(action="error"):
            words = " ".join(text.get_text() for text in drawn.picture.findobj(Text))  # pyright: ignore[reportAttributeAccessIssue]
        assert drawn.figure.caption[:40] not in words
        assert drawn.picture.get_figheight() <= PAGE_HEIGHT


def test_histograms_of_a_statistic_share_their_scale():
    axes = drawn_from_paper("bias").picture.axes
    panels = [ax for ax in axes if ax.get_ylabel() == "share of draws"]
    assert len(panels) == 9
    assert all(len(ax.collections) == 3 for ax in panels), "a line for each number of samples"
    assert [len({ax.get_xlim() for ax in panels[column::3]}) for column in range(3)] == [1, 1, 1]


def test_curve_ends_are_labelled_apart_and_in_their_order():
    ax = next(ax for ax in drawn_from_paper("airline").picture.axes if ax.lines)
    labels = [text for text in ax.texts if text.get_text().startswith("β")]
    assert len(labels) == 9
    ends = np.array([text.xy[1] for text in labels])  # pyright: ignore[reportAttributeAccessIssue]
    places = np.array([text.get_position()[1] for text in labels])
    assert np.diff(np.sort(places)).min() > 0.02
    assert (np.diff(places[np.argsort(ends, kind="stable")]) > 0).all()


def test_figures_of_curves_name_constants_in_their_caption_file_alone():
    drawn = drawn_from_paper("airline")
    assert all(drawn.csv[name].nunique() > 1 for name in drawn.csv)
    assert "n = 922684" in drawn.text


def panels_of_all_kinds() -> tuple[Panel, ...]:
    """Return a panel of every kind but effects, which have labels of their own."""
    medians = estimators("joint_log_dlm", 0.1, ("bmc", (1,)), ("ups", (1,)))
    by_beta = methods_at_betas(("beta_elbo", "joint_log_dlm"), (0.1, 1.0))
    return (
        *against_size(("nll",), methods(*METHODS), "class-log", ("banana",)),
        cadata_against_beta("5%"),
        Panel("curve", "airline", "nll", by_beta, "airline", x="epochs"),
        gradient_histogram("bmc", "error"),
        Panel("reliability", "banana", "reliability", methods(*METHODS), "class-log"),
        Panel("curve", "abalone", "nll", medians, "x", median=True),
    )


@pytest.mark.skipif(
    matplotlib.__version_info__ < (3, 10), reason="matplotlib before 3.10 places texts otherwise"
)
@pytest.mark.parametrize(
    ("name", "panels"),
    [("kinds", panels_of_all_kinds()), ("effects", (effects_panel("pol", "reg"),))],
)
def test_kinds_of_panels_look_as_they_did(tmp_path, monkeypatch, name, panels):
    monkeypatch.setitem(FIGURES._items, name, Figure(name, panels, 3, "Some panels."))
    drawn = draw(published("paper"), name)
    (legend,) = [legend for ax in drawn.picture.axes if (legend := ax.get_legend())]
    right = legend.get_window_extent().x1
    assert right <= drawn.picture.bbox.x1 + 4, "no word leaves the figure"
    save(tmp_path, name, drawn.picture, drawn.csv, drawn.text, ["png"])
    baseline = Path(__file__).with_name(f"{name}.png")
    assert compare_images(str(baseline), str(tmp_path / f"{name}.png"), tol=12) is None
