"""Made-up records of every experiment, for tests and benchmarks of what reads records. None of the numbers is a result.

The numbers are a smooth function of the cell plus noise by its key, shaped so that figures look like figures.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
from msgspec.structs import replace

from dlmexp import catalogue
from dlmexp.data.spec import read_spec
from dlmexp.data.splits import resolve_sizes, split
from dlmexp.plan.cell import FIRST_OPTIONS, Cell
from dlmexp.plan.compose import protocol_config
from dlmexp.plan.setting import Candidates, Setting
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.record import Made, Record, Result
from dlmexp.records.store import Store

MADE = {
    "version": "0.0-made-up", "commit": "made-up", "device": "cpu", "host": "nowhere", "time": "2000-01-01T00:00:00Z",
    "python": "3", "torch": "none", "gpytorch": "none",
    "command": "dlmexp run experiment=made-up",
}  # fmt: skip
LEVEL = {"regression": 0.2, "binary": 0.2, "count": 2.1}  # hypothetical NLL to settle at
METHOD_SHIFT = {
    ("elbo", "joint"): 0.10, ("fitc", "joint"): 0.07, ("log_dlm", "joint"): 0.0, ("log_dlm", "fixed"): 0.04,
    ("sq_dlm", "joint"): -0.02, ("sq_dlm", "fixed"): 0.02,
}  # fmt: skip
SECOND = {"regression": "mse", "binary": "error", "count": "mre"}


PAPER = Setting("paper")
Thing = Cell | Record | tuple[Record, dict[str, np.ndarray]]

FROM_TRAINING = (
    "minibatch", "minibatch_rows", "window", "tolerance", "criterion", "max_iterations", "epochs", "inducing",
    "final_lr", "decay", "epsilon", "resolution", "noise_floor",
)  # fmt: skip


def fill(
    folder: str | os.PathLike[str], things: Iterable[Thing], setting: Setting = PAPER, experiment: str = "made-up"
) -> int:
    """Store records (or cells, with plausible numbers; or records with arrays) and a manifest that asks for just them;
    how many."""
    store, records = Store(folder), []
    with mock.patch("os.fsync"):  # takes most of the time of a write, and nobody will miss these
        for thing in things:
            made = plausible(thing) if isinstance(thing, Cell) else thing
            record, arrays = made if isinstance(made, tuple) else (made, {})
            store.write(record, arrays)
            records.append(record)
        write_manifest(Path(folder), manifest(experiment, asked(records, setting, experiment)))
    return len(records)


def asked(records: Iterable[Record], setting: Setting = PAPER, experiment: str = "made-up") -> list[Candidates]:
    """What a run would have asked for to get these records, as if all betas of a method were one grid."""
    groups: dict[tuple[str, Any], dict[float, Cell]] = {}
    for record in records:
        for name, spec in catalogue.entries("method").items():
            if (spec["objective"], spec["variant"]) != (record.cell.objective, record.cell.variant):
                continue
            if name == "ppgpr":
                continue  # joint DLM at beta = 1: tests that mean PPGPR ask for it themselves
            if spec["select"] or record.cell.beta in (None, 1.0):
                groups.setdefault((name, replace(record.cell, beta=None).key), {})[record.cell.beta or 0.0] = (
                    record.cell
                )
    candidates = []
    for (name, _), cells in groups.items():
        if name == "beta_elbo" and set(cells) == {1.0}:
            continue  # that was the ELBO
        ordered = tuple(cells[beta] for beta in sorted(cells, reverse=True))
        role = "gradient" if ordered[0].kind == "gradient" else "fit" if ordered[0].evaluate == "end" else "curve"
        of = catalogue.stands_for(ordered[0].dataset)
        candidates.append(Candidates(name, ordered, setting, experiment, role, str(ordered[0].n), of))
    return candidates


def cell(dataset: str = "banana", task: str | None = None, **changes: Any) -> Cell:
    """A fit of the ELBO at beta = 1, n = 100, seed 0, with `changes`; all else as the paper's protocol has it."""
    file = catalogue.entries("dataset").get(dataset, {})
    task = task or str(file.get("task", "binary"))
    split = str(file.get("split") or {"regression": "regression"}.get(task, "counts"))
    n, training = (
        changes.get("n", 100),
        protocol_config("paper", None).training["large" if split == "airline" else task],
    )
    form = changes.get("form", "collapsed" if task == "regression" else "explicit")
    whole = form == "collapsed" or not training.minibatch or n <= training.minibatch
    trains = {name: getattr(training, name) for name in FROM_TRAINING}
    trains |= {"tolerance": None, "criterion": "mean"} if training.window is None else {}
    trains |= (
        {"lr": training.lr, "minibatch": None, "minibatch_rows": "epochs"} if whole else {"lr": training.minibatch_lr}
    )
    if trains["minibatch"] is None and changes.get("estimator") in training.estimator_lr:
        trains["lr"] = training.estimator_lr[changes["estimator"]]
    plain = Cell(
        kind="fit", dataset=dataset, data="made-up", split=f"{split}-v1", task=task,
        likelihood={"regression": "gaussian", "binary": "probit", "count": "poisson"}[task], kernel="rbf",
        ard=bool(file.get("ard")), mean="constant" if task == "binary" else "zero", M=min(file.get("M") or 50, n), n=n,
        objective="elbo", variant="joint", form=form, parameterisation="whitened", estimator="exact", options={},
        evaluate="end", dtype="float64", seed=0, beta=1.0, **trains,
    )  # fmt: skip
    options = {name: changes.pop(name) for name in FIRST_OPTIONS if name in changes}
    options = {name: value for name, value in options.items() if value is not None}
    return replace(plain, **({"options": options} | changes))


def method_cell(method: str, dataset: str, **changes: Any) -> Cell:
    """A cell of a method of `conf/method`; `elbo` at beta = 1, FITC without beta."""
    spec = catalogue.entries("method")[method]
    beta = None if method == "fitc" else 1.0
    form = {} if spec["objective"] != "log_dlm" else {"form": "explicit"}
    return cell(
        dataset, **({"objective": spec["objective"], "variant": spec["variant"], "beta": beta} | form | changes)
    )


def record(of: Cell, result: Result, status: Literal["done", "failed"] = "done", **made: Any) -> Record:
    """A record as `dlmexp run` leaves it."""
    return Record(key=of.key, status=status, cell=of, result=result, made=Made(**MADE | made))


def failed(of: Cell, reason: str = "the objective is NaN", iterations: int = 17) -> Record:
    return record(of, Result(reason=reason, iterations=iterations), status="failed")


def fit(of: Cell, **test: float) -> Record:
    """A finished fit with the given test metrics; validation has the same unless `validation=` gives NLL and MSE."""
    validation = test.pop("validation", None)
    both = dict(test) if validation is None else dict.fromkeys(test, validation)
    result = Result(
        validation=both, test=dict(test), iterations=200, converged=True, stopped="converged", seconds=1.0,
        objective_value=0.5, y_std=1.0, y_mean=0.0,
        hyperparameters={"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "mean": 0.0},
    )  # fmt: skip
    return record(of, result)


def plausible(of: Cell) -> tuple[Record, dict[str, np.ndarray]]:
    """A record and its arrays for any cell: lower with n, best at some beta, noisier with fewer samples."""
    random = np.random.default_rng(int(of.key[:15], 16))
    if of.kind == "gradient":
        return _gradient(of, random)
    shift = METHOD_SHIFT[of.objective, of.variant] * (2 if of.dataset.startswith(("ringnorm", "sarcos")) else 1)
    best = {"cadata": 8.0}.get(of.dataset, 0.3)
    off = 0.0 if of.beta is None else 0.006 * math.log(of.beta / best) ** 2
    sampling = 0.0 if of.samples is None else {"bmc": 0.12, "smooth_bmc": 0.11, "ups": 0.02}[of.estimator] / of.samples
    by_seed = np.random.default_rng([of.seed, int(hashlib.sha256(of.dataset.encode()).hexdigest()[:8], 16)])
    slow = 0.03 if of.parameterisation == "unwhitened" else 0.0
    level = LEVEL[of.task] + shift + off + sampling + slow + 3.0 / math.sqrt(of.n)
    nll = level + 0.02 * by_seed.normal() + 0.004 * random.normal()
    second = max(0.4 * (nll - LEVEL[of.task]) + 0.05 + 0.002 * random.normal(), 0.004)
    metrics = {"nll": nll, SECOND[of.task]: second}
    if of.objective == "sq_dlm":
        del metrics["nll"]
    made = fit(of, **metrics)
    beside = {} if of.split.startswith("airline") else metrics  # which has no validation rows
    made.result.validation = {name: value + 0.003 * random.normal() for name, value in beside.items()}
    made.result.iterations = int(150 + 300 * random.random())
    made.result.seconds = 0.2 + random.random()
    if of.estimator == "ups":
        made.result.acceptance = 0.35 if of.options.get("sampler") == "rejection" else 1.0
    arrays = {}
    if of.evaluate != "end":
        points = of.epochs or 60
        x = np.arange(1, points + 1)
        fall = np.exp(-x / (0.2 * points))
        arrays = {
            "evaluated_at": x * 10, "epochs": x.astype(float),
            "test_nll": nll + (0.4 + sampling) * fall + 0.002 * random.normal(size=points),
            f"test_{SECOND[of.task]}": second + 0.1 * fall, "objective": np.linspace(1, 0, 200),
        }  # fmt: skip
    return made, arrays


def _gradient(of: Cell, random: np.random.Generator) -> tuple[Record, dict[str, np.ndarray]]:
    samples = of.samples or 1
    spread = {"ups": 0.3, "bmc": 1.0, "smooth_bmc": 0.8}[of.estimator] / math.sqrt(samples)
    bias = {"ups": 1e-4, "bmc": 0.2, "smooth_bmc": 0.1}[of.estimator] / samples
    error = bias + spread**2 * random.lognormal(0, 0.6, 100)
    arrays = {
        "condition_i": 1 + bias + 0.3 * spread * random.normal(size=100),
        "condition_ii": (1 + error) * 40,
        "error": error * 40,
    }
    arrays |= {f"{name}_quadrature": values for name, values in arrays.items()}
    noisy = bias * 40 * (1 + 0.05 * random.normal())
    return record(of, Result(bias=noisy, bias_quadrature=noisy, norm2_G=40.0)), arrays


def sweep(
    dataset: str, methods: tuple[str, ...], sizes: list[int], seeds: range, betas: int, **changes: Any
) -> Iterator[Cell]:
    """Cells of a figure against n: every method, size and seed, `betas` values."""
    for method in methods:
        sampled = {} if method.endswith("log_dlm") else {"estimator": "exact", "samples": None}
        for n in sizes:
            grid = [n / 3**k for k in range(betas)] if catalogue.entries("method")[method]["select"] else [None]
            for seed in seeds:
                for beta in grid:
                    at = {} if beta is None else {"beta": beta}
                    yield method_cell(method, dataset, **(changes | sampled | {"n": n, "seed": seed} | at))


def curves(dataset: str, n: int, seeds: range, **changes: Any) -> Iterator[Cell]:
    """Cells of learning curves of joint DLM at beta = 0.1, all estimators and L."""
    pairs: list[tuple[str, int | None]] = [("exact", None)]
    pairs += [(name, samples) for name in ("bmc", "ups", "smooth_bmc") for samples in (1, 10, 100)]
    for estimator, samples in pairs:
        for seed in seeds:
            settings = {"beta": 0.1, "evaluate": "10"} | changes
            yield method_cell(
                "joint_log_dlm", dataset, n=n, seed=seed, estimator=estimator, samples=samples, **settings
            )


def paper(seeds: range = range(5), betas: int = 17, stand_ins: bool = True) -> Iterator[Cell]:
    """Cells of every experiment that can be run on the data at hand (with stand-ins), about 20 000 by default."""
    log = ("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm")
    regression = ["pol", "cadata"] + ["sarcos_test"] * stand_ins
    for dataset in regression:
        spec = read_spec(dataset)
        sizes = resolve_sizes(spec.sizes, len(split(spec.rows or 0, spec.split, seed=0).train_pool))
        yield from sweep(dataset, (*log, "joint_sq_dlm", "fixed_sq_dlm"), sizes, seeds, betas)
        yield from curves(dataset, sizes[-1], seeds)
    both, small = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm"), [100, 200, 500, 1000, 2000]
    for how in ("whitened", "unwhitened"):
        for dataset in ("banana", "thyroid", "twonorm", "ringnorm"):
            yield from sweep(dataset, both, small, seeds, betas, parameterisation=how)
        for dataset in ["abalone"] + ["peds1_left"] * stand_ins:
            yield from sweep(dataset, both, small, seeds, betas, parameterisation=how, estimator="bmc", samples=10)
    for dataset in ["abalone"] + ["peds1_left"] * stand_ins:
        yield from curves(dataset, 2000, seeds)
    for estimator in ("bmc", "ups", "smooth_bmc"):
        for samples in (1, 10, 100):
            for seed in seeds:
                yield method_cell(
                    "fixed_log_dlm", "abalone", kind="gradient", n=2000, beta=0.1, estimator=estimator,
                    samples=samples, seed=seed,
                )  # fmt: skip
    for sampler, estimator in (("auto", "ups"), ("rejection", "ups"), (None, "bmc")):
        for seed in seeds:
            yield method_cell(
                "joint_log_dlm",
                "abalone",
                n=1000,
                beta=0.1,
                estimator=estimator,
                samples=10,
                sampler=sampler,
                seed=seed,
            )
    if stand_ins:
        large: dict[str, Any] = {"n": 922684, "evaluate": "epoch"}
        for beta in (0.1, 1.0, 10.0):
            for seed in seeds:
                for method in ("beta_elbo", "joint_log_dlm", "fixed_log_dlm"):
                    yield method_cell(method, "flights", beta=beta, seed=seed, **large)
            rest = {name: value for name, value in large.items() if name != "n"} | {"beta": beta}
            for each in curves("flights", large["n"], seeds, **rest):
                if each.estimator != "exact":
                    yield each
    for method in both:
        for each in sweep("ringnorm_drawn", (method,), [100, 500], range(3), 5):
            yield each


def made(folder: Path, protocol: str, sizes: list[int], lr: float, dataset: str = "banana", q: str = "") -> None:
    """Records of binary data, asked for under a protocol, with its parameterisation of q or another one."""
    q = q or ("unwhitened" if protocol.startswith("released") else "whitened")
    methods = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
    cells = sweep("banana", methods, sizes, range(2), 3)
    things = [plausible(replace(cell, lr=lr, parameterisation=q, dataset=dataset)) for cell in cells]
    fill(folder, things, Setting(protocol), protocol)
