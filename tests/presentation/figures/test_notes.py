"""What is said with a figure, line by line."""

from typing import Any

import numpy as np
import pytest

from dlmexp.presentation.figures import notes
from dlmexp.presentation.figures.choose import Request
from dlmexp.presentation.figures.numbers import MeasuredPanel, Series
from dlmexp.presentation.figures.panels import Line, Panel, methods
from tests.support.drawings import made, points
from tests.support.tidy import sweep

RESULTS = made(sweep(("elbo",)))
ELBO = Line("elbo")


def panel(dataset: str = "banana", **fields: Any) -> Panel:
    """Return a panel of NLL against n."""
    experiment = fields.pop("experiment", "class-log")
    return Panel("sizes", dataset, "nll", methods("elbo", "fitc"), experiment, **fields)


def measured(
    of: Panel | None = None, sizes: tuple[int, ...] = (100,), **fields: Any
) -> MeasuredPanel:
    """Return numbers with points of the ELBO at some sizes, and none of FITC."""
    of = of or panel()
    table = points(sizes, [1.0] * len(sizes)) if sizes else points([], [])
    series = [Series(of.lines[0], table), *(Series(line) for line in of.lines[1:])]
    requested = fields.pop("requested_protocol", "paper")
    facts: dict[str, Any] = {"protocol": "paper", "task": "binary"} | fields
    return MeasuredPanel(of, requested, facts.pop("others", []), series, **facts)


@pytest.mark.parametrize(
    ("protocol", "command"),
    [
        ("paper", "dlmexp run experiment=class-log dataset=banana"),
        (None, "dlmexp run experiment=class-log dataset=banana"),
        ("released", "dlmexp run experiment=class-log dataset=banana protocol=released"),
        ("quick", "dlmexp run experiment=class-log dataset=banana preset=quick"),
        (
            "released-quick",
            "dlmexp run experiment=class-log dataset=banana protocol=released preset=quick",
        ),
    ],
)
def test_a_panel_is_computed_by_its_experiment_under_the_protocol(protocol, command):
    assert notes.command(measured(requested_protocol=protocol), RESULTS) == command


def test_own_data_is_computed_by_the_command_of_its_records():
    own = panel("houses", experiment="")
    assert notes.command(measured(own, command="dlmexp fit houses.csv"), RESULTS) == (
        "dlmexp fit houses.csv"
    )
    assert notes.command(measured(own), RESULTS) == ""


def test_equal_settings_are_named_once_without_datasets():
    run = [measured(), measured(panel("thyroid"))]
    assert notes.settings(run) == "Setting: protocol paper."


def test_different_settings_are_named_with_their_datasets():
    run = [
        measured(),
        measured(panel("thyroid"), changes="training.lr=0.01"),
        measured(panel("twonorm"), parameterisation="unwhitened"),
        measured(panel("ringnorm")),
    ]
    assert notes.settings(run) == (
        "Setting: protocol paper: banana, ringnorm; "
        "protocol paper with training.lr=0.01: thyroid; "
        "protocol paper, q unwhitened: twonorm."
    )


def test_a_preset_is_explained():
    assert "preset quick: fewer seeds" in notes.settings([measured(protocol="quick")])


def test_repetitions_are_a_range_where_points_differ():
    first = measured()
    second = measured(panel("thyroid"))
    second.series[0].points["repetitions"] = 5
    (note,) = notes.repetitions([first, second])
    assert note == "Repetitions (R): 3 to 5. Bands: 95 % interval of the mean (Student's t)."


def test_repetitions_are_by_task_where_tasks_differ():
    regression = measured(panel("pol"), task="regression")
    regression.series[0].points["repetitions"] = 10
    (note,) = notes.repetitions([measured(), regression])
    assert note.startswith("Repetitions (R): 3 (binary), 10 (regression).")


def test_points_without_repetitions_do_not_count():
    numbers = measured(sizes=(100, 200))
    numbers.series[0].points["repetitions"] = [3, 0]
    assert notes.repetitions([numbers])[0].startswith("Repetitions: 3.")


def test_intervals_of_effects_are_of_paired_differences():
    line = Line("joint_log_dlm", effect="whole")
    effects = Panel("effects", "pol", "nll", (line,), "anatomy-reg")
    (note,) = notes.repetitions([measured(effects)])
    assert note.endswith(
        "Intervals: 95 % interval of the mean (Student's t) of paired differences."
    )


def test_medians_have_no_intervals_to_explain():
    median = Panel("curve", "abalone", "nll", (ELBO,), "count-learning", median=True)
    assert notes.repetitions([measured(median)]) == ["Repetitions: 3."]


def test_histograms_are_of_one_repetition():
    histogram = Panel("histogram", "abalone", "error", (ELBO,), "bias")
    assert notes.repetitions([measured(histogram)]) == []


def test_stand_ins_are_named_with_what_they_stand_for():
    run = [measured(panel("sarcos_test")), measured(panel("peds1_left")), measured()]
    assert notes.stand_ins(run) == [
        "Stand-ins: sarcos_test for the paper's sarcos, peds1_left for the paper's peds1."
    ]
    assert notes.stand_ins([measured()]) == []


def test_values_that_were_chosen_are_named():
    assert notes.filters({"dataset": ["banana"], "seed": ["0", "1"]}) == [
        "Only results with seed = 0 or 1."
    ]
    assert notes.filters({"dataset": ["banana"]}) == []


def test_notes_of_lines_have_their_dataset_and_protocol_once():
    run = [measured(notes=["ELBO: lost"]), measured(panel(title="again"), notes=["ELBO: lost"])]
    assert notes.line_notes(run, is_comparison=False) == ["banana: ELBO: lost."]
    assert notes.line_notes(run, is_comparison=True) == ["banana [paper]: ELBO: lost."]


def test_missing_lines_are_named_with_what_computes_them():
    assert notes.missing_results([measured()], RESULTS, is_comparison=False) == [
        "banana: FITC -> dlmexp run experiment=class-log dataset=banana"
    ]


def test_a_panel_without_results_is_named_as_a_whole():
    empty = MeasuredPanel(panel(), "paper", [], [Series(ELBO), Series(Line("fitc"))])
    assert notes.missing_results([empty], RESULTS, is_comparison=False) == [
        "banana -> dlmexp run experiment=class-log dataset=banana"
    ]


def test_lines_of_own_data_are_not_missing():
    own = panel("houses", experiment="")
    assert notes.missing_results([measured(own)], RESULTS, is_comparison=False) == []


@pytest.mark.parametrize(("x", "is_noted"), [("n", True), ("M", True), ("predict_seconds", False)])
def test_sizes_that_only_other_lines_have_are_missing(x, is_noted):
    numbers = measured(panel(x=x), sizes=(100, 200, 500))
    numbers.series[1].points = points([200], [1.0])
    command = "dlmexp run experiment=class-log dataset=banana"
    expected = [f"banana: FITC at {x} = 100, 500 -> {command}"] if is_noted else []
    assert notes.missing_results([numbers], RESULTS, is_comparison=False) == expected


def left_out(
    panels: list[MeasuredPanel], request: Request, protocols: tuple[str, ...] = ()
) -> list[str]:
    """Return the notes on what a figure `class-log` leaves out."""
    return [*notes.left_out("class-log", panels, RESULTS, request, protocols)]


def test_results_left_out_are_the_most_of_a_dataset_summed_over_datasets():
    options = "--protocol released"
    panels = [
        measured(others=[(options, 10)]),
        measured(panel(title="again"), others=[(options, 30)]),
        measured(panel("thyroid"), others=[(options, 5)]),
    ]
    assert left_out(panels, Request()) == [
        "Left out: 35 results of another setting -> dlmexp plot class-log --protocol released"
    ]


def test_the_command_for_what_is_left_out_keeps_the_request():
    request = Request(by={"seed": ["0", "1"]}, parameterisation="unwhitened")
    (note,) = left_out([measured(others=[("", 3)])], request)
    assert note == (
        "Left out: 3 results of another setting -> "
        "dlmexp plot class-log --by seed=0,1 --parameterisation unwhitened"
    )


def test_protocols_that_stand_side_by_side_are_not_left_out():
    panels = [measured(others=[("--protocol released", 10), ("--where lr=1", 1)])]
    assert len(left_out(panels, Request(), ("paper", "released"))) == 1


def test_points_are_counted_where_they_are_finite():
    assert np.isfinite(measured().series[0].points["mean"]).all()
