"""How fast the core is, side by side in one run: our batched step against GPyTorch's models, uPS against bMC and the
paper's loop over rows, twenty betas of fixed square loss against one, and the memory of a step."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

N, M, D = 1000, 74, 20


@dataclass
class Line:
    """One measured quantity, and what was promised of it."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    def __str__(self) -> str:
        verdict = ""
        if self.limit is not None:
            kept = self.value >= self.limit if self.at_least else self.value <= self.limit
            verdict = f"{'>=' if self.at_least else '<='} {self.limit:g}  {'kept' if kept else 'NOT KEPT'}"
        return f"{self.what:64} {self.value:10.4g} {self.unit:6} {verdict}"

    @property
    def kept(self) -> bool:
        return self.limit is None or (self.value >= self.limit if self.at_least else self.value <= self.limit)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per quantity; exit code 1 if one is not what was promised."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark core", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="to measure on (default: cuda where there is one)")
    parser.add_argument("--seconds", type=float, default=10.0, help="spent on each comparison (default: 10)")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}': {', '.join(PARTS)}")
    device = print_device(args.device)
    kept = True
    for part in args.parts or PARTS:
        for line in PARTS[part](device, args.seconds):
            print(line, flush=True)
            kept &= line.kept
    return 0 if kept else 1


def print_device(asked: str | None) -> str:
    """What is measured on: the device asked for, or else a GPU where there is one; said in the first line."""
    import torch

    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {device} ({name}), float64")
    return device


def per_model(device: str, seconds: float) -> list[Line]:
    """Step per model at n=1000 M=74 d=20, probit, against GPyTorch's model trained alone."""
    from dlmexp.benchmark.rival import gpytorch_step
    from dlmexp.benchmark.timing import fastest
    from dlmexp.training.trial import joint_step, synthetic_data

    sizes = (90,) if device == "cuda" else (1, 4, 18)
    X, y = synthetic_data(1, N, D, "probit", device)
    cases = {f"{o} GPyTorch": gpytorch_step(X[0], y[0], M, o) for o in ("log_dlm", "elbo")}
    for objective in ("log_dlm", "elbo"):
        cases |= {f"{objective} {B}": joint_step(B, objective=objective, device=device) for B in sizes}
    best = fastest(cases, seconds * 2, device)
    lines = []
    for objective in ("log_dlm", "elbo"):
        alone = best[f"{objective} GPyTorch"]
        lines.append(Line(f"{objective}, n={N} M={M} d={D}: GPyTorch, one model", alone * 1e3, "ms"))
        for B in sizes:
            ours = best[f"{objective} {B}"] / B
            limit = 0.025 if device == "cuda" and objective == "log_dlm" else None
            lines.append(Line(f"{objective}: ours per model, B={B}", ours * 1e3, "ms", limit))
        most = max(alone / (best[f"{objective} {B}"] / B) for B in sizes)
        lines.append(Line(f"{objective}: times faster per model, best B", most, "x", 4.0, at_least=True))
    return lines


def large(device: str, seconds: float) -> list[Line]:
    """The largest shape of the paper's full-batch regression; on a GPU only."""
    from dlmexp.benchmark.timing import fastest
    from dlmexp.training.trial import joint_step

    if device == "cpu":
        return []
    one = joint_step(100, n=11000, M=206, D=8, device=device)
    best = fastest({"": one}, seconds, device)[""]
    return [Line("log_dlm, n=11000 M=206 d=8: ours per model, B=100", best * 10, "ms", 0.35)]


def samplers(device: str, seconds: float) -> list[Line]:
    """A whole uPS-10 step against a whole bMC-10 step."""
    from dlmexp.benchmark.timing import fastest
    from dlmexp.estimators import BMC, UPS
    from dlmexp.training.trial import joint_step

    lines, B = [], 90 if device == "cuda" else 18
    for likelihood in ("probit", "poisson"):
        cases = {e.name: joint_step(B, likelihood, estimator=e, device=device) for e in (BMC(10), UPS(10))}
        best = fastest(cases, seconds, device)
        lines.append(Line(f"{likelihood}: bMC-10 step per model, B={B}", best["bmc"] / B * 1e3, "ms"))
        lines.append(Line(f"{likelihood}: uPS-10 step / bMC-10 step", best["ups"] / best["bmc"], "x", 1.3))
    return lines


def row_loop(device: str, seconds: float) -> list[Line]:
    """The gradient by product samples of 1000 rows x 10 samples: vectorised, and by the paper's loop over rows. The
    loop's time depends on how well q fits: it is shown with mu unrelated to y, as before training, and with mu the
    signal that y was made from."""
    return [line for name in ("probit", "poisson") for line in _row_loop(name, seconds)]


def _row_loop(name: str, seconds: float, rows: int = 25) -> list[Line]:
    import torch

    from dlmexp.benchmark.row_loop import sample_by_rows
    from dlmexp.benchmark.timing import fastest
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
    lines = [Line(f"{name}: uPS-10 of 1000 rows, vectorised", ours * 1e3, "ms")]
    for fit, mu, limit in (("before training", X[:, 1], 1000.0), ("after", X[:, 0], None)):
        began = perf_counter()
        sample_by_rows(likelihood, mu[:rows], v[:rows], y[:rows], 10)
        loop = (perf_counter() - began) * N / rows
        what = f"{name}: the paper's loop (timed on {rows} rows), {fit} / vectorised"
        lines.append(Line(what, loop / ours, "x", limit, at_least=True))
    return lines


def square(device: str, seconds: float) -> list[Line]:
    """fixed_sq_dlm from kernel to all solutions: twenty betas against one."""
    import torch

    from dlmexp.benchmark.timing import fastest
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
        Line("fixed_sq_dlm: one beta, 5 splits", best["1"] * 1e3, "ms"),
        Line("fixed_sq_dlm: twenty betas / one", best["20"] / best["1"], "x", 1.5),
    ]


def memory(device: str, seconds: float) -> list[Line]:
    """Peak of a step beyond parameters and data, in arrays of shape [B, M, n]."""
    from dlmexp.benchmark.memory import peak_bytes
    from dlmexp.estimators import UPS, Exact
    from dlmexp.training.trial import joint_step

    lines = []
    for likelihood, objective, estimator in (
        ("probit", "log_dlm", Exact()), ("probit", "elbo", Exact()), ("probit", "log_dlm", UPS(10)),
        ("poisson", "log_dlm", UPS(10)),
    ):  # fmt: skip
        one = joint_step(4, likelihood, objective, estimator, device=device, captured=False)
        one()
        arrays = peak_bytes(one, device) / (4 * M * N * 8)
        what = f"{likelihood} {objective}, {estimator.name}: peak memory of a step, in [B, M, n]"
        lines.append(Line(what, arrays, "arrays", 8.0))
    return lines


PARTS: dict[str, Callable[[str, float], list[Line]]] = {
    "per_model": per_model,
    "large": large,
    "samplers": samplers,
    "row_loop": row_loop,
    "square": square,
    "memory": memory,
}


if __name__ == "__main__":
    raise SystemExit(main())
