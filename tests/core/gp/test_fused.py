"""The Triton kernels against the plain functions, on a GPU or in Triton's interpreter.

The interpreter takes milliseconds for each program of a kernel's grid. Cases are few and small, yet
sizes do not divide their tiles, and the loops over tiles, slabs and chunks of rows all go round
more than once.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip(  # the interpreter of 3.6 fails with numpy 2.4
    "triton",
    None if torch.cuda.is_available() else "3.7",
    "there is no Triton, or one before 3.7 and no GPU",
)

from dlmexp.core.gp import posterior, special
from dlmexp.core.gp.fused import small, stationary, tile_products
from dlmexp.core.gp.kernels import (
    RBF,
    _Exponential,
    _factors,
    _Matern32,
    _Matern52,
    fused_parameters,
    rbf,
)
from dlmexp.core.training import fused_update, step
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import CONVERGED, LIMIT, NOT_FACTORISED, NOT_FINITE, State
from tests.support.small_programs import PROGRAMS, in_float32, perturbed, program

pytestmark = pytest.mark.slow
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYOUTS = {
    "feature by feature": lambda random, B, N, D: random(B, D, N).mT,
    "the same for all cells": lambda random, B, N, D: random(1, N, D).expand(B, N, D),
    "some rows": lambda random, B, N, D: random(B, D, N + 50).mT[:, 20 : 20 + N],
}
SHAPES = {
    "usual": (2, 37, 75, 5, 1),
    "ard": (2, 18, 40, 3, 3),
    "one": (1, 1, 1, 1, 1),
    "many features": (1, 5, 9, 140, 1),
}


@pytest.fixture(autouse=True)
def many_processors(monkeypatch):
    """Rows come in several chunks, as on a GPU."""
    monkeypatch.setattr(tile_products, "_processors", lambda device: 132)


@pytest.fixture
def random():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=generator, dtype=dtype).to(DEVICE)

    return draw


def expected_matrix_and_gradients(Z, X, l, s, matern, W):
    """Return the kernel matrix, and gradients of its sum weighted by W in Z, l and s.

    X is None: the matrix is that of Z itself.
    """
    Z, l, s = (t.double().clone().requires_grad_() for t in (Z, l, s))
    left, right = _factors(Z, Z if X is None else X.double(), l)
    if matern:
        K = {3: _Matern32, 5: _Matern52}[matern].apply(left, right, s)
    else:
        K = s[:, None, None] * _Exponential.apply(left, right, None)
    return K.detach(), *torch.autograd.grad((K * W).sum(), (Z, l, s))


def random_hyper(random, B, P, dtype=torch.float64):
    """Return lengthscales [B, P] and outputscales [B]."""
    return 1 + random(B, P, dtype=dtype).abs(), 0.5 + random(B, dtype=dtype).abs()


@pytest.mark.parametrize("gram", [False, True], ids=["cross", "gram"])
@pytest.mark.parametrize("matern", [0, 3, 5], ids=["rbf", "matern32", "matern52"])
@pytest.mark.parametrize("case", [*SHAPES, "usual, float32"])
def test_kernel_matrix_and_its_gradients_are_the_plain_ones(case, matern, gram, random):
    B, M, N, D, P = SHAPES[case.removesuffix(", float32")]
    dtype = torch.float32 if case.endswith("float32") else torch.float64
    Z = random(B, M, D, dtype=dtype)
    X = random(B, N, D, dtype=dtype)
    W = random(B, M, M if gram else N, dtype=dtype)
    l, s = random_hyper(random, B, P, dtype=dtype)
    l = D**0.5 * l
    right = stationary.right_factor(Z if gram else X, l)
    K = stationary.covariance(Z, right, l, s, matern)
    results = K, *stationary.parameter_gradients(W, K, Z, right, l, s, matern, gram)
    expected = expected_matrix_and_gradients(Z, None if gram else X, l, s, matern, W)
    tolerance = 1e-11 if dtype == torch.float64 else 2e-4
    for result, other in zip(results, expected, strict=True):
        atol = tolerance * max(float(other.abs().max()), 1e-3)
        torch.testing.assert_close(result.double(), other, rtol=0, atol=atol)


PRODUCT_SHAPES = pytest.mark.parametrize(("M", "N"), [(1, 1), (45, 130), (74, 31), (140, 64)])


def assert_close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-7, atol=1e-11)


@PRODUCT_SHAPES
def test_sums_over_inducing_inputs_are_the_plain_ones(M, N, random):
    A, V, w = random(2, M, N), random(2, M, N), random(2, M)
    fit, gain = tile_products.fit_and_gain(w, A, V)
    assert_close(fit, (w[:, None] @ A)[:, 0])
    assert_close(gain, (A * V).sum(1))
    assert_close(tile_products.squares(A), A.square().sum(1))


@PRODUCT_SHAPES
def test_gram_matrices_in_tiles_are_the_plain_ones(M, N, random):
    """Plain, weighted, and of a factor that weights share."""
    A, h = random(2, M, N), random(2, 3, N)
    weighted = (A[:, None] * h[:, :, None]) @ A[:, None].mT
    own = tile_products.weighted_gram(A, h[:, 0])
    assert_close(own, weighted[:, 0])
    # Tiles on the diagonal are symmetric but for rounding.
    assert_close(own, own.mT)
    assert_close(tile_products.weighted_gram(A, None), A @ A.mT)
    shared = tile_products.weighted_gram(A, h.flatten(0, 1)).unflatten(0, (2, 3))
    assert_close(shared, weighted)


@PRODUCT_SHAPES
def test_products_with_triangles_in_tiles_are_the_plain_ones(M, N, random):
    A = random(2, M, N)
    L = random(2, 3, M, M).tril()
    assert_close(tile_products.triangular_product(L[:, 0], A), L[:, 0] @ A)
    assert_close(tile_products.projected_variance(L, A), (L.mT @ A[:, None]).square().sum(-2))


@pytest.mark.parametrize("matern", [0, 3, 5], ids=["rbf", "matern32", "matern52"])
@pytest.mark.parametrize("P", [1, 3], ids=["one lengthscale", "ard"])
def test_added_inputs_are_too_far_away_to_matter(matern, P, random):
    Z, X, V = random(2, 5, 3), random(2, 20, 3), random(2, 5, 32)
    l, s = random_hyper(random, 2, P)
    usual = stationary.right_factor(X, l)
    wide = stationary.right_factor(X, l, 32)
    K = stationary.covariance(Z, usual, l, s, matern)
    wide_K = stationary.covariance(Z, wide, l, s, matern)
    torch.testing.assert_close(wide_K[..., :20], K, rtol=1e-13, atol=1e-13)
    assert (wide_K[..., 20:] == 0).all()
    gradients = stationary.parameter_gradients(V, wide_K, Z, wide, l, s, matern)
    expected = stationary.parameter_gradients(V[..., :20].contiguous(), K, Z, usual, l, s, matern)
    torch.testing.assert_close(gradients, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("P", [1, 5], ids=["one lengthscale", "ard"])
@pytest.mark.parametrize("matern", [0, 3, 5], ids=["rbf", "matern32", "matern52"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_may_lie_in_memory_in_any_way(layout, matern, P, random):
    """And the gradient in K may be made on the way."""
    B, M, N, D = 2, 18, 75, 5
    X, Z = LAYOUTS[layout](random, B, N, D), random(B, D, M).mT
    l, s = (part.expand(B, *part.shape[1:]) for part in random_hyper(random, 1, P))
    V = random(1, 1, 1).expand(B, M, N)
    h = random(B, 1).expand(B, N)
    w = random(B, M)
    g = random(B, 1).expand(B, N)
    if layout == "some rows":
        outer = stationary.Outer(None, w, g)
        d_K = V + w[..., None] * g[:, None]
    else:
        outer = stationary.Outer(h, w, g)
        d_K = V * h[:, None] + w[..., None] * g[:, None]
    right = stationary.right_factor(X, l)
    K = stationary.covariance(Z, right, l, s, matern)
    results = K, *stationary.parameter_gradients(V, K, Z, right, l, s, matern, outer=outer)
    expected = expected_matrix_and_gradients(Z, X, l, s, matern, d_K)
    torch.testing.assert_close(results, expected, rtol=1e-10, atol=1e-10)


def test_inputs_that_are_nan_give_a_matrix_of_nan(random):
    Z, X = random(1, 3, 2), random(1, 4, 2)
    Z[0, 1, 0] = torch.nan
    l = random(1, 1).abs()
    K = stationary.covariance(Z, stationary.right_factor(X, l), l, random(1).abs(), 0)
    assert K[0].isnan().all(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("M", [1, 32, 37])
def test_inverse_of_a_triangle_is_that_of_a_solve(M, random):
    R = random(2, M, M)
    L = torch.linalg.cholesky(R @ R.mT + M * torch.eye(M, dtype=R.dtype, device=DEVICE))
    eye = torch.eye(M, dtype=R.dtype, device=DEVICE).expand_as(L)
    torch.testing.assert_close(small.inverse(L), torch.linalg.solve_triangular(L, eye, upper=False))


def test_scores_of_counts_are_sums_over_the_counts(random):
    rates, weights = random(33, 20).exp(), torch.softmax(random(33), 0)
    y, low, high = torch.arange(20.0, dtype=torch.float64, device=DEVICE) % 7, 1, 25
    k = torch.arange(low, high + 1, device=DEVICE, dtype=torch.float64)[:, None, None]
    p = torch.exp(k * rates.log() - rates - torch.lgamma(k + 1))
    F = torch.einsum("k,ckr->cr", weights, p).cumsum(0)
    crps, lower, upper = small.sums_over_counts(p[0], rates, weights, low, high, y, (0.025, 0.975))
    torch.testing.assert_close(crps, (F - (y <= k[:, 0]).double()).square().sum(0))
    torch.testing.assert_close(lower, (F < 0.025).double().sum(0))
    torch.testing.assert_close(upper, (F < 0.975).double().sum(0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_log_ndtr_and_its_slope_are_the_plain_ones(dtype):
    """Also across the borders of the approximations, at |x| = 0.66 and 5.66, and far in the
    tails."""
    x = torch.cat(
        [torch.linspace(-8, 8, 4001), torch.tensor([-1e8, -1e3, -40, 0, 37, 40, 1e3])]
    ).to(DEVICE, dtype)
    value, slope = small.log_ndtr_and_hazard(x)
    expected = torch.special.log_ndtr(x.double()), special.hazard(x.double())
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(
        value.double(), expected[0], rtol=200 * unit, atol=torch.finfo(dtype).tiny
    )
    torch.testing.assert_close(
        slope.double(), expected[1], rtol=200 * unit, atol=torch.finfo(dtype).tiny
    )
    of_nan = small.log_ndtr_and_hazard(torch.tensor([torch.nan], device=DEVICE, dtype=dtype))
    assert all(part.isnan().all() for part in of_nan)


RULES = {
    "mean": Settings(0.1, 40, 5, 1e-2),
    "sum": Settings(0.1, 40, 5, 1e-1, criterion="sum"),
    "relative": Settings(0.1, 60, 5, 1e-2, criterion="relative", final_lr=1e-3, decay=6),
    "resolution": Settings(0.1, 11, None, epsilon=1e-3, resolution=2**-8),
}


@pytest.mark.filterwarnings("ignore:invalid value")  # of numpy, in the interpreter
@pytest.mark.parametrize("rule", RULES)
def test_update_of_cells_that_converge_fail_and_go_on(rule, random):
    settings = RULES[rule]
    values = {"Z": random(6, 4, 2), "s": random(6)}
    plain = State.fresh(values, settings)
    fused = plain.clone()
    for iteration in range(11):
        objective = 0.01 * random(6) + torch.tensor(
            [1, 1, 2, 3, 4, 5.0], device=DEVICE, dtype=torch.float64
        )
        objective[0] = 1 + 1e-4 * iteration  # settles
        ok = torch.ones(6, dtype=torch.bool, device=DEVICE)
        ok[3], ok[4] = (
            iteration % 3 != 0,
            iteration < 3,
        )  # need more jitter now and then, and for good
        grads = {name: random(*value.shape) for name, value in values.items()}
        if iteration == 4:
            objective[5] = torch.nan
        if iteration == 7:
            grads["Z"][2, 1, 1] = torch.inf
        seen = (objective, ok, grads, 50, settings)
        step.update(plain, *seen)
        fused_update.update(fused, *seen)
    ends = {NOT_FINITE, NOT_FACTORISED, CONVERGED if settings.window else LIMIT}
    assert ends <= set(plain.outcome.tolist())
    for name, tensor in plain._tensors().items():
        found = fused._tensors()[name]
        if name == "window":  # that of a stopped cell is not looked at any more
            found, tensor = found[plain.live], tensor[plain.live]
        torch.testing.assert_close(found, tensor, rtol=1e-12, atol=1e-13, equal_nan=True)


MODULES = (
    "gp.kernels",
    "gp.posterior",
    "gp.matrix_products",
    "gp.cholesky",
    "gp.special",
    "training.step",
)
STEP = Settings(0.05, 1, None, epsilon=1e-6)
OTHERS = {
    "ard, matern52": {"likelihood": "gaussian", "ard": True, "kernel": "matern52"},
    "elbo, matern52": PROGRAMS["elbo"] | {"kernel": "matern52"},
    "elbo, matern32": PROGRAMS["elbo"] | {"kernel": "matern32"},
}
STEPS = [
    (kind, "tiles")
    for kind in (
        "joint",
        "unwhitened",
        "ups of counts",
        "ard, matern52",
        "elbo",
        "elbo, matern32",
        "fixed",
    )
]
STEPS += [
    ("joint", "float64"),
    *((kind, "float32") for kind in ("joint", "ard, matern52", "fixed")),
]
STEPS += [("elbo", "float64, in pieces"), ("elbo, matern52", "float32, in pieces")]


@pytest.mark.parametrize(("kind", "rows"), STEPS)
def test_whole_step_is_the_plain_one(kind, rows, monkeypatch):
    """With products in tiles and without, of float32 rows, and of a closed form in pieces."""
    if rows == "tiles":
        monkeypatch.setattr("dlmexp.core.gp.matrix_products.LARGE_PRODUCT", 0)
    cells = program(betas=(10.0, 0.1), index=(0, 0), device=DEVICE, **(PROGRAMS | OTHERS)[kind])
    tolerance = 1e-9
    if rows.startswith("float32"):
        cells = in_float32(cells)
        tolerance = 1e-4
    states = []
    for through_kernels in without_and_with_kernels(monkeypatch):
        if isinstance(cells, Collapsed) and rows.endswith("pieces"):
            cells._rows_at_once = 11 if through_kernels else cells.n
        states.append(state_after_a_step(cells))
    plain, fused = states
    for name, tensor in plain.items():
        assert fused[name].dtype == tensor.dtype
        torch.testing.assert_close(fused[name], tensor, rtol=0, atol=tolerance, equal_nan=True)


def without_and_with_kernels(monkeypatch):
    """Yield False, then True, with the kernels of this package off, then on."""
    for through_kernels in (False, True):
        for module in MODULES:
            monkeypatch.setattr(
                f"dlmexp.core.{module}.uses_triton", lambda tensor, yes=through_kernels: yes
            )
        yield through_kernels


def state_after_a_step(cells):
    """Return the state after a step from another start than the usual one.

    Its m = 0 and L = I would hide what is multiplied by them.
    """
    state = State.fresh(perturbed(cells.initial(), 0.2), STEP)
    step.step(cells, state, STEP)
    return state._tensors()


def test_gradient_at_the_inducing_inputs_themselves_reaches_both_sides(random, monkeypatch):
    """X is Z there, and has a gradient too."""
    Z, m, L = random(1, 6, 2).requires_grad_(), random(1, 6), random(1, 6, 6).tril()
    unit = torch.ones(1, dtype=Z.dtype, device=DEVICE)
    hyper = {"Z": Z, "lengthscale": unit[:, None], "outputscale": unit}
    gradients = []
    for _ in without_and_with_kernels(monkeypatch):
        p = posterior.projection(rbf, hyper, Z, 1e-6 * unit)
        mu, v = posterior.marginals(p, 0 * unit, m, L)
        gradients.append(torch.autograd.grad(mu.sum() + v.sum(), Z)[0])
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


def test_kernel_derived_from_rbf_takes_the_general_way(monkeypatch):
    class Doubled(RBF):
        def __call__(self, X1, X2, hyper):
            return 2 * super().__call__(X1, X2, hyper)

    monkeypatch.setattr("dlmexp.core.gp.kernels.uses_triton", lambda tensor: True)
    X = torch.zeros(1, 2, 2)
    hyper = {"Z": X, "lengthscale": X, "outputscale": X}
    assert fused_parameters(rbf, hyper, X)
    assert not fused_parameters(Doubled("doubled"), hyper, X)
