"""Time and memory of a training step: batches of models compared with GPyTorch, uPS with bMC and
with the paper's loop over rows, and twenty betas of fixed square-loss DLM with one beta."""

import math
from collections.abc import Iterator, Sequence
from time import perf_counter

import torch
from torch import Tensor

from dlmexp.core.estimators import BMC, UPS, Draws, Exact
from dlmexp.core.gp.collapsed import Problem, moments, square_path
from dlmexp.core.gp.kernels import rbf
from dlmexp.core.likelihoods import LIKELIHOODS, Likelihood
from scripts.benchmark.measure import Measurement, arguments, fastest, peak_bytes, print_all
from scripts.benchmark.steps import gpytorch_step, joint_step, one_split, synthetic_data

N = 1000  # training rows
M = 74  # inducing inputs
D = 20  # features
MAX_WIDENING = 10  # the largest k by which the proposal's variance is widened


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per measurement; return 1 if a limit is not met."""
    args = arguments("core", __doc__, list(PARTS), argv, seconds=10.0)
    return print_all(line for part in args.parts for line in PARTS[part](args.device, args.seconds))


def per_model(device: str, seconds: float) -> Iterator[Measurement]:
    """Yield the time of a training step per model: ours in batches, GPyTorch's with one model."""
    # 90 models: 18 betas and 5 seeds, as in the paper's figures.
    batch_sizes = (90,) if device == "cuda" else (1, 18, 90)
    X, y = one_split(N, D, "probit", device)
    for objective in ("log_dlm", "elbo"):
        cases = {"gpytorch": gpytorch_step(X, y, M, objective)}
        for B in batch_sizes:
            cases[str(B)] = joint_step(B, objective=objective, device=device)
        times = fastest(cases, seconds, device)
        gpytorch = times["gpytorch"]
        name = f"{objective}, n={N} M={M} d={D}: GPyTorch, one model"
        yield Measurement(name, gpytorch * 1e3, "ms")
        ours = {B: times[str(B)] / B for B in batch_sizes}
        for B, per_model in ours.items():
            yield Measurement(f"{objective}: ours per model, B={B}", per_model * 1e3, "ms")
        speedup = gpytorch / min(ours.values())
        yield Measurement(
            f"{objective}: times faster per model, best B", speedup, "x", 6.0, at_least=True
        )


def samplers(device: str, seconds: float) -> Iterator[Measurement]:
    """Yield the time of a training step with uPS-10 compared with bMC-10."""
    B = 90 if device == "cuda" else 18
    for likelihood in ("probit", "poisson"):
        cases = {}
        for estimator in (BMC(10), UPS(10)):
            step = joint_step(B, likelihood, estimator=estimator, device=device)
            cases[estimator.name] = step
        best = fastest(cases, seconds, device)
        per_model = best["bmc"] / B
        yield Measurement(f"{likelihood}: bMC-10 step per model, B={B}", per_model * 1e3, "ms")
        ratio = best["ups"] / best["bmc"]
        yield Measurement(f"{likelihood}: uPS-10 step / bMC-10 step", ratio, "x", 1.3)


def row_loop(device: str, seconds: float, rows: int = 25) -> Iterator[Measurement]:
    """Yield the time of the gradient from 10 product samples for each of 1000 rows.

    Our vectorised computation is compared with the paper's loop over rows. The time of the loop
    depends on how well q fits: it is measured with a mu that is unrelated to y, as before training,
    and with the mu that y was drawn from, as after training.
    """
    for name in ("probit", "poisson"):
        likelihood = LIKELIHOODS[name]()
        draws = Draws.fresh()
        X, y = one_split(N, D, name, "cpu")
        v = torch.full((N,), 0.5, dtype=torch.float64)
        leaf = X[:, 0].clone().requires_grad_()

        def vectorised(likelihood=likelihood, leaf=leaf, v=v, y=y, draws=draws) -> None:
            torch.autograd.grad(UPS(10)(likelihood, leaf, v, y, draws).sum(), leaf)

        ours = fastest({"": vectorised}, seconds / 4)[""]
        yield Measurement(f"{name}: uPS-10 of 1000 rows, vectorised", ours * 1e3, "ms")
        for phase, mu, limit in (("before training", X[:, 1], 1000.0), ("after", X[:, 0], None)):
            start = perf_counter()
            sample_row_by_row(likelihood, mu[:rows], v[:rows], y[:rows], 10)
            loop = (perf_counter() - start) * N / rows
            label = f"{name}: the paper's loop (timed on {rows} rows), {phase} / vectorised"
            yield Measurement(label, loop / ours, "x", limit, at_least=True)


def sample_row_by_row(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int
) -> Tensor:
    """Draws [samples, N] from q~ proportional to q(f) p(y|f), for rows [N] of marginals, as the
    paper's authors make them: two proposals for all rows at once, then a loop over the rest."""
    log_max = likelihood.log_p_max(y)
    k = torch.tensor(
        [_widening(likelihood, mu[i], v[i], y[i], log_max[i]) for i in range(len(mu))],
        dtype=mu.dtype,
    )

    def propose(i: slice | int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """From N(mu, k v), accepted with probability q p / (sqrt(k) p_max proposal)."""
        e = torch.randn(shape, dtype=mu.dtype)
        f = mu[i] + (k[i] * v[i]).sqrt() * e
        log_ratio = (
            likelihood.log_prob(f, y[i].expand_as(f)) - log_max[i] - 0.5 * e.square() * (k[i] - 1)
        )
        return f, torch.rand(shape, dtype=mu.dtype).log() <= log_ratio

    f = torch.full((samples, len(mu)), torch.nan, dtype=mu.dtype)
    for _ in range(2):
        proposal, accepted = propose(slice(None), tuple(f.shape))
        f = torch.where(f.isnan() & accepted, proposal, f)
    for sample, i in f.isnan().nonzero().tolist():
        while f[sample, i].isnan():
            proposal, accepted = propose(i, ())
            if accepted:
                f[sample, i] = proposal
    return f


def _widening(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, log_max: Tensor) -> int:
    """The paper's choice of k for one row (docs/SPEC.md, section 4); maxima of p over intervals are
    taken on a grid."""

    def log_max_within(half: float) -> float:
        grid = torch.linspace(-half, half, 50, dtype=mu.dtype) * v.sqrt() + mu
        return float(likelihood.log_prob(grid, y.expand_as(grid)).max() - log_max)

    if log_max_within(1.0) >= math.log(0.5):
        return 1
    for k in range(MAX_WIDENING, 1, -1):
        if log_max_within(math.sqrt(math.log(k) / (1 - 1 / k))) <= -0.5 * math.log(k):
            return k
    return 1


def square(device: str, seconds: float) -> Iterator[Measurement]:
    """Time to solve fixed_sq_dlm, from kernel to solutions: twenty betas compared with one."""
    X, y = synthetic_data(5, N, D, "gaussian", device)
    ones = torch.ones(5, dtype=X.dtype, device=device)
    hyper = {"Z": X[:, :M], "lengthscale": 4 * ones[:, None], "outputscale": ones, "mean": 0 * ones}
    betas = torch.tensor([N / 2.0**k for k in range(20)], dtype=X.dtype, device=device)

    @torch.no_grad()
    def solve(betas: Tensor) -> None:
        square_path(moments(Problem(rbf, hyper, X, y, 1e-6 * ones)), betas)

    best = fastest({"20": lambda: solve(betas), "1": lambda: solve(betas[:1])}, seconds / 2, device)
    yield Measurement("fixed_sq_dlm: one beta, 5 splits", best["1"] * 1e3, "ms")
    yield Measurement("fixed_sq_dlm: twenty betas / one", best["20"] / best["1"], "x", 1.5)


def memory(device: str, seconds: float) -> Iterator[Measurement]:
    """Peak memory of a training step beyond parameters and data, in units of an array [B, M, n]."""
    cases = (
        ("probit", "log_dlm", Exact()),
        ("probit", "elbo", Exact()),
        ("probit", "log_dlm", UPS(10)),
    )
    for likelihood, objective, estimator in (*cases, ("poisson", "log_dlm", UPS(10))):
        step = joint_step(4, likelihood, objective, estimator, device=device, captured=False)
        step()
        arrays = peak_bytes(step, device) / (4 * M * N * 8)
        label = f"{likelihood} {objective}, {estimator.name}: peak memory of a step, in [B, M, n]"
        yield Measurement(label, arrays, "arrays", 8.0)


PARTS = {f.__name__: f for f in (per_model, samplers, row_loop, square, memory)}
