"""Importance of columns: what the loss gains when their values are permuted."""

import numpy as np
import pandas as pd
import pytest

import dlmexp
from dlmexp.common.errors import UserError
from dlmexp.data.schema import Column, Schema
from dlmexp.experiment.models.importance import Rows, column_features, importance, row_losses
from dlmexp.experiment.models.predictor import Predictor
from tests.support.cells import made_up_model

RNG = np.random.default_rng(0)


def test_row_losses_are_minus_log_densities_of_normalised_targets():
    predictor = Predictor([made_up_model()])
    X = RNG.normal(size=(30, 3))
    y = RNG.normal(size=30)
    model = predictor.members[0].model
    columns = predictor.predict(X)
    variance = (columns["std"] / model.y_std) ** 2
    error = (y - columns["mean"]) / model.y_std
    expected = 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
    np.testing.assert_allclose(row_losses(predictor, X, y), expected, rtol=1e-6)


def test_column_that_is_the_same_in_all_rows_does_not_matter():
    predictor = Predictor([made_up_model()])
    X = RNG.normal(size=(40, 3))
    X[:, 1] = 2.0
    table = importance(predictor, Rows(X, predictor.predict(X)["mean"])).set_index("column")
    assert table.loc["x2", "nll_increase"] == 0
    assert (table.loc[["x1", "x3"], "nll_increase"] > 0).all()


def test_interval_shrinks_with_the_number_of_rows():
    predictor = Predictor([made_up_model()])
    X = RNG.normal(size=(1600, 3))
    y = predictor.predict(X)["mean"]

    def width(n: int) -> float:
        table = importance(predictor, Rows(X[:n], y[:n])).set_index("column")
        widths = table["upper_95"] - table["lower_95"]
        return float(widths.to_dict()["x1"])

    assert width(1600) < 0.5 * width(100)


def test_features_of_a_category_belong_to_one_column():
    levels = ("a", "b")
    columns = (Column("kind", "category", levels, encoding="indicators"), Column("x"))
    assert column_features(Schema("y", columns)) == {"x": slice(0, 1), "kind": slice(1, 4)}


def test_importance_needs_rows():
    with pytest.raises(UserError, match="at least 2 rows"):
        importance(Predictor([made_up_model()]), Rows(np.zeros((1, 3)), np.zeros(1)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table whose target depends on `wave` and on `kind`, not on `noise`."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "noise": rng.normal(size=240),
            "kind": rng.choice(["u", "v"], 240),
            "wave": rng.uniform(-2, 2, 240),
        }
    )
    frame["y"] = np.sin(2 * frame["wave"]) + (frame["kind"] == "u") + 0.1 * rng.normal(size=240)
    folder = tmp_path_factory.mktemp("importance")
    settings = {"training.regression.max_iterations": 60, "training.regression.decay": 60, "M": 20}
    found = dlmexp.run(
        frame,
        "elbo",
        target="y",
        task="regression",
        name="waves",
        results=folder,
        verbose=False,
        **settings,
    )
    return found, frame


@pytest.mark.slow
def test_columns_of_the_target_matter_on_the_test_rows_and_others_do_not(trained):
    found, frame = trained
    table = found.model().importance().set_index("column")
    assert set(table.index[:2]) == {"wave", "kind"}
    assert (table.loc[["wave", "kind"], "lower_95"] > 0).all()
    assert table.loc["noise", "nll_increase"] < 0.1 * table.loc["kind", "nll_increase"]
    given = found.model().importance(frame.drop(columns="y"), frame["y"])
    assert list(given["column"][:2]) == list(table.index[:2])


@pytest.mark.slow
def test_scores_on_the_test_rows_are_those_of_the_record(trained):
    found, _ = trained
    scores = found.model().scores()
    (row,) = found.selected.to_dict("records")
    assert scores["rmse"] == pytest.approx(row["test_rmse"])
    y_std = found.table["y_std"].iloc[0]
    assert scores["nll"] == pytest.approx(row["test_nll"] + np.log(y_std))


@pytest.mark.slow
def test_figures_of_a_model_show_importance_and_baselines(trained):
    found, _ = trained
    picture = dlmexp.plot("importance", found.folder)
    assert next(tick.get_text() for tick in picture.axes[0].get_yticklabels()) == "noise"
    titles = [ax.get_title().split()[0] for ax in dlmexp.plot("predictions", found.folder).axes]
    assert titles == ["test", "residuals", "calibration", "importance", "the"]
