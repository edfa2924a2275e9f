"""Speed and memory of a training step: the batched step compared with GPyTorch, uPS with bMC and with the paper's loop
over rows, twenty betas of fixed square-loss DLM with one."""

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from dlmexp.benchmark.measure import Measurement, print_all, print_device

if TYPE_CHECKING:
    from torch import Tensor

N, M, D = 1000, 74, 20


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark core", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="device to measure on (default: cuda if there is one)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each comparison (default: 10)")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}': {', '.join(PARTS)}")
    device = print_device(args.device)
    measurements = (one for part in args.parts or PARTS for one in PARTS[part](device, args.seconds))
    return 0 if print_all(measurements) else 1


def per_model(device: str, seconds: float) -> list[Measurement]:
    """Time of a training step per model at n=1000 M=74 d=20, probit: ours in batches, and GPyTorch with one model."""
    from dlmexp.benchmark.gpytorch_model import gpytorch_step
    from dlmexp.benchmark.measure import fastest
    from dlmexp.training.trial import joint_step, synthetic_data

    sizes = (90,) if device == "cuda" else (1, 18, 90)  # 90: 18 betas x 5 seeds, as in the paper's figures
    X, y = synthetic_data(1, N, D, "probit", device)
    cases = {f"{o} GPyTorch": gpytorch_step(X[0], y[0], M, o) for o in ("log_dlm", "elbo")}
    for objective in ("log_dlm", "elbo"):
        cases |= {f"{objective} {B}": joint_step(B, objective=objective, device=device) for B in sizes}
    best = fastest(cases, seconds * 2, device)
    lines = []
    for objective in ("log_dlm", "elbo"):
        alone = best[f"{objective} GPyTorch"]
        lines.append(Measurement(f"{objective}, n={N} M={M} d={D}: GPyTorch, one model", alone * 1e3, "ms"))
        for B in sizes:
            ours = best[f"{objective} {B}"] / B
            limit = 0.025 if device == "cuda" and objective == "log_dlm" else None
            lines.append(Measurement(f"{objective}: ours per model, B={B}", ours * 1e3, "ms", limit))
        speedup = max(alone / (best[f"{objective} {B}"] / B) for B in sizes)
        lines.append(Measurement(f"{objective}: times faster per model, best B", speedup, "x", 6.0, at_least=True))
    return lines


def large(device: str, seconds: float) -> list[Measurement]:
    """Time of a training step at the largest shape of the paper's full-batch regression; only on a GPU."""
    from dlmexp.benchmark.measure import fastest
    from dlmexp.training.trial import joint_step

    if device == "cpu":
        return []
    step = joint_step(100, n=11000, M=206, D=8, device=device)
    best = fastest({"": step}, seconds, device)[""]
    return [Measurement("log_dlm, n=11000 M=206 d=8: ours per model, B=100", best * 10, "ms", 0.35)]


def samplers(device: str, seconds: float) -> list[Measurement]:
    """Time of a training step with uPS-10 compared with bMC-10."""
    from dlmexp.benchmark.measure import fastest
    from dlmexp.estimators import BMC, UPS
    from dlmexp.training.trial import joint_step

    lines, B = [], 90 if device == "cuda" else 18
    for likelihood in ("probit", "poisson"):
        cases = {e.name: joint_step(B, likelihood, estimator=e, device=device) for e in (BMC(10), UPS(10))}
        best = fastest(cases, seconds, device)
        lines.append(Measurement(f"{likelihood}: bMC-10 step per model, B={B}", best["bmc"] / B * 1e3, "ms"))
        lines.append(Measurement(f"{likelihood}: uPS-10 step / bMC-10 step", best["ups"] / best["bmc"], "x", 1.3))
    return lines


def row_loop(device: str, seconds: float) -> list[Measurement]:
    """Time of the gradient from 10 product samples for each of 1000 rows: vectorised, and with the paper's loop over
    rows. The time of the loop depends on the fit of q, so it is measured with mu unrelated to y (as before training)
    and with mu equal to the signal in y (as after training)."""
    return [line for name in ("probit", "poisson") for line in _row_loop(name, seconds)]


def _row_loop(name: str, seconds: float, rows: int = 25) -> list[Measurement]:
    import torch

    from dlmexp.benchmark.measure import fastest
    from dlmexp.benchmark.paper_sampler import sample_row_by_row
    from dlmexp.estimators import UPS, FreshDraws
    from dlmexp.gp.likelihoods import LIKELIHOODS
    from dlmexp.training.trial import synthetic_data

    likelihood, draws = LIKELIHOODS[name](), FreshDraws()
    X, y = (part[0] for part in synthetic_data(1, N, D, name, "cpu"))
    v = torch.full((N,), 0.5, dtype=torch.float64)
    leaf = X[:, 0].clone().requires_grad_()

    def vectorised() -> None:
        torch.autograd.grad(UPS(10)(likelihood, leaf, v, y, draws).sum(), leaf)

    ours = fastest({"": vectorised}, seconds / 4)[""]
    lines = [Measurement(f"{name}: uPS-10 of 1000 rows, vectorised", ours * 1e3, "ms")]
    for phase, mu, limit in (("before training", X[:, 1], 1000.0), ("after", X[:, 0], None)):
        start = perf_counter()
        sample_row_by_row(likelihood, mu[:rows], v[:rows], y[:rows], 10)
        loop = (perf_counter() - start) * N / rows
        label = f"{name}: the paper's loop (timed on {rows} rows), {phase} / vectorised"
        lines.append(Measurement(label, loop / ours, "x", limit, at_least=True))
    return lines


def square(device: str, seconds: float) -> list[Measurement]:
    """Time to solve fixed_sq_dlm, from kernel to solutions: twenty betas compared with one."""
    import torch

    from dlmexp.benchmark.measure import fastest
    from dlmexp.gp.kernels import rbf
    from dlmexp.gp.moments import moments
    from dlmexp.gp.square import square_path
    from dlmexp.training.trial import synthetic_data

    X, y = synthetic_data(5, N, D, "gaussian", device)
    one = torch.ones(5, dtype=X.dtype, device=device)
    hyper = {"Z": X[:, :M], "lengthscale": 4 * one[:, None], "outputscale": one, "mean": 0 * one}
    betas = torch.tensor([N / 2.0**k for k in range(20)], dtype=X.dtype, device=device)

    def solve(betas: "Tensor") -> None:
        with torch.no_grad():
            square_path(moments(rbf, hyper, X, y, 1e-6 * one), betas)

    best = fastest({"20": lambda: solve(betas), "1": lambda: solve(betas[:1])}, seconds / 2, device)
    return [
        Measurement("fixed_sq_dlm: one beta, 5 splits", best["1"] * 1e3, "ms"),
        Measurement("fixed_sq_dlm: twenty betas / one", best["20"] / best["1"], "x", 1.5),
    ]


def memory(device: str, seconds: float) -> list[Measurement]:
    """Peak memory of a training step beyond parameters and data, in units of an array [B, M, n]."""
    from dlmexp.benchmark.measure import peak_bytes
    from dlmexp.estimators import UPS, Exact
    from dlmexp.training.trial import joint_step

    lines = []
    for likelihood, objective, estimator in (
        ("probit", "log_dlm", Exact()), ("probit", "elbo", Exact()), ("probit", "log_dlm", UPS(10)),
        ("poisson", "log_dlm", UPS(10)),
    ):  # fmt: skip
        step = joint_step(4, likelihood, objective, estimator, device=device, captured=False)
        step()
        arrays = peak_bytes(step, device) / (4 * M * N * 8)
        label = f"{likelihood} {objective}, {estimator.name}: peak memory of a step, in [B, M, n]"
        lines.append(Measurement(label, arrays, "arrays", 8.0))
    return lines


PARTS: dict[str, Callable[[str, float], list[Measurement]]] = {
    "per_model": per_model,
    "large": large,
    "samplers": samplers,
    "row_loop": row_loop,
    "square": square,
    "memory": memory,
}


if __name__ == "__main__":
    raise SystemExit(main())
