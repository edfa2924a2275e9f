"""Which cells a composed config asks for, and which of them are candidates of one another (docs/SPEC.md, 2, 5, 6)."""

import math
from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from dlmexp.config import BetaConfig, DatasetConfig, MethodConfig, RunConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import SPLIT_VERSION, inducing_points, resolve_sizes, split
from dlmexp.errors import UserError
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Candidates, Cell

LONGEST = 1000  # betas of a grid
BASE = "elbo"  # the method and objective whose beta = 1 fit gives the fixed variants their hyperparameters


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


def candidates(cfg: RunConfig, dataset: DatasetConfig, data: Dataset) -> Iterator[Candidates]:
    """All that one dataset contributes, the ELBO fits that fixed variants take their hyperparameters from included."""
    pool = len(split(len(data.y), dataset.split, 0, dataset.test_cap).train_pool)
    for n, seed in product(resolve_sizes(cfg.sizes or dataset.sizes, pool), cfg.seeds):
        yield from _methods(cfg, dataset, _plain(cfg, dataset, data, n, seed))


def _plain(cfg: RunConfig, dataset: DatasetConfig, data: Dataset, n: int, seed: int) -> Cell:
    """The beta = 1 ELBO fit on this split: every other cell is this one with something changed."""
    training = cfg.training["large" if dataset.split == "airline" else dataset.task]
    cap = "" if dataset.test_cap is None else f"-{dataset.test_cap}"
    minibatch = training.minibatch if training.minibatch and n > training.minibatch else None
    epochs = training.epochs
    cell = Cell(
        kind="fit", dataset=dataset.name, data=data.checksum, split=f"{dataset.split}{cap}-v{SPLIT_VERSION}",
        task=dataset.task, likelihood=dataset.likelihood, kernel=dataset.kernel, ard=dataset.ard, mean=dataset.mean,
        M=min(dataset.M or inducing_points(len(data.y)), n), n=n, objective=BASE, variant="joint", form="explicit",
        parameterisation="whitened", estimator="exact", options={},
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


def _methods(cfg: RunConfig, dataset: DatasetConfig, plain: Cell) -> Iterator[Candidates]:
    likelihood = LIKELIHOODS[dataset.likelihood]
    for parameterisation in cfg.parameterisation:
        explicit = replace(plain, parameterisation=parameterisation)
        base = explicit
        if cfg.collapsed and OBJECTIVES[plain.objective].collapses(likelihood):
            base = _collapsed(explicit, cfg)
        if cfg.measure == "gradient":
            base = replace(base, evaluate="end")
        if any(method.variant == "fixed" for method in cfg.method.values()):
            yield Candidates(BASE, "1", (base,))
        for name, method in cfg.method.items():
            objective = OBJECTIVES[method.objective]
            values = (betas(cfg.beta, plain.n) if method.select else [1.0]) if objective.has_beta else [None]
            rule = (cfg.beta.rule if method.select else "1") if objective.has_beta else ""
            for cell in _settings(cfg, method, base, explicit):
                yield Candidates(name, rule, tuple(replace(cell, beta=beta) for beta in values))


def _settings(cfg: RunConfig, method: MethodConfig, base: Cell, cell: Cell) -> Iterator[Cell]:
    """The cells of one method, beta aside: one, or one for each setting of each estimator."""
    objective = OBJECTIVES[method.objective]
    cell = replace(cell, objective=method.objective, variant=method.variant)
    if method.variant == "fixed":
        cell = replace(cell, base=base.key)
    if objective.takes_estimator:
        for name in cfg.estimator:
            yield from _estimators(cfg, name, cell)
    elif objective.solved(method.variant):
        # Nothing of the training settings changes the result.
        yield replace(_collapsed(cell, cfg), lr=0.0, window=None, tolerance=None, max_iterations=None, evaluate="end")
    elif objective.collapsed_only or (cfg.collapsed and objective.collapses(LIKELIHOODS[cell.likelihood])):
        yield _collapsed(cell, cfg)
    else:
        yield cell


def _estimators(cfg: RunConfig, name: str, cell: Cell) -> Iterator[Cell]:
    """One cell for each combination of the estimator's options, of which any may be a list."""
    training = cfg.training[cell.task]
    lr = training.estimator_lr.get(name, cell.lr) if cell.minibatch is None else cell.lr
    if cfg.measure == "gradient":
        cell, lr = replace(cell, kind="gradient", evaluate="end", window=None, tolerance=None, max_iterations=None), 0.0
    given = {option: value if isinstance(value, list) else [value] for option, value in cfg.estimator[name].items()}
    given = {option: values for option, values in given.items() if values and values != [None]}
    for values in product(*given.values()):
        yield replace(cell, estimator=name, options=dict(zip(given, values, strict=True)), lr=lr)
