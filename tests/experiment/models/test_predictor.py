"""Predictions: the record's own metrics again, own units on shifted and scaled data, intervals
against closed forms."""

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
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.splits import split
from dlmexp.experiment.models.choice import load_model
from dlmexp.experiment.models.predictor import Predictor
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
    own = [f"csv.target={task}", f"csv.task={task}", f"training.{task}.max_iterations=40"]
    assert main(["run", *SMALL.split(), *own, *words]) == 0
    y = np.asarray(frame[task] == "yes" if task == "binary" else frame[task], dtype=float)
    results = ResultsFolder("results")
    rows: list[Any] = list(results.candidates.drop_duplicates("key").itertuples())
    assert len(rows) >= 2
    for row in rows:
        model = load_model(results, row)
        test = split(len(frame), "regression" if task == "regression" else "counts", row.seed).test
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
