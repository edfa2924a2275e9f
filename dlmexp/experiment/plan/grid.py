"""The cells that a composed config asks for.

`Grid` says under which setting they are asked for, and which of them are candidates of one another
(docs/SPEC.md, 2, 5, 6). `check` refuses before what the registries do not know, or what does not
fit the data.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from dataclasses import replace as with_changed
from functools import cached_property
from itertools import chain, product
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace
from torch import Tensor

from dlmexp.common import catalogue
from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.limits import converted
from dlmexp.common.literals import flat
from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.folds import LOO, fold_count, fold_size, usual_cv
from dlmexp.core.gp.inducing import PILOT_ROWS
from dlmexp.core.gp.kernels import Parameter, kernel_named
from dlmexp.core.gp.mixed_kernels import with_categories
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, as_spec, dataset_names, is_drawn, read_spec
from dlmexp.data.splits import (
    SPLIT_VERSION,
    inducing_points,
    most_inducing_inputs,
    pooled,
    resolve_size,
    split,
)
from dlmexp.experiment.config import BetaConfig, MethodConfig, MethodTrainingConfig, RunConfig
from dlmexp.experiment.plan.cell import Asked, Cell, Setting
from dlmexp.experiment.plan.compose import protocol_config
from dlmexp.experiment.plan.methods import (
    changed_options,
    changes_of_methods,
    check_methods,
    components_of,
    is_mixture,
)
from dlmexp.experiment.plan.overrides import HYPERPARAMETERS

Cells = tuple[Cell, ...]
# Returns the M of a cell whose own M is the most that it may have, from the rows of its split, and
# what a larger one may gain at most.
ChooseM = Callable[[Cell, DatasetConfig, float], int]
Option = bool | str | Annotated[float, Meta(gt=0, le=1e6)] | None  # of an estimator
# The method whose beta = 1 fit gives fixed variants their hyperparameters, unless a method says
# another.
BASE = "elbo"
# Fields of a dataset that are part of a setting.
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
)
AUTO = "auto"  # `cv` by the number of rows
# Fields of cells that are not trained.
UNTRAINED: dict[str, Any] = {
    "lr": 0.0,
    "window": None,
    "tolerance": None,
    "max_iterations": None,
    "criterion": "mean",
    "final_lr": None,
    "decay": None,
    "epsilon": 1e-8,
    "resolution": None,
    "optimizer": "adam",
    "restarts": 0,
    "pilot": 0,
}
# Fields of cells that L-BFGS trains.
WITHOUT_ADAM = {
    **UNTRAINED,
    "optimizer": "lbfgs",
    "epochs": None,
}


def betas(beta: BetaConfig, n: int) -> list[float]:
    """Return the grid of betas for `n` rows, or the listed values; largest first, without repeats.

    Raises:
        UserError: The grid lacks a ratio or its smallest value.
    """
    if beta.values is not None:
        return sorted({float(value) for value in beta.values}, reverse=True)
    coarse_ratio = beta.ratio if beta.coarse_above is None else beta.coarse_ratio
    if beta.ratio is None or beta.smallest is None or coarse_ratio is None:
        raise UserError(
            "beta: a grid needs beta.ratio, beta.smallest and, with beta.coarse_above, "
            "beta.coarse_ratio"
        )
    coarse_above = math.inf if beta.coarse_above is None else beta.coarse_above
    values = [n / beta.first]  # even where it is below the smallest
    while True:
        ratio = coarse_ratio if values[-1] > coarse_above else beta.ratio
        following = values[-1] / ratio
        if following < beta.smallest:
            break
        values.append(following)
    if beta.zero:
        values.append(0.0)
    return values


def split_name(dataset: DatasetConfig, data: Dataset) -> str:
    """Return the field `split` of cells.

    It has the kind of split, the limit of test rows, the use of the validation rows, the version,
    and the arrangement of a user's own table.
    """
    kind = dataset.split if data.arrangement.published is None else "published"
    cap = "" if dataset.test_cap is None else f"-{dataset.test_cap}"
    validation = "" if dataset.validation == "all" else f"-{dataset.validation}"
    return f"{kind}{cap}{validation}-v{SPLIT_VERSION}{data.arrangement.label}"


def check(cfg: RunConfig) -> None:
    """Check the names of a config against the registries, and against its data.

    Raises:
        UserError: Nothing is registered under a name, or it does not go with the data.
    """
    check_methods(cfg)
    if cfg.cv not in (None, AUTO) and cfg.measure == "gradient":
        raise UserError(f"cv={cfg.cv}: measure=gradient selects nothing; leave cv out")
    for key, dataset in cfg.dataset.items():
        _check_name(key, dataset)
        kernel_named(dataset.kernel, typed=True)
        _check_task(cfg, dataset)
    for name, options in cfg.estimator.items():
        _check_options(name, options)
        for values in _combinations(options):
            _check_estimator(cfg, name, values)


def _check_name(key: str, dataset: DatasetConfig) -> None:
    """Refuse the name of a shipped dataset for other data, whose results would be taken for its."""
    if dataset.name not in dataset_names():
        return
    spec = as_spec(dataset)
    shipped = read_spec(dataset.name)
    source = ["loader", "files"]
    if not is_drawn(shipped):
        source.append("options")
    is_other = any(getattr(spec, part) != getattr(shipped, part) for part in source)
    if key != dataset.name or is_other:
        raise UserError(
            f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name"
        )


def _check_task(cfg: RunConfig, dataset: DatasetConfig) -> None:
    """Refuse a likelihood or a method that is not for the task of a dataset."""
    likelihood = LIKELIHOODS[dataset.likelihood]
    if likelihood.task != dataset.task:
        setting = f"dataset.{dataset.name}.likelihood={dataset.likelihood}"
        raise UserError(
            f"{setting} is for {likelihood.task} data, and {dataset.name} is {dataset.task} data"
        )
    if (cfg.M or dataset.M) == "auto" and not likelihood.conjugate:
        raise UserError(
            f"M=auto needs Gaussian noise, and {dataset.name} has likelihood {dataset.likelihood}: "
            "give a number"
        )
    for name, method in cfg.method.items():
        if not OBJECTIVES[method.objective].fits(likelihood):
            raise UserError(
                f"method {name} is not for {dataset.task} data such as {dataset.name}: leave it out"
            )


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse an option that an estimator does not have, and one without any value."""
    known = [field.name for field in fields(ESTIMATORS[name])]
    for option, values in options.items():
        if option not in known or values == []:
            raise UserError(
                f"estimator.{name}.{option}: {name} takes values of "
                f"{', '.join(known) or 'no options'}"
            )


def _check_estimator(cfg: RunConfig, name: str, values: dict[str, Any]) -> None:
    """Refuse options of an estimator of the wrong type, or that do not fit the likelihoods."""
    estimator = converted(f"estimator.{name}", values, ESTIMATORS[name])
    for option, value in values.items():
        converted(f"estimator.{name}.{option}", value, Option)
    if not any(OBJECTIVES[method.objective].takes_estimator for method in cfg.method.values()):
        return
    for dataset in cfg.dataset.values():
        estimator.check(LIKELIHOODS[dataset.likelihood])


def _combinations(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of an estimator's options, of which any may be a list."""
    lists = [value if isinstance(value, list) else [value] for value in options.values()]
    for values in product(*lists):
        yield dict(zip(options, values, strict=True))


class Grid:
    """What a config asks for on one dataset.

    Args:
        cfg: A checked config.
        key: The name of the dataset's file.
        dataset: The settings of the dataset.
        data: Its rows.
        choose_M: Chooses M where it is `auto`.
    """

    def __init__(
        self,
        cfg: RunConfig,
        key: str,
        dataset: DatasetConfig,
        data: Dataset,
        choose_M: ChooseM | None = None,
    ):
        self.cfg = cfg
        self.choose_M = choose_M
        self._chosen_M: dict[int, int] = {}  # by n
        self.dataset = dataset
        self.cv = _cv(cfg, dataset, data)
        self.divided = _divided(self.cv, dataset)
        self.data = data
        self.shipped_dataset = read_spec(key, cfg.csv)
        self.protocol = protocol_config(cfg.protocol, cfg.preset)
        self.training = cfg.training[dataset.kind]
        self.by_method = defaultdict(MethodTrainingConfig, self.training.by_method)
        self.likelihood = LIKELIHOODS[dataset.likelihood]
        self._check_seeds()
        parts = split(len(data.y), dataset.split, 0, None, data.arrangement)
        self.pool = len(pooled(parts).train if self.cv else parts.train)
        # Rows for validation that are trained on beside the n rows of a cell.
        self.added_rows = len(parts.validation) if dataset.validation == "train" else 0

    def _check_seeds(self) -> None:
        """Refuse more repetitions than there are published splits."""
        published = self.data.arrangement.published
        most = max(self.cfg.seeds)
        if published is not None and most >= len(published):
            count = counted(len(published), "split")
            raise UserError(
                f"{self.dataset.name} has {count}, so there is no seed {most}: "
                f"give seeds={len(published)} or fewer"
            )

    @cached_property
    def sizes(self) -> dict[int, str]:
        """The training sizes in rows, and as they were typed, without those beyond `largest`."""
        typed = [str(size).strip() for size in self.cfg.sizes or self.dataset.sizes]
        # Of sizes that are the same number of rows the first one counts.
        sizes = {resolve_size(size, self.pool): size for size in reversed(typed)}
        is_beyond = [size.isdigit() and int(size) > self.pool for size in typed]
        if self.cfg.sizes and all(is_beyond):
            raise UserError(
                f"sizes=[{','.join(typed)}]: {self.dataset.name} has {self.pool} rows to train on; "
                "give at most so many"
            )
        most = min(self.cfg.largest or self.pool, self.pool)
        return {n: sizes[n] for n in sorted(sizes) if n <= most} or {most: str(most)}

    @cached_property
    def kernel(self) -> str:
        """The name of the kernel, with the categories of the table."""
        return with_categories(self.dataset.kernel, self.data.schema.categories)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The hyperparameters of the model, by name."""
        kernel = kernel_named(self.kernel)
        parameters = dict(kernel.parameters(self.data.X.shape[1], self.dataset.ard))
        parameters |= self.likelihood.parameters
        if self.dataset.mean == "constant":
            parameters["mean"] = Parameter(0.0)
        return parameters

    def candidates(self) -> Iterator[tuple[Asked, tuple[Cell, ...]]]:
        """Yield all that is asked for, with its cells.

        The base fits that fixed variants take their hyperparameters from are included.
        """
        seeds = dict.fromkeys(self.cfg.seeds)
        for (n, size), seed in product(self.sizes.items(), seeds):
            for method, cells, folds in self._selections(n, seed):
                asked = Asked.of(
                    method,
                    cells,
                    folds,
                    setting=self._setting(cells[0]),
                    experiment=self.cfg.name,
                    role=self._role(cells[0]),
                    size=size,
                    stands_for=self.dataset.stands_for,
                )
                yield asked, (*cells, *folds)

    def _selections(self, n: int, seed: int) -> Iterator[tuple[str, Cells, Cells]]:
        """Yield each method with its candidates, and the cells of their folds, by candidate."""
        candidates = self._methods(self._template(n, seed))
        cv = self._cv_of(n)
        if cv is None or cv == LOO:
            for method, cells in candidates:
                self._check_leave_one_out(method, cells[0])
                yield method, cells, ()
            return
        numbers = range(fold_count(cv))
        by_fold = [self._methods(self._template(n, seed, number)) for number in numbers]
        for (method, cells), *folds in zip(candidates, *by_fold, strict=True):
            by_candidate = zip(*(of_fold for _, of_fold in folds), strict=True)
            yield method, cells, tuple(chain.from_iterable(by_candidate))

    def _cv_of(self, n: int) -> str | None:
        """Return what selects among candidates that are trained on n rows; None: other rows."""
        return usual_cv(n) if self.cv == AUTO else self.cv

    def _check_leave_one_out(self, method: str, cell: Cell) -> None:
        """Refuse `cv=loo` for a method whose q has no closed form that leaves rows out."""
        if cell.cv != LOO:
            return
        is_closed = cell.form == "collapsed"
        if not (is_closed and OBJECTIVES[cell.objective].leaves_one_out(self.likelihood)):
            raise UserError(
                f"cv=loo needs a closed form over q, which method {method} does not have on "
                f"{self.dataset.name}: leave it out, or give cv=5"
            )

    def _role(self, cell: Cell) -> str:
        """Return what a cell is for."""
        measures_gradients = self.cfg.measure == "gradient"
        if measures_gradients and cell.kind == "fit":
            return "fit"  # a base fit
        if self.cfg.role:
            return self.cfg.role
        if measures_gradients:
            return "gradient"
        return "fit" if self.cfg.evaluate == "end" else "curve"

    @cached_property
    def changes(self) -> dict[str, Any]:
        """What differs from the config of the protocol (and preset), and from the dataset's file.

        The values are those of this config, by their dotted names.
        """
        cfg = self.cfg
        beta = cfg.beta
        if beta.values is not None:  # listed values, so the grid means nothing
            beta = with_changed(self.protocol.beta, values=beta.values)
        dataset = with_changed(self.dataset, M=cfg.M or self.dataset.M)
        # What M=auto chooses by means nothing where M is a number.
        auto_M = cfg.auto_M if dataset.M == "auto" else self.protocol.auto_M
        values = self._values_of_setting(with_changed(cfg, beta=beta, auto_M=auto_M), dataset)
        usual_values = self._values_of_setting(self.protocol, self.shipped_dataset)
        training = self.training
        if training.window is None and training.decay == training.max_iterations:
            # The decay follows the limit that users type.
            del values["training.decay"]
            del usual_values["training.decay"]
        changes = {}
        for name in dict.fromkeys([*values, *usual_values]):
            if values.get(name) != usual_values.get(name):
                changes[name] = values.get(name)
        return changes | changes_of_methods(cfg)

    def _values_of_setting(self, cfg: RunConfig, dataset: DatasetConfig) -> dict[str, Any]:
        """Return what a setting is made of, by dotted names."""
        training = cfg.training[self.dataset.kind]
        values: dict[str, Any] = {
            # The parameterisation of each cell is compared instead (`_setting`).
            "training": with_changed(training, parameterisation=[]),
            "selection": cfg.selection,
            # As it is typed: a number is no text.
            "cv": int(cfg.cv) if cfg.cv and cfg.cv.isdecimal() else cfg.cv,
            "collapsed": cfg.collapsed,
            "dtype": cfg.dtype,
            "beta": cfg.beta,
            "auto_M": cfg.auto_M,
        }
        for name in MODEL:
            values[name] = getattr(dataset, name)
        return dict(flat(values))

    def _setting(self, cell: Cell) -> Setting:
        """Return the setting that a cell is asked for under.

        What `cfg.factors` names is a column of results, not a change.
        """
        cfg = self.cfg
        changes = dict(self.changes)
        usual_options = catalogue.entries("estimator").get(cell.estimator, {})
        for name, value in cell.options.items():
            if name != "samples" and value != usual_options.get(name):
                changes[f"estimator.{cell.estimator}.{name}"] = value
        if cell.parameterisation not in self.protocol.training[self.dataset.kind].parameterisation:
            changes["parameterisation"] = cell.parameterisation
        changes = {name: value for name, value in changes.items() if name not in cfg.factors}
        return Setting(self._protocol_name(), changes, cfg.selection)

    def _protocol_name(self) -> str:
        """Return the protocol with its preset, whose results are never taken for the protocol's."""
        protocol = self.cfg.protocol
        preset = self.cfg.preset
        if not preset:
            return protocol
        return preset if protocol == "paper" else f"{protocol}-{preset}"

    def notes(self) -> Iterator[str]:
        """Yield what is not done quite as it was typed.

        These are sizes beyond the data, more inducing inputs than rows, and settings that some
        methods do not follow.
        """
        yield from self._notes_about_methods()
        name = self.dataset.name
        M = self.cfg.M
        for n, size in self.sizes.items():
            if size.isdigit() and int(size) > n:
                yield f"{name}: there are {n} rows to train on, so n = {n} in place of {size}"
            if n in self._chosen_M:
                yield f"{name}: M=auto is M = {self._chosen_M[n]} with n = {n}"
            if isinstance(M, int) and n < M:
                yield (
                    f"{name}: no more inducing inputs than rows: "
                    f"M = {n} in place of {M} with n = {n}"
                )

    def _notes_about_methods(self) -> Iterator[str]:
        """Yield which methods do not follow `optimizer`, and whether `K` has no effect."""
        others = []
        for name, method in self._methods_of_protocol():
            if not self._is_closed(name, method):
                others.append(name)
        usual = self.protocol.training[self.dataset.kind].optimizer
        is_typed = self.training.optimizer != usual
        if self.training.optimizer == "lbfgs" and is_typed and others:
            yield f"optimizer=lbfgs is for closed forms over q: {', '.join(others)} by Adam"
        if self.training.restarts and self.training.optimizer == "adam":
            yield "restarts have no effect on Adam; training.optimizer=lbfgs has them"
        if self.cfg.K is not None and not any(map(is_mixture, self.cfg.method.values())):
            yield "K: no method of this run has a mixture; method=mixture_log_dlm does"

    def _template(self, n: int, seed: int, fold: int | None = None) -> Cell:
        """Return the beta = 1 ELBO fit on this split, of which every other cell is a variation."""
        return self._elbo_fit(n, seed, fold, self._inducing_count(n))

    def _inducing_count(self, n: int) -> int:
        """Return M for n training rows, before it is limited to the rows of a fold.

        M=auto is chosen from the split of seed 0, for all seeds.
        """
        usual = most_inducing_inputs if self.dataset.loader == "table" else inducing_points
        M = self.cfg.M or self.dataset.M or usual(len(self.data.y))
        if M != "auto":
            return M
        if self.choose_M is None:
            raise TypeError("M=auto needs choose_M")
        if n not in self._chosen_M:
            auto = self.cfg.auto_M
            largest = self._with_initial_values(self._elbo_fit(n, 0, None, auto.most), BASE)
            self._chosen_M[n] = self.choose_M(largest, self.divided, auto.tolerance)
        return self._chosen_M[n]

    def _elbo_fit(self, n: int, seed: int, fold: int | None, M: int) -> Cell:
        """Return the beta = 1 ELBO fit with at most M inducing inputs."""
        rows = n
        cv = self._cv_of(n)
        if fold is not None and cv is not None:
            rows = n - fold_size(n, cv)
        dataset = self.dataset
        training = self.training
        return Cell(
            kind="fit",
            dataset=dataset.name,
            data=self.data.checksum,
            split=split_name(self.divided, self.data),
            task=dataset.task,
            likelihood=dataset.likelihood,
            kernel=self.kernel,
            ard=dataset.ard,
            mean=dataset.mean,
            M=min(M, rows),
            n=n,
            objective=BASE,
            variant="joint",
            form="explicit",
            parameterisation="whitened",
            estimator="exact",
            options={},
            evaluate=self.cfg.evaluate if fold is None else "end",  # folds have no test rows
            dtype=self.cfg.dtype,
            seed=seed,
            beta=1.0,
            inducing=training.inducing,
            final_lr=training.final_lr,
            decay=training.decay,
            epsilon=training.epsilon,
            resolution=training.resolution,
            noise_floor=training.noise_floor,
            pilot=training.pilot if self.likelihood.conjugate else 0,
            cv=cv,
            fold=fold,
            **self._rows_of_a_step(rows),
            **self._stopping(),
        )

    def _rows_of_a_step(self, n: int) -> dict[str, Any]:
        """Return the fields of a cell that say which rows a step sees, and its learning rate."""
        training = self.training
        if training.minibatch and n > training.minibatch:
            return {
                "lr": training.minibatch_lr,
                "minibatch": training.minibatch,
                "minibatch_rows": training.minibatch_rows,
            }
        if self.cfg.evaluate == "epoch":
            raise UserError(
                f"evaluate=epoch: {self.dataset.name} with n={n} is not trained in minibatches; "
                "give a number"
            )
        return {"lr": training.lr, "minibatch": None, "minibatch_rows": "epochs"}

    def _stopping(self) -> dict[str, Any]:
        """Return the fields of a cell that say when training stops."""
        training = self.training
        stopping: dict[str, Any] = {
            "window": None,
            "tolerance": None,
            "criterion": "mean",
            "max_iterations": None if training.epochs else training.max_iterations,
            "epochs": training.epochs,
        }
        if training.window is not None and not training.epochs:
            stopping["window"] = training.window
            stopping["tolerance"] = training.tolerance
            stopping["criterion"] = training.criterion
        return stopping

    def _methods(self, template: Cell) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        """Yield each method with its cells, the largest beta first."""
        of_protocol = self.training.parameterisation
        parameterisations = self.cfg.parameterisation or of_protocol[:1]
        if parameterisations == ["all"]:
            parameterisations = of_protocol
        for parameterisation in parameterisations:
            explicit = replace(template, parameterisation=parameterisation)
            bases: dict[str, Cell] = {}
            for name, method in self._methods_of_protocol():
                if method.variant == "fixed" and method.base not in bases:
                    bases[method.base] = self._base(explicit, method.base)
                    yield method.base, (bases[method.base],)
                start = self._with_initial_values(explicit, name)
                values = self._betas(method, template.n)
                components = components_of(method, self.cfg.K)
                for cell in self._cells(name, method, bases.get(method.base), start):
                    yield name, self._with_each(cell, values, components)

    def _with_each(
        self, cell: Cell, values: Sequence[float | None], components: Sequence[int]
    ) -> tuple[Cell, ...]:
        """Return the candidates of a selection: the cell with every beta and number of components.

        A q of several Gaussians is whitened, and so is the single one that it is compared with.
        """
        candidates = []
        for beta, K in product(values, components):
            candidate = replace(cell, beta=beta, components=K)
            if max(components) > 1:
                candidate = replace(candidate, parameterisation="whitened")
            if K > 1:
                candidate = replace(candidate, split_at=self._split_at(cell))
            candidates.append(candidate)
        return tuple(candidates)

    def _split_at(self, cell: Cell) -> int | None:
        """Return the iteration before which mixtures like this cell are split, as it was typed."""
        split_at = self.training.split_at
        if split_at is not None and split_at >= cell.iterations:
            raise UserError(
                f"split_at={split_at}: training ends after {cell.iterations} iterations; "
                "give fewer, or null for half of them"
            )
        return split_at

    def _methods_of_protocol(self) -> Iterator[tuple[str, MethodConfig]]:
        """Yield the methods by name, in the variant that the protocol has of them."""
        for name, method in self.cfg.method.items():
            variant = self.by_method[name].variant or method.variant
            yield name, with_changed(method, variant=variant)

    def _betas(self, method: MethodConfig, n: int) -> Sequence[float | None]:
        """Return the betas of a method; a single None where its objective has none."""
        if not OBJECTIVES[method.objective].has_beta:
            return [None]
        return betas(self.cfg.beta, n) if method.select else [1.0]

    def _with_initial_values(self, cell: Cell, method: str) -> Cell:
        """Return the cell with the initial values for a method.

        Those that its model does not have, or that are its own, are left out.

        Raises:
            UserError: No model has such a parameter, or it can't have this value.
        """
        typed = {**self.training.initial, **self.by_method[method].initial}
        for name, value in typed.items():
            self._check_initial_value(name, value)
        initial: dict[str, float | str] = {}
        for name, value in sorted(typed.items()):
            if name in self.parameters and not _starts_at(self.parameters[name], value):
                initial[name] = value if isinstance(value, str) else float(value)
        self._check_noise_floor(initial)
        return replace(cell, initial=initial)

    def _check_initial_value(self, name: str, value: float | str) -> None:
        """Refuse an initial value that no parameter has, or that the parameter can't have."""
        parameters = self.parameters
        if name not in parameters and name not in HYPERPARAMETERS:
            raise UserError(
                f"initial.{name}: the model has no parameter '{name}', but {', '.join(parameters)}"
            )
        if isinstance(value, str):
            if name != "lengthscale":
                raise UserError(f"initial.{name}={value}: give a number")
            return
        if not math.isfinite(value):
            raise UserError(f"initial.{name}={value}: give a number")
        if name in parameters and parameters[name].positive and value <= 0:
            raise UserError(f"initial.{name}={value}: give a number > 0")

    def _check_noise_floor(self, initial: Mapping[str, float | str]) -> None:
        """Refuse a floor of the noise that is not below its start."""
        floor = self.training.noise_floor
        if floor is None:
            return
        start: Any = None
        if "noise" in self.parameters:
            start = initial.get("noise", self.parameters["noise"].initial)
        if start is None or not floor < start:
            below = f"it must be below the noise that {self.dataset.name} starts with"
            shown = "it has none" if start is None else start
            raise UserError(f"noise_floor={floor:g}: {below} ({shown}); null: no floor")

    def _base(self, explicit: Cell, method: str) -> Cell:
        """Return the beta = 1 fit of `method`, for others to take its hyperparameters from."""
        entry = catalogue.entries("method").get(method, {})
        objective = OBJECTIVES[entry["objective"]] if entry.get("variant") == "joint" else None
        if objective is None or not objective.gives_hyperparameters:
            raise UserError(
                f"base={method}: fixed variants take their hyperparameters from elbo or ppgpr; "
                "give one"
            )
        base = replace(self._with_initial_values(explicit, method), objective=objective.name)
        if self.cfg.collapsed and objective.collapses(self.likelihood):
            base = self._collapsed(base)
        return replace(base, evaluate="end") if self.cfg.measure == "gradient" else base

    def _collapsed(self, cell: Cell) -> Cell:
        """Return the cell with q in closed form.

        It sees all rows at every step, has no choice of coordinates for q, and may be trained by
        L-BFGS.
        """
        closed = replace(
            cell,
            form="collapsed",
            lr=self.cfg.training["regression"].lr,
            parameterisation="whitened",
            minibatch=None,
            minibatch_rows="epochs",
            pilot=cell.pilot if cell.training_rows > PILOT_ROWS else 0,
        )
        if self.training.optimizer == "adam":
            return closed
        if self.cfg.evaluate != "end":
            raise UserError(
                f"optimizer={self.training.optimizer}: it has no learning curves; "
                "give evaluate=end, or training.optimizer=adam"
            )
        limits = {
            "tolerance": self.training.tolerance,
            "max_iterations": self.training.max_iterations,
            "restarts": self.training.restarts,
            "pilot": closed.pilot,
        }
        return replace(closed, **{**WITHOUT_ADAM, **limits})

    def _cells(
        self, name: str, method: MethodConfig, base: Cell | None, start: Cell
    ) -> Iterator[Cell]:
        """Yield the cells of a method, beta aside: one for each setting of each estimator."""
        objective = OBJECTIVES[method.objective]
        M = start.M
        if objective.all_rows_inducing:
            M = start.training_rows + self.added_rows
            start = replace(start, pilot=0)
        cell = replace(start, objective=method.objective, variant=method.variant, M=M)
        cell = replace(cell, objective_options=changed_options(method))
        is_fixed = method.variant == "fixed"
        if base is not None and is_fixed:
            # All but q starts at the base fit, and stays there.
            cell = replace(cell, base=base.key, initial={}, inducing="first", pilot=0)
        is_closed = self._is_closed(name, method)
        if objective.takes_estimator:
            yield from self._sampled(cell)
        elif is_closed and is_fixed:
            # It is solved: no training setting changes the result.
            yield replace(self._collapsed(cell), evaluate="end", **UNTRAINED)
        elif is_closed:
            yield self._collapsed(cell)
        else:
            yield cell

    def _is_closed(self, name: str, method: MethodConfig) -> bool:
        """Return whether the q of a method has a closed form, which is used."""
        objective = OBJECTIVES[method.objective]
        collapsed = self.by_method[name].collapsed
        if collapsed is None:
            collapsed = self.cfg.collapsed
        return objective.collapsed_only or (collapsed and objective.collapses(self.likelihood))

    def _sampled(self, cell: Cell) -> Iterator[Cell]:
        """Yield the cell with every setting of every estimator."""
        for name, options in self.cfg.estimator.items():
            lr = self.training.estimator_lr.get(name, cell.lr)
            sampled = replace(cell, estimator=name, lr=lr)
            if self.cfg.measure == "gradient":
                sampled = replace(sampled, kind="gradient", evaluate="end", **UNTRAINED)
            for values in _combinations(options):
                yield replace(sampled, options=values)


def _cv(cfg: RunConfig, dataset: DatasetConfig, data: Dataset) -> str | None:
    """Return what selects among the candidates on a dataset; None: its validation rows.

    Raises:
        UserError: Its rows can't be divided as `cv` asks for.
    """
    kind = data.arrangement.kind
    if kind == "published" and data.arrangement.by is not None:
        kind = "group"
    belong_together = kind in ("time", "group")
    has_other_use = dataset.validation not in ("all", "pool")
    if cfg.cv == AUTO and (belong_together or has_other_use or cfg.measure == "gradient"):
        return None
    if cfg.cv is not None and belong_together:
        problem = f"folds would take {dataset.name}'s rows apart, which belong together by {kind}"
        raise UserError(f"cv={cfg.cv}: {problem}; leave cv out")
    if cfg.cv is not None and has_other_use:
        setting = f"dataset.{dataset.name}.validation={dataset.validation}"
        raise UserError(
            f"{setting}: with cv={cfg.cv} no rows are for validation alone; leave it out"
        )
    return cfg.cv


def _divided(cv: str | None, dataset: DatasetConfig) -> DatasetConfig:
    """Return the dataset with its rows divided as `cv` needs it: none for validation alone."""
    return dataset if cv is None else with_changed(dataset, validation="pool")


def _starts_at(parameter: Parameter, value: float | str) -> bool:
    """Return whether a parameter of the model starts at this value anyway."""
    if isinstance(parameter.initial, Tensor):
        return False
    return parameter.initial == value
