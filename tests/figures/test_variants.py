"""Which drawings are made, and under which names."""

import pytest

from dlmexp.errors import UserError
from dlmexp.figures.panels import Figure, Panel, methods
from dlmexp.figures.registry import FIGURES, find
from dlmexp.figures.variants import Drawing, drawings, of_methods, on_datasets, parse_by, restrict
from tests.support.made_up import cell, sweep


def names(figure: str, present: dict[str, str], parameterisations: set[str] = frozenset({"whitened"})) -> list[str]:  # type: ignore[assignment]
    return [drawing.name for drawing in drawings(FIGURES[figure], present, set(parameterisations))]


def test_a_stand_in_takes_the_panel_of_data_that_was_not_run() -> None:
    present = {"pol": "regression", "sarcos_test": "regression"}
    assert names("reg-log", present) == ["reg-log"]
    (on_stand_in,) = drawings(FIGURES["reg-log"], present, set())
    shown = [panel.dataset for panel in on_stand_in.panels]
    assert "sarcos_test" in shown
    assert "sarcos" not in shown
    assert on_stand_in.stand_ins == {"sarcos_test": "sarcos"}


def test_no_stand_in_where_the_papers_data_was_run() -> None:
    (drawing,) = drawings(FIGURES["reg-log"], {"sarcos": "regression", "sarcos_test": "regression"}, set())
    assert drawing.stand_ins == {}
    assert drawing.panels == FIGURES["reg-log"].panels


def test_several_stand_ins_share_one_drawing() -> None:
    present = {"sarcos_test": "regression", "peds1_left": "count", "flights": "binary", "nycflights13": "binary"}
    (drawing,) = drawings(FIGURES["selection"], present, set())
    assert drawing.name == "selection"
    assert drawing.stand_ins == {"sarcos_test": "sarcos", "peds1_left": "peds1_dir1", "flights": "airline"}
    assert len(drawing.panels) == 9


def test_peds1_directions_become_one_panel() -> None:
    (drawing,) = drawings(FIGURES["count-log"], {"abalone": "count", "peds1_left": "count"}, set())
    assert [panel.dataset for panel in drawing.panels] == ["abalone", "peds1_left"]


def test_the_default_jobs_data_does_not_pose_as_the_papers() -> None:
    (drawing,) = drawings(FIGURES["class-log"], {"ringnorm_drawn": "binary"}, set())
    assert drawing.stand_ins == {}


def test_both_parameterisations_where_both_were_run() -> None:
    both = {"whitened", "unwhitened"}
    assert names("class-log", {"banana": "binary"}, both) == ["class-log", "class-log-unwhitened"]
    assert names("reg-log", {"pol": "regression"}, both) == ["reg-log"]


def test_by_dataset_replaces_what_it_stands_for() -> None:
    drawing = on_datasets(FIGURES["airline"], ["flights"], {"flights": "binary"})
    assert drawing is not None
    assert drawing.name == "airline-flights"
    assert {panel.dataset for panel in drawing.panels} == {"flights"}


def test_by_dataset_of_the_paper_keeps_its_panels_only() -> None:
    drawing = on_datasets(FIGURES["class-log"], ["banana"], {"banana": "binary"})
    assert drawing is not None
    assert [panel.dataset for panel in drawing.panels] == ["banana"]


def test_by_own_dataset_takes_the_place_of_those_with_its_task() -> None:
    present = {"mine": "binary"}
    drawing = on_datasets(FIGURES["class-log"], ["mine"], present)
    assert drawing is not None
    assert [panel.dataset for panel in drawing.panels] == ["mine"]
    assert on_datasets(FIGURES["reg-log"], ["mine"], present) is None


def test_by_unknown_dataset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="flights"):
        on_datasets(FIGURES["airline"], ["flihgts"], {})


@pytest.mark.parametrize(
    ("term", "says"), [("nonsense", "field=value"), ("betta=1", "did you mean beta"), ("n=", "field=value")]
)
def test_by_nonsense_is_refused(term: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_by([term])


def test_parse_by_collects_values() -> None:
    assert parse_by(["n=100,200", "n=500", "seed=0"]) == {"n": ["100", "200", "500"], "seed": ["0"]}


def test_restrict_keeps_matching_records(results) -> None:
    found = results(*sweep("banana", ("beta_elbo",), [100, 200], range(3), 4))
    kept = restrict(found, {"n": ["200"], "seed": ["0", "1"]})
    assert {(r.cell.n, r.cell.seed) for r in kept.records.values()} == {(200, 0), (200, 1)}
    assert len(restrict(found, {"samples": ["none"]}).records) == len(found.records)


def test_restrict_to_nothing_says_what_there_is(results) -> None:
    with pytest.raises(UserError, match="there are 0"):
        restrict(results(cell()), {"seed": ["1"]})


def test_unknown_figure_names_the_nearest() -> None:
    with pytest.raises(UserError, match="class-log"):
        find(["clas-log"])


def test_panels_without_a_line_of_the_methods_are_left_out() -> None:
    """NLL against beta has no ELBO: that is no panel that was not run."""
    against_n = Panel("sizes", "pol", "nll", methods("elbo", "beta_elbo"), "reg-log")
    against_beta = Panel("betas", "pol", "nll", methods("beta_elbo"), "reg-log")
    both = Figure("both", (against_n, against_beta), columns=2, caption="")
    drawing = Drawing(both, "both", both.panels)
    (panel,) = of_methods(drawing, ["elbo"]).panels
    assert (panel.kind, [line.method for line in panel.lines]) == ("sizes", ["elbo"])
    assert len(of_methods(drawing, ["beta_elbo"]).panels) == 2
    assert of_methods(drawing, ["fitc"]).panels == both.panels
