"""How a model does on its own test rows: data found by the record, calibration, candidates."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.data.splits import split
from dlmexp.experiment.models import diagnosis
from dlmexp.experiment.models.choice import choose_models
from dlmexp.experiment.models.diagnosis import diagnose, reload_dataset
from dlmexp.experiment.models.predictor import Predictor
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import Store
from tests.support.cells import made_up_model

pytestmark = pytest.mark.slow  # each trains models of a table

ROWS = 120
RUN = (
    "run dataset=csv csv.path=data/table.csv csv.target=y csv.task=regression csv.name=mine method=[elbo,beta_elbo] "
    "seeds=[1] device=cpu beta=list beta.values=[2,0.5] training.regression.max_iterations=30 dataset.csv.M=5"
)


@pytest.fixture
def trained(here) -> tuple[ResultsFolder, Any]:
    """A folder with models of a table of one feature, and the best of them."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, ROWS)
    frame = pd.DataFrame({"x": x, "y": np.sin(x) + 0.1 * rng.normal(size=ROWS)})
    Path("data").mkdir(exist_ok=True)
    frame.to_csv("data/table.csv", index=False)
    assert main(RUN.split()) == 0
    results = ResultsFolder("results")
    (chosen,) = choose_models(results, ["method=elbo"])
    return results, chosen


def rewrite_records(**changes: Any) -> None:
    """Write the records with models again, without the command of their run, and changed."""
    store = Store("results")
    models = store.model_files()
    for record in list(store.own_records(models)):
        (model,) = models[record.key]
        made = replace(record.made, command="")
        changed = replace(record, made=made, **changes)
        store.write(changed, store.arrays(record.key), model.read_bytes())


def test_data_is_found_by_the_record_without_the_command_of_its_run(trained):
    rewrite_records()
    results = ResultsFolder("results")
    (chosen,) = choose_models(results, ["method=elbo"])
    spec, data = reload_dataset(results, chosen.row)
    assert (spec.options["path"], spec.split, len(data.y)) == ("data/table.csv", "regression", ROWS)


def test_record_without_a_spec_says_what_to_do(trained):
    rewrite_records(dataset_spec=None)
    results = ResultsFolder("results")
    (chosen,) = choose_models(results, ["method=elbo"])
    with pytest.raises(UserError, match=r"test rows of 'mine'.*before version 0\.4.*results="):
        diagnose(results, chosen)


def test_changed_and_lost_data_are_refused(trained):
    results, chosen = trained
    table = Path("data/table.csv")
    table.write_text(table.read_text().replace("0.1", "0.2"))
    with pytest.raises(UserError, match="read other data: the file has changed since"):
        diagnose(results, chosen)
    table.unlink()
    with pytest.raises(UserError, match=r"a file that can't be read here: csv\.path"):
        diagnose(results, chosen)


def test_diagnosis_is_of_the_test_rows_of_the_split(trained):
    results, chosen = trained
    _, data = reload_dataset(results, chosen.row)
    rows = split(ROWS, "regression", seed=1, arrangement=data.arrangement)
    result = diagnose(results, chosen)
    predicted = Predictor([chosen.model]).predict(np.array(data.X[rows.test]))
    np.testing.assert_array_equal(result.targets, data.y[rows.test])
    np.testing.assert_array_equal(result.predictions["mean"], predicted["mean"])
    rmse = np.sqrt(np.mean((data.y[rows.test] - predicted["mean"]) ** 2))
    assert result.errors["rmse"] == pytest.approx(rmse)
    assert result.metric == "nll"
    assert len(result.objective) > 0


def test_candidates_are_those_of_the_largest_selection(trained):
    results, chosen = trained
    betas = diagnose(results, chosen).betas
    assert betas.empty  # one ELBO
    (selected,) = choose_models(results, ["method=beta_elbo"])
    betas = diagnose(results, selected).betas
    assert sorted(betas["beta"]) == [0.5, 2.0]
    assert list(betas.columns) == ["beta", "validation", "test"]
    best = betas.sort_values("validation")["beta"].iloc[0]
    assert best == selected.model.cell.beta


def test_line_goes_a_tenth_beyond_the_training_rows(trained):
    results, chosen = trained
    line = diagnose(results, chosen).curve
    assert line is not None
    low = line["rows"].min()
    high = line["rows"].max()
    margin = 0.1 * (high - low)
    assert (line["x"][0], line["x"][-1]) == pytest.approx((low - margin, high + margin))
    assert len(line["rows"]) == len(line["targets"]) == chosen.model.cell.n
    assert len(line["inducing"]) == 5
    assert len(line["mean"]) == len(line["x"]) == diagnosis.CURVE_POINTS


class Uniform:
    """A likelihood under which y is uniform on [0, 1], whatever the model says."""

    def interval(self, mu, v):
        return torch.full_like(mu, 0.025), torch.full_like(mu, 0.975)

    def cdf(self, mu, v, y):
        return y.clamp(0, 1)

    def mean(self, mu, v):
        return mu


def predictor_of(task: str, mu: np.ndarray) -> Any:
    """A predictor that has `Uniform` as its likelihood and predicts `mu`."""
    member = SimpleNamespace(
        likelihood=Uniform(),
        marginals=lambda X: (torch.from_numpy(mu)[None], torch.ones(1, len(mu))),
        model=SimpleNamespace(y_mean=0.0, y_std=1.0),
    )
    return SimpleNamespace(members=[member], task=task, has_distribution=True)


def test_central_intervals_hold_the_share_of_rows_that_they_promise():
    y = (np.arange(10_000) + 0.5) / 10_000
    predictor = predictor_of("regression", np.zeros(len(y)))
    table = diagnosis._calibration(predictor, np.zeros((len(y), 1)), y)
    assert table is not None
    np.testing.assert_allclose(table["observed"], table["promised"], atol=1e-3)
    assert (table["rows"] == len(y)).all()


def test_rows_in_the_tails_are_in_wide_intervals_only():
    table = diagnosis._calibration_of_intervals(np.full(4, 0.9), np.full(4, 0.9))
    inside = table.set_index(table["promised"].round(2))["observed"]
    assert inside[0.75] == 0
    assert inside[0.85] == pytest.approx(1)


def test_counts_lie_in_an_interval_with_their_part_of_the_quantiles():
    """F(y - 1) = 0.4, F(y) = 0.9: of 0.5, the interval from 0.25 to 0.75 holds 0.35."""
    table = diagnosis._calibration_of_intervals(np.array([0.4]), np.array([0.9]))
    inside = table.set_index(table["promised"].round(2))["observed"]
    assert inside[0.5] == pytest.approx(0.35 / 0.5)
    assert inside[0.95] == pytest.approx(1)


def test_probabilities_are_binned_with_their_ends():
    probability = np.array([0.0, 0.05, 0.12, 0.95, 1.0])
    table = diagnosis._calibration_of_classes(probability, np.array([0.0, 1, 0, 1, 1]))
    assert table.index.tolist() == [0, 1, 9]
    assert table["rows"].tolist() == [2, 1, 2]
    assert table["promised"].tolist() == pytest.approx([0.025, 0.12, 0.975])
    assert table["observed"].tolist() == [0.5, 0, 1]


def test_square_loss_has_no_calibration():
    predictor = Predictor([made_up_model(objective="sq_dlm")])
    assert diagnosis._calibration(predictor, np.zeros((3, 3)), np.zeros(3)) is None
