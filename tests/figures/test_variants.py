"""Which drawings are made, and under which names."""

import pytest

from dlmexp.errors import UserError
from dlmexp.figures.registry import FIGURES, find
from dlmexp.figures.variants import drawings, on_datasets, parse_by, restrict
from tests.support.made_up import cell, sweep


def names(figure: str, present: dict[str, str], parameterisations: set[str] = frozenset({"whitened"})) -> list[str]:  # type: ignore[assignment]
    return [drawing.name for drawing in drawings(FIGURES[figure], present, set(parameterisations))]


def test_stand_ins_are_drawn_in_a_file_of_their_own() -> None:
    present = {"pol": "regression", "sarcos_test": "regression"}
    assert names("reg-log", present) == ["reg-log", "reg-log-sarcos_test"]
    on_stand_in = drawings(FIGURES["reg-log"], present, set())[1]
    shown = [panel.dataset for panel in on_stand_in.panels]
    assert "sarcos_test" in shown
    assert "sarcos" not in shown
    assert on_stand_in.stand_ins == {"sarcos_test": "sarcos"}


def test_no_stand_in_where_the_papers_data_was_run() -> None:
    assert names("reg-log", {"sarcos": "regression", "sarcos_test": "regression"}) == ["reg-log"]


def test_several_stand_ins_share_one_drawing() -> None:
    present = {"sarcos_test": "regression", "peds1_left": "count", "flights": "binary"}
    assert names("selection", present) == ["selection", "selection-standins"]


def test_peds1_directions_become_one_panel() -> None:
    drawing = drawings(FIGURES["count-log"], {"abalone": "count", "peds1_left": "count"}, set())[1]
    assert [panel.dataset for panel in drawing.panels] == ["abalone", "peds1_left"]


def test_the_default_jobs_data_does_not_pose_as_the_papers() -> None:
    assert names("class-log", {"ringnorm_drawn": "binary"}) == ["class-log"]


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
