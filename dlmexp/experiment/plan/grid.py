"""Which cells a composed config asks for, under which setting, and which of them are candidates of
one another (docs/SPEC.md, 2, 5, 6); and what is refused before, since the registries do not know it
or it does not fit the data."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from dataclasses import replace as with_changed
from functools import cached_property
from itertools import product
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace
from torch import Tensor

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError
from dlmexp.common.limits import converted
from dlmexp.common.literals import flat
from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.gp.kernels import Parameter, kernel_named
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, as_spec, dataset_names, is_drawn, read_spec
from dlmexp.data.splits import SPLIT_VERSION, inducing_points, resolve_size, split
from dlmexp.experiment.config import BetaConfig, MethodConfig, MethodTrainingConfig, RunConfig
from dlmexp.experiment.plan.cell import Asked, Cell, Setting
from dlmexp.experiment.plan.compose import protocol_config
from dlmexp.experiment.plan.overrides import INITIAL

Option = bool | str | Annotated[float, Meta(gt=0, le=1e6)] | None  # of an estimator
# the method whose beta = 1 fit gives fixed variants their hyperparameters, unless a method says
# another
BASE = "elbo"
MODEL = (
    "likelihood",
    "kernel",
    "ard",
    "mean",
    "M",
    "split",
    "test_cap",
    "validation",
    "options",
)  # of a dataset
UNTRAINED: dict[str, Any] = {
    "lr": 0.0, "window": None, "tolerance": None, "max_iterations": None, "criterion": "mean", "final_lr": None,
    "decay": None, "epsilon": 1e-8, "resolution": None,
}  # fmt: skip


def betas(beta: BetaConfig, n: int) -> list[float]:
    """The grid that `BetaConfig` describes for `n` rows, or the listed values; largest first,
    without repeats."""
    if beta.values is not None:
        return sorted({float(value) for value in beta.values}, reverse=True)
    coarse_ratio = beta.ratio if beta.coarse_above is None else beta.coarse_ratio
    if beta.ratio is None or beta.smallest is None or coarse_ratio is None:
        raise UserError(
            "beta: a grid needs beta.ratio, beta.smallest and, with beta.coarse_above, beta.coarse_ratio"
        )
    values, following = list[float](), n / beta.first
    while following >= beta.smallest or not values:
        values.append(following)
        following /= (
            beta.ratio
            if beta.coarse_above is None or following <= beta.coarse_above
            else coarse_ratio
        )
    return [*values, *([0.0] if beta.zero else [])]


def split_name(dataset: DatasetConfig, data: Dataset) -> str:
    """The field `split` of cells: kind, limit of test rows, use of the validation rows, version,
    and the arrangement of a user's own table."""
    cap = "" if dataset.test_cap is None else f"-{dataset.test_cap}"
    cap += "" if dataset.validation == "all" else f"-{dataset.validation}"
    return f"{dataset.split}{cap}-v{SPLIT_VERSION}{data.arrangement.label}"


def check(cfg: RunConfig) -> None:
    """Raise a UserError about the first name that nothing is registered under, or that does not go
    with the data."""
    for key, dataset in cfg.dataset.items():
        if (
            dataset.name in dataset_names()
        ):  # results under a name that we ship are taken for the data we ship
            given, ours = as_spec(dataset), read_spec(dataset.name)
            source = ("loader", "files") if is_drawn(ours) else ("loader", "files", "options")
            if key != dataset.name or any(
                getattr(given, part) != getattr(ours, part) for part in source
            ):
                raise UserError(
                    f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name"
                )
        kernel_named(dataset.kernel, typed=True)
        likelihood = LIKELIHOODS[dataset.likelihood]
        if likelihood.task != dataset.task:
            what = f"dataset.{dataset.name}.likelihood={dataset.likelihood}"
            raise UserError(
                f"{what} is for {likelihood.task} data, and {dataset.name} is {dataset.task} data"
            )
        for name, method in cfg.method.items():
            if not OBJECTIVES[method.objective].fits(likelihood):
                raise UserError(
                    f"method {name} is not for {dataset.task} data such as {dataset.name}: leave it out"
                )
    for name, options in cfg.estimator.items():
        known = [field.name for field in fields(ESTIMATORS[name])]
        for option, values in options.items():
            if option not in known or values == []:
                raise UserError(
                    f"estimator.{name}.{option}: {name} takes values of {', '.join(known) or 'no options'}"
                )
        for values in _combinations(options):
            estimator = converted(f"estimator.{name}", values, ESTIMATORS[name])
            for option, value in values.items():
                converted(f"estimator.{name}.{option}", value, Option)
            if any(OBJECTIVES[method.objective].takes_estimator for method in cfg.method.values()):
                for dataset in cfg.dataset.values():
                    estimator.check(LIKELIHOODS[dataset.likelihood])


def _combinations(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of an estimator's options, of which any may be a list."""
    lists = [value if isinstance(value, list) else [value] for value in options.values()]
    for values in product(*lists):
        yield dict(zip(options, values, strict=True))


class Grid:
    """What a config asks for on one dataset. `key` is the name of the dataset's file."""

    def __init__(self, cfg: RunConfig, key: str, dataset: DatasetConfig, data: Dataset):
        self.cfg, self.dataset, self.data = cfg, dataset, data
        self.file = read_spec(key, cfg.csv)
        self.usual, self.training = (
            protocol_config(cfg.protocol, cfg.preset),
            cfg.training[dataset.kind],
        )
        self.by_method = defaultdict(MethodTrainingConfig, self.training.by_method)
        self.likelihood = LIKELIHOODS[dataset.likelihood]
        self.pool = len(split(len(data.y), dataset.split, 0, None, data.arrangement).train)

    @cached_property
    def sizes(self) -> dict[int, str]:
        """The training sizes in rows, and as they were typed, without those beyond
        `cfg.largest`."""
        asked = [str(size).strip() for size in self.cfg.sizes or self.dataset.sizes]
        sizes = {resolve_size(size, self.pool): size for size in reversed(asked)}
        if self.cfg.sizes and all(size.isdigit() and int(size) > self.pool for size in asked):
            many = (
                f"sizes=[{','.join(asked)}]: {self.dataset.name} has {self.pool} rows to train on"
            )
            raise UserError(f"{many}; give at most so many")
        most = min(self.cfg.largest or self.pool, self.pool)
        return {n: sizes[n] for n in sorted(sizes) if n <= most} or {most: str(most)}

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The hyperparameters of the model, by name."""
        kernel = kernel_named(self.dataset.kernel).parameters(
            self.data.X.shape[1], self.dataset.ard
        )
        mean = {"mean": Parameter(0.0)} if self.dataset.mean == "constant" else {}
        return {**kernel, **self.likelihood.parameters, **mean}

    def candidates(self) -> Iterator[tuple[Asked, tuple[Cell, ...]]]:
        """All that is asked for, with its cells; the base fits that fixed variants take their
        hyperparameters from included."""
        cfg, gradients = self.cfg, self.cfg.measure == "gradient"
        of_run = cfg.role or (
            "gradient" if gradients else "fit" if cfg.evaluate == "end" else "curve"
        )
        for (n, size), seed in product(self.sizes.items(), dict.fromkeys(cfg.seeds)):
            for method, cells in self._methods(self._template(n, seed)):
                role = "fit" if gradients and cells[0].kind == "fit" else of_run
                about = {
                    "setting": self._setting(cells[0]),
                    "experiment": cfg.name,
                    "role": role,
                    "size": size,
                }
                yield Asked.of(method, cells, **about, stands_for=self.dataset.stands_for), cells

    @cached_property
    def changes(self) -> dict[str, Any]:
        """What differs from the config of the protocol (and preset) alone, and from the dataset's
        own file."""
        cfg, usual, training = self.cfg, self.usual, self.training
        beta = (
            cfg.beta
            if cfg.beta.values is None
            else with_changed(usual.beta, values=cfg.beta.values)
        )  # no grid
        model = with_changed(self.dataset, M=cfg.M or self.dataset.M)
        ours = self._compared(with_changed(cfg, beta=beta), model)
        theirs = self._compared(usual, self.file)
        if (
            training.window is None and training.decay == training.max_iterations
        ):  # it follows the limit users type
            del ours["training.decay"], theirs["training.decay"]
        names = dict.fromkeys([*ours, *theirs])
        return {name: ours.get(name) for name in names if ours.get(name) != theirs.get(name)}

    def _compared(self, cfg: RunConfig, dataset: DatasetConfig) -> dict[str, Any]:
        """What a setting is made of, by dotted names."""
        training = with_changed(
            cfg.training[self.dataset.kind], parameterisation=[]
        )  # which is told by cell
        of_run = {name: getattr(cfg, name) for name in ("selection", "collapsed", "dtype", "beta")}
        return dict(
            flat(
                {"training": training, **of_run, **{name: getattr(dataset, name) for name in MODEL}}
            )
        )

    def _setting(self, cell: Cell) -> Setting:
        """The setting that a cell is asked for under. What `cfg.factors` names is a column of
        results, not a change."""
        cfg, changes = self.cfg, dict(self.changes)
        known = catalogue.entries("estimator").get(cell.estimator, {})
        for name, value in cell.options.items():
            if name != "samples" and value != known.get(name):
                changes[f"estimator.{cell.estimator}.{name}"] = value
        if cell.parameterisation not in self.usual.training[self.dataset.kind].parameterisation:
            changes["parameterisation"] = cell.parameterisation
        # A preset's run has a name of its own, so that it is never taken for the protocol's.
        names = [
            name
            for name in ("" if cfg.preset and cfg.protocol == "paper" else cfg.protocol, cfg.preset)
            if name
        ]
        kept = {name: value for name, value in changes.items() if name not in cfg.factors}
        return Setting("-".join(names), kept, cfg.selection)

    def notes(self) -> Iterator[str]:
        """Sentences about what is not done quite as it was typed: sizes beyond the data, more
        inducing inputs than rows."""
        name, M = self.dataset.name, self.cfg.M or 0
        for n, size in self.sizes.items():
            if size.isdigit() and int(size) > n:
                yield f"{name}: there are {n} rows to train on, so n = {n} in place of {size}"
            if n < M:
                yield f"{name}: no more inducing inputs than rows: M = {n} in place of {M} with n = {n}"

    def _template(self, n: int, seed: int) -> Cell:
        """The beta = 1 ELBO fit on this split: every other cell is this one with something
        changed."""
        cfg, dataset, data, training = self.cfg, self.dataset, self.data, self.training
        minibatch = training.minibatch if training.minibatch and n > training.minibatch else None
        if cfg.evaluate == "epoch" and minibatch is None:
            raise UserError(
                f"evaluate=epoch: {dataset.name} with n={n} is not trained in minibatches; give a number"
            )
        window = None if training.epochs else training.window
        return Cell(
            kind="fit", dataset=dataset.name, data=data.checksum, split=split_name(dataset, data), task=dataset.task,
            likelihood=dataset.likelihood, kernel=dataset.kernel, ard=dataset.ard, mean=dataset.mean,
            M=min(cfg.M or dataset.M or inducing_points(len(data.y)), n), n=n, objective=BASE, variant="joint",
            form="explicit", parameterisation="whitened", estimator="exact", options={}, evaluate=cfg.evaluate,
            dtype=cfg.dtype, seed=seed, beta=1.0, lr=training.minibatch_lr if minibatch else training.lr,
            minibatch=minibatch, minibatch_rows=training.minibatch_rows if minibatch else "epochs", window=window,
            tolerance=None if window is None else training.tolerance,
            criterion="mean" if window is None else training.criterion,
            max_iterations=None if training.epochs else training.max_iterations, epochs=training.epochs,
            inducing=training.inducing, final_lr=training.final_lr, decay=training.decay, epsilon=training.epsilon,
            resolution=training.resolution, noise_floor=training.noise_floor,
        )  # fmt: skip

    def _methods(self, plain: Cell) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        """Each method with its cells, the largest beta first."""
        cfg = self.cfg
        q = cfg.parameterisation or self.training.parameterisation[:1]
        for parameterisation in self.training.parameterisation if q == ["all"] else q:
            explicit = replace(plain, parameterisation=parameterisation)
            bases: dict[str, Cell] = {}
            for name, given in cfg.method.items():
                own = self.by_method[name]
                method = with_changed(given, variant=own.variant or given.variant)
                if method.variant == "fixed" and method.base not in bases:
                    bases[method.base] = self._base(explicit, method.base)
                    yield method.base, (bases[method.base],)
                has_beta = OBJECTIVES[method.objective].has_beta
                values = (
                    (betas(cfg.beta, plain.n) if method.select else [1.0]) if has_beta else [None]
                )
                collapsed = cfg.collapsed if own.collapsed is None else own.collapsed
                start = self._with_initial_values(explicit, name)
                for cell in self._cells(method, bases.get(method.base), start, collapsed):
                    yield name, tuple(replace(cell, beta=beta) for beta in values)

    def _with_initial_values(self, cell: Cell, method: str) -> Cell:
        """The cell with the initial values for a method, as far as its model has such parameters
        and would start them elsewhere. UserError for a parameter that no model has, a value that it
        can't have, and a floor of the noise that is not below its start."""
        given, usual = {**self.training.initial, **self.by_method[method].initial}, self.parameters
        for name, value in given.items():
            if name not in usual and name not in INITIAL:
                raise UserError(
                    f"initial.{name}: the model has no parameter '{name}', but {', '.join(usual)}"
                )
            if not math.isfinite(value) or (name in usual and usual[name].positive and value <= 0):
                raise UserError(
                    f"initial.{name}={value}: give a number{' > 0' if math.isfinite(value) else ''}"
                )
        initial = {
            name: float(value)
            for name, value in sorted(given.items())
            if name in usual
            and (isinstance(usual[name].initial, Tensor) or usual[name].initial != value)
        }
        if (floor := self.training.noise_floor) is not None:
            start = {name: parameter.initial for name, parameter in usual.items()} | initial
            if not floor < start.get("noise", 0.0):
                below = f"it must be below the noise that {self.dataset.name} starts with"
                raise UserError(
                    f"noise_floor={floor:g}: {below} ({start.get('noise', 'it has none')}); null: no floor"
                )
        return replace(cell, initial=initial)

    def _base(self, explicit: Cell, method: str) -> Cell:
        """The beta = 1 fit of `method`, for others to take its hyperparameters from."""
        named = catalogue.entries("method").get(method, {})
        objective = OBJECTIVES[named["objective"]] if named.get("variant") == "joint" else None
        if objective is None or not objective.gives_hyperparameters:
            raise UserError(
                f"base={method}: fixed variants take their hyperparameters from elbo or ppgpr; give one"
            )
        base = replace(self._with_initial_values(explicit, method), objective=objective.name)
        if self.cfg.collapsed and objective.collapses(self.likelihood):
            base = self._collapsed(base)
        return replace(base, evaluate="end") if self.cfg.measure == "gradient" else base

    def _collapsed(self, cell: Cell) -> Cell:
        """With q in closed form: all rows at every step, and no choice of coordinates for q."""
        lr, rows = (
            self.cfg.training["regression"].lr,
            {"minibatch": None, "minibatch_rows": "epochs"},
        )
        return replace(cell, form="collapsed", lr=lr, parameterisation="whitened", **rows)

    def _cells(
        self, method: MethodConfig, base: Cell | None, start: Cell, collapsed: bool
    ) -> Iterator[Cell]:
        """The cells of a method, beta aside: a single cell, or one for each setting of each
        estimator."""
        objective = OBJECTIVES[method.objective]
        closed = objective.collapsed_only or (collapsed and objective.collapses(self.likelihood))
        M = start.n if objective.all_rows_inducing else start.M
        cell = replace(start, objective=method.objective, variant=method.variant, M=M)
        if (
            base is not None and method.variant == "fixed"
        ):  # nothing of it starts anywhere but at the base fit
            cell = replace(cell, base=base.key, initial={}, inducing="first")
        if objective.takes_estimator:
            for name, options in self.cfg.estimator.items():
                sampled = replace(
                    cell, estimator=name, lr=self.training.estimator_lr.get(name, cell.lr)
                )
                if self.cfg.measure == "gradient":
                    sampled = replace(sampled, kind="gradient", evaluate="end", **UNTRAINED)
                yield from (replace(sampled, options=values) for values in _combinations(options))
        elif (
            closed and method.variant == "fixed"
        ):  # nothing of the training settings changes the result
            yield replace(self._collapsed(cell), evaluate="end", **UNTRAINED)
        elif closed:
            yield self._collapsed(cell)
        else:
            yield cell
