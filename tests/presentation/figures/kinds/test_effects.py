"""Panels of effects: what makes up the difference between joint DLM and ELBO."""

from typing import Any

import numpy as np
import pytest

from dlmexp.presentation.figures.declared.worth import effects_panel
from dlmexp.presentation.figures.kinds import effects
from dlmexp.presentation.figures.looks import GREY, INK
from dlmexp.presentation.figures.panels import Line, Panel
from tests.support.drawings import draw_tile, made, measure_panel, points

PANEL = effects_panel("pol", "reg")
# Test NLL in the first repetition; in the second each is larger by another amount.
ELBO, BETA_ELBO, PPGPR, DLM, FITC = 1.0, 0.8, 0.7, 0.3, 0.9


def row(method: str, seed: int, value: float, **facts: Any) -> dict[str, Any]:
    """Return a row with a test NLL."""
    usual = {"dataset": "pol", "role": "anatomy", "form": "explicit"}
    return usual | {"method": method, "seed": seed, "test_nll": value} | facts


def whitened_rows(seed: int = 0, shift: float = 0.0) -> list[dict[str, Any]]:
    """Return a row of each method; `shift` moves the joint DLM."""
    return [
        row("elbo", seed, ELBO),
        row("beta_elbo", seed, BETA_ELBO),
        row("ppgpr", seed, PPGPR),
        row("joint_log_dlm", seed, DLM + shift),
        row("fitc", seed, FITC),
    ]


def means(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the mean of each part of each effect that has points."""
    filled = measure_panel(PANEL, made(rows)).nonempty_series
    return {
        series.line.effect: dict(zip(series.points["part"], series.points["mean"], strict=True))
        for series in filled
    }


def test_choosing_beta_and_the_objective_add_up_to_the_whole():
    found = means(whitened_rows())
    whole = found["whole"]["effect"]
    assert whole == pytest.approx(DLM - ELBO)
    assert found["beta"]["effect"] + found["objective"]["effect"] == pytest.approx(whole)


def test_an_effect_is_the_mean_over_both_orders_of_changes():
    found = means(whitened_rows())
    assert found["beta"] == pytest.approx(
        {
            "effect": (BETA_ELBO - ELBO + DLM - PPGPR) / 2,
            "elbo": BETA_ELBO - ELBO,
            "joint_log_dlm": DLM - PPGPR,
        }
    )
    assert found["objective"] == pytest.approx(
        {
            "effect": (PPGPR - ELBO + DLM - BETA_ELBO) / 2,
            "ppgpr": PPGPR - ELBO,
            "beta_elbo": DLM - BETA_ELBO,
        }
    )
    assert found["fitc"] == pytest.approx({"effect": FITC - ELBO})


@pytest.mark.parametrize(
    ("effect", "facts"),
    [("coordinates", {"parameterisation": "unwhitened"}), ("noise", {"noise_floor": 0.01})],
)
def test_other_coordinates_and_a_floor_are_changes_of_the_whole(effect, facts):
    rows = whitened_rows()
    rows += [row("elbo", 0, ELBO + 0.05, **facts), row("joint_log_dlm", 0, DLM + 0.2, **facts)]
    assert means(rows)[effect] == pytest.approx(
        {"effect": 0.2 - 0.05, "elbo": 0.05, "joint_log_dlm": 0.2}
    )


def test_a_closed_form_serves_for_both_coordinates():
    rows = [row("elbo", 0, ELBO, form="collapsed"), row("joint_log_dlm", 0, DLM)]
    rows += [row("joint_log_dlm", 0, DLM + 0.2, parameterisation="unwhitened")]
    assert means(rows)["coordinates"]["elbo"] == 0.0


def test_an_effect_needs_all_methods_that_it_compares():
    rows = [each for each in whitened_rows() if each["method"] != "fitc"]
    assert list(means(rows)) == ["whole", "beta", "objective"]
    without_ppgpr = [each for each in rows if each["method"] != "ppgpr"]
    assert list(means(without_ppgpr)) == ["whole"]


def test_differences_are_paired_by_seed():
    rows = [*whitened_rows(0), *whitened_rows(1, shift=0.4), row("elbo", 2, 50.0)]
    table = measure_panel(PANEL, made(rows)).series[0].points
    assert table["mean"].tolist() == pytest.approx([DLM - ELBO + 0.2])
    assert table["repetitions"].tolist() == [2]
    half = 12.706204736174694 * 0.2  # Student's t with one degree of freedom, standard error 0.2
    assert table["low"].tolist() == pytest.approx([DLM - ELBO + 0.2 - half])
    assert table["high"].tolist() == pytest.approx([DLM - ELBO + 0.2 + half])


def test_a_repetition_whose_candidates_all_failed_is_counted():
    rows = [*whitened_rows(0), *whitened_rows(1)]
    rows[-2] |= {"status": "failed"}
    table = measure_panel(PANEL, made(rows)).series[0].points
    assert table[["repetitions", "failed"]].to_numpy().tolist() == [[1, 1]]


def bar(mean: float, low: float, high: float, failed: int = 0):
    """Return the points of the bar of the whole effect."""
    facts = {"low": low, "high": high, "effect": "whole", "part": "effect"}
    return points([0.0], [mean], **facts).assign(failed=failed)


WHOLE = Line("joint_log_dlm", effect="whole")
WHOLE_PANEL = Panel("effects", "pol", "nll", (WHOLE,), "anatomy-reg")


@pytest.mark.parametrize(
    ("low", "high", "colour"),
    [(-0.3, -0.1, INK), (0.1, 0.3, INK), (-0.3, 0.1, GREY), (np.nan, np.nan, GREY)],
)
def test_numbers_are_grey_where_the_interval_holds_0(low, high, colour):
    (text,) = draw_tile(WHOLE_PANEL, {WHOLE: bar(-0.2, low, high)}).ax.texts
    assert text.get_color() == colour


@pytest.mark.parametrize(("failed", "number"), [(0, "−0.200"), (1, "−0.200 (3/4)")])
def test_numbers_say_how_many_repetitions_failed(failed, number):
    (text,) = draw_tile(WHOLE_PANEL, {WHOLE: bar(-0.2, -0.3, -0.1, failed)}).ax.texts
    assert text.get_text() == number


@pytest.mark.parametrize(("reach", "is_held"), [(0.5, True), (0.7, False)])
def test_a_huge_interval_may_leave_the_frame(reach, is_held):
    tile = draw_tile(WHOLE_PANEL, {WHOLE: bar(-0.2, -0.2 - reach, -0.1)})
    assert (tile.ax.get_xlim()[0] < -0.2 - reach) == is_held


def test_rows_are_labelled_in_the_first_column_alone():
    from dlmexp.presentation.figures.kinds.effects import ROWS, _set_axes

    first = draw_tile(WHOLE_PANEL, {WHOLE: bar(-0.2, -0.3, -0.1)})
    assert first.ax.get_yticklabels()[0].get_text() == "DLM − ELBO"
    second = draw_tile(WHOLE_PANEL, {WHOLE: bar(-0.2, -0.3, -0.1)})
    second.column = 1
    _set_axes(second, -1.0, 1.0)
    assert {label.get_text() for label in second.ax.get_yticklabels()} == {""}
    assert len(ROWS) == 6


def test_bars_lines_numbers_and_marks_are_explained_in_the_legend():
    labels = [str(entry.get_label()) for entry in effects.legend()]
    assert [label.split(" ")[0] for label in labels[:3]] == ["effect", "its", "grey"]
    assert labels[3:] == list(effects.MARKS.values())
    assert len(labels) == 7
