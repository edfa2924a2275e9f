"""The figure of one trained model."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from dlmexp.data.schema import Column, Schema
from dlmexp.experiment.models.diagnosis import Diagnosis
from dlmexp.presentation.figures.predictions import numbers, render, text
from tests.support.cells import MIXED, made_up_model
from tests.support.drawings import ends_of_band

Y = np.linspace(0, 1, 500)
BINARY = Schema("fraud", (Column("amount"),), ("no", "yes"))


def diagnosis_of(schema: Schema = MIXED, **facts: Any) -> Diagnosis:
    """Return predictions on 500 test rows with candidates and a course of training."""
    usual: dict[str, Any] = {
        "predictions": {"mean": Y + 0.1, "lower_95": Y - 1, "upper_95": Y + 1},
        "targets": Y,
        "betas": pd.DataFrame({"beta": [1.0, 0.1], "validation": [1.0, 2.0], "test": [1.0, 2.0]}),
        "calibration": None,
        "metric": "nll",
        "curve": None,
        "objective": np.linspace(2, 1, 30),
    }
    return Diagnosis(model=made_up_model(schema=schema), **(usual | facts))


def titles(picture: MatplotlibFigure) -> list[str]:
    """Return the first words of the titles of panels."""
    return [ax.get_title().split()[0] for ax in picture.axes]


def test_panels_without_anything_to_show_are_left_out():
    assert titles(render(diagnosis_of())) == ["test", "NLL", "training"]
    untrained = diagnosis_of(objective=np.zeros(0), betas=pd.DataFrame())
    assert titles(render(untrained)) == ["test"]


def test_predictions_have_their_intervals_as_a_band():
    low, high = ends_of_band(render(diagnosis_of()).axes[0])
    assert low == pytest.approx(Y[:25].mean() - 1)
    assert high == pytest.approx(Y[-25:].mean() + 1)


def test_many_test_rows_are_drawn_in_part():
    y = np.linspace(0, 1, 2001)
    panel = render(diagnosis_of(predictions={"mean": y}, targets=y)).axes[0]
    assert panel.get_title().startswith("test rows (2000 of 2001)")
    assert len(np.asarray(panel.lines[0].get_xdata())) == 2000


def test_errors_are_in_the_title_and_the_caption_file():
    errors = "RMSE 0.1, MAE 0.1"
    diagnosis = diagnosis_of()
    assert errors in render(diagnosis).axes[0].get_title()
    caption = text(diagnosis, "Model m.")
    assert "- Model m.\n- Test rows: 500. RMSE 0.1" in caption


def test_numbers_are_targets_and_predictions():
    table = numbers(diagnosis_of())
    assert [*table] == ["price", "mean", "lower_95", "upper_95"]
    assert table["price"].tolist() == Y.tolist()


def test_classes_have_histograms_of_their_probability_and_names():
    targets = np.array([0, 1, 1])
    columns = {"probability_yes": np.array([0.1, 0.8, 0.9])}
    diagnosis = diagnosis_of(BINARY, predictions=columns, targets=targets)
    panel = render(diagnosis).axes[0]
    heights = [patch.get_height() for patch in panel.patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert (sum(heights[:20]), sum(heights[20:])) == (1, 2)
    assert numbers(diagnosis)["fraud"].tolist() == ["no", "yes", "yes"]


@pytest.mark.parametrize(("betas", "scale"), [([0.0, 0.1], "symlog"), ([0.1, 1.0], "log")])
def test_beta_0_has_a_place_where_it_is_a_candidate(betas, scale):
    table = pd.DataFrame({"beta": betas, "validation": [1.0, 2.0], "test": [1.0, 2.0]})
    picture = render(diagnosis_of(betas=table))
    assert picture.axes[1].get_xscale() == scale


def test_the_first_steps_of_training_may_leave_the_frame():
    objective = np.concatenate([[1e6] * 5, np.linspace(2, 1, 95)])
    low, high = render(diagnosis_of(objective=objective)).axes[2].get_ylim()
    assert 0.9 < low < 1
    assert 2 < high < 2.2


@pytest.mark.parametrize(("schema", "area"), [(MIXED, False), (BINARY, True)])
def test_areas_are_numbers_of_rows_in_calibration_of_classes(schema, area):
    calibration = pd.DataFrame({"promised": [0.2, 0.8], "observed": [0.3, 0.7], "rows": [10, 40]})
    columns = {"probability_yes": Y} if area else {"mean": Y}
    targets = (Y > 0.5).astype(int) if area else Y
    diagnosis = diagnosis_of(schema, calibration=calibration, predictions=columns, targets=targets)
    sizes = render(diagnosis).axes[1].collections[0].get_sizes()  # pyright: ignore[reportAttributeAccessIssue]
    assert sizes.tolist() == ([15.0, 60.0] if area else [7.0])


def test_one_feature_has_its_predictions_and_inducing_inputs_inside_its_range():
    x = np.linspace(0, 1, 5)
    line = {
        "x": x,
        "mean": x,
        "lower_95": x - 1,
        "upper_95": x + 1,
        "rows": x,
        "targets": x,
        "inducing": np.array([-1.0, 0.5, 2.0]),
    }
    panel = render(diagnosis_of(curve=line)).axes[0]
    (inducing,) = [artist for artist in panel.lines if artist.get_label() == "inducing inputs"]
    assert np.asarray(inducing.get_xdata()).tolist() == [0.5]
    assert panel.get_xlabel() == "rooms"
