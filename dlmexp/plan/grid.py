"""Which cells a composed config asks for, and which of them are candidates of one another (docs/SPEC.md, 2, 5, 6)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product
from typing import Any

from msgspec.structs import replace
from torch import Tensor

from dlmexp import catalogue
from dlmexp.config import BetaConfig, DatasetConfig, MethodConfig, RunConfig, TrainingConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import SPLIT_VERSION, inducing_points, resolve_size, resolve_sizes, split
from dlmexp.errors import UserError
from dlmexp.gp.hyperparameters import Parameter
from dlmexp.gp.kernels import kernel_named
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.plan.compose import dataset_config, usual
from dlmexp.plan.protocols import CLOSED_FORM, INITIAL, UNTRAINED, kind_of, trained
from dlmexp.plan.setting import Candidates, Setting, role_of, setting

LONGEST = 1000  # betas of a grid
BASE = "elbo"  # the method and objective whose beta = 1 fit gives the fixed variants their hyperparameters


def betas(beta: BetaConfig, n: int) -> list[float]:
    """The grid that `BetaConfig` describes, or the listed values; largest first, without repeats."""
    if beta.values is not None:
        values = [float(value) for value in beta.values]
        if not all(0 <= value < math.inf for value in values):
            raise UserError(f"beta.values={beta.values}: every beta must be a number >= 0")
        return sorted(set(values), reverse=True)
    ratios = {"beta.ratio": beta.ratio}
    if beta.coarse_above is not None:
        ratios["beta.coarse_ratio"] = beta.coarse_ratio
    for name, ratio in ratios.items():
        if not (ratio and ratio > 1):
            raise UserError(f"{name}={ratio}: give a ratio > 1")
    if not (beta.smallest and beta.smallest > 0 and beta.first > 0):
        raise UserError(f"beta.smallest={beta.smallest}, beta.first={beta.first}: give numbers > 0")
    first = n / beta.first
    if not 0 < first < math.inf:
        raise UserError(f"beta.first={beta.first}: the largest beta would be n / beta.first = {first:g}")
    for name, ratio in ratios.items():
        if ratio and math.log(max(first / beta.smallest, 1)) / math.log(ratio) > LONGEST:
            raise UserError(f"{name}={ratio}: that makes more than {LONGEST} betas; give a larger ratio")
    assert beta.ratio is not None
    values, following = [], first
    while following >= beta.smallest:
        values.append(following)
        coarse = beta.coarse_above is not None and following > beta.coarse_above
        following /= beta.coarse_ratio if coarse and beta.coarse_ratio else beta.ratio
    return [*(values or [first]), *([0.0] if beta.zero else [])]


def candidates(cfg: RunConfig, key: str, dataset: DatasetConfig, data: Dataset) -> Iterator[Candidates]:
    """All that one dataset contributes, the ELBO fits that fixed variants take their hyperparameters from included.
    `key` is the name of the dataset's file."""
    pool = _pool(dataset, data)
    file, plain = dataset_config(key, cfg.csv), usual(cfg.protocol, cfg.preset)
    known: dict[tuple[Any, ...], Setting] = {}
    for n, seed in product(_sizes(cfg, dataset, pool), cfg.seeds):
        size = next((str(typed) for typed in cfg.sizes or dataset.sizes if resolve_size(typed, pool) == n), str(n))
        for method, cells in _methods(cfg, dataset, _plain(cfg, dataset, data, n, seed), data.X.shape[1]):
            which = cells[0].values(("estimator", "options", "parameterisation"))
            asked = known.get(which) or known.setdefault(which, setting(cfg, plain, dataset, file, cells[0]))
            role = "fit" if cells[0].kind == "fit" and cfg.measure == "gradient" else role_of(cfg)
            yield Candidates(method, cells, asked, cfg.name, role, size, dataset.stands_for)


def _sizes(cfg: RunConfig, dataset: DatasetConfig, pool: int) -> list[int]:
    """The training sizes, without those beyond `cfg.largest`."""
    sizes = resolve_sizes(cfg.sizes or dataset.sizes, pool)
    if cfg.largest is None:
        return sizes
    return [n for n in sizes if n <= cfg.largest] or [min(cfg.largest, pool)]


def notes(cfg: RunConfig, dataset: DatasetConfig, data: Dataset) -> Iterator[str]:
    """Sentences about what is not done quite as it was typed: sizes beyond the data or `largest`, more inducing inputs
    than rows, a noise where there is none."""
    pool = _pool(dataset, data)
    sizes = _sizes(cfg, dataset, pool)
    beyond = [str(size) for size in cfg.sizes or dataset.sizes if not str(size).endswith("%") and int(size) > pool]
    if beyond and pool in sizes:
        yield f"{dataset.name}: there are {pool} rows to train on, so n = {pool} in place of {', '.join(beyond)}"
    beyond = [str(n) for n in resolve_sizes(cfg.sizes or [], pool) if cfg.largest is not None and n > cfg.largest]
    experiment = catalogue.experiments().get(cfg.name.removesuffix(f"-{cfg.preset}"), {})
    if beyond and cfg.sizes != experiment.get("sizes"):  # of the experiment's own, a preset is known to take few
        which = f"largest={cfg.largest}" + (f" of preset={cfg.preset}" if cfg.preset else "")
        left, out = ", ".join(map(str, sizes)), ", ".join(beyond)
        yield f"{dataset.name}: n = {left} without {out} because of {which}; largest=null takes all sizes"
    if fewer := [str(n) for n in sizes if cfg.M is not None and n < cfg.M]:
        smaller = ", ".join(fewer)
        yield f"{dataset.name}: no more inducing inputs than rows: M = n in place of {cfg.M} with n = {smaller}"
    if cfg.init.noise is not None and "noise" not in LIKELIHOODS[dataset.likelihood].parameters:
        yield f"{dataset.name}: its likelihood has no noise, so noise={cfg.init.noise:g} changes nothing"


def _pool(dataset: DatasetConfig, data: Dataset) -> int:
    return len(split(len(data.y), dataset.split, 0, dataset.test_cap, data.arrangement).train_pool)


def split_name(dataset: DatasetConfig, data: Dataset) -> str:
    """The field `split` of cells: kind, limit of test rows, version, and the arrangement of a user's own table."""
    cap = "" if dataset.test_cap is None else f"-{dataset.test_cap}"
    arranged = "" if data.arrangement is None else data.arrangement.label
    return f"{dataset.split}{cap}-v{SPLIT_VERSION}{arranged}"


def _training(cfg: RunConfig, dataset: DatasetConfig) -> TrainingConfig:
    return cfg.training[kind_of(dataset.task, dataset.split)]


def _plain(cfg: RunConfig, dataset: DatasetConfig, data: Dataset, n: int, seed: int) -> Cell:
    """The beta = 1 ELBO fit on this split: every other cell is this one with something changed."""
    training = _training(cfg, dataset)
    settings = trained(training, n)
    cell = Cell(
        kind="fit", dataset=dataset.name, data=data.checksum, split=split_name(dataset, data),
        task=dataset.task, likelihood=dataset.likelihood, kernel=dataset.kernel, ard=dataset.ard, mean=dataset.mean,
        M=min(cfg.M or dataset.M or inducing_points(len(data.y)), n), n=n, objective=BASE, variant="joint",
        form="explicit", parameterisation="whitened", estimator="exact", options={}, evaluate=cfg.evaluate,
        dtype=cfg.dtype, seed=seed, beta=1.0, **settings,
    )  # fmt: skip
    if cell.evaluate == "epoch" and cell.minibatch is None:
        raise UserError(f"evaluate=epoch: {dataset.name} with n={n} is not trained in minibatches; give a number")
    return cell


def _initial(
    cfg: RunConfig, training: TrainingConfig, parameters: Mapping[str, Parameter], method: str
) -> dict[str, float]:
    """The initial values for a method, as far as its model has such parameters and would start them elsewhere."""
    typed = {one.name: value for one in fields(cfg.init) if (value := getattr(cfg.init, one.name)) is not None}
    by_method = training.by_method.get(method)
    given = {**training.initial, **(by_method.initial if by_method else {}), **typed}
    for name in given.keys() - parameters.keys() - INITIAL.keys():
        raise UserError(f"initial.{name}: the model has no parameter '{name}', but {', '.join(parameters)}")
    own = {name: parameter.initial for name, parameter in parameters.items()}
    return {
        name: float(value)
        for name, value in sorted(given.items())
        if name in own and (isinstance(own[name], Tensor) or own[name] != value)
    }


def _check_floor(training: TrainingConfig, parameters: Mapping[str, Parameter], dataset: str, start: Cell) -> None:
    """Refuse a floor of the noise on data without noise, and one that is not below where the noise starts."""
    floor = training.noise_floor
    if floor is None:
        return
    if "noise" not in parameters:
        raise UserError(f"noise_floor={floor:g}: the likelihood of {dataset} has no noise; leave it out, or give null")
    first = start.initial.get("noise", parameters["noise"].initial)
    if not floor < first:
        raise UserError(f"noise_floor={floor:g}: the noise starts at {first:g}, which must be above its floor")


def _collapsed(cell: Cell, cfg: RunConfig) -> Cell:
    """With q in closed form: all rows at every step, and no choice of coordinates for q."""
    training = cfg.training["regression"]
    return replace(cell, form="collapsed", lr=training.lr, parameterisation="whitened", **CLOSED_FORM)


def _methods(cfg: RunConfig, dataset: DatasetConfig, plain: Cell, D: int) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Each method with its cells, the largest beta first."""
    likelihood, training = LIKELIHOODS[dataset.likelihood], _training(cfg, dataset)
    mean = {"mean": Parameter(0.0)} if dataset.mean == "constant" else {}
    parameters = {**kernel_named(dataset.kernel).parameters(D, dataset.ard), **likelihood.parameters, **mean}
    methods = {name: _as_trained(training, name, method) for name, method in cfg.method.items()}
    for parameterisation in _parameterisations(cfg, training):
        explicit = replace(plain, parameterisation=parameterisation)
        base = replace(explicit, initial=_initial(cfg, training, parameters, BASE))
        _check_floor(training, parameters, dataset.name, base)
        if cfg.collapsed and OBJECTIVES[plain.objective].collapses(likelihood):
            base = _collapsed(base, cfg)
        if cfg.measure == "gradient":
            base = replace(base, evaluate="end")
        if any(method.variant == "fixed" for method in methods.values()):
            yield BASE, (base,)
        for name, method in methods.items():
            objective, by_method = OBJECTIVES[method.objective], training.by_method.get(name)
            values = (betas(cfg.beta, plain.n) if method.select else [1.0]) if objective.has_beta else [None]
            start = replace(explicit, initial=_initial(cfg, training, parameters, name))
            _check_floor(training, parameters, dataset.name, start)
            collapsed = cfg.collapsed if by_method is None or by_method.collapsed is None else by_method.collapsed
            for cell in _settings(cfg, method, base, start, collapsed):
                yield name, tuple(replace(cell, beta=beta) for beta in values)


def _parameterisations(cfg: RunConfig, training: TrainingConfig) -> list[str]:
    """Of q: those that are asked for, all of the protocol's for this kind of data, or the first of them."""
    if cfg.parameterisation is None:
        return training.parameterisation[:1]
    return training.parameterisation if cfg.parameterisation == ["all"] else cfg.parameterisation


def _as_trained(training: TrainingConfig, name: str, method: MethodConfig) -> MethodConfig:
    """The method, in the variant that the protocol asks for."""
    by_method = training.by_method.get(name)
    variant = by_method.variant if by_method and by_method.variant else method.variant
    return MethodConfig(method.objective, variant, method.select)


def _settings(cfg: RunConfig, method: MethodConfig, base: Cell, cell: Cell, collapsed: bool) -> Iterator[Cell]:
    """The cells of one method, beta aside: one, or one for each setting of each estimator."""
    objective = OBJECTIVES[method.objective]
    cell = replace(cell, objective=method.objective, variant=method.variant)
    if method.variant == "fixed":  # nothing of it starts anywhere but at the base fit
        cell = replace(cell, base=base.key, initial={}, inducing="first")
    if objective.takes_estimator:
        for name in cfg.estimator:
            yield from _estimators(cfg, name, cell)
    elif objective.solved(method.variant):
        # Nothing of the training settings changes the result.
        yield replace(_collapsed(cell, cfg), evaluate="end", **UNTRAINED)
    elif objective.collapsed_only or (collapsed and objective.collapses(LIKELIHOODS[cell.likelihood])):
        yield _collapsed(cell, cfg)
    else:
        yield cell


def _estimators(cfg: RunConfig, name: str, cell: Cell) -> Iterator[Cell]:
    """One cell for each combination of the estimator's options, of which any may be a list."""
    training = cfg.training[kind_of(cell.task, cell.split)]
    cell = replace(cell, lr=training.estimator_lr.get(name, cell.lr))
    if cfg.measure == "gradient":
        cell = replace(cell, kind="gradient", evaluate="end", **UNTRAINED)
    given = {option: value if isinstance(value, list) else [value] for option, value in cfg.estimator[name].items()}
    given = {option: values for option, values in given.items() if values and values != [None]}
    for values in product(*given.values()):
        yield replace(cell, estimator=name, options=dict(zip(given, values, strict=True)))
