"""The cells that a composed config requests.

`Grid` makes the cells of one dataset, their groups of candidates, and their settings (docs/SPEC.md,
sections 2, 5 and 6). `check` first refuses names that are not registered, and combinations that do
not fit the data.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from dlmexp.common.literals import dotted_settings
from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.folds import LOO, default_cv, fold_count, fold_size
from dlmexp.core.gp.inducing import PILOT_ROWS
from dlmexp.core.gp.kernels import Parameter, kernel_named
from dlmexp.core.gp.mixed_kernels import with_categories
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, as_spec, dataset_names, is_drawn, read_spec
from dlmexp.data.splits import (
    MAX_INDUCING,
    SPLIT_VERSION,
    default_inducing_count,
    inducing_count_of_user_table,
    resolve_size,
    split,
    with_validation_in_pool,
)
from dlmexp.experiment.config import (
    BetaConfig,
    MethodConfig,
    MethodTrainingConfig,
    RunConfig,
    TrainingConfig,
)
from dlmexp.experiment.plan.cell import CandidateGroup, Cell, Setting
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
# Chooses M where it is `auto`. The arguments are:
# 1. a cell like those that M is chosen for, with the largest M to choose from,
# 2. the settings of the dataset,
# 3. the tolerance: the most that a larger M may still gain.
ChooseM = Callable[[Cell, DatasetConfig, float], int]
OptionValue = bool | str | Annotated[float, Meta(gt=0, le=1e6)] | None  # of an estimator
# The objective of the fit from which all cells are made (`Grid._template`). Its method has the same
# name.
TEMPLATE_OBJECTIVE = "elbo"
# Settings of a dataset that are part of the `Setting` of its cells.
DATASET_SETTINGS = (
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
AUTO = "auto"  # as `cv`: chosen by the number of rows; as M: chosen by trial fits
# The training fields of cells that are not trained.
UNTRAINED_FIELDS: dict[str, Any] = {
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
# The training fields of cells that L-BFGS trains. Its limits are set when a cell is made.
LBFGS_FIELDS = {
    **UNTRAINED_FIELDS,
    "optimizer": "lbfgs",
    "epochs": None,
}


def betas(beta: BetaConfig, n: int) -> list[float]:
    """Return the listed betas, or a grid of betas for `n` rows; the largest comes first.

    Raises:
        UserError: The grid lacks a ratio or its smallest value.
    """
    if beta.values is not None:
        return sorted(set(map(float, beta.values)), reverse=True)
    grid = list(_geometric_grid(beta, n))
    if beta.zero:
        grid.append(0.0)
    return grid


def _geometric_grid(beta: BetaConfig, n: int) -> Iterator[float]:
    """Yield the betas of a grid (`BetaConfig`), the largest first."""
    coarse_above = math.inf if beta.coarse_above is None else beta.coarse_above
    coarse_ratio = beta.ratio if beta.coarse_above is None else beta.coarse_ratio
    if beta.ratio is None or beta.smallest is None or coarse_ratio is None:
        raise UserError(
            "beta: a grid needs beta.ratio, beta.smallest and, with beta.coarse_above, "
            "beta.coarse_ratio"
        )
    value = n / beta.first
    yield value  # the first beta, even if it is below `smallest`
    while True:
        value /= coarse_ratio if value > coarse_above else beta.ratio
        if value < beta.smallest:
            return
        yield value


def split_label(dataset: DatasetConfig, data: Dataset) -> str:
    """Return the value of the field `split` of cells.

    It names the kind of split, the limit of test rows, the use of the validation rows, the version
    of the splits, and the arrangement of the rows of a user's own table.
    """
    kind = dataset.split if data.arrangement.published is None else "published"
    cap = "" if dataset.test_cap is None else f"-{dataset.test_cap}"
    validation = "" if dataset.validation == "all" else f"-{dataset.validation}"
    return f"{kind}{cap}{validation}-v{SPLIT_VERSION}{data.arrangement.label}"


def check(cfg: RunConfig) -> None:
    """Check the names in a config, and that methods and estimators fit the data.

    Raises:
        UserError: A name is not registered, or does not fit the data.
    """
    check_methods(cfg)
    is_cv_typed = cfg.cv not in (None, AUTO)
    if is_cv_typed and cfg.measure == "gradient":
        raise UserError(f"cv={cfg.cv}: measure=gradient selects nothing; leave cv out")
    for key, dataset in cfg.dataset.items():
        _check_name(key, dataset)
        kernel_named(dataset.kernel, may_import=True)
        _check_task(cfg, dataset)
    for name, options in cfg.estimator.items():
        _check_options(name, options)
        for values in _combinations(options):
            _check_estimator(cfg, name, values)


def _check_name(key: str, dataset: DatasetConfig) -> None:
    """Refuse the name of a shipped dataset for other data: their results would be mixed up."""
    if dataset.name not in dataset_names():
        return
    spec = as_spec(dataset)
    shipped = read_spec(dataset.name)
    has_other_source = spec.loader != shipped.loader or spec.files != shipped.files
    # The options of a drawn dataset may be changed, those of a loader of files may not.
    has_other_options = spec.options != shipped.options and not is_drawn(shipped)
    if key != dataset.name or has_other_source or has_other_options:
        raise UserError(
            f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name"
        )


def _check_task(cfg: RunConfig, dataset: DatasetConfig) -> None:
    """Refuse a likelihood, M=auto or a method that is not for the task of a dataset."""
    likelihood = LIKELIHOODS[dataset.likelihood]
    if likelihood.task != dataset.task:
        setting = f"dataset.{dataset.name}.likelihood={dataset.likelihood}"
        raise UserError(
            f"{setting} is for {likelihood.task} data, and {dataset.name} is {dataset.task} data"
        )
    if (cfg.M or dataset.M) == AUTO and not likelihood.conjugate:
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
    """Refuse an option that an estimator does not have, and an empty list of values."""
    known = [field.name for field in dataclasses.fields(ESTIMATORS[name])]
    for option, values in options.items():
        if option not in known or values == []:
            raise UserError(
                f"estimator.{name}.{option}: {name} takes values of "
                f"{', '.join(known) or 'no options'}"
            )


def _check_estimator(cfg: RunConfig, name: str, values: dict[str, Any]) -> None:
    """Refuse options of the wrong type, and an estimator that does not fit the likelihoods."""
    estimator = converted(f"estimator.{name}", values, ESTIMATORS[name])
    # The types of the fields have no limits; those of `OptionValue` hold for all options.
    for option, value in values.items():
        converted(f"estimator.{name}.{option}", value, OptionValue)
    objectives = [OBJECTIVES[method.objective] for method in cfg.method.values()]
    is_estimator_used = any(objective.takes_estimator for objective in objectives)
    if is_estimator_used:
        for dataset in cfg.dataset.values():
            estimator.check(LIKELIHOODS[dataset.likelihood])


def _combinations(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of an estimator's options, of which some have a list of values."""
    choices = [value if isinstance(value, list) else [value] for value in options.values()]
    for values in product(*choices):
        yield dict(zip(options, values, strict=True))


class Grid:
    """The cells that a config requests on one dataset.

    Args:
        cfg: A checked config.
        key: The name of the dataset's file in `conf/dataset`.
        dataset: The settings of the dataset.
        data: The rows of the dataset.
        choose_M: Chooses M if it is `auto`.

    Attributes:
        divided_dataset: The settings of the dataset, with its rows divided as `cv` needs it.
        pool: The largest n: the number of rows that are left for training.
        added_rows: The number of validation rows on which a cell is trained besides its n rows.
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
        self.divided_dataset = _dataset_divided_for(self.cv, dataset)
        self.data = data
        self.shipped_dataset = read_spec(key, cfg.csv)
        self.protocol = protocol_config(cfg.protocol, cfg.preset)
        self.training = cfg.training[dataset.kind]
        self.by_method = defaultdict(MethodTrainingConfig, self.training.by_method)
        self.likelihood = LIKELIHOODS[dataset.likelihood]
        self._check_seeds()
        parts = split(len(data.y), dataset.split, seed=0, arrangement=data.arrangement)
        self.pool = len(with_validation_in_pool(parts).train if self.cv else parts.train)
        self.added_rows = len(parts.validation) if dataset.validation == "train" else 0

    def _check_seeds(self) -> None:
        """Refuse a seed that has no published split, if the splits are published."""
        published = self.data.arrangement.published
        largest = max(self.cfg.seeds)
        if published is not None and largest >= len(published):
            count = counted(len(published), "split")
            raise UserError(
                f"{self.dataset.name} has {count}, so there is no seed {largest}: "
                f"give seeds={len(published)} or fewer"
            )

    @cached_property
    def sizes(self) -> dict[int, str]:
        """The training sizes by the number of rows, each as it was typed.

        They are in ascending order, without sizes beyond the setting `largest`. If all are beyond
        it, `largest` is the only size.
        """
        typed_sizes = [str(size).strip() for size in self.cfg.sizes or self.dataset.sizes]
        typed_by_rows: dict[int, str] = {}
        for size in reversed(typed_sizes):  # of sizes with equal numbers of rows, the first stays
            n = resolve_size(size, self.pool)
            typed_by_rows[n] = size
        if self.cfg.sizes:
            self._check_sizes(typed_sizes)
        largest = min(self.cfg.largest or self.pool, self.pool)
        sizes = {n: typed_by_rows[n] for n in sorted(typed_by_rows) if n <= largest}
        return sizes or {largest: str(largest)}

    def _check_sizes(self, typed_sizes: Sequence[str]) -> None:
        """Raise UserError if all sizes are numbers beyond the number of rows."""
        for size in typed_sizes:
            if not self._is_beyond(size, self.pool):
                return
        raise UserError(
            f"sizes=[{','.join(typed_sizes)}]: {self.dataset.name} has {self.pool} rows to train "
            f"on; give sizes up to {self.pool}"
        )

    @staticmethod
    def _is_beyond(size: str, n_rows: int) -> bool:
        """Return whether a typed size is a number that is larger than `n_rows`, and no share."""
        return size.isdigit() and int(size) > n_rows

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

    def candidates(self) -> Iterator[tuple[CandidateGroup, tuple[Cell, ...]]]:
        """Yield each group of candidates with its cells.

        The base fits that fixed variants take their hyperparameters from are groups, too.
        """
        seeds = dict.fromkeys(self.cfg.seeds)  # without repeats
        for (n, size), seed in product(self.sizes.items(), seeds):
            for method, cells, folds in self._selections(n, seed):
                group = CandidateGroup.of(
                    method,
                    cells,
                    folds,
                    setting=self._setting(cells[0]),
                    experiment=self.cfg.name,
                    role=self._role(cells[0]),
                    size=size,
                    stands_for=self.dataset.stands_for,
                )
                yield group, (*cells, *folds)

    def _selections(self, n: int, seed: int) -> Iterator[tuple[str, Cells, Cells]]:
        """Yield each method with its candidates and the fits that leave out a fold.

        The fits that leave out a fold are listed candidate by candidate. There are none if folds do
        not select.
        """
        candidates = self._candidates_by_method(self._template(n, seed))
        cv = self._cv_of(n)
        if cv is None or cv == LOO:
            for method, cells in candidates:
                self._check_leave_one_out(method, cells[0])
                yield method, cells, ()
            return
        # Every fold has the same methods and candidates in the same order.
        candidates_by_fold: list[Iterator[tuple[str, Cells]]] = []
        for fold in range(fold_count(cv)):
            template = self._template(n, seed, fold)
            candidates_by_fold.append(self._candidates_by_method(template))
        for (method, cells), *same_method in zip(candidates, *candidates_by_fold, strict=True):
            cells_by_fold = [cells_of_fold for _, cells_of_fold in same_method]
            folds_by_candidate = zip(*cells_by_fold, strict=True)
            yield method, cells, tuple(chain.from_iterable(folds_by_candidate))

    def _cv_of(self, n: int) -> str | None:
        """Return the cross-validation of candidates on n rows; None: validation rows select."""
        return default_cv(n) if self.cv == AUTO else self.cv

    def _check_leave_one_out(self, method: str, cell: Cell) -> None:
        """Refuse `cv=loo` for a method without a closed form that predicts left-out rows."""
        if cell.cv != LOO:
            return
        has_closed_form = cell.form == "collapsed"
        objective = OBJECTIVES[cell.objective]
        if not has_closed_form or not objective.leaves_one_out(self.likelihood):
            raise UserError(
                f"cv=loo needs a closed form over q, which method {method} does not have on "
                f"{self.dataset.name}: leave it out, or give cv=5"
            )

    def _role(self, cell: Cell) -> str:
        """Return the role of a cell: `fit`, `curve`, `gradient`, or that of the experiment."""
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
        """By dotted names, the values that differ from the protocol or from the dataset's file.

        Values that have no effect on the cells count as equal.
        """
        cfg = self.cfg
        beta = cfg.beta
        # The settings of the grid of betas have no effect if betas are listed.
        if beta.values is not None:
            beta = dataclasses.replace(self.protocol.beta, values=beta.values)
        dataset = dataclasses.replace(self.dataset, M=cfg.M or self.dataset.M)
        # The rule of M=auto has no effect if M is a number.
        auto_M = cfg.auto_M if dataset.M == AUTO else self.protocol.auto_M
        values = self._values_of_setting(
            dataclasses.replace(cfg, beta=beta, auto_M=auto_M), dataset
        )
        usual_values = self._values_of_setting(self.protocol, self.shipped_dataset)
        training = self.training
        if training.window is None and training.decay == training.max_iterations:
            # The decay follows from a typed limit (`compose._apply_limit`), so only the limit is a
            # change.
            del values["training.decay"]
            del usual_values["training.decay"]
        changes: dict[str, Any] = {}
        for name in dict.fromkeys([*values, *usual_values]):
            if values.get(name) != usual_values.get(name):
                changes[name] = values.get(name)
        return changes | changes_of_methods(cfg)

    def _values_of_setting(self, cfg: RunConfig, dataset: DatasetConfig) -> dict[str, Any]:
        """Return the values that are compared with those of the protocol, by dotted names."""
        training = cfg.training[self.dataset.kind]
        values: dict[str, Any] = {
            # The parameterisation of each cell is compared instead (`_setting`).
            "training": dataclasses.replace(training, parameterisation=[]),
            "selection": cfg.selection,
            # As users type it: 5, not '5'.
            "cv": int(cfg.cv) if cfg.cv and cfg.cv.isdecimal() else cfg.cv,
            "collapsed": cfg.collapsed,
            "dtype": cfg.dtype,
            "beta": cfg.beta,
            "auto_M": cfg.auto_M,
        }
        for name in DATASET_SETTINGS:
            values[name] = getattr(dataset, name)
        return dict(dotted_settings(values))

    def _setting(self, cell: Cell) -> Setting:
        """Return the setting of a cell.

        The settings in `cfg.factors` are columns of results, and therefore no changes.
        """
        cfg = self.cfg
        changes = dict(self.changes)
        usual_options = catalogue.entries("estimator").get(cell.estimator, {})
        for name, value in cell.options.items():
            # `samples` is a column of results, as are the settings in `cfg.factors`.
            if name != "samples" and value != usual_options.get(name):
                changes[f"estimator.{cell.estimator}.{name}"] = value
        if cell.parameterisation not in self._training_of_protocol().parameterisation:
            changes["parameterisation"] = cell.parameterisation
        for name in cfg.factors:
            changes.pop(name, None)
        return Setting(self._protocol_name(), changes, cfg.selection)

    def _protocol_name(self) -> str:
        """Return the protocol with its preset, so that results with a preset are kept apart.

        Under the paper's protocol, the name of the preset is enough.
        """
        protocol = self.cfg.protocol
        preset = self.cfg.preset
        if not preset:
            return protocol
        return preset if protocol == "paper" else f"{protocol}-{preset}"

    def notes(self) -> Iterator[str]:
        """Yield lines about settings that are not followed to the letter.

        These are sizes beyond the data, more inducing inputs than rows, `M=auto` with its choice,
        and settings that some methods do not have.
        """
        yield from self._notes_about_methods()
        name = self.dataset.name
        M = self.cfg.M
        for n, size in self.sizes.items():
            if self._is_beyond(size, n):
                yield f"{name}: there are {n} rows to train on, so n = {n} in place of {size}"
            if n in self._chosen_M:
                yield f"{name}: M=auto is M = {self._chosen_M[n]} with n = {n}"
            if isinstance(M, int) and n < M:
                yield (
                    f"{name}: no more inducing inputs than rows: "
                    f"M = {n} in place of {M} with n = {n}"
                )

    def _notes_about_methods(self) -> Iterator[str]:
        """Yield lines about `optimizer`, `restarts` and `K` where they have no effect."""
        optimizer = self.training.optimizer
        if optimizer == "lbfgs" and optimizer != self._training_of_protocol().optimizer:
            adam_methods = [
                name
                for name, method in self._methods_of_protocol()
                if not self._uses_closed_form(name, method)
            ]
            if adam_methods:
                names = ", ".join(adam_methods)
                yield f"optimizer=lbfgs is for closed forms over q: {names} by Adam"
        if self.training.restarts and optimizer == "adam":
            yield "restarts have no effect on Adam; training.optimizer=lbfgs has them"
        if self.cfg.K is not None and not any(map(is_mixture, self.cfg.method.values())):
            yield "K: no method of this run has a mixture; method=mixture_log_dlm does"

    def _training_of_protocol(self) -> TrainingConfig:
        """Return the protocol's own training settings for this kind of data."""
        return self.protocol.training[self.dataset.kind]

    def _template(self, n: int, seed: int, fold: int | None = None) -> Cell:
        """Return the beta = 1 ELBO fit on a split, from which all cells on it are made."""
        M = self.cfg.M or self.dataset.M or self._default_inducing_count(is_fold=fold is not None)
        if M == AUTO:
            M = self._chosen_inducing_count(n)
        return self._elbo_fit(n, seed, fold, M=M)

    def _default_inducing_count(self, *, is_fold: bool) -> int:
        """Return M where no setting says it."""
        if self.dataset.loader != "table":
            return default_inducing_count(len(self.data.y))
        M = inducing_count_of_user_table(self.pool)
        # Folds only compare candidates, which costs most of the time.
        return min(M, MAX_INDUCING) if is_fold else M

    def _chosen_inducing_count(self, n: int) -> int:
        """Return M for M=auto and n training rows, chosen on the split of seed 0 for all seeds."""
        if self.choose_M is None:
            raise TypeError("M=auto needs choose_M")
        if n not in self._chosen_M:
            auto = self.cfg.auto_M
            fit = self._elbo_fit(n, seed=0, fold=None, M=auto.most)
            fit = self._with_initial_values(fit, TEMPLATE_OBJECTIVE)
            self._chosen_M[n] = self.choose_M(fit, self.divided_dataset, auto.tolerance)
        return self._chosen_M[n]

    def _elbo_fit(self, n: int, seed: int, fold: int | None, M: int) -> Cell:
        """Return the beta = 1 ELBO fit with M inducing inputs, at most one per row."""
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
            split=split_label(self.divided_dataset, self.data),
            task=dataset.task,
            likelihood=dataset.likelihood,
            kernel=self.kernel,
            ard=dataset.ard,
            mean=dataset.mean,
            M=min(M, rows),
            n=n,
            objective=TEMPLATE_OBJECTIVE,
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
        """Return the fields of a cell about its minibatches, and its learning rate.

        Args:
            n: The number of rows that the cell is trained on.
        """
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
        """Return the fields of a cell about the end of training.

        With a number of `epochs`, nothing else ends training.
        """
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

    def _candidates_by_method(self, template: Cell) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        """Yield each method with its candidates, the largest beta first.

        Before the first method with a fixed variant comes the base fit that it starts from.
        """
        # The first parameterisation that a protocol lists is its default.
        listed_by_protocol = self.training.parameterisation
        parameterisations = self.cfg.parameterisation or listed_by_protocol[:1]
        if parameterisations == ["all"]:
            parameterisations = listed_by_protocol
        for parameterisation in parameterisations:
            elbo_fit = replace(template, parameterisation=parameterisation)
            base_fits: dict[str, Cell] = {}  # by method
            for name, method in self._methods_of_protocol():
                if method.variant == "fixed" and method.base not in base_fits:
                    base_fits[method.base] = self._base_fit(elbo_fit, method.base)
                    yield method.base, (base_fits[method.base],)
                template_of_method = self._with_initial_values(elbo_fit, name)
                betas_of_method = self._betas(method, template.n)
                components = components_of(method, self.cfg.K)
                base_fit = base_fits.get(method.base)
                for cell in self._cells(name, method, base_fit, template_of_method):
                    yield name, self._candidates_like(cell, betas_of_method, components)

    def _candidates_like(
        self, cell: Cell, betas: Sequence[float | None], components: Sequence[int]
    ) -> tuple[Cell, ...]:
        """Return the candidates of a group: the cell with every beta and number of components.

        Mixtures are whitened, and so is the single Gaussian that they are compared with.
        """
        candidates: list[Cell] = []
        for beta, K in product(betas, components):
            candidate = replace(cell, beta=beta, components=K)
            if max(components) > 1:
                candidate = replace(candidate, parameterisation="whitened")
            if K > 1:
                candidate = replace(candidate, split_at=self._split_at(cell))
            candidates.append(candidate)
        return tuple(candidates)

    def _split_at(self, cell: Cell) -> int | None:
        """Return the iteration before which mixtures like this cell are split; None: half-way."""
        split_at = self.training.split_at
        if split_at is not None and split_at >= cell.iterations:
            raise UserError(
                f"split_at={split_at}: training ends after {cell.iterations} iterations; "
                "give fewer, or null for half of them"
            )
        return split_at

    def _methods_of_protocol(self) -> Iterator[tuple[str, MethodConfig]]:
        """Yield the methods by name, in the variant that the protocol chooses for them."""
        for name, method in self.cfg.method.items():
            variant = self.by_method[name].variant or method.variant
            yield name, dataclasses.replace(method, variant=variant)

    def _betas(self, method: MethodConfig, n: int) -> Sequence[float | None]:
        """Return the betas of a method; a single None if its objective has none."""
        if not OBJECTIVES[method.objective].has_beta:
            return [None]
        if not method.select:
            return [1.0]
        return betas(self.cfg.beta, n)

    def _with_initial_values(self, cell: Cell, method: str) -> Cell:
        """Return the cell with the initial values for a method.

        Values are left out if the model has no such hyperparameter, or has the same default.

        Raises:
            UserError: No model has such a hyperparameter, or it can't have this value.
        """
        wanted = {**self.training.initial, **self.by_method[method].initial}
        for name, value in wanted.items():
            self._check_initial_value(name, value)
        initial: dict[str, float | str] = {}
        for name, value in sorted(wanted.items()):
            if name in self.parameters and not _is_default(self.parameters[name], value):
                initial[name] = value if isinstance(value, str) else float(value)
        self._check_noise_floor(initial)
        return replace(cell, initial=initial)

    def _check_initial_value(self, name: str, value: float | str) -> None:
        """Refuse an unknown hyperparameter, and a value that a hyperparameter can't have."""
        parameters = self.parameters
        if name not in parameters and name not in HYPERPARAMETERS:
            raise UserError(
                f"initial.{name}: the model has no parameter '{name}', but {', '.join(parameters)}"
            )
        if name == "lengthscale" and isinstance(value, str):  # sqrt or median
            return
        if isinstance(value, str) or not math.isfinite(value):
            raise UserError(f"initial.{name}={value}: give a number")
        if name in parameters and parameters[name].positive and value <= 0:
            raise UserError(f"initial.{name}={value}: give a number > 0")

    def _check_noise_floor(self, initial: Mapping[str, float | str]) -> None:
        """Refuse a lower bound of the noise that is not below its initial value."""
        floor = self.training.noise_floor
        if floor is None:
            return
        initial_noise: Any = None
        if "noise" in self.parameters:
            initial_noise = initial.get("noise", self.parameters["noise"].initial)
        if initial_noise is None or not floor < initial_noise:
            limit = "it has none" if initial_noise is None else initial_noise
            raise UserError(
                f"noise_floor={floor:g}: it must be below the noise that {self.dataset.name} "
                f"starts with ({limit}); null: no floor"
            )

    def _base_fit(self, elbo_fit: Cell, method: str) -> Cell:
        """Return the beta = 1 fit of a method, from which fixed variants take hyperparameters.

        Args:
            elbo_fit: The cell from which it is made.
            method: The name of the method.
        """
        settings = catalogue.entries("method").get(method, {})
        is_joint = settings.get("variant") == "joint"
        objective = OBJECTIVES[settings["objective"]] if is_joint else None
        if objective is None or not objective.gives_hyperparameters:
            raise UserError(
                f"base={method}: fixed variants take their hyperparameters from elbo or ppgpr; "
                "give one"
            )
        base = replace(self._with_initial_values(elbo_fit, method), objective=objective.name)
        if self.cfg.collapsed and objective.collapses(self.likelihood):
            base = self._collapsed_cell(base)
        return replace(base, evaluate="end") if self.cfg.measure == "gradient" else base

    def _collapsed_cell(self, cell: Cell) -> Cell:
        """Return the cell with q in closed form.

        Such a cell sees all rows at every step, does not depend on the coordinates of q (which
        count as whitened), and may be trained by L-BFGS.
        """
        collapsed = replace(
            cell,
            form="collapsed",
            lr=self.cfg.training["regression"].lr,
            parameterisation="whitened",
            minibatch=None,
            minibatch_rows="epochs",
            pilot=cell.pilot if cell.training_rows > PILOT_ROWS else 0,
        )
        if self.training.optimizer == "adam":
            return collapsed
        limits = {
            "tolerance": self.training.tolerance,
            "max_iterations": self.training.max_iterations,
            "restarts": self.training.restarts,
            "pilot": collapsed.pilot,
        }
        fields = {**LBFGS_FIELDS, **limits}
        return replace(collapsed, **fields)

    def _cells(
        self, name: str, method: MethodConfig, base_fit: Cell | None, template: Cell
    ) -> Iterator[Cell]:
        """Yield the cells of a method at beta = 1: one for each setting of each estimator.

        Args:
            name: The name of the method.
            method: The method.
            base_fit: The fit that a fixed variant takes its hyperparameters from.
            template: The ELBO fit from which the cells are made, with the initial values for the
                method.
        """
        objective = OBJECTIVES[method.objective]
        cell = replace(
            template,
            objective=method.objective,
            variant=method.variant,
            objective_options=changed_options(method),
        )
        if objective.all_rows_inducing:
            cell = replace(cell, M=template.training_rows + self.added_rows, pilot=0)
        is_fixed = method.variant == "fixed"
        if base_fit is not None and is_fixed:
            # Hyperparameters and inducing inputs are those of the base fit, so no setting of their
            # initial values matters.
            cell = replace(cell, base=base_fit.key, initial={}, inducing="first", pilot=0)
        uses_closed_form = self._uses_closed_form(name, method)
        if objective.takes_estimator:
            yield from self._cells_of_estimators(cell)
        elif uses_closed_form and is_fixed:
            # Nothing is trained (`Cell.is_solved`), so no training setting matters.
            yield replace(self._collapsed_cell(cell), evaluate="end", **UNTRAINED_FIELDS)
        elif uses_closed_form:
            yield self._collapsed_cell(cell)
        else:
            yield cell

    def _uses_closed_form(self, name: str, method: MethodConfig) -> bool:
        """Return whether a method has a closed form over q, and the settings use it."""
        objective = OBJECTIVES[method.objective]
        collapsed = self.by_method[name].collapsed
        if collapsed is None:
            collapsed = self.cfg.collapsed
        return objective.collapsed_only or (collapsed and objective.collapses(self.likelihood))

    def _cells_of_estimators(self, cell: Cell) -> Iterator[Cell]:
        """Yield the cell with every estimator and every combination of its options."""
        for name, options in self.cfg.estimator.items():
            lr = self.training.estimator_lr.get(name, cell.lr)
            estimated = replace(cell, estimator=name, lr=lr)
            if self.cfg.measure == "gradient":
                estimated = replace(estimated, kind="gradient", evaluate="end", **UNTRAINED_FIELDS)
            for values in _combinations(options):
                yield replace(estimated, options=values)


def _cv(cfg: RunConfig, dataset: DatasetConfig, data: Dataset) -> str | None:
    """Return the cross-validation on a dataset; None: validation rows select.

    Raises:
        UserError: The rows of the dataset can't be divided for this `cv`.
    """
    if cfg.cv is None:
        return None
    bond = _bond_of_rows(data)
    needs_validation_rows = dataset.validation not in ("all", "pool")
    if cfg.cv == AUTO:
        selects_by_validation = bond or needs_validation_rows or cfg.measure == "gradient"
        return None if selects_by_validation else AUTO
    if bond:
        raise UserError(
            f"cv={cfg.cv}: folds would take {dataset.name}'s rows apart, which belong together by "
            f"{bond}; leave cv out"
        )
    if needs_validation_rows:
        setting = f"dataset.{dataset.name}.validation={dataset.validation}"
        raise UserError(
            f"{setting}: with cv={cfg.cv} no rows are for validation alone; leave it out"
        )
    return cfg.cv


def _bond_of_rows(data: Dataset) -> str:
    """Return `time` or `group` if the rows must be divided by it; '' if they are independent."""
    arrangement = data.arrangement
    if arrangement.kind in ("time", "group"):
        return arrangement.kind
    is_published_by_group = arrangement.kind == "published" and arrangement.by is not None
    return "group" if is_published_by_group else ""


def _dataset_divided_for(cv: str | None, dataset: DatasetConfig) -> DatasetConfig:
    """Return the dataset with its rows divided for `cv`: none are for validation alone."""
    return dataset if cv is None else dataclasses.replace(dataset, validation="pool")


def _is_default(parameter: Parameter, value: float | str) -> bool:
    """Return whether a value is the default initial value of a parameter of the model."""
    if isinstance(parameter.initial, Tensor):  # a value per feature equals no single value
        return False
    return parameter.initial == value
