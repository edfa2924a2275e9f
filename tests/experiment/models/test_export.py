"""Models exported to GPyTorch: its own predictions are ours, in memory and after a round trip
through files, also on raw tables; a model as one file to hand on."""

import re
import runpy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.data.schema import Column, Schema
from dlmexp.experiment.models.export import (
    GPYTORCH_LIKELIHOODS,
    export,
    import_gpytorch,
    to_gpytorch,
)
from dlmexp.experiment.models.file import load_file
from dlmexp.experiment.models.predictor import Predictor
from tests.support.cells import made_up_model

import_gpytorch()
import gpytorch  # noqa: E402

X = np.random.default_rng(4).normal(size=(30, 3))
COLUMNS = (
    Column("rooms"),
    Column("sort", "category", ("a", "b", "(missing)")),
    Column("code", "category", ("1", "7"), "numbers"),
    Column("day", "date", format="%d/%m/%Y"),
)
SCHEMA = Schema("price", COLUMNS, fill=True)
FRAME = pd.DataFrame(
    {"day": ["02/01/1970", "31/12/1970", None], "sort": ["b", None, "a"], "rooms": [1.5, None, 3.0]}
)
FRAME["code"], FRAME["id"] = [7, 1, 7], [1, 2, 3]


def _exported(trained, path):
    """What the exported code alone makes of the exported file."""
    script = export(trained, path)
    assert script == path.with_suffix(".py")
    assert not re.search(r"^\s*(import|from) dlmexp", script.read_text(), re.MULTILINE)
    return runpy.run_path(str(script))["load"](path)


def _compared(trained, model, likelihood, saved):
    """GPyTorch's marginals, densities and predictions against ours, to 1e-8."""
    (member,) = Predictor([trained]).members
    mu, v = (part[0] for part in member.marginals(X))
    x = ((torch.from_numpy(X) - saved["X_mean"]) / saved["X_std"]).to(mu.dtype)
    f = torch.linspace(-2, 2, 30, dtype=mu.dtype)
    with torch.no_grad():
        q = model(x)
        pairs = [(q.mean, mu), (q.variance, v)]
        for y in (torch.zeros_like(f), torch.ones_like(f)):
            pairs.append(
                (likelihood.forward(f).log_prob(y), member.likelihood.log_prob(f[None], y[None])[0])  # pyright: ignore[reportAttributeAccessIssue]
            )
        if trained.cell.likelihood in (
            "gaussian",
            "probit",
        ):  # for others it draws samples, or takes nodes in float32
            pairs.append((likelihood(q).mean, member.likelihood.mean(mu[None], v[None])[0]))
    for theirs, ours in pairs:
        torch.testing.assert_close(theirs, ours, rtol=1e-8, atol=1e-8)


MATERN, RQ = "gpytorch.kernels.MaternKernel", "gpytorch.kernels.RQKernel"
VARIANTS: dict[
    str, tuple[dict, dict, dict]
] = {  # changes of the cell, of its hyperparameters, and of the model
    **{likelihood: ({"likelihood": likelihood}, {}, {}) for likelihood in GPYTORCH_LIKELIHOODS},
    "matern52, ARD": ({"kernel": "matern52", "ard": True}, {"lengthscale": [0.7, 1.3, 2.0]}, {}),
    "matern32": ({"kernel": "matern32"}, {}, {}),
    "a large lengthscale": ({}, {"lengthscale": [45.0], "outputscale": 30.0}, {"jitter": 1e-3}),
    "a tiny noise": ({}, {"noise": 1e-7}, {}),
    "another jitter": ({}, {}, {"jitter": 1e-2}),
    "a constant feature": ({}, {}, {}),
    "no spread (square loss)": ({"objective": "sq_dlm"}, {}, {"L": np.zeros((5, 5))}),
    "a kernel of GPyTorch": (
        {"kernel": RQ},
        {"kernel.raw_lengthscale": [[0.3]], "kernel.raw_alpha": [0.4]},
        {},
    ),
    "one with ARD": (
        {"kernel": MATERN, "ard": True},
        {"kernel.raw_lengthscale": [[0.3, 0.1, -0.2]]},
        {},
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_memory_and_after_a_round_trip(variant, tmp_path):
    if variant == "poisson_softplus" and not hasattr(gpytorch.likelihoods, "PoissonLikelihood"):
        pytest.skip("this GPyTorch has no Poisson likelihood")
    of_cell, of_hyper, of_model = VARIANTS[variant]
    trained = replace(made_up_model(**of_cell), **of_model)
    trained.hyper.update({name: np.array(value) for name, value in of_hyper.items()})
    trained.normalisation.constant[2] = variant == "a constant feature"
    if "." in trained.cell.kernel:
        del trained.hyper["lengthscale"]
    _compared(trained, *_exported(trained, tmp_path / "mine.pt"))
    exported = to_gpytorch(trained)
    _compared(trained, exported.model, exported.likelihood, exported.saved)


def test_training_goes_on_in_gpytorch(tmp_path):
    """A step of GPyTorch's own ELBO moves the loaded model, without starting it anew."""
    model, likelihood, saved = _exported(made_up_model(), tmp_path / "mine.pt")
    x = (torch.from_numpy(X) - saved["X_mean"]) / saved["X_std"]
    before = model(x).mean.detach()
    model.train()
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    value: Any = mll(model(x), torch.zeros(len(X), dtype=x.dtype))
    torch.testing.assert_close(model(x).mean.detach(), before, rtol=1e-8, atol=1e-8)
    (-value).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(("changes", "name", "word"), [
    ({"likelihood": "logistic"}, "a.pt", "'logistic'"), ({"kernel": "rational"}, "a.pt", "'rational'"),
    ({}, "model.pt", "dlmexp has not written it"), ({}, "no/model.pt", "can't write"),
])  # fmt: skip
def test_what_gpytorch_has_not_and_names_of_files(changes, name, word, tmp_path):
    (tmp_path / "model.py").write_text("print('mine')")
    with pytest.raises(UserError) as refused:
        export(made_up_model(**changes), tmp_path / name)
    assert word in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]


def test_no_text_of_a_record_becomes_code(tmp_path):
    evil = '"""\nraise SystemExit("code")\n"""'
    export(made_up_model(dataset=evil), tmp_path / "a.pt")
    script = export(made_up_model(dtype="float64).eval() or exit("), tmp_path / "a.pt")
    assert "exit(" not in script.read_text()


def test_one_file_holds_model_and_schema(tmp_path):
    model, X = made_up_model(schema=SCHEMA), SCHEMA.encode(FRAME)
    assert export(model, tmp_path / "m.npz") == tmp_path / "m.npz"
    again = load_file(tmp_path / "m.npz")
    assert again.schema == SCHEMA
    np.testing.assert_array_equal(
        Predictor([again]).predict(X)["mean"], Predictor([model]).predict(X)["mean"]
    )
    (tmp_path / "m.npz").write_bytes(b"no model")
    for name in ("m.npz", "none.npz"):
        with pytest.raises(UserError, match=name):
            load_file(tmp_path / name)


def test_the_exported_file_encodes_a_raw_table(tmp_path):
    model = made_up_model(schema=SCHEMA)
    exported = runpy.run_path(str(export(model, tmp_path / "m.pt")))
    gp, likelihood, saved = exported["load"](tmp_path / "m.pt")
    X = exported["encode"](FRAME, saved)
    np.testing.assert_array_equal(X, SCHEMA.encode(FRAME))
    x = ((X - saved["X_mean"]) / saved["X_std"]).nan_to_num()
    with torch.no_grad():
        mean = likelihood(gp(x)).mean * saved["y_std"] + saved["y_mean"]
    np.testing.assert_allclose(mean, Predictor([model]).predict(X.numpy())["mean"], rtol=1e-6)
    with pytest.raises(ValueError, match="'sort'"):
        exported["encode"](FRAME.assign(sort="q"), saved)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_components_of_a_mixture_are_a_batch_whose_mean_is_our_prediction(likelihood, tmp_path):
    mixture = made_up_model(likelihood, components=2)
    script = export(mixture, tmp_path / "model.pt")
    assert "mixture of 2 Gaussians" in script.read_text()
    model, likelihood_of_theirs, saved = runpy.run_path(str(script))["load"](tmp_path / "model.pt")
    x = (torch.from_numpy(X) - saved["X_mean"]) / saved["X_std"]
    with torch.no_grad():
        components = likelihood_of_theirs(model(x))
    assert components.mean.shape == (2, 30)
    expected = Predictor([mixture]).predict(X)
    mean = components.mean.mean(0).numpy()
    if likelihood == "probit":
        _, second = mixture.schema.labels or ("", "")
        np.testing.assert_allclose(mean, expected[f"probability_{second}"], rtol=1e-8)
        return
    np.testing.assert_allclose(saved["y_mean"] + saved["y_std"] * mean, expected["mean"])
    variance = components.variance.mean(0) + components.mean.var(0, correction=0)
    np.testing.assert_allclose(saved["y_std"] * variance.sqrt(), expected["std"], rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise", -0.3), ("outputscale", -1.0), ("outputscale", 1e308), ("lengthscale", 0.0)],
)
@pytest.mark.parametrize("file", ["model.npz", "model.pt"])
def test_model_with_an_impossible_value_is_neither_used_nor_written(tmp_path, name, value, file):
    model = made_up_model()
    model.hyper[name] = np.full_like(model.hyper[name], value)
    for use in (lambda: export(model, tmp_path / file), lambda: Predictor([model])):
        with pytest.raises(UserError, match=re.escape(f"its {name} is {value:g}")):
            use()
    assert not list(tmp_path.iterdir())
