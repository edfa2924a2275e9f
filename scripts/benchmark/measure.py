"""What the benchmarks share: a measured quantity with its limit, the fastest run of a function, its peak memory, the
engine's own step on synthetic data, and GPyTorch's to compare with."""

import argparse
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dlmexp.estimators import Estimator, Exact
from dlmexp.gp.kernels import rbf
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.objectives import OBJECTIVES
from dlmexp.training.program import Model, Split
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step, stepper
from dlmexp.training.variants import Joint

with warnings.catch_warnings():  # torch deprecates what GPyTorch uses when it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch


STEPS = Settings(lr=1e-3, iterations=100_000, window=None)


@dataclass
class Measurement:
    """A measured quantity, and its limit if it has one: an upper limit, or with `at_least` a lower one."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    def __str__(self) -> str:
        line = f"{self.name:64} {self.value:10.4g} {self.unit:6} "
        if self.limit is None:
            return line
        return f"{line}{'>=' if self.at_least else '<='} {self.limit:g}  {'met' if self.meets_limit else 'NOT MET'}"

    @property
    def meets_limit(self) -> bool:
        return self.limit is None or (self.value >= self.limit if self.at_least else self.value <= self.limit)


def print_all(measurements: Iterable[Measurement]) -> int:
    """Prints one line per measurement, as soon as it is made; exit code 0 if all limits are met, else 1."""
    missed = 0
    for measurement in measurements:
        print(measurement, flush=True)
        missed += not measurement.meets_limit
    return 1 if missed else 0


def arguments(suite: str, about: str | None, parts: Sequence[str], argv: Sequence[str] | None, **more: Any) -> Any:
    """The arguments of a suite: its parts (default: all), `device`, and further options with their defaults. Prints the
    device and torch's version."""
    parser = argparse.ArgumentParser(prog=f"python -m scripts.benchmark {suite}", description=about)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(parts)} (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is a GPU")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in parts:
            parser.error(f"unknown part '{part}': {', '.join(parts)}")
    args.parts = args.parts or list(parts)
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {args.device} ({name}), float64")
    return args


def fastest(
    cases: Mapping[str, Callable[[], object]], seconds: float, device: str = "cpu", repeats: int = 3
) -> dict[str, float]:
    """Seconds of the fastest run of each case, in about `seconds` in total. The minimum, because other programs on the
    machine can only slow a run down. Cases take turns of `repeats` runs, so that a slow phase of the machine affects
    all of them; the first turn is not timed."""
    best = dict.fromkeys(cases, float("inf"))
    for f in cases.values():
        for _ in range(repeats):
            f()
    end = perf_counter() + seconds
    while True:
        for name, f in cases.items():
            for _ in range(repeats):
                synchronise(device)
                start = perf_counter()
                f()
                synchronise(device)
                best[name] = min(best[name], perf_counter() - start)
        if perf_counter() > end:
            return best


def synchronise(device: str) -> None:
    """Waits until the GPU has finished, if `device` is one."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(f: Callable[[], object], device: str = "cpu") -> int:
    """The most memory that `f` holds at once, beyond what was allocated before. Exact, not sampled: torch's allocator
    reports every allocation and release of tensors on the device."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        f()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    # Not torch.profiler.profile, which wraps this one and, in some versions from torch 2.10 on, warns at its first use.
    profile: Any = torch.autograd.profiler.profile(profile_memory=True)
    with profile:
        f()
    held = peak = 0
    for event in profile.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def joint_step(
    B: int, likelihood: str = "probit", objective: str = "log_dlm", estimator: Estimator | None = None, n: int = 1000,
    M: int = 74, D: int = 20, device: str = "cpu", captured: bool = True,
) -> Callable[[], None]:  # fmt: skip
    """The engine's own step (objective, gradient, Adam, stopping rule) of B cells; a replayed graph on a GPU."""
    X, y = synthetic_data(1, n, D, likelihood, device)
    split = Split(X, y, {}, [0], [0] * B)
    kind = LIKELIHOODS[likelihood]
    model = Model(
        rbf, kind, kind.task == "binary", False, True, M, OBJECTIVES[objective], estimator or Exact(), minibatch=None
    )
    program = Joint(model, split, torch.logspace(-2, 2, B, dtype=X.dtype, device=device))
    state = State.fresh(program.initial(), STEPS)
    return stepper(program, state, STEPS) if captured else partial(step, program, state, STEPS)


def synthetic_data(S: int, n: int, D: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of S splits, of the kind that the likelihood is for."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(S, n, D, generator=g, dtype=torch.float64)
    f = X[..., 0] + 0.5 * torch.randn(S, n, generator=g, dtype=torch.float64)
    y = {"regression": f, "binary": (f > 0).double(), "count": torch.poisson(f.clamp(-2, 2).exp(), generator=g)}
    return X.to(device), y[LIKELIHOODS[likelihood].task].to(device)


class SparseGP(gpytorch.models.ApproximateGP):
    """GPyTorch's model with inducing inputs Z, or a batch of B models with Z of shape [B, M, D]."""

    def __init__(self, Z: Tensor):
        batch = Z.shape[:-2]
        q = gpytorch.variational.CholeskyVariationalDistribution(Z.shape[-2], batch_shape=batch)
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        rbf = gpytorch.kernels.RBFKernel(batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=batch)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean: Any = self.mean_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


def gpytorch_step(
    X: Tensor, y: Tensor, M: int, objective: str, B: int | None = None, likelihood: str = "probit"
) -> Callable[[], None]:
    """A function that makes one training step (forward, backward, Adam) on X [N, D], y [N]: of one model, or of B
    models with GPyTorch's `batch_shape`."""
    Z = X[:M] if B is None else X[:M].expand(B, M, -1)
    model: Any = SparseGP(Z.clone()).to(X)
    binary = likelihood == "probit"
    given: Any = (
        gpytorch.likelihoods.BernoulliLikelihood()
        if binary
        else gpytorch.likelihoods.GaussianLikelihood(batch_shape=Z.shape[:-2])
    ).to(X)
    kinds = {"log_dlm": gpytorch.mlls.PredictiveLogLikelihood, "elbo": gpytorch.mlls.VariationalELBO}
    mll = kinds[objective](given, model, len(y))
    adam = torch.optim.Adam([*model.parameters(), *given.parameters()], lr=1e-3)

    def one_step() -> None:
        adam.zero_grad()
        loss: Any = -mll(model(X), y).sum()
        loss.backward()
        adam.step()

    return one_step
