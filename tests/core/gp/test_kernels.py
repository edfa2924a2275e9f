"""Kernels: our own against GPyTorch's, GPyTorch's in the batched core, and names of kernels."""

import json
import math
import sys
import types
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.core.gp.kernels import KERNELS, GPyTorchKernel, Parameter, kernel_named, matern32
from dlmexp.core.training.parameters import unsoftplus
from tests.support.small_programs import perturbed

COUNTERPARTS = {
    "rbf": "gpytorch.kernels.RBFKernel",
    "matern32": f"{__name__}.RoughMatern",
    "matern52": "gpytorch.kernels.MaternKernel",
}
GPYTORCH_KERNELS = [
    f"gpytorch.kernels.{name}Kernel" for name in ("RBF", "Periodic", "RQ", "Linear")
]


class RoughMatern(gpytorch.kernels.MaternKernel):
    """GPyTorch's Matern-3/2 kernel."""

    def __init__(self, **options):
        super().__init__(nu=1.5, **options)


class Warped(gpytorch.kernels.Kernel):
    """A user's own kernel, with a parameter of its own and a diagonal that is not constant."""

    raw_power: torch.nn.Parameter

    def __init__(self, **options):
        super().__init__(**options)
        raw_power = torch.nn.Parameter(0.3 * torch.ones(*self.batch_shape, 1, 1))
        self.register_parameter("raw_power", raw_power)
        self.linear = gpytorch.kernels.LinearKernel(batch_shape=self.batch_shape)

    def forward(self, x1, x2, diag=False, last_dim_is_batch=False, **params):
        warped = [torch.tanh(x * self.raw_power) for x in (x1, x2)]
        return self.linear(*warped, diag=diag, **params)


class NeedsPower(gpytorch.kernels.Kernel):
    def __init__(self, power, **options):
        super().__init__(**options)


class IgnoresBatch(gpytorch.kernels.Kernel):
    def __init__(self, **options):
        super().__init__(**options)
        self.register_parameter("raw_power", torch.nn.Parameter(torch.ones(1)))


def values_and_gradients(kernel, X, hyper, leaves, weight):
    """Return Kuf, Kuu, diagonal, trace, and gradients of a weighted sum of them."""
    Kuf = kernel(leaves["Z"], X, hyper)
    Kuu = kernel(leaves["Z"], leaves["Z"], hyper)
    diagonal = kernel.diagonal(X, hyper)
    total = (weight[0] * Kuf).sum() + (weight[1, ..., :5] * Kuu).sum() + diagonal.sum()
    gradients = torch.autograd.grad(total, list(leaves.values()), retain_graph=True)
    return Kuf, Kuu, diagonal, kernel.trace(X, hyper), *gradients


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("name", COUNTERPARTS)
def test_values_and_gradients_equal_gpytorchs(name, ard, cells):
    c = cells(3, 5, 12, 2, ard)
    raw = {
        "kernel.raw_lengthscale": unsoftplus(c["lengthscale"])[:, None],
        "outputscale": c["outputscale"],
        "Z": c["Z"],
    }
    leaves = {key: value.clone().requires_grad_() for key, value in raw.items()}
    lengthscale = torch.nn.functional.softplus(leaves["kernel.raw_lengthscale"]).squeeze(1)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 3, 5, 12, generator=generator, dtype=torch.float64)
    own_hyper = leaves | {"lengthscale": lengthscale}
    own = values_and_gradients(kernel_named(name), c["X"], own_hyper, leaves, weight)
    counterpart = kernel_named(COUNTERPARTS[name])
    expected = values_and_gradients(counterpart, c["X"], leaves, leaves, weight)
    torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", list(KERNELS))
def test_gradient_reaches_both_inputs(name, cells):
    c = cells(2, 3, 4, 2)
    X1 = c["Z"].requires_grad_()
    X2 = c["X"].requires_grad_()
    gradients = torch.autograd.grad(KERNELS[name](X1, X2, c).sum(), (X1, X2))
    swapped = torch.autograd.grad(KERNELS[name](X2, X1, c).sum(), (X1, X2))
    torch.testing.assert_close(gradients, swapped, rtol=1e-9, atol=1e-9)
    assert gradients[0].abs().max() > 0


@pytest.mark.parametrize("name", list(KERNELS))
def test_zero_distance_is_outputscale_with_a_finite_gradient(name):
    Z = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Z[:, 1] = Z[:, 0]
    Z.requires_grad_()
    l = torch.tensor([[1e-3], [1.0], [1e3]], dtype=torch.float64, requires_grad=True)
    s = torch.tensor([1e-4, 1.0, 1e4], dtype=torch.float64, requires_grad=True)
    K = KERNELS[name](Z, Z, {"lengthscale": l, "outputscale": s})
    # |z|^2/l^2 is up to 1e7 in the first cell: that is how much of the rounding the exponent sees
    # (Matern: its root).
    tolerance = 1e-4 if name.startswith("matern") else 1e-8
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, s[:, None].expand(3, 6), rtol=tolerance, atol=0)
    torch.testing.assert_close(K[:, 0, 1], s, rtol=tolerance, atol=0)
    K.sum().backward()
    for parameter in (Z, l, s):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def parts(kernel, X, hyper):
    return kernel(hyper["Z"], X, hyper), kernel.diagonal(X, hyper), kernel.trace(X, hyper)


def start_of(kernel, c, ard):
    """Return hyperparameters [3, ...] near their initial values."""
    start = {
        name: parameter.start(c["X"], 3) for name, parameter in kernel.parameters(2, ard).items()
    }
    return perturbed(start, 0.1) | {"Z": c["Z"]}


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("name", [*GPYTORCH_KERNELS, f"{__name__}.Warped"])
def test_batch_is_its_cells_one_by_one(name, ard, cells):
    kernel = kernel_named(name)
    c = cells(3, 4, 9, 2)
    hyper = start_of(kernel, c, ard)
    together = parts(kernel, c["X"], hyper)
    for i in range(3):
        X = c["X"][i : i + 1]
        cell = {key: value[i : i + 1] for key, value in hyper.items()}
        for part, alone in zip(together, parts(kernel, X, cell), strict=True):
            torch.testing.assert_close(part[i : i + 1], alone, rtol=1e-12, atol=1e-12)
        dense = kernel(X, X, cell).diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(kernel.diagonal(X, cell), dense, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "shape"), [("rbf", (3,)), ("gpytorch.kernels.RBFKernel", (1, 3))])
def test_ard_gives_every_feature_a_lengthscale(name, shape):
    (of_kernel,) = [
        parameter
        for key, parameter in kernel_named(name).parameters(3, ard=True).items()
        if "lengthscale" in key
    ]
    assert of_kernel.shape == shape


@pytest.mark.parametrize("name", ["rbf", "matern32", "matern52"])
def test_inputs_that_are_many_lengthscales_away_have_a_finite_kernel_in_float32(name):
    X = torch.tensor([[[1e6, -2e6], [1e6 + 1, 5.0], [3.0, 1e6]]], dtype=torch.float32)
    hyper = {"lengthscale": torch.full((1, 1), 1e-3), "outputscale": torch.full((1,), 0.5)}
    K = KERNELS[name](X, X, hyper)
    assert K.isfinite().all()
    assert (K <= 0.5 * (1 + 1e-6)).all()


def test_kernel_without_ard_is_built_without_it():
    kernel: Any = kernel_named("gpytorch.kernels.RBFKernel")
    assert kernel.options(3) == {"ard_num_dims": 3}
    assert kernel.options(None) == {}


@pytest.mark.parametrize("initial", [0.5, torch.tensor([0.5, 0.5])])
def test_parameter_starts_alike_in_all_cells(initial):
    like = torch.zeros(1, dtype=torch.float64)
    parameter = Parameter(initial, shape=(2,))
    assert parameter.start(like, 3).tolist() == [[0.5, 0.5]] * 3
    assert parameter.start(like, 3).dtype == torch.float64
    assert parameter.start(like, 3, initial=2.0).tolist() == [[2.0, 2.0]] * 3


def test_gpytorch_kernel_can_not_be_captured_and_its_trace_sums_the_diagonal(cells):
    kernel = kernel_named("gpytorch.kernels.LinearKernel")
    c = cells(3, 4, 9, 2)
    hyper = start_of(kernel, c, ard=False)
    assert isinstance(kernel, GPyTorchKernel)
    assert not kernel.capturable
    assert not kernel.stationary
    diagonal = kernel.diagonal(c["X"], hyper)
    torch.testing.assert_close(kernel.trace(c["X"], hyper), diagonal.sum(-1))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpytorch.kernel.RBFKernel", "there is no module 'gpytorch.kernel'"),
        ("..K", "there is no module"),
        ("gpytorch.kernels.RBFKernell", "RBFKernell: gpytorch.kernels has no such class"),
        ("math.pi", "no such class that derives from gpytorch.kernels.Kernel"),
        (f"{__name__}.NeedsPower", "with a batch_shape alone .*power"),
        (f"{__name__}.IgnoresBatch", "kernel.raw_power does not begin with the batch_shape"),
        ("rbff", "did you mean rbf"),
    ],
)
def test_name_of_no_such_kernel_is_refused(name, words):
    with pytest.raises(UserError, match=words):
        kernel_named(name, may_import=True)


def test_module_of_a_kernel_is_imported_only_where_the_user_has_typed_it(monkeypatch):
    with pytest.raises(UserError, match="say `dlmexp --plugins this COMMAND`, or import this"):
        kernel_named("this.Kernel")
    module = types.ModuleType("plugin_with_a_kernel")
    vars(module)["Own"] = gpytorch.kernels.RBFKernel
    monkeypatch.setitem(sys.modules, "plugin_with_a_kernel", module)
    assert kernel_named("plugin_with_a_kernel.Own").name == "plugin_with_a_kernel.Own"


@pytest.mark.slow
def test_published_exact_gp_on_pol_has_its_error_likelihood_and_evidence(data_root):
    """The hyperparameters are those of github cambridge-mlg/sgd-gp; the first published split."""
    published = data_root / "published" / "exact_gp_matern32.json"
    folder = data_root / "uci" / "pol"
    if not published.exists() or not folder.exists():
        pytest.skip("no published hyperparameters or no UCI data beside the checkout")
    values = json.loads(published.read_text())[0]
    assert (values["dataset"], values["split"]) == ("pol", 0)
    table = np.loadtxt(folder / "data.csv.gz", delimiter=",")
    is_test = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",")[:, 0] > 0
    train = table[~is_test]
    normalised = (table - train.mean(0)) / train.std(0)
    train_rows = torch.from_numpy(normalised[~is_test])
    test_rows = torch.from_numpy(normalised[is_test])
    X, y = train_rows[:, :-1], train_rows[:, -1]
    test_X, test_y = test_rows[:, :-1], test_rows[:, -1]
    hyper = {
        "lengthscale": torch.tensor([values["lengthscales"]], dtype=torch.float64),
        "outputscale": torch.tensor([values["signal_std"] ** 2], dtype=torch.float64),
    }
    noise = values["noise_std"] ** 2
    n = len(X)
    # In place and in pieces: a matrix takes 1.5 GB.
    factor = torch.empty(n, n, dtype=torch.float64)
    for first in range(0, n, 500):  # the lower triangle, which is all that Cholesky reads
        rows = slice(first, first + 500)
        factor[rows, : first + 500] = matern32(X[None, rows], X[None, : first + 500], hyper)[0]
    factor.diagonal().add_(noise)
    torch.linalg.cholesky(factor, out=factor)
    sides = torch.cat([matern32(test_X[None], X[None], hyper)[0], y[None]]).mT
    solved = torch.linalg.solve_triangular(factor, sides, upper=False)
    A, w = solved[:, :-1], solved[:, -1]
    variance = hyper["outputscale"] - A.square().sum(0) + noise
    error = test_y - w @ A
    nll = 0.5 * (torch.log(2 * torch.pi * variance) + error.square() / variance)
    log_evidence = (
        -0.5 * w.square().sum() - factor.diagonal().log().sum() - n / 2 * math.log(2 * math.pi)
    )
    assert round(float(error.square().mean().sqrt()), 4) == 0.0834
    assert round(float(nll.mean()), 4) == -1.2136
    assert round(float(log_evidence / n), 4) == 0.9864
