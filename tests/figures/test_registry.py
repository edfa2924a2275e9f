"""Every figure of docs/SPEC.md, section 8, is declared as specified there."""

from dlmexp import catalogue as conf
from dlmexp.figures.registry import FIGURES

IDS = [
    "selection", "reg-log", "reg-sq", "reg-learning", "class-log", "class-err", "count-log", "count-mre",
    "count-learning", "count-smooth", "airline", "airline-sampling-0.1", "airline-sampling-1", "airline-sampling-10",
    "airline-smooth", "bias", "calibration", "calibration-reg", "calibration-class", "calibration-count", "anatomy",
    "default",
]  # fmt: skip


def test_all_figures_are_there() -> None:
    assert FIGURES.names() == IDS


def test_every_panel_has_an_experiment_that_computes_it_and_known_methods() -> None:
    for figure in (FIGURES[name] for name in FIGURES):
        for panel in figure.panels:
            assert panel.experiment in conf.experiments(), figure.id
            assert {line.method for line in panel.lines} <= set(conf.methods())


def test_selection_has_the_nine_panels_of_figure_1() -> None:
    panels = FIGURES["selection"].panels
    assert [(p.dataset, p.kind, p.metric) for p in panels] == [
        ("sarcos", "sizes", "nll"), ("sarcos", "sizes", "mse"), ("cadata", "betas", "nll"),
        ("ringnorm", "sizes", "nll"), ("peds1_dir2", "sizes", "nll"), ("airline", "curve", "nll"),
        ("abalone", "histogram", "error"), ("abalone", "histogram", "error"), ("airline", "curve", "nll"),
    ]  # fmt: skip
    assert [line.look.label for line in panels[8].lines] == ["exact", "bMC-1", "bMC-10", "bMC-100", "uPS-1", "uPS-10"]
    assert len(panels[5].lines) == 9


def test_figures_are_drawn_for_both_parameterisations_where_experiments_run_all_of_the_protocol() -> None:
    both = {panel.experiment for name in FIGURES for panel in FIGURES[name].panels if panel.both}
    extending = {"class-err": "class-log", "count-mre": "count-log"}
    assert {extending.get(name, name) for name in both} == {
        name for name, file in conf.experiments().items() if file.get("parameterisation") == ["all"]
    }


def test_bias_is_three_by_three() -> None:
    bias = FIGURES["bias"]
    assert len(bias.panels) == 9
    assert bias.columns == 3
    assert [panel.title for panel in bias.panels[::3]] == ["uPS", "bMC", "smooth-bMC"]


def test_count_lines_use_bmc_10_for_dlm_and_nothing_for_elbo() -> None:
    lines = {line.method: line for line in FIGURES["count-log"].panels[0].lines}
    assert (lines["joint_log_dlm"].estimator, lines["joint_log_dlm"].samples) == ("bmc", 10)
    assert (lines["elbo"].estimator, lines["elbo"].samples) == ("exact", None)
