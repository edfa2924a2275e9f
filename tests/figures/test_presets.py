"""Results of presets are drawn apart, under their own names."""

from pathlib import Path

import pytest

from dlmexp.errors import UserError
from dlmexp.figures.plot import Request, datasets_not_drawn, measured
from dlmexp.records.results import load
from dlmexp.records.wanted import Wanted
from tests.support.made_up import made


@pytest.mark.slow
def test_a_preset_is_never_drawn_as_the_papers(tmp_path):
    made(tmp_path, "quick", [100, 200], 0.1)
    made(tmp_path, "paper", [500, 1000], 0.2)
    drawn = {one.drawing.name: one for one in measured([load(tmp_path)], ["class-log"])}
    assert drawn.keys() == {"class-log", "class-log-quick"}
    assert set(drawn["class-log"].numbers["x"]) == {500, 1000}
    assert set(drawn["class-log-quick"].numbers["x"]) == {100, 200}
    assert drawn["class-log-quick"].drawing.preset == "quick"
    advice = {gap.command for gap in drawn["class-log-quick"].gaps}
    assert advice == {f"dlmexp run experiment=class-log dataset={name} preset=quick results={tmp_path}" for name in
                      ("thyroid", "twonorm", "ringnorm")}  # fmt: skip


@pytest.mark.slow
def test_a_folder_with_nothing_but_a_preset(tmp_path):
    made(tmp_path, "released-quick", [100, 200], 0.1)
    results = load(tmp_path)
    names = {one.drawing.name for one in measured([results], []) if not one.empty}
    assert names
    assert all(name.endswith("-released-quick") for name in names)
    by = [one.drawing.name for one in measured([results], [], Request({"dataset": ["banana"]})) if not one.empty]
    assert all(name.endswith("-released-quick") for name in by)
    assert [one.drawing.name for one in measured([results], ["class-log"])] == ["class-log-released-quick"]
    protocol = Request(wanted=Wanted("released-quick"))
    assert [one.drawing.name for one in measured([results], ["class-log"], protocol)] == ["class-log-released-quick"]
    (blank,) = measured([results], ["count-log"])
    assert (blank.drawing.name, blank.empty) == ("count-log", True)


def test_an_own_table_without_a_name_that_a_preset_alone_has_results_on(tmp_path):
    made(tmp_path, "quick", [100], 0.1, "csv")
    results = load(tmp_path)
    this = {"dataset": ["csv"]}
    for ids, by in (([], {}), (["own-csv"], {}), ([], this), (["own-csv"], this), (["own-csv", "reg-log"], this)):
        assert [one.drawing.name for one in measured([results], ids, Request(by))] == ["own-csv-quick"]
    with pytest.raises(UserError, match="own named 'csw': did you mean own-csv"):
        list(measured([results], ["own-csw"]))
    with pytest.raises(UserError, match="banana has no panel in own-csv, which shows csv"):
        list(measured([results], ["own-csv"], Request({"dataset": ["banana"]})))


def test_a_figure_that_nothing_fits_is_refused_in_a_sentence(tmp_path):
    made(tmp_path, "quick", [100], 0.1)
    with pytest.raises(UserError, match="there are no records for reg-log with seed=0"):
        list(measured([load(tmp_path)], ["reg-log"], Request({"seed": ["0"]})))


def test_data_of_a_figure_that_was_not_run_is_not_missed_in_others(tmp_path: Path) -> None:
    """ringnorm has a place in `anatomy`, of which the preset has nothing yet; of its own accord no figure has mine."""
    for dataset in ("banana", "ringnorm", "mine"):
        made(tmp_path, "quick", [100], 0.1, dataset)
    results = load(tmp_path)
    shown = [one.drawing for one in measured([results], ["class-log"])]
    assert [one.name for one in shown] == ["class-log-quick"]
    assert datasets_not_drawn([results], ["class-log", "anatomy"], shown) == ["mine"]
    assert datasets_not_drawn([results], ["anatomy"], []) == ["mine"]
