"""Predictions: the record's own metrics again, own units on shifted and scaled data, intervals
against closed forms."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.core import prediction
from dlmexp.core.folds import OWN_ROWS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.splits import Arrangement, split
from dlmexp.experiment.models import predictor
from dlmexp.experiment.models.choice import load_model
from dlmexp.experiment.models.predictor import Outputs, Predictor
from dlmexp.experiment.records.results import ResultsFolder
from tests.support.cells import MIXED, made_up_model

SMALL = (
    "seeds=[0] beta=list beta.values=[5,0.5] device=cpu keep=all dataset=csv csv.path=own.csv csv.name=own sizes=[40] "
    "dataset.csv.M=7"
)
KINDS = {
    "collapsed, fitc, square loss": "regression method=[elbo,fitc,joint_log_dlm,joint_sq_dlm,fixed_sq_dlm]",
    "student_t, ard, learning curve": (
        "regression dataset.csv.likelihood=student_t method=[elbo,joint_log_dlm] dataset.csv.ard=true evaluate=20"
    ),
    "float32, minibatches, matern52": (
        "regression dtype=float32 training.regression.minibatch=10 method=[joint_log_dlm] dataset.csv.kernel=matern52"
    ),
    "binary, unwhitened": "binary parameterisation=[unwhitened] method=[joint_log_dlm,fixed_log_dlm]",
    "logistic": "binary dataset.csv.likelihood=logistic method=[joint_log_dlm]",
    "counts": "count method=[joint_log_dlm] estimator=[bmc] estimator.bmc.samples=[3]",
    "mixture": "regression method=[mixture_log_dlm] K=[1,3]",
    "mixture for classes": "binary method=[mixture_log_dlm] K=[3]",
    "mixture of counts": "count method=[mixture_log_dlm] estimator=[quadrature] K=[2]",
    "a kernel of GPyTorch": "regression method=[joint_log_dlm] dataset.csv.kernel=gpytorch.kernels.RQKernel",
}
X = np.random.default_rng(2).normal(size=(6, 3))


def table(rows: int = 160) -> pd.DataFrame:
    """Features, and a target for each task."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {"rooms": rng.normal(5, 2, rows), "sort": rng.choice(["a", "b", "c"], rows)}
    )
    frame["age"] = rng.uniform(0, 100, rows)
    signal = frame["rooms"] / 4 + (frame["sort"] == "b") + np.sin(frame["age"] / 20)
    frame["regression"] = 1000 * signal + 100 * rng.normal(size=rows)
    frame["binary"] = np.where(signal + 0.3 * rng.normal(size=rows) > 1.5, "yes", "no")
    frame["count"] = rng.poisson(np.exp(signal))
    return frame


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_test_rows_give_the_metrics_of_the_record(kind, here, capsys):
    """Models of a table, from the raw test rows of their split, which is made here once more."""
    task, *words = KINDS[kind].split()
    frame = table()[["rooms", "sort", "age", task]]
    frame.to_csv("own.csv", index=False)
    own = [f"csv.target={task}", f"csv.task={task}", f"training.{task}.max_iterations=20"]
    assert main(["run", *SMALL.split(), *own, *words]) == 0
    y = np.asarray(frame[task] == "yes" if task == "binary" else frame[task], dtype=float)
    results = ResultsFolder("results")
    rows: list[Any] = list(results.candidates.drop_duplicates("key").itertuples())
    assert rows
    for row in rows:
        model = load_model(results, row)
        sizes = "regression" if task == "regression" else "counts"
        order = Arrangement(tag=OWN_ROWS)
        test = split(len(frame), sizes, row.seed, arrangement=order).test
        (member,) = Predictor([model]).members
        mu, v = member.marginals(model.schema.encode(frame)[test])
        targets = torch.from_numpy((y[test] - model.y_mean) / model.y_std).to(mu)[None]
        found = {
            name: metric(member.likelihood, mu, v, targets)
            for name, metric in member.likelihood.metrics.items()
        }
        if OBJECTIVES[model.cell.objective].predicts_variance:
            found["nll"] = member.likelihood.log_loss(mu, v, targets)
            found |= member.likelihood.calibration(mu, v, targets)
        close = 1e-10 if row.dtype == "float64" else 1e-4
        for name, value in found.items():
            assert float(value.mean()) == pytest.approx(
                getattr(row, f"test_{name}"), rel=close, abs=close
            ), name


def test_pieces_do_not_matter_nor_a_feature_that_was_constant(monkeypatch):
    model, X = made_up_model(), np.random.default_rng(1).normal(size=(50, 3))
    model.normalisation.constant[1] = True
    whole = Predictor([model]).predict(X)
    X[:, 1] += 100
    assert {len(values) for values in Predictor([model]).predict(X[:0]).values()} == {0}
    monkeypatch.setattr(prediction, "ENTRIES_AT_ONCE", {"cpu": 35})
    pieces = Predictor([model]).predict(X)
    for name, values in whole.items():
        np.testing.assert_allclose(
            pieces[name], values, rtol=1e-12, atol=1e-12 * np.abs(values).max()
        )


DRAWS = {  # of y, given f
    "gaussian": lambda rng, f: f + np.sqrt(0.2) * rng.normal(size=f.shape),
    "student_t": lambda rng, f: f + np.sqrt(0.2) * rng.standard_t(4.0, size=f.shape),
    "poisson": lambda rng, f: rng.poisson(np.exp(f)),
    "poisson_softplus": lambda rng, f: rng.poisson(np.logaddexp(0, f)),
    "probit": lambda rng, f: rng.uniform(size=f.shape) < scipy.stats.norm.cdf(f),
    "logistic": lambda rng, f: rng.uniform(size=f.shape) < 1 / (1 + np.exp(-f)),
}


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("likelihood", DRAWS)
def test_against_draws(likelihood, members):
    """Mean, deviation and interval of a model, and of the mixture of three, against 200 000 draws
    of y."""
    models = [made_up_model(likelihood, seed=seed) for seed in range(members)]
    together, rng, parts = Predictor(models), np.random.default_rng(3), []
    for model, member in zip(models, together.members, strict=True):
        mu, v = (part[0].numpy() for part in member.marginals(X))
        f = mu + np.sqrt(v) * rng.normal(size=(200_000 // members, len(mu)))
        parts.append(DRAWS[likelihood](rng, f) * model.y_std + model.y_mean)
    draws, found = np.concatenate(parts), together.predict(X)
    if likelihood in ("probit", "logistic"):
        np.testing.assert_allclose(found["probability_1"], draws.mean(0), atol=0.006)
        np.testing.assert_array_equal(found["label"], (found["probability_1"] > 0.5).astype(int))
        np.testing.assert_allclose(found["probability_0"] + found["probability_1"], 1)
        return
    spread = draws.std(0)
    np.testing.assert_allclose(
        found["mean"], draws.mean(0), atol=6 * spread.max() / np.sqrt(len(draws))
    )
    if "std" in found:
        np.testing.assert_allclose(found["std"], spread, rtol=0.03)
    for name, share in (("lower_95", 0.025), ("upper_95", 0.975)):
        if likelihood.startswith("poisson"):  # the least count with F(k) >= share
            assert ((draws <= found[name]).mean(0) >= share - 0.002).all()
            assert ((draws <= found[name] - 1).mean(0) < share + 0.002).all()
        else:
            np.testing.assert_allclose((draws <= found[name]).mean(0), share, atol=0.003)


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_predictions_of_logarithms_are_in_own_units(likelihood):
    schemas, X = (
        (MIXED, replace(MIXED, log=True)),
        np.random.default_rng(2).normal(size=(6, len(MIXED.features))),
    )
    logs, own = (
        Predictor([made_up_model(likelihood, schema=schema)]).predict(X) for schema in schemas
    )
    for end in ("lower_95", "upper_95"):
        np.testing.assert_allclose(own[end], np.exp(logs[end]), rtol=1e-12)
    if likelihood == "student_t":  # its exponential has no mean: the median
        np.testing.assert_allclose(own["mean"], np.exp(logs["mean"]), rtol=1e-12)
        assert "std" not in own
        return
    exact = scipy.stats.lognorm(logs["std"], scale=np.exp(logs["mean"]))
    np.testing.assert_allclose(own["mean"], exact.mean(), rtol=1e-9)
    np.testing.assert_allclose(own["std"], exact.std(), rtol=1e-9)


def test_square_loss_has_a_mean_only_and_a_kernel_must_fit():
    assert list(Predictor([made_up_model(objective="sq_dlm")]).predict(X)) == ["mean"]
    model = made_up_model()
    model.hyper["lengthscale"] = np.ones(2)
    with pytest.raises(UserError, match="'lengthscale'"):
        Predictor([model])


def uniform_cdf(y: torch.Tensor) -> torch.Tensor:
    """P(Y <= y) of a number that is uniform on [0, 1]."""
    return y.clamp(0, 1)


def count_cdf(y: torch.Tensor) -> torch.Tensor:
    """P(Y <= y) of a count that is 0 or 3 with probability 1/2 each."""
    return 0.5 * (y >= 0) + 0.5 * (y >= 3)


def test_quantile_of_a_number_is_found_to_rounding():
    ends = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    found = predictor.quantile(uniform_cdf, 0.3, *ends, is_count=False)
    torch.testing.assert_close(found, torch.full_like(found, 0.3), rtol=0, atol=1e-15)


@pytest.mark.parametrize(("share", "count"), [(0.1, 0), (0.5, 0), (0.51, 3), (1.0, 3)])
def test_quantile_of_a_count_is_the_least_that_reaches_the_share(share, count):
    low = torch.zeros(1, dtype=torch.float64)
    assert predictor.quantile(count_cdf, share, low, low + 7, is_count=True) == count


def test_interval_is_widened_until_it_holds_both_quantiles():
    low = torch.full((1,), 0.45, dtype=torch.float64)
    low, high = predictor._widened(uniform_cdf, 0.005, 0.995, low, low + 0.1, is_count=False)
    assert uniform_cdf(low) < 0.005
    assert uniform_cdf(high) >= 0.995


def test_interval_without_width_is_widened_too():
    low = torch.full((1,), 0.5, dtype=torch.float64)
    low, high = predictor._widened(uniform_cdf, 0.005, 0.995, low, low, is_count=False)
    assert low < 0.005 < 0.995 < high


def test_wider_levels_hold_narrower_ones_and_95_is_that_of_the_likelihood():
    predict = Predictor([made_up_model("poisson")]).predict
    usual, wide, narrow = predict(X), predict(X, 0.999), predict(X, 0.5)
    assert (wide["lower_99.9"] <= usual["lower_95"]).all()
    assert (usual["lower_95"] <= narrow["lower_50"]).all()
    assert (narrow["upper_50"] <= usual["upper_95"]).all()
    assert (usual["upper_95"] < wide["upper_99.9"]).all()


def test_level_of_a_gaussian_is_its_quantile():
    columns = Predictor([made_up_model()]).predict(X, 0.99)
    factor = scipy.stats.norm.ppf(0.995)
    np.testing.assert_allclose(columns["upper_99"], columns["mean"] + factor * columns["std"])
    np.testing.assert_allclose(columns["lower_99"], columns["mean"] - factor * columns["std"])


def test_mixture_of_a_model_with_itself_is_the_model():
    model = made_up_model("student_t")
    single, twice = Predictor([model]).predict(X, 0.9), Predictor([model, model]).predict(X, 0.9)
    for name, values in single.items():
        np.testing.assert_allclose(twice[name], values, rtol=1e-9)


def test_models_with_other_columns_make_no_mixture():
    with pytest.raises(UserError, match="make no mixture"):
        Predictor([made_up_model(D=3), made_up_model(D=2)])


def test_errors_are_those_of_the_textbook():
    columns = {
        "mean": np.array([1.0, 2.0, 6.0]),
        "lower_95": np.array([1.0, 0.0, 5.0]),
        "upper_95": np.array([2.0, 2.0, 7.0]),
    }
    targets = np.array([1.0, 3.0, 5.0])
    errors = predictor.errors_in_target_units(columns, targets)
    assert errors["rmse"] == pytest.approx(np.sqrt(2 / 3))
    assert errors["mae"] == pytest.approx(2 / 3)
    assert errors["r2"] == pytest.approx(1 - 2 / 8)
    assert errors["coverage_95"] == pytest.approx(2 / 3)  # the ends belong to the interval
    assert "r2" not in predictor.errors_in_target_units({"mean": targets}, np.full(3, 2.0))


def test_labels_are_those_of_the_schema_and_the_more_probable_one():
    model = made_up_model("probit", seed=3, schema=replace(MIXED, labels=("no", "yes")))
    columns = Predictor([model]).predict(np.random.default_rng(0).normal(size=(40, 4)))
    likely = columns["probability_yes"] > 0.5
    assert set(likely) == {True, False}
    assert columns["label"].tolist() == np.where(likely, "yes", "no").tolist()
    np.testing.assert_allclose(columns["probability_no"] + columns["probability_yes"], 1)


def test_quantiles_and_probabilities_of_a_gaussian_are_those_of_scipy():
    wanted = Outputs(quantiles=(0.001, 0.1, 0.9), above=(1.0,))
    columns = Predictor([made_up_model()]).predict(X, outputs=wanted)
    normal = scipy.stats.norm(columns["mean"], columns["std"])
    for share in wanted.quantiles:
        np.testing.assert_allclose(columns[f"quantile_{share:g}"], normal.ppf(share), rtol=1e-6)
    np.testing.assert_allclose(columns["above_1"], normal.sf(1.0), rtol=1e-6)


def test_quantiles_of_counts_are_the_least_counts_with_enough_probability():
    predictor = Predictor([made_up_model("poisson")])
    columns = predictor.predict(X, outputs=Outputs(quantiles=(0.3,), above=(0, 1, 2, 3, 50)))
    for row, count in enumerate(columns["quantile_0.3"]):
        below = [1 - columns[f"above_{k}"][row] for k in (0, 1, 2, 3, 50)]
        counts = [k for k, share in zip((0, 1, 2, 3, 50), below, strict=True) if share >= 0.3]
        assert count <= counts[0]
        if count in (1, 2, 3):
            assert below[count - 1] < 0.3 <= below[count]


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "probit"])
def test_samples_have_the_moments_of_the_prediction(likelihood):
    model = made_up_model(likelihood)
    if likelihood == "probit":
        model = made_up_model(likelihood, seed=3, schema=replace(MIXED, labels=(0, 1)))
    rows = np.zeros((100, len(model.schema.features)))  # alike: draws differ by row and by column
    columns = Predictor([model]).predict(rows, outputs=Outputs(samples=40))
    draws = np.array([columns[f"sample_{k + 1}"] for k in range(40)], dtype=float).ravel()
    mean = columns["probability_1" if likelihood == "probit" else "mean"][0]
    assert abs(draws.mean() - mean) < 4 * draws.std() / np.sqrt(len(draws)) + 1e-9
    if likelihood == "gaussian":
        assert draws.std() == pytest.approx(columns["std"][0], rel=0.05)


def test_what_a_model_has_no_distribution_for_is_refused():
    with pytest.raises(UserError, match="a mean only"):
        Predictor([made_up_model(objective="sq_dlm")]).predict(X, outputs=Outputs(samples=1))
    labels = made_up_model("probit", seed=3, schema=replace(MIXED, labels=("no", "yes")))
    with pytest.raises(UserError, match="labels have no quantiles"):
        Predictor([labels]).predict(np.zeros((1, 4)), outputs=Outputs(quantiles=(0.5,)))


def test_model_predicts_without_the_plugin_that_has_its_objective():
    model = made_up_model()
    other = dataclasses.replace(model, cell=replace(model.cell, objective="of_a_plugin"))
    expected = Predictor([model]).predict(X)
    predicted = Predictor([other]).predict(X)
    assert list(predicted) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(predicted[name], values)


@pytest.mark.parametrize("part", ["kernel", "likelihood"])
def test_model_that_needs_a_plugin_says_so(part):
    model = made_up_model()
    other = dataclasses.replace(model, cell=replace(model.cell, **{part: "of_a_plugin"}))
    needed = f"the model of cell .* needs the {part} 'of_a_plugin' of a plugin: .*--plugins MODULE"
    with pytest.raises(UserError, match=needed):
        Predictor([other])
