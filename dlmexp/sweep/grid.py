"""Which cells a composed config spans (SPEC sections 2, 5 and 6)."""

import math
from collections.abc import Iterator
from dataclasses import replace

from dlmexp.config import BetaConfig, DatasetConfig, EstimatorConfig, MethodConfig, RunConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import SPLIT_VERSION, inducing_points, resolve_sizes, split
from dlmexp.errors import UserError
from dlmexp.sweep.cell import Cell

LONGEST = 1000  # betas of a grid


def betas(beta: BetaConfig, n: int) -> list[float]:
    """The grid n, n/ratio, ... while >= smallest, or the listed values; largest first, without repeats."""
    if beta.values is not None:
        values = [float(value) for value in beta.values]
    else:
        if not (beta.ratio and beta.ratio > 1 and beta.smallest and beta.smallest > 0):
            raise UserError(f"beta.ratio={beta.ratio}, beta.smallest={beta.smallest}: give a ratio > 1, a smallest > 0")
        if math.log(max(n / beta.smallest, 1)) / math.log(beta.ratio) > LONGEST:
            raise UserError(f"beta.ratio={beta.ratio}: that makes more than {LONGEST} betas; give a larger ratio")
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
