"""Models exported to GPyTorch: its own predictions are ours, in memory and after a round trip through files."""

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.models.export import LIKELIHOODS, export, import_gpytorch, to_gpytorch
from dlmexp.models.predictor import Predictor
from tests.support.models import made_up_model

import_gpytorch()
import gpytorch  # noqa: E402

X = np.random.default_rng(4).normal(size=(30, 3))


def _loaded(path, script):
    """The exported files, read by the exported code alone."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(path)


def _compared(trained, model, likelihood, saved):
    """GPyTorch's marginals and predictions against ours, to 1e-8."""
    (member,) = Predictor([trained]).members
    ours_too: Any = member.likelihood
    mu, v = (part[0] for part in member.marginals(X))
    x = ((torch.from_numpy(X) - saved["X_mean"]) / saved["X_std"]).to(mu.dtype)
    with torch.no_grad():
        q = model(x)
        torch.testing.assert_close(q.mean, mu, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(q.variance, v, rtol=1e-8, atol=1e-8)
        ours = member.likelihood.mean(mu[None], v[None])[0]
        y = torch.ones_like(mu)
        log_loss = member.likelihood.log_loss(mu[None], v[None], y[None])[0]
        kind = trained.cell.likelihood
        predicted: Any = likelihood(q) if kind in ("gaussian", "probit") else None
        if predicted is not None:
            torch.testing.assert_close(predicted.mean, ours, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(-likelihood.log_marginal(y, q), log_loss, rtol=1e-8, atol=1e-8)
        if kind == "gaussian":
            assert predicted is not None
            spread = member.likelihood.std(mu[None], v[None])
            assert spread is not None
            torch.testing.assert_close(predicted.stddev, spread[0], rtol=1e-8, atol=1e-8)
        if kind.startswith("poisson"):
            # GPyTorch draws samples here, or takes nodes in float32: its conditional mean, over its q, at our nodes.
            nodes, weights = (torch.from_numpy(a)[:, None] for a in np.polynomial.hermite_e.hermegauss(80))
            rates = likelihood.forward(q.mean + q.stddev * nodes).mean
            torch.testing.assert_close((weights / weights.sum() * rates).sum(0), ours, rtol=1e-8, atol=1e-8)
        if kind == "student_t":
            torch.testing.assert_close(likelihood.noise.sqrt(), ours_too.scale[0], rtol=1e-12, atol=0.0)
            torch.testing.assert_close(likelihood.deg_free, ours_too.nu[0], rtol=1e-12, atol=0.0)
        if kind in ("student_t", "poisson", "poisson_softplus"):
            f = torch.linspace(-2, 2, 30, dtype=mu.dtype)
            density = likelihood.forward(f).log_prob(y)
            torch.testing.assert_close(density, member.likelihood.log_prob(f[None], y[None])[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_round_trip(likelihood, tmp_path):
    if likelihood == "poisson_softplus" and not hasattr(gpytorch.likelihoods, "PoissonLikelihood"):
        pytest.skip("this GPyTorch has no Poisson likelihood")
    trained = made_up_model(likelihood)
    path = tmp_path / "mine.pt"
    script = export(trained, path)
    assert script == tmp_path / "mine.py"
    _compared(trained, *_loaded(path, script))
    exported = to_gpytorch(trained)
    _compared(trained, exported.model, exported.likelihood, exported.saved)


VARIANTS = {
    "matern52, ARD": {"kernel": "matern52", "ard": True},
    "a large lengthscale": {},
    "a tiny noise": {},
    "another jitter": {},
    "a constant feature": {},
    "no spread (square loss)": {"objective": "sq_dlm"},
    "a kernel of GPyTorch": {"kernel": "gpytorch.kernels.RQKernel"},
    "one of GPyTorch with ARD": {"kernel": "gpytorch.kernels.MaternKernel", "ard": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant, tmp_path):
    trained, changes = made_up_model(), VARIANTS[variant]
    cell, hyper = replace(trained.cell, **changes), trained.hyper
    object.__setattr__(trained, "cell", cell)
    if changes.get("ard"):
        hyper["lengthscale"] = np.array([0.7, 1.3, 2.0])
    if variant == "a large lengthscale":
        hyper["lengthscale"], hyper["outputscale"] = np.array([45.0]), np.array(30.0)
        object.__setattr__(trained, "jitter", 1e-3)
    if variant == "a tiny noise":
        hyper["noise"] = np.array(1e-7)
    if variant == "another jitter":
        object.__setattr__(trained, "jitter", 1e-2)
    if variant == "a constant feature":
        trained.normalisation.constant[2] = True
    if variant == "no spread (square loss)":
        object.__setattr__(trained, "L", np.zeros_like(trained.L))
    if "." in cell.kernel:
        del hyper["lengthscale"]
        hyper["kernel.raw_lengthscale"] = np.array([[0.3, 0.1, -0.2]] if cell.ard else [[0.3]])
        if "RQ" in cell.kernel:
            hyper["kernel.raw_alpha"] = np.array([0.4])
    path = tmp_path / "mine.pt"
    _compared(trained, *_loaded(path, export(trained, path)))


@pytest.mark.slow
def test_the_files_need_no_dlmexp(tmp_path):
    trained = made_up_model("poisson")
    export(trained, tmp_path / "mine.pt")
    code = "import sys; from mine import load; load('mine.pt'); sys.exit('dlmexp' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path).returncode == 0


def test_training_goes_on_in_gpytorch(tmp_path):
    """A step of GPyTorch's own ELBO moves the loaded model, without starting it anew."""
    trained = made_up_model()
    path = tmp_path / "mine.pt"
    model, likelihood, saved = _loaded(path, export(trained, path))
    x = (torch.from_numpy(X) - saved["X_mean"]) / saved["X_std"]
    before = model(x).mean.detach()
    model.train()
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    value: Any = mll(model(x), torch.zeros(len(X), dtype=x.dtype))
    torch.testing.assert_close(model(x).mean.detach(), before, rtol=1e-8, atol=1e-8)
    (-value).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_what_gpytorch_has_not(tmp_path):
    with pytest.raises(UserError, match="no likelihood like 'logistic'"):
        export(made_up_model("logistic"), tmp_path / "a.pt")
    with pytest.raises(UserError, match="no kernel like 'rational'"):
        export(made_up_model(kernel="rational"), tmp_path / "a.pt")
    assert list(tmp_path.iterdir()) == []


def test_no_text_of_a_record_becomes_code(tmp_path):
    evil = '"""\nraise SystemExit("code")\n"""'
    export(made_up_model(dataset=evil), tmp_path / "a.pt")
    script = export(made_up_model(dtype="float64).eval() or exit("), tmp_path / "a.pt")
    assert "exit(" not in script.read_text()


def test_names_of_files(tmp_path):
    trained = made_up_model()
    (tmp_path / "model.py").write_text("print('mine')")
    for name, why in (("model.pt", "not one of ours"), ("model.bin", "ends in .pt"), ("no/model.pt", "can't write")):
        with pytest.raises(UserError, match=why):
            export(trained, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]
    export(trained, tmp_path / "other.pt")
    export(trained, tmp_path / "other.pt")
