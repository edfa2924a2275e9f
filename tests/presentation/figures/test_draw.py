"""Pictures: what lies where, what is written, and what is not."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.testing.compare import compare_images

from dlmexp.experiment.models.diagnosis import Diagnosis
from dlmexp.presentation.figures.declared.parts import (
    against_size,
    cadata_against_beta,
    gradient_histogram,
)
from dlmexp.presentation.figures.declared.worth import effects_panel
from dlmexp.presentation.figures.looks import PAGE
from dlmexp.presentation.figures.panels import (
    FIGURES,
    Figure,
    Line,
    Panel,
    estimators,
    methods,
)
from dlmexp.presentation.figures.plot import Drawn, Request, draw, drawings, save
from tests.support.cells import MIXED, made_up_model
from tests.support.tidy import METHODS, Made, nll, published, sweep

AT_BETAS = tuple(
    Line(name, beta=beta, names="beta")
    for name in ("beta_elbo", "joint_log_dlm")
    for beta in (0.1, 1.0)
)


@cache
def drawn(name: str, folder: str = "paper") -> Drawn:
    return draw(published(folder), name)


@pytest.mark.slow
def test_protocols_side_by_side_have_a_letter_per_row_and_fit_on_a_page():
    both = [
        (dataset, protocol)
        for dataset in ("banana", "ringnorm")
        for protocol in ("paper", "released")
    ]
    rows = [row for dataset, protocol in both for row in sweep(dataset=dataset, protocol=protocol)]
    rows += [row | {"role": "anatomy"} for row in rows if row["beta"] == 1.0]
    rows += [
        row | {"method": "ppgpr"}
        for row in rows
        if row.get("role") and row["method"] == "joint_log_dlm"
    ]
    for one in drawings(Made(rows), ["class-log", "anatomy"], Request(compare_protocols=True)):
        titles = [ax.get_title(loc="left") for ax in one.canvas.axes]
        letters = [title[:3] for title in titles if title.startswith("(")]
        assert letters == ["(a)", "(b)"]
        assert sum("released" in title for title in titles) == 2
        assert one.canvas.get_figheight() <= PAGE
        assert set(one.csv["setting"]) == {"paper", "released"}


def test_points_lie_at_their_n_and_strips_hold_their_means():
    figure = draw(Made(sweep(metric="error")), "class-err")
    lines = [
        line for ax in figure.canvas.axes for line in ax.lines if line.get_label() == "joint DLM"
    ]
    points = [np.asarray(line.get_xdata()).tolist() for line in lines]
    assert [x for x in points if x] == [[100, 500], [100, 500]]
    (strip,) = [ax for ax in figure.canvas.axes if "vs ELBO" in ax.get_ylabel()]
    assert strip.get_ylabel().startswith("Δ error rate")
    for one in figure.measured[0].series:
        if "minus_elbo" in one.points:
            assert one.points["minus_elbo"].between(*strip.get_ylim()).all()


def test_one_size_is_drawn_as_bars_with_numbers():
    above, below = draw(Made(sweep(sizes=(100,))), "class-log").canvas.axes
    assert (len(above.patches), len(below.patches)) == (4, 3)
    assert above.patches[0].get_width() == pytest.approx(
        np.mean([nll("elbo", 100, seed, 1.0) for seed in range(3)])
    )
    assert below.patches[1].get_width() == pytest.approx(-0.1)
    assert {label.get_text() for label in above.get_yticklabels()} == {
        "ELBO",
        "β-ELBO",
        "joint DLM",
        "fixed DLM",
    }


@pytest.mark.published
def test_histograms_of_a_statistic_share_their_scale():
    panels = [ax for ax in drawn("bias").canvas.axes if ax.get_ylabel() == "share of draws"]
    assert len(panels) == 9
    assert all(len(ax.collections) == 3 for ax in panels), "a line for each number of samples"
    assert [len({ax.get_xlim() for ax in panels[column::3]}) for column in range(3)] == [1, 1, 1]


@pytest.mark.published
def test_curve_ends_are_labelled_apart_and_in_their_order():
    ax = next(ax for ax in drawn("airline").canvas.axes if ax.lines)
    labels = [text for text in ax.texts if text.get_text().startswith("β")]
    assert len(labels) == 9
    ends, places = np.array([(text.xy[1], text.get_position()[1]) for text in labels]).T
    assert np.diff(np.sort(places)).min() > 0.02
    assert (np.diff(places[np.argsort(ends, kind="stable")]) > 0).all()


@pytest.mark.published
def test_files_without_constant_columns_and_without_dates(tmp_path):
    one = drawn("airline")
    assert all(one.csv[name].nunique() > 1 for name in one.csv)
    assert save(tmp_path, "airline", one.canvas, one.csv, one.text, ["png"]).endswith(
        "airline.{png,csv,md}"
    )
    assert "n = 922684" in (tmp_path / "airline.md").read_text()
    first, second = (draw(Made(sweep(("elbo",))), "class-log") for _ in range(2))
    for name, one in (("first", first), ("second", second)):
        save(tmp_path, name, one.canvas, one.csv, one.text, ["svg"])
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


@pytest.mark.published
@pytest.mark.skipif(
    matplotlib.__version_info__ < (3, 10), reason="matplotlib before 3.10 places texts otherwise"
)
def test_kinds_of_panels_look_as_they_did(tmp_path, monkeypatch):
    """One picture with a panel of every kind; effects, which have labels of their own, in a second
    one."""
    medians = estimators("joint_log_dlm", 0.1, ("bmc", (1,)), ("ups", (1,)))
    kinds = (
        *against_size(("nll",), methods(*METHODS), "class-log", ("banana",)),
        cadata_against_beta("5%"),
        Panel("curve", "airline", "nll", AT_BETAS, "airline", x="epochs"),
        gradient_histogram("bmc", "error"),
        Panel("reliability", "banana", "reliability", methods(*METHODS), "class-log"),
        Panel("curve", "abalone", "nll", medians, "x", median=True),
    )
    for name, panels in (("kinds", kinds), ("effects", (effects_panel("pol", "reg"),))):
        monkeypatch.setitem(FIGURES._items, name, Figure(name, panels, 3, "Some panels."))
        one = draw(published("paper"), name)
        (legend,) = [legend for ax in one.canvas.axes if (legend := ax.get_legend())]
        assert legend.get_window_extent().x1 <= one.canvas.bbox.x1 + 4, "no word leaves the figure"
        save(tmp_path, name, one.canvas, one.csv, one.text, ["png"])
        baseline = Path(__file__).with_name(f"{name}.png")
        assert compare_images(str(baseline), str(tmp_path / f"{name}.png"), tol=12) is None


def test_predictions_have_their_intervals_in_bins():
    from dlmexp.presentation.figures.predictions import numbers, render

    y = np.linspace(0, 1, 500)
    columns = {"mean": y + 0.1, "lower_95": y - 1, "upper_95": y + 1}
    betas = pd.DataFrame({"beta": [1.0, 0.1], "validation": [1.0, 2.0], "test": [1.0, 2.0]})
    about = {"calibration": None, "metric": "nll", "line": None, "objective": np.linspace(2, 1, 30)}
    found = Diagnosis(
        model=made_up_model(schema=MIXED), columns=columns, targets=y, betas=betas, **about
    )
    canvas = render(found)
    assert [ax.get_title().split()[0] for ax in canvas.axes] == ["test", "NLL", "training"]
    (intervals,) = canvas.axes[0].collections
    assert len(intervals.get_paths()) == 1, "a band"
    assert [*numbers(found)] == ["price", "mean", "lower_95", "upper_95"]
