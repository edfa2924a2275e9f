"""Which cells a composed config spans (SPEC sections 2, 5 and 6)."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from dlmexp.config import BetaConfig, DatasetConfig, EstimatorConfig, MethodConfig, RunConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import SPLIT_VERSION, inducing_points, resolve_sizes, split
from dlmexp.errors import UserError, nearest
from dlmexp.sweep.cell import Cell

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
REGRESSION_ONLY = ("sq_dlm", "fitc")


def betas(beta: BetaConfig, n: int) -> list[float]:
    """The grid n, n/ratio, ... while >= smallest, or the listed values; largest first, without repeats."""
    if beta.values is not None:
        values = [float(value) for value in beta.values]
    else:
        if not (beta.ratio and beta.ratio > 1 and beta.smallest and beta.smallest > 0):
            raise UserError(f"beta.ratio={beta.ratio}, beta.smallest={beta.smallest}: give a ratio > 1, a smallest > 0")
        values = [float(n)]
        while values[-1] / beta.ratio >= beta.smallest:
            values.append(values[-1] / beta.ratio)
    if not all(0 < value < math.inf for value in values):
        raise UserError(f"beta.values={beta.values}: every beta must be > 0")
    return sorted(set(values), reverse=True)


def cells(cfg: RunConfig, dataset: DatasetConfig, data: Dataset) -> list[Cell]:
    """All cells of one dataset, the ELBO fits that fixed variants take their hyperparameters from included."""
    pool = len(split(len(data.y), dataset.split, 0, dataset.test_cap).train_pool)
    found: dict[Cell, None] = {}
    for n in resolve_sizes(cfg.sizes or dataset.sizes, pool):
        for seed in cfg.seeds:
            plain = _plain(cfg, dataset, data, n, seed)
            for cell in _methods(cfg, dataset, plain):
                found.setdefault(cell)
    return list(found)


def check(cfg: RunConfig) -> None:
    """Refuse what can't be run, before any data is read."""
    _one_of("measure", cfg.measure, ["fit", "gradient"])
    _one_of("device", cfg.device.split(":")[0], ["auto", "cpu", "cuda"])
    _one_of("dtype", cfg.dtype, ["float64", "float32"])
    if cfg.evaluate not in ("end", "epoch") and not (cfg.evaluate.isdigit() and int(cfg.evaluate) > 0):
        raise UserError(f"evaluate={cfg.evaluate}: give 'end', 'epoch' or a number of iterations")
    for name in cfg.parameterisation:
        _one_of("parameterisation", name, ["whitened", "unwhitened"])
    for what in ("method", "seeds", "parameterisation", "estimator"):
        if not getattr(cfg, what):
            raise UserError(f"{what}=[]: the grid is empty; name at least one")
    if cfg.sizes is not None and not cfg.sizes:
        raise UserError("sizes=[]: the grid is empty; name at least one size, or leave it out for the dataset's own")
    if any(seed < 0 for seed in cfg.seeds):
        raise UserError(f"seeds={list(cfg.seeds)}: seeds are 0, 1, 2, ...")
    if cfg.beta.values is not None and not cfg.beta.values:
        raise UserError("beta.values=[]: the grid is empty; name at least one beta")
    for name, value in _positive(cfg).items():
        if value is not None and not value > 0:
            raise UserError(f"{name}={value}: give a number > 0")
    for dataset in cfg.dataset.values():
        if not PLAIN_NAME.fullmatch(dataset.name):
            raise UserError(f"dataset name '{dataset.name}': it names a folder; choose letters, digits, '-', '_', '.'")
    for name, estimator in cfg.estimator.items():
        if any(samples < 1 for samples in estimator.samples):
            raise UserError(f"estimator.{name}.samples={list(estimator.samples)}: give numbers of samples >= 1")
    for method_name, method in cfg.method.items():
        for dataset in cfg.dataset.values():
            if method.objective in REGRESSION_ONLY and dataset.task != "regression":
                fitting = [name for name, m in cfg.method.items() if m.objective not in REGRESSION_ONLY]
                raise UserError(
                    f"method {method_name} is for regression and {dataset.name} is {dataset.task} data: choose among "
                    f"{', '.join(fitting or ['elbo', 'beta_elbo', 'joint_log_dlm', 'fixed_log_dlm'])}"
                )


def _positive(cfg: RunConfig) -> dict[str, float | None]:
    """Settings that are numbers of something, or speeds."""
    found: dict[str, float | None] = {"batch_cells": cfg.batch_cells, "checkpoint_seconds": cfg.checkpoint_seconds}
    for name, dataset in cfg.dataset.items():
        found[f"dataset.{name}.M"] = dataset.M
    for name, training in cfg.training.items():
        for what in ("lr", "minibatch", "minibatch_lr", "ups_lr", "window", "max_iterations", "epochs"):
            found[f"training.{name}.{what}"] = getattr(training, what)
    return found


def _one_of(what: str, given: str, valid: list[str]) -> None:
    if given not in valid:
        raise UserError(f"{what}={given}: {nearest(given, valid)}")


def _plain(cfg: RunConfig, dataset: DatasetConfig, data: Dataset, n: int, seed: int) -> Cell:
    """The beta = 1 ELBO fit on this split: every other cell is this one with something changed."""
    training = cfg.training["large" if dataset.split == "airline" else dataset.task]
    cap = "" if dataset.test_cap is None else f"-{dataset.test_cap}"
    minibatch = training.minibatch if training.minibatch and n > training.minibatch else None
    epochs = training.epochs
    cell = Cell(
        kind="fit", dataset=dataset.name, data=data.checksum, split=f"{dataset.split}{cap}-v{SPLIT_VERSION}",
        task=dataset.task, likelihood=dataset.likelihood, kernel=dataset.kernel, ard=dataset.ard, mean=dataset.mean,
        M=min(dataset.M or inducing_points(len(data.y)), n), n=n, objective="elbo", variant="joint", form="explicit",
        parameterisation="whitened", estimator="exact", samples=None, nu=None, nodes=None, sampler=None,
        lr=training.minibatch_lr if minibatch else training.lr, minibatch=minibatch,
        window=None if epochs else training.window, tolerance=None if epochs else training.tolerance,
        max_iterations=None if epochs else training.max_iterations, epochs=epochs, evaluate=cfg.evaluate,
        dtype=cfg.dtype, seed=seed, beta=1.0,
    )  # fmt: skip
    if cell.evaluate == "epoch" and minibatch is None:
        raise UserError(f"evaluate=epoch: {dataset.name} with n={n} is not trained in minibatches; give a number")
    return cell


def _collapsed(cell: Cell, cfg: RunConfig) -> Cell:
    """With q in closed form: all rows at every step, and no choice of coordinates for q."""
    training = cfg.training["regression"]
    return replace(cell, form="collapsed", lr=training.lr, minibatch=None, parameterisation="whitened")


def _methods(cfg: RunConfig, dataset: DatasetConfig, plain: Cell) -> Iterator[Cell]:
    gaussian = dataset.likelihood == "gaussian"
    for parameterisation in cfg.parameterisation:
        explicit = replace(plain, parameterisation=parameterisation)
        base = _collapsed(explicit, cfg) if gaussian and cfg.collapsed else explicit
        if cfg.measure == "gradient":
            base = replace(base, evaluate="end")
        if any(method.variant == "fixed" for method in cfg.method.values()):
            yield base
        for method in cfg.method.values():
            values = betas(cfg.beta, plain.n) if method.select else [1.0]
            if method.objective == "fitc":
                yield replace(_collapsed(plain, cfg), objective="fitc", beta=None)
                continue
            for beta in values:
                yield from _method(cfg, method, base, replace(explicit, beta=beta))


def _method(cfg: RunConfig, method: MethodConfig, base: Cell, cell: Cell) -> Iterator[Cell]:
    """The cells of one method at one beta: one, or one per estimator."""
    cell = replace(cell, objective=method.objective, variant=method.variant)
    if method.variant == "fixed":
        cell = replace(cell, base=base.key)
    if method.objective == "log_dlm":
        for name, estimator in cfg.estimator.items():
            yield from _estimators(cfg, name, estimator, cell)
    elif method.objective == "sq_dlm" and method.variant == "fixed":
        # Solved, not trained: nothing of the training settings changes the result.
        yield replace(_collapsed(cell, cfg), lr=0.0, window=None, tolerance=None, max_iterations=None, evaluate="end")
    elif method.objective == "sq_dlm" or base.form == "collapsed":
        yield _collapsed(cell, cfg)
    else:
        yield cell


def _estimators(cfg: RunConfig, name: str, estimator: EstimatorConfig, cell: Cell) -> Iterator[Cell]:
    training = cfg.training[cell.task]
    lr = training.ups_lr if name == "ups" and training.ups_lr and cell.minibatch is None else cell.lr
    kind = "gradient" if cfg.measure == "gradient" else "fit"
    if kind == "gradient":
        cell = replace(cell, evaluate="end", window=None, tolerance=None, max_iterations=None)
        lr = 0.0
    for samples in estimator.samples or [None]:
        yield replace(
            cell, kind=kind, estimator=name, samples=samples, nu=estimator.nu, nodes=estimator.nodes,
            sampler=estimator.sampler, lr=lr,
        )  # fmt: skip
