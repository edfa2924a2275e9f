"""Compose overrides into a checked config; every mistake in them is a UserError."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from typing import Any, cast, get_args

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from omegaconf import DictConfig, OmegaConf

from dlmexp.common.catalogue import entries, read_settings
from dlmexp.common.console import budget_seconds
from dlmexp.common.errors import UserError, shortened
from dlmexp.common.extensions import import_plugins
from dlmexp.common.literals import dotted_settings
from dlmexp.common.paths import conf_dirs
from dlmexp.data.dataset import USER_TABLE, Task
from dlmexp.experiment.config import (
    FOR_ALL_KINDS,
    KINDS,
    UNSET,
    HydraConfig,
    MethodConfig,
    RunConfig,
    TrainingConfig,
    checked,
)
from dlmexp.experiment.plan.overrides import (
    expand_shorthand,
    hydra_errors_as_user_errors,
    parse_overrides,
    unknown_setting_message,
)

MAX_JOBS = 10_000  # the largest number of jobs of a multirun
# Settings of the run that replace the settings of every dataset.
FOR_ALL_DATASETS = ("kernel", "ard", "likelihood", "mean", "validation")
# The launchers that `cluster` supports, the default one first.
OUR_LAUNCHERS = ("BasicLauncher", "SlurmLauncher")
CHANGEABLE = ("select", "options", "components")  # settings of a method that a user may change
# The schema on which `conf/run.yaml` builds.
ConfigStore.instance().store(name="schema", node=HydraConfig)


def with_default_experiment(overrides: Sequence[str]) -> list[str]:
    """Return the overrides, with an experiment added if they select none.

    If they select no data either, it is the small default experiment; if they select a user's own
    table, it is the experiment for own tables.
    """
    values: dict[str, str] = {}
    for override in overrides:
        _, _, value = override.partition("=")
        values[_key(override)] = value.strip(" []")
    dataset = values.get("dataset")
    selects_experiment = "experiment" in values or "parts" in values
    selects_shipped_data = dataset is not None and dataset != USER_TABLE
    if selects_experiment or selects_shipped_data:
        return list(overrides)
    experiment = "default" if dataset is None else "own"
    return [f"experiment={experiment}", *overrides]


def compose(overrides: Sequence[str]) -> RunConfig:
    """Return the checked config of one job, and import its plugins.

    The config is composed from our conf folder and those of users (`conf_dirs`). The overrides are
    added to each part of the experiment, so that `seeds=[0]`, for instance, holds for all parts.
    """
    parsed = parse_overrides(overrides)
    for override, text in zip(parsed, overrides, strict=True):
        _check_has_single_effect(override, text)
    composed = _composed(overrides)
    _check_table(composed)
    typed = {override.key_or_group: override.value() for override in parsed}
    with hydra_errors_as_user_errors(overrides):
        container = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        values = cast(dict[str, Any], container)
        _check_kinds(values)
        typed = _spread_over_kinds(values, typed)
        cfg = checked(values)
        _check_names(values, cfg)
    apply_precedence(cfg, typed)
    _check_together(cfg)
    import_plugins(cfg.plugins)
    cfg.name = _experiment_name(cfg)
    cfg.parts = [_with_overrides(part, overrides) for part in cfg.parts]
    return cfg


def _check_kinds(values: dict[str, Any]) -> None:
    """Refuse to add or delete a kind of data: `+training.x.lr=1`, `~training.count`."""
    unexpected_or_missing = sorted(values["training"].keys() ^ {*KINDS, *FOR_ALL_KINDS})
    if unexpected_or_missing:
        kind = shortened(unexpected_or_missing[0])
        raise UserError(
            f"training.{kind}: the kinds of data in `training` are {', '.join(KINDS)}; "
            "none can be added or taken out"
        )


def _spread_over_kinds(values: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """Move training settings for all kinds of data (`training.lr`) to each kind.

    Of several values for a setting of one kind, the first of these is taken:

    1. the value that is typed for the kind,
    2. the value that is typed for all kinds,
    3. the value that a YAML file has for the kind,
    4. the value that a YAML file has for all kinds.

    Args:
        values: The composed values, which are changed.
        typed: The values of overrides by their keys.

    Returns:
        The values of overrides, of which those for all kinds are repeated for each kind.
    """
    training = values["training"]
    for_all_kinds = {name: training.pop(name) for name in FOR_ALL_KINDS}
    typed_by_name = dict(dotted_settings(typed))
    typed_for_each_kind = dict(typed_by_name)
    for kind in KINDS:
        for setting, value, is_typed in _values_for_all_kinds(for_all_kinds, typed_by_name):
            name = f"training.{kind}.{setting}"
            if name in typed_by_name:
                continue
            if is_typed:
                typed_for_each_kind[name] = value
            elif _is_set_in_file(values, kind, setting):
                continue
            _assign(training[kind], setting, value)
    return typed_for_each_kind


def _values_for_all_kinds(
    for_all_kinds: dict[str, Any], typed_by_name: dict[str, Any]
) -> Iterator[tuple[str, Any, bool]]:
    """Yield settings for all kinds of data, their values, and whether these were typed.

    A learning rate is also that of minibatches, unless `minibatch_lr` is set for all kinds.
    """
    for setting, value in dotted_settings(for_all_kinds):
        if value != UNSET:
            is_typed = f"training.{setting}" in typed_by_name
            yield setting, value, is_typed
            if setting == "lr" and for_all_kinds["minibatch_lr"] == UNSET:
                yield "minibatch_lr", value, is_typed


def _is_set_in_file(values: dict[str, Any], kind: str, setting: str) -> bool:
    """Return whether a file has set a value for one kind of data.

    This is the case if the value is neither the protocol's nor the schema's default.
    """
    name, _, entry = setting.partition(".")
    protocol = protocol_config(values["protocol"], preset=None)
    value = values["training"][kind][name]
    value_of_protocol = getattr(protocol.training[kind], name)
    default = getattr(TrainingConfig(), name)
    if entry:
        value = value.get(entry)
        value_of_protocol = value_of_protocol.get(entry)
        default = default.get(entry)
    return value not in (value_of_protocol, default)


def _assign(node: dict[str, Any], setting: str, value: object) -> None:
    """Set a value, or (`initial.noise`) an entry of a dictionary."""
    name, _, entry = setting.partition(".")
    if entry:
        node[name][entry] = value
    else:
        node[name] = value


def _check_has_single_effect(override: Override, text: str) -> None:
    """Refuse an override that stands for several jobs, or that changes nothing."""
    if override.is_sweep_override():
        raise UserError(
            f"{text}: several values are several jobs, for which add -m; a list is written as [a,b]"
        )
    is_added = override.is_add() or override.is_force_add()
    if override.value() == {} and not is_added:
        raise UserError(
            f"{text}: an empty mapping changes nothing, since its values are added; "
            f"~{_key(text)}.NAME takes one out"
        )


def _check_names(values: dict[str, Any], cfg: RunConfig) -> None:
    """Refuse settings that the schema does not have, which were added as `+name=value`."""
    names_in_values = dict(dotted_settings(values)).keys()
    names_in_schema = dict(dotted_settings(cfg)).keys()
    extra = names_in_values - names_in_schema
    if extra:
        raise UserError(unknown_setting_message(min(extra)))


def _experiment_name(cfg: RunConfig) -> str:
    """Return the name of the experiment, which is the name of the folder of its manifests."""
    name = cfg.name
    if name == "custom" and len(cfg.dataset) == 1:
        (dataset,) = cfg.dataset.values()
        # A run on a user's own table is an experiment with the name of the table.
        if dataset.loader == "table":
            name = dataset.name
    return f"{name}-{cfg.preset}" if cfg.preset else name


def _with_overrides(part: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a part, followed by those of the user for other settings."""
    overrides_of_part = expand_shorthand(part)
    keys_of_part = {"experiment", "parts"}.union(map(_key, overrides_of_part))
    further_overrides = [text for text in overrides if _key(text) not in keys_of_part]
    return [*overrides_of_part, *further_overrides]


def apply_precedence(cfg: RunConfig, typed: dict[str, Any]) -> None:
    """Let a typed setting replace more specific settings of the protocol or the experiment.

    For instance, a typed learning rate replaces the protocol's learning rates of estimators.

    Args:
        cfg: The config, which is changed.
        typed: The values of overrides by their keys; values may be mappings.
    """
    # `csv={folds: 5}` has the key csv, and sets csv.folds.
    typed_names = set(dict(dotted_settings(typed)))
    _drop_estimators(cfg, typed, typed_names)
    if cfg.csv.folds is not None and "seeds" not in typed_names:
        cfg.seeds = list(range(cfg.csv.folds))
    _apply_to_datasets(cfg, typed_names)
    for kind, training in cfg.training.items():
        prefix = f"training.{kind}"
        _apply_learning_rate(training, prefix, typed_names)
        for method in training.by_method:
            _apply_to_method(training, prefix, method, typed_names)
        _apply_limit(cfg, kind, typed_names)


def _drop_estimators(cfg: RunConfig, typed: dict[str, Any], typed_names: set[str]) -> None:
    """Drop estimators that the user selects neither by name nor by setting an option.

    They are in the config because the experiment sets an option of theirs.
    """
    selection: Any = typed.get("estimator", list(cfg.estimator))
    selected = set(map(str, selection if isinstance(selection, list) else [selection]))
    for typed_name in typed_names:
        if typed_name.startswith("estimator."):
            _, estimator, *_ = typed_name.split(".")
            selected.add(estimator)
    for name in cfg.estimator.keys() - selected:
        del cfg.estimator[name]


def _apply_to_datasets(cfg: RunConfig, typed_names: set[str]) -> None:
    """Set `kernel=` and the like for all datasets, except those whose own setting is typed."""
    for setting in FOR_ALL_DATASETS:
        value = getattr(cfg, setting)
        if value is None:
            continue
        for name, dataset in cfg.dataset.items():
            if f"dataset.{name}.{setting}" not in typed_names:
                setattr(dataset, setting, value)


def _apply_learning_rate(training: TrainingConfig, prefix: str, typed_names: set[str]) -> None:
    """Let a typed learning rate replace those that the protocol has for estimators."""
    if f"{prefix}.lr" not in typed_names:
        return
    for name in training.estimator_lr:
        if f"{prefix}.estimator_lr.{name}" not in typed_names:
            training.estimator_lr[name] = training.lr


def _apply_to_method(
    training: TrainingConfig, prefix: str, method: str, typed_names: set[str]
) -> None:
    """Let typed values replace those that the protocol has for a method."""
    method_prefix = f"{prefix}.by_method.{method}"
    method_training = training.by_method[method]
    for name in method_training.initial.keys() & training.initial.keys():
        is_typed = f"{prefix}.initial.{name}" in typed_names
        if is_typed and f"{method_prefix}.initial.{name}" not in typed_names:
            method_training.initial[name] = training.initial[name]
    if "collapsed" in typed_names and f"{method_prefix}.collapsed" not in typed_names:
        method_training.collapsed = None


def _apply_limit(cfg: RunConfig, kind: str, typed_names: set[str]) -> None:
    """Make the decay of the learning rate and the limit of iterations fit each other.

    - Without a stopping rule, the decay ends at a typed limit.
    - An experiment's limit may be too small for the decay and the window of the stopping rule, so
      that the rule would never apply. The protocol's limit then replaces it. Limits that are typed,
      or come from a preset, stay.
    """
    training = cfg.training[kind]
    prefix = f"training.{kind}"
    is_limit_typed = f"{prefix}.max_iterations" in typed_names
    is_decay_typed = f"{prefix}.decay" in typed_names
    has_stopping_rule = training.window is not None
    if is_limit_typed and training.decay and not has_stopping_rule and not is_decay_typed:
        training.decay = training.max_iterations
    is_limit_too_small = training.max_iterations < training.least_iterations
    if is_limit_too_small and not cfg.preset and not is_limit_typed:
        protocol = protocol_config(cfg.protocol, preset=None)
        training.max_iterations = protocol.training[kind].max_iterations


def plugins_in(overrides: Sequence[str]) -> list[str]:
    """Return the modules that `plugins=[...]` names on the command line.

    They must be imported before anything is composed.
    """
    names: list[str] = []
    overrides_of_plugins = [text for text in overrides if _key(text) == "plugins"]
    for override in parse_overrides(overrides_of_plugins):
        value: Any = override.value()
        modules = value if isinstance(value, list) else [value]
        names += map(str, modules)
    return names


def _check_together(cfg: RunConfig) -> None:
    """Raise UserError about the first settings that can't be used together."""
    budget_seconds(cfg.budget)  # raises UserError if it is not a duration
    for group in ("method", "estimator"):
        if not getattr(cfg, group):
            raise UserError(f"{group}=[]: a run needs at least one")
    for dataset in cfg.dataset.values():
        _check_training(dataset.kind, cfg.training[dataset.kind])
    for name, method in cfg.method.items():
        shipped = entries("method").get(name)
        if shipped and not _is_variation(method, MethodConfig(**shipped)):
            raise UserError(
                f"method.{name}: a method of ours has this name, and another objective, variant or "
                "base; choose another name"
            )


def _is_variation(method: MethodConfig, shipped: MethodConfig) -> bool:
    """Return whether a method is a shipped one, but for settings that users may change."""
    changeable = {name: getattr(shipped, name) for name in CHANGEABLE}
    return replace(method, **changeable) == shipped


def _check_training(kind: str, training: TrainingConfig) -> None:
    """Raise UserError if the settings of the learning rate's decay do not fit together."""
    if (training.final_lr is None) != (training.decay is None):
        raise UserError(
            f"training.{kind}: final_lr and decay belong together; give both, or null for both"
        )
    least = training.least_iterations
    if training.max_iterations < least:
        limit = f"training.{kind}.max_iterations={training.max_iterations}"
        raise UserError(
            f"{limit}: give at least {least}, for the decay and, after it, the window of the "
            "stopping rule"
        )


@cache
def protocol_config(protocol: str, preset: str | None) -> RunConfig:
    """Return the config of a protocol with a preset, without any other override.

    The settings of a run are compared with it.
    """
    overrides = [f"protocol={protocol}"]
    if preset:
        overrides.append(f"preset={preset}")
    values = cast(dict[str, Any], OmegaConf.to_container(_composed(overrides), resolve=True))
    training = values["training"]
    for_all_kinds = {name: training.pop(name) for name in FOR_ALL_KINDS}
    for setting, value, _ in _values_for_all_kinds(for_all_kinds, typed_by_name={}):
        for kind in KINDS:
            _assign(training[kind], setting, value)
    return checked(values)


def check_table_is_used(overrides: Sequence[str], jobs: Sequence[RunConfig]) -> None:
    """Refuse settings of a user's own table that no job reads.

    Parts of an experiment are not composed yet, so jobs with parts pass.
    """
    for job in jobs:
        if USER_TABLE in job.dataset or job.parts:
            return
    for text in overrides:
        if _key(text).startswith("csv."):
            raise UserError(f"{text}: say dataset=csv as well, or your table is not read")


def _check_table(composed: DictConfig) -> None:
    """Check the settings of a user's own table from which others are interpolated.

    This comes before interpolations are resolved, so that a mistake is reported for the setting
    that the user typed.
    """
    if USER_TABLE not in composed.dataset:
        return
    tasks = get_args(Task)
    if composed.csv.task not in tasks:
        raise UserError(f"csv.task={composed.csv.task or ''}: give one of {', '.join(tasks)}")
    for name in ("path", "target"):
        if not composed.csv[name]:
            raise UserError(
                f"dataset=csv needs csv.{name}: csv.path=FILE csv.target=COLUMN csv.task=TASK"
            )


def launcher_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the settings of `hydra.launcher`, with interpolations resolved.

    `_target_` is the path of the class that Hydra would launch jobs with.
    """
    settings = _composed(overrides, with_hydra=True).hydra.launcher
    with hydra_errors_as_user_errors(overrides):
        return cast(dict[str, Any], OmegaConf.to_container(settings, resolve=True))


@dataclass(frozen=True)
class HydraSettings:
    """The parts of Hydra that a run uses: sweeper, launcher and callbacks.

    Attributes:
        launcher: The name of the class that starts jobs.
        has_own_sweeper: Whether the user chose a sweeper other than Hydra's basic one, or set its
            parameters.
        has_callbacks: Whether the user added callbacks.
    """

    launcher: str
    has_own_sweeper: bool
    has_callbacks: bool

    @property
    def has_own_launcher(self) -> bool:
        """Whether the user chose a launcher that `cluster` does not support."""
        return self.launcher not in OUR_LAUNCHERS

    @property
    def is_foreign(self) -> bool:
        """Whether Hydra itself has to run the jobs, as `cluster` can't."""
        return self.has_own_sweeper or self.has_callbacks or self.has_own_launcher


def hydra_settings(overrides: Sequence[str]) -> HydraSettings:
    """Return the parts of Hydra that the overrides choose."""
    overrides_of_hydra = [text for text in overrides if _key(text).startswith(("hydra/", "hydra."))]
    if not overrides_of_hydra:
        return HydraSettings(OUR_LAUNCHERS[0], has_own_sweeper=False, has_callbacks=False)
    hydra = _composed(overrides_of_hydra, with_hydra=True).hydra
    sweeper = hydra.sweeper
    is_basic_sweeper = sweeper["_target_"].endswith(".BasicSweeper")
    has_default_sweeper = is_basic_sweeper and not sweeper.params and not sweeper.max_batch_size
    _, _, launcher_class = hydra.launcher["_target_"].rpartition(".")
    return HydraSettings(
        launcher=launcher_class,
        has_own_sweeper=not has_default_sweeper,
        has_callbacks=bool(hydra.callbacks),
    )


@contextmanager
def hydra_initialized() -> Iterator[Hydra]:
    """Initialise Hydra with our conf folder, as its own command does.

    Raises:
        UserError: A file of a user has the name of one of ours.
    """
    shipped_folder, *user_folders = conf_dirs()
    for folder in user_folders:
        for file in folder.glob("*/*.yaml"):
            if (shipped_folder / file.parent.name / file.name).exists():
                raise UserError(
                    f"{file}: we have a {file.parent.name} of that name, "
                    "which is taken first; rename yours"
                )
            read_settings(file)  # raises UserError if the file can't be read
    # A process has a single Hydra object. If Hydra itself runs this job, its object is put back at
    # the end.
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(shipped_folder), version_base="1.3"):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            yield hydra
    finally:
        GlobalHydra.instance().hydra = outer


def _composed(overrides: Sequence[str], with_hydra: bool = False) -> DictConfig:
    """Return the config that Hydra composes, with unresolved interpolations.

    `with_hydra` adds the settings of Hydra itself, as `hydra`.
    """
    with hydra_errors_as_user_errors(overrides), hydra_initialized():
        return hydra_compose("run", overrides=list(overrides), return_hydra_config=with_hydra)


def _key(override: str) -> str:
    """Return the key of an override, without the signs `+`, `++` or `~` before it."""
    return override.lstrip("+~").partition("=")[0]


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each job of a multirun: the product of all `key=a,b,c`."""
    parse_overrides(overrides)  # raises an error about a single override
    choices: list[list[str]] = []
    with hydra_errors_as_user_errors(overrides), hydra_initialized() as hydra:
        # `glob()` chooses among files, which only the loader of this parser can list.
        parser = OverridesParser.create(config_loader=hydra.config_loader)
        for override, text in zip(parser.parse_overrides(list(overrides)), overrides, strict=True):
            choices.append(_choices(override, text))
            if math.prod(map(len, choices)) > MAX_JOBS:
                raise UserError(f"{text}: that makes more than {MAX_JOBS} jobs; give fewer values")
    return list(map(list, product(*choices)))


def _choices(override: Override, text: str) -> list[str]:
    """Return an override for each value of a multirun, at most MAX_JOBS + 1 of them."""
    value = override.value()
    if isinstance(value, RangeSweep):
        # To shuffle a range, Hydra would first list all of it, however long. Jobs have no order, so
        # the shuffle can be left out.
        value.shuffle = False
    if not override.is_sweep_override():
        return [text]
    if not override.is_discrete_sweep():
        raise UserError(f"{text}: an interval needs a sweeper of its own: hydra/sweeper=optuna")
    key = override.get_key_element()
    values = islice(override.sweep_string_iterator(), MAX_JOBS + 1)
    return [f"{key}={value}" for value in values] or [text]


def experiment_configs(cfg: RunConfig, enclosing: Sequence[Sequence[str]] = ()) -> list[RunConfig]:
    """Return the configs that an experiment consists of.

    These are `cfg` itself, if it names data, and the configs of its `parts`, which may have parts.

    Args:
        cfg: A composed config.
        enclosing: The parts that contain this config, the outermost first.
    """
    configs = [cfg] if cfg.dataset else []
    for part in cfg.parts:
        if part in enclosing:
            raise UserError(
                f"the part [{', '.join(part)}] is a part of itself, without an end: "
                "take it out of `parts`"
            )
        configs += experiment_configs(compose(part), [*enclosing, part])
    return configs
