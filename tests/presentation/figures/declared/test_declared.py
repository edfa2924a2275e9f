"""All declared figures: complete, drawn with what experiments compute, with short captions."""

import re

import pytest

from dlmexp.common import catalogue
from dlmexp.presentation.figures.declared.worth import effects_panel
from dlmexp.presentation.figures.panels import FIGURES
from dlmexp.presentation.figures.panels import Figure as DeclaredFigure

IDS = FIGURES.names()


def ids_with(prefix: str) -> list[str]:
    """Return the ids that begin with a prefix."""
    return [name for name in IDS if name.startswith(prefix)]


@pytest.fixture(params=IDS)
def figure(request) -> DeclaredFigure:
    """Each of the figures."""
    return FIGURES[request.param]


def test_a_caption_has_at_most_two_sentences(figure):
    assert len(re.findall(r"\.(?= [A-Z]|$)", figure.caption)) <= 2


def test_every_panel_is_computed_by_an_experiment_of_conf(figure):
    experiments = set(catalogue.names("experiment"))
    assert {panel.experiment for panel in figure.panels} <= experiments


def test_every_panel_shows_a_dataset_and_methods_of_conf(figure):
    methods = {line.method for panel in figure.panels for line in panel.lines}
    assert methods <= set(catalogue.names("method"))
    assert {panel.dataset for panel in figure.panels} <= set(catalogue.names("dataset"))


def test_an_id_is_that_of_its_figure(figure):
    assert FIGURES[figure.id] is figure


def test_figures_of_the_paper_come_first_in_its_order():
    assert IDS[:5] == ["selection", "reg-log", "reg-sq", "reg-learning", "class-log"]
    assert IDS[-1] == "default"


@pytest.mark.parametrize("beta", ["0.1", "1", "10"])
def test_airline_has_a_figure_of_gradients_at_each_beta(beta):
    panels = FIGURES[f"airline-sampling-{beta}"].panels
    assert [panel.metric for panel in panels] == ["nll", "error"]
    assert {line.beta for panel in panels for line in panel.lines} == {float(beta)}
    assert {panel.title for panel in panels} == {f"β = {beta}"}


def test_only_figures_against_mse_have_a_log_axis_for_it():
    logged = {panel.metric for name in IDS for panel in FIGURES[name].panels if panel.log}
    assert logged == {"mse", "excess_nll"}


def test_noise_and_fitc_are_effects_of_regression_alone():
    regression = [line.effect for line in effects_panel("pol", "reg").lines]
    binary = [line.effect for line in effects_panel("banana", "class").lines]
    assert regression == ["whole", "beta", "objective", "coordinates", "noise", "fitc"]
    assert binary == regression[:4]


def test_inducing_inputs_have_nll_crps_and_mse_of_regression():
    shown = [(panel.metric, panel.dataset) for panel in FIGURES["inducing"].panels]
    datasets = ("pol", "cadata", "sarcos_test")
    assert shown == [(metric, name) for metric in ("nll", "crps", "mse") for name in datasets]
    assert {panel.experiment for panel in FIGURES["inducing"].panels} == {"inducing-reg"}


def test_fitc_and_exact_gps_are_rivals_in_regression_alone():
    for panel in FIGURES["rivals"].panels:
        has_fitc = any(line.method == "fitc" for line in panel.lines)
        assert has_fitc == (panel.experiment == "rivals-reg")


def test_the_figure_of_known_truth_needs_both_drawn_datasets():
    assert FIGURES["truth"].needs_all
    assert not any(FIGURES[name].needs_all for name in IDS if name != "truth")
