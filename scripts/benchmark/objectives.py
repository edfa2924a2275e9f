"""Time of a training step of every objective on one shape; how far objective and gradient are with
rows in float32 from those in float64, and on a GPU from those of the CPU."""

import csv
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.mixture import Mixture
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State
from dlmexp.core.training.stepper import make_stepper
from scripts.benchmark.measure import arguments, fastest

N, M, D = 2000, 200, 8
B = {"cpu": 2, "cuda": 8}
"""Cells of a batch."""
COMPONENTS = 8
NAMES = (
    "elbo",
    "tighter",
    "block_tighter",
    "t_pep",
    "power_ep",
    "fitc",
    "loo",
    "sq_dlm",
    "exact",
    "elbo, explicit",
    "tighter, explicit",
    "log_dlm",
    "crps",
    "robust",
    f"log_dlm, {COMPONENTS} Gaussians",
    f"log_dlm, {COMPONENTS} Gaussians, probit",
    "log_dlm, probit",
    "tighter, probit",
)
COLUMNS = (
    "objective",
    "ms per step and model",
    "x elbo",
    "float32: ms",
    "float32 - float64: objective",
    "float32 - float64: gradient",
    "CUDA - CPU: objective",
    "CUDA - CPU: gradient",
)
ON_CPU = COLUMNS[:6]
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, line by line, and write the same lines to a file."""
    args = arguments("objectives", __doc__, NAMES, argv, seconds=1.0, out="")
    cells = B[args.device]
    print(f"n = {N} (exact: {M}), M = {M}, {D} features, RBF, {cells} models at once")
    columns = COLUMNS if args.device == "cuda" else ON_CPU
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    write_line(args.out, columns, mode="w")
    reference = None
    for name in args.parts:
        seconds = {}
        for dtype in DTYPES:
            made = program(name, args.device, cells, dtype)
            of_step = {"": step_of(made, name)}
            seconds[dtype] = fastest(of_step, args.seconds, args.device)[""] / cells
        reference = reference or seconds["float64"]
        line = [
            name,
            f"{1e3 * seconds['float64']:.3g}",
            f"{seconds['float64'] / reference:.2f}",
            f"{1e3 * seconds['float32']:.3g}",
        ]
        wide = objective_and_gradient(name, args.device, cells)
        narrow = objective_and_gradient(name, args.device, cells, "float32")
        line += differences(narrow, wide)
        if args.device == "cuda":
            line += differences(wide, objective_and_gradient(name, "cpu", cells))
        print(f"| {' | '.join(line)} |", flush=True)
        write_line(args.out, line, mode="a")
    return 0


def write_line(out: str, line: Sequence[str], mode: str) -> None:
    """Write a line to a CSV file, if there is to be one."""
    if out:
        with open(out, mode, encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(line)


def program(name: str, device: str, cells: int, dtype: str = "float64") -> Program:
    """Return the program of an objective of NAMES."""
    words = name.split(", ")
    likelihood = "probit" if "probit" in words else "gaussian"
    objective = OBJECTIVES[words[0]].with_options({})
    K = COMPONENTS if f"{COMPONENTS} Gaussians" in words else 1
    rows = M if objective.all_rows_inducing else N
    X, y = [part.to(DTYPES[dtype]) for part in data(rows, likelihood, device)]
    model = Model("rbf", likelihood, M=M, ard=True, components=K)
    beta = torch.full((cells,), 1.0, dtype=PARAMETER_DTYPE, device=device)
    kind = Joint
    if objective.collapses(model.likelihood) and "explicit" not in words:
        kind = Collapsed
    if K > 1:
        kind = Mixture
    return kind(model, Loss(objective), BatchData(X, y, {}, [0], [0] * cells), beta)


def data(n: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs [1, n, D] and targets [1, n]."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(1, n, D, generator=generator, dtype=torch.float64)
    y = X[..., 0].sin() + 0.5 * torch.randn(1, n, generator=generator, dtype=torch.float64)
    if likelihood == "probit":
        y = (y > 0).double()
    return X.to(device), y.to(device)


def step_of(made: Program, name: str) -> Callable[[], None]:
    """Return a step of Adam; of a mixture, after it was split."""
    settings = Settings(lr=1e-3, iterations=100_000, window=None)
    state = State.fresh(made.initial(), settings)
    if "Gaussians" in name:
        made.split_gaussian(state)
    return make_stepper(made, state, settings)


def differences(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[str]:
    """Return the largest differences of objective and gradient, relative to the largest values."""
    relative = []
    for our, their in zip(ours, theirs, strict=True):
        error = (our.cpu() - their.cpu()).abs().max() / their.abs().max().cpu()
        relative.append(f"{float(error):.1e}")
    return relative


def objective_and_gradient(
    name: str, device: str, cells: int, dtype: str = "float64"
) -> tuple[Tensor, Tensor]:
    """Return the objective of every cell and its gradient at the initial values."""
    made = program(name, device, cells, dtype)
    settings = Settings(iterations=1, window=None)
    state = State.fresh(made.initial(), settings)
    if "Gaussians" in name:
        made.split_gaussian(state)
    leaves = {key: value.requires_grad_() for key, value in state.values.items()}
    value = made.objective(leaves, state.jitter, state.iteration)
    gradients = torch.autograd.grad(
        value.per_row.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    return value.per_row.detach(), flat
