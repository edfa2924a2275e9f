"""What a figure is made of: panels are checked, lines know their looks and labels."""

from typing import Any

import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.figures.looks import METHOD_LOOKS, estimator_look
from dlmexp.presentation.figures.panels import (
    FIGURES,
    Figure,
    Line,
    Panel,
    declare,
    estimators,
    methods,
)


@pytest.mark.parametrize(("kind", "metric"), [("sizs", "nll"), ("sizes", "nlll")])
def test_a_panel_of_an_unknown_kind_or_metric_is_refused(kind, metric):
    with pytest.raises(UserError, match=f"{kind}.*{metric}.*sizes: nll"):
        Panel(kind, "banana", metric, methods("elbo"), "")


@pytest.mark.parametrize(
    ("kind", "metric", "x", "x_name"),
    [
        ("sizes", "nll", "M", "M"),
        ("betas", "nll", "n", "beta"),
        ("curve", "nll", "n", "iterations"),
        ("curve", "nll", "epochs", "epochs"),
        ("histogram", "error", "n", "samples"),
        ("reliability", "reliability", "n", "predicted"),
        ("effects", "nll", "n", "effect"),
    ],
)
def test_a_panel_names_its_x_axis(kind, metric, x, x_name):
    panel = Panel(kind, "banana", metric, (), experiment="", x=x)
    assert panel.x_name == x_name


def test_at_beta_1_the_beta_elbo_looks_as_the_elbo():
    assert Line("beta_elbo", beta=1.0).look == METHOD_LOOKS["elbo"]
    assert Line("beta_elbo", beta=0.1).look == METHOD_LOOKS["beta_elbo"]


def test_lines_that_differ_in_beta_are_labelled_with_it():
    assert Line("joint_log_dlm", beta=0.1, names="beta").label == "joint DLM, β = 0.1"
    assert Line("joint_log_dlm", beta=0.1).label == "joint DLM"


def test_lines_that_differ_in_method_and_estimator_are_labelled_with_both():
    look = Line("joint_log_dlm", "smooth_bmc", 10, names="both").look
    assert look.label == "joint DLM, smooth-bMC-10"
    assert look.colour == METHOD_LOOKS["joint_log_dlm"].colour
    assert look.dashes == estimator_look("smooth_bmc", 10).dashes


@pytest.mark.parametrize(
    ("version", "label", "marker"),
    [
        ("recalibrated", "ELBO, recalibrated on validation", "x"),
        ("short", "ELBO, β ≥ 0.01", METHOD_LOOKS["elbo"].marker),
    ],
)
def test_a_version_changes_the_look_of_its_method(version, label, marker):
    look = Line("elbo", version=version).look
    assert (look.label, look.marker) == (label, marker)
    assert look.dashes == "--"


def test_estimators_have_a_line_for_each_number_of_samples():
    lines = estimators("joint_log_dlm", 0.1, ("exact", (None,)), ("bmc", (1, 10)))
    assert [(line.estimator, line.samples) for line in lines] == [
        ("exact", None),
        ("bmc", 1),
        ("bmc", 10),
    ]
    assert {(line.method, line.beta, line.names) for line in lines} == {
        ("joint_log_dlm", 0.1, "estimator")
    }


def test_a_declared_figure_is_found_by_its_id(monkeypatch):
    items: dict[str, Any] = {name: FIGURES[name] for name in FIGURES}
    monkeypatch.setattr(FIGURES, "_items", items)
    figure = Figure("mine", (), 1, "Mine.")

    @declare
    def mine() -> Figure:
        return figure

    assert FIGURES["mine"] is figure
    assert mine() is figure
