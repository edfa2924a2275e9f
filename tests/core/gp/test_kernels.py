"""Kernels: our own against GPyTorch's, which are kernels of the batched core too, and at zero
distance."""

import gpytorch
import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.core.gp.kernels import KERNELS, kernel_named
from dlmexp.core.training.parameters import unsoftplus
from tests.support.small_programs import perturbed

OURS = {"rbf": "gpytorch.kernels.RBFKernel", "matern52": "gpytorch.kernels.MaternKernel"}
THEIRS = [f"gpytorch.kernels.{name}Kernel" for name in ("RBF", "Periodic", "RQ", "Linear")]


class Warped(gpytorch.kernels.Kernel):
    """A user's own kernel, with a parameter of its own and a diagonal that is not constant."""

    raw_power: torch.nn.Parameter

    def __init__(self, **options):
        super().__init__(**options)
        self.register_parameter(
            "raw_power", torch.nn.Parameter(0.3 * torch.ones(*self.batch_shape, 1, 1))
        )
        self.linear = gpytorch.kernels.LinearKernel(batch_shape=self.batch_shape)

    def forward(self, x1, x2, diag=False, last_dim_is_batch=False, **params):
        a, b = (torch.tanh(x * self.raw_power) for x in (x1, x2))
        return self.linear(a, b, diag=diag, **params)


class NeedsPower(gpytorch.kernels.Kernel):
    def __init__(self, power, **options):
        super().__init__(**options)


class IgnoresBatch(gpytorch.kernels.Kernel):
    def __init__(self, **options):
        super().__init__(**options)
        self.register_parameter("raw_power", torch.nn.Parameter(torch.ones(1)))


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("name", OURS)
def test_equals_our_own_in_values_and_gradients(name, ard, cells):
    c = cells(3, 5, 12, 2, ard)
    own, theirs = kernel_named(name), kernel_named(OURS[name])
    raw = {"kernel.raw_lengthscale": unsoftplus(c["lengthscale"])[:, None]} | {
        k: c[k] for k in ("outputscale", "Z")
    }
    leaves = {k: v.clone().requires_grad_() for k, v in raw.items()}
    lengthscale = torch.nn.functional.softplus(leaves["kernel.raw_lengthscale"]).squeeze(1)
    weight = torch.randn(
        2, 3, 5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    found = []
    for kernel, hyper in ((own, leaves | {"lengthscale": lengthscale}), (theirs, leaves)):
        K, Kuu = kernel(leaves["Z"], c["X"], hyper), kernel(leaves["Z"], leaves["Z"], hyper)
        total = (
            (weight[0] * K).sum()
            + (weight[1, ..., :5] * Kuu).sum()
            + kernel.diagonal(c["X"], hyper).sum()
        )
        grads = torch.autograd.grad(total, list(leaves.values()), retain_graph=True)
        found.append((K, Kuu, kernel.diagonal(c["X"], hyper), kernel.trace(c["X"], hyper), *grads))
    for ours, other in zip(*found, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-10)


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
    tolerance = 1e-4 if name == "matern52" else 1e-8
    torch.testing.assert_close(
        K.diagonal(dim1=-2, dim2=-1), s[:, None].expand(3, 6), rtol=tolerance, atol=0
    )
    torch.testing.assert_close(K[:, 0, 1], s, rtol=tolerance, atol=0)
    K.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (Z, l, s))


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("name", [*THEIRS, f"{__name__}.Warped"])
def test_a_batch_is_its_cells_one_by_one(name, ard, cells):
    kernel, c = kernel_named(name), cells(3, 4, 9, 2)
    start = {
        key: parameter.start(c["X"], 3) for key, parameter in kernel.parameters(2, ard).items()
    }
    hyper = perturbed(start, 0.1) | {"Z": c["Z"]}

    def parts(X, hyper):
        return kernel(hyper["Z"], X, hyper), kernel.diagonal(X, hyper), kernel.trace(X, hyper)

    whole = parts(c["X"], hyper)
    for i in range(3):
        X, one = c["X"][i : i + 1], {key: value[i : i + 1] for key, value in hyper.items()}
        for together, alone in zip(whole, parts(X, one), strict=True):
            torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-12, atol=1e-12)
        dense = kernel(X, X, one).diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(kernel.diagonal(X, one), dense, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpytorch.kernel.RBFKernel", "there is no module 'gpytorch.kernel'"),
        ("gpytorch.kernels.RBFKernell", "RBFKernell: gpytorch.kernels has no such class"),
        ("math.pi", "no such class that derives from gpytorch.kernels.Kernel"),
        (f"{__name__}.NeedsPower", "with a batch_shape alone .*power"),
        (f"{__name__}.IgnoresBatch", "kernel.raw_power does not begin with the batch_shape"),
        ("rbff", "did you mean rbf"),
    ],
)
def test_names_that_are_no_such_kernel(name, words):
    with pytest.raises(UserError, match=words):
        kernel_named(name, typed=True)
