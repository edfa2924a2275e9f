"""Kernels with a factor per category and a linear term: formulas, parameters, names and fits."""

import numpy as np
import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.core.fit import fit
from dlmexp.core.gp.kernels import KERNELS, kernel_named
from dlmexp.core.gp.mixed_kernels import Mixed, with_categories
from dlmexp.core.training.model import Model
from dlmexp.core.training.settings import Settings

SIZES = (3, 2)
NUMBERS = 2
D = NUMBERS + sum(SIZES)


def rows(B: int, N: int, seed: int) -> torch.Tensor:
    """Return rows of two numbers and two categories as indicators [B, N, D]."""
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(B, N, NUMBERS, generator=generator, dtype=torch.float64)]
    for size in SIZES:
        codes = torch.randint(size, (B, N), generator=generator)
        parts.append(torch.nn.functional.one_hot(codes, size).double())
    return torch.cat(parts, -1)


def hyperparameters(kernel: Mixed, B: int, ard: bool = True) -> dict[str, torch.Tensor]:
    """Return positive values of all parameters, different in every cell."""
    generator = torch.Generator().manual_seed(5)
    hyper = {}
    for name, parameter in kernel.parameters(D, ard).items():
        noise = torch.rand(B, *parameter.shape, generator=generator, dtype=torch.float64)
        hyper[name] = 0.5 + noise
    return hyper


def codes(X: torch.Tensor) -> list[torch.Tensor]:
    """Return the codes of both categories [B, N]."""
    return [part.argmax(-1) for part in X[..., NUMBERS:].split(SIZES, -1)]


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("name", ["rbf@3_2", "matern52+linear@3_2"])
def test_values_are_those_of_the_formula(name, ard):
    kernel = kernel_named(name)
    assert isinstance(kernel, Mixed)
    X1 = rows(3, 5, 0)
    X2 = rows(3, 7, 1)
    hyper = hyperparameters(kernel, 3, ard)
    expected = kernel.base(X1[..., :NUMBERS], X2[..., :NUMBERS], hyper)
    for c, (a, b) in enumerate(zip(codes(X1), codes(X2), strict=True)):
        differ = (a[:, :, None] != b[:, None, :]).double()
        lengthscale = hyper["category_lengthscale"][:, c, None, None]
        expected = expected * torch.exp(-differ / lengthscale.square())
    if kernel.linear:
        variance = hyper["linear_variance"]
        X1_weighted = X1[..., :NUMBERS] * variance[:, None, :NUMBERS]
        expected = expected + X1_weighted @ X2[..., :NUMBERS].mT
        for c, (a, b) in enumerate(zip(codes(X1), codes(X2), strict=True)):
            same = (a[:, :, None] == b[:, None, :]).double()
            expected = expected + variance[:, NUMBERS + c, None, None] * same
    torch.testing.assert_close(kernel(X1, X2, hyper), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["rbf@3_2", "matern52+linear", "matern52+linear@3_2", "rbf@4_3"])
def test_diagonal_and_trace_are_those_of_the_matrix(name):
    kernel = kernel_named(name)
    X = rows(2, 6, 0)
    hyper = hyperparameters(kernel, 2)  # pyright: ignore[reportArgumentType]
    diagonal = kernel(X, X, hyper).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(kernel.diagonal(X, hyper), diagonal)
    torch.testing.assert_close(kernel.trace(X, hyper), diagonal.sum(-1))


@pytest.mark.parametrize("name", ["rbf@3_2", "matern52+linear@3_2", "rbf+linear@4_3"])
def test_gradients_are_those_of_finite_differences(name):
    kernel = kernel_named(name)
    X = rows(2, 4, 0)
    hyper = hyperparameters(kernel, 2)  # pyright: ignore[reportArgumentType]
    names = list(hyper)
    Z = (X[:, :3] + 0.1 * torch.rand(2, 3, D, dtype=torch.float64)).requires_grad_()
    leaves = [hyper[name].clone().requires_grad_() for name in names]

    def matrices(Z, *values):
        hyper = dict(zip(names, values, strict=True))
        return kernel(Z, X, hyper), kernel(Z, Z, hyper)

    assert torch.autograd.gradcheck(matrices, (Z, *leaves))


def test_lengthscales_are_per_number_and_per_category():
    parameters = kernel_named("matern52+linear@3_2").parameters(D, True)
    shapes = {name: parameter.shape for name, parameter in parameters.items()}
    assert shapes == {
        "lengthscale": (2,),
        "outputscale": (),
        "category_lengthscale": (2,),
        "linear_variance": (4,),
    }


def test_any_kernel_of_the_numbers_can_have_categories():
    kernel = kernel_named("gpytorch.kernels.PeriodicKernel@3_2")
    assert not kernel.capturable
    X = rows(2, 4, 0)
    parameters = kernel.parameters(D, True)
    hyper = {name: value.start(X, 2) for name, value in parameters.items()}
    assert kernel(X, X, hyper).shape == (2, 4, 4)


@pytest.mark.parametrize("name", ["rbf@", "rbf@3_", "rbf@0", "rbf@3,2", "rbf@3.2"])
def test_name_without_sound_sizes_is_refused(name):
    with pytest.raises(UserError, match="after @"):
        kernel_named(name)


def test_fewer_features_than_indicators_are_refused():
    with pytest.raises(UserError, match="needs 7 features, not 5"):
        kernel_named("rbf@4_3").parameters(5, True)


def test_name_without_categories_is_that_of_the_kernel():
    assert with_categories("rbf", ()) == "rbf"
    assert all(type(kernel_named(name)) is not Mixed for name in KERNELS)


SHOPS = 40


def shops(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a number x and one of 40 shops of very different size as indicators; y is 10 x."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, SHOPS + 1) ** 1.5
    shop = rng.choice(SHOPS, n, p=frequency / frequency.sum())
    x = rng.normal(size=n)
    y = 10 * x + rng.normal(size=n)
    return np.column_stack([x, np.eye(SHOPS + 1)[shop]]), y / 10


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["elbo", "log_dlm"])
def test_rare_and_unseen_levels_are_predicted_from_the_other_columns(objective):
    X, y = shops(1000)
    settings = Settings(iterations=150, final_lr=1e-3, decay=100, calibration=False)
    model = Model(f"matern52@{SHOPS + 1}", M=20, ard=True)
    (trained,) = fit(X[None], y[None], model, objective, [1.0], seeds=0, settings=settings)
    levels = [0, 20, 38, 39, SHOPS]  # frequent, rare, (nearly) unseen
    at_2 = np.column_stack([np.full(len(levels), 2.0), np.eye(SHOPS + 1)[levels]])
    np.testing.assert_allclose(trained.predict(at_2).mean, 2.0, atol=0.2)


def test_sparse_program_trains_with_a_mixed_kernel():
    """The fit is finite in both forms of the program, with q in closed form and without."""
    X, y = shops(60)
    for objective in ("elbo", "log_dlm"):
        model = Model(f"rbf+linear@{SHOPS + 1}", M=8)
        (trained,) = fit(X[None], y[None], model, objective, [1.0], settings=Settings(iterations=5))
        assert np.isfinite(trained.objective).all()
        assert trained.hyperparameters["category_lengthscale"].shape == (1,)
