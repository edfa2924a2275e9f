"""From overrides to a composed and checked config; every mistake in them is a UserError."""

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
from dlmexp.common.literals import flat
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
    parsed,
    unknown,
)

MAX_JOBS = 10_000  # of a multirun
FOR_ALL_DATASETS = ("kernel", "ard", "likelihood", "mean", "validation")
# The launchers that `cluster` knows, the usual one first.
OUR_LAUNCHERS = ("BasicLauncher", "SlurmLauncher")
CHANGEABLE = ("select", "options", "components")  # settings of a method that a user may change
ConfigStore.instance().store(name="schema", node=HydraConfig)  # which `conf/run.yaml` starts from


def with_default(overrides: Sequence[str]) -> list[str]:
    """Return the overrides, with an experiment where they select none.

    It is the embedded default job where they select no data either, and the one for a user's own
    table where they select that alone.
    """
    values = {}
    for override in overrides:
        values[_key(override)] = override.partition("=")[2].strip(" []")
    selects_experiment = "experiment" in values or "parts" in values
    if selects_experiment or values.get("dataset", USER_TABLE) != USER_TABLE:
        return list(overrides)
    experiment = "own" if "dataset" in values else "default"
    return [f"experiment={experiment}", *overrides]


def compose(overrides: Sequence[str]) -> RunConfig:
    """Return the config of one job, with its values checked; its plugins are imported.

    It is composed from our conf folder and users' own (`conf_dirs`). An experiment's parts get what
    the user typed, so that e.g. `seeds=[0]` holds for all of them.
    """
    overrides_of_hydra = parsed(overrides)
    for override, text in zip(overrides_of_hydra, overrides, strict=True):
        _check_has_single_effect(override, text)
    composed = _composed(overrides)
    _check_table(composed)
    typed = {override.key_or_group: override.value() for override in overrides_of_hydra}
    with hydra_errors_as_user_errors(overrides):
        container = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        values = cast(dict[str, Any], container)
        if odd := sorted(values["training"].keys() ^ {*KINDS, *FOR_ALL_KINDS}):
            raise UserError(
                f"training.{shortened(odd[0])}: it has all of {', '.join(KINDS)}, and no others"
            )
        typed = _spread_over_kinds(values, typed)
        cfg = checked(values)
        _check_names(values, cfg)
    apply_precedence(cfg, typed)
    _check_together(cfg)
    import_plugins(cfg.plugins)
    cfg.name = _name(cfg)
    cfg.parts = [_with_overrides(part, overrides) for part in cfg.parts]
    return cfg


def _spread_over_kinds(values: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """Move settings of training for all kinds of data to each kind.

    What is typed for all kinds holds, but for kinds that the same setting is typed for. What a YAML
    file says of all kinds holds, but for kinds that a file or the command line says it of.

    Args:
        values: The composed values, which are changed.
        typed: The values of overrides by their keys.

    Returns:
        The values of overrides, those for all kinds as one for each kind.
    """
    training = values["training"]
    general = {name: training.pop(name) for name in FOR_ALL_KINDS}
    single = dict(flat(typed))
    spread = dict(single)
    for kind in KINDS:
        for setting, value, typed_as in _general_settings(general, single):
            key = f"training.{kind}.{setting}"
            if key in single:
                continue
            if typed_as:
                spread[key] = value
            elif _says_otherwise(values, kind, setting):
                continue
            _set(training[kind], setting, value)
    return spread


def _general_settings(
    general: dict[str, Any], typed: dict[str, Any]
) -> Iterator[tuple[str, Any, bool]]:
    """Yield settings for all kinds of data, their values, and whether these were typed.

    A learning rate is that of minibatches, too, unless these have one of their own.
    """
    for setting, value in flat(general):
        if value != UNSET:
            is_typed = f"training.{setting}" in typed
            yield setting, value, is_typed
            if setting == "lr" and general["minibatch_lr"] == UNSET:
                yield "minibatch_lr", value, is_typed


def _says_otherwise(values: dict[str, Any], kind: str, setting: str) -> bool:
    """Return whether a file has a value for a kind of data that is not the protocol's."""
    name, _, entry = setting.partition(".")
    value = values["training"][kind][name]
    usual = getattr(protocol_config(values["protocol"], None).training[kind], name)
    default = getattr(TrainingConfig(), name)
    if entry:
        value = value.get(entry)
        usual = usual.get(entry)
        default = default.get(entry)
    return value not in (usual, default)


def _set(node: dict[str, Any], setting: str, value: object) -> None:
    """Set a value, or an entry of a dictionary."""
    name, _, entry = setting.partition(".")
    if entry:
        node[name][entry] = value
    else:
        node[name] = value


def _check_has_single_effect(override: Override, text: str) -> None:
    """Refuse an override that stands for several jobs, and one that changes nothing."""
    if override.is_sweep_override():
        raise UserError(
            f"{text}: several values are several jobs, for which add -m; a list is written as [a,b]"
        )
    is_added = override.is_add() or override.is_force_add()
    if override.value() == {} and not is_added:
        raise UserError(
            f"{text}: that changes nothing, since values are added; "
            f"~{_key(text)}.NAME takes one out"
        )


def _check_names(values: dict[str, Any], cfg: RunConfig) -> None:
    """Refuse settings that the schema does not know, which were added as `+name=value`."""
    strange = dict(flat(values)).keys() - dict(flat(cfg)).keys()
    if strange:
        raise UserError(unknown(min(strange)))


def _name(cfg: RunConfig) -> str:
    """Return the name of the experiment, under which its manifests stand."""
    name = cfg.name
    if name == "custom" and len(cfg.dataset) == 1:
        (dataset,) = cfg.dataset.values()
        # A user's own table makes an experiment of its own, named after its data.
        if dataset.loader == "table":
            name = dataset.name
    return f"{name}-{cfg.preset}" if cfg.preset else name


def _with_overrides(part: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a part, with those of the user that it does not say itself."""
    expanded = expand_shorthand(part)
    keys = {_key(override) for override in expanded} | {"experiment", "parts"}
    return [*expanded, *(text for text in overrides if _key(text) not in keys)]


def apply_precedence(cfg: RunConfig, typed: dict[str, Any]) -> None:
    """Let what is typed hold where the protocol or the experiment says more.

    Args:
        cfg: The config, which is changed.
        typed: The values of overrides by their keys.
    """
    keys = {name for name, _ in flat(typed)}
    _drop_estimators(cfg, typed, keys)
    if cfg.csv.folds is not None and "seeds" not in keys:
        cfg.seeds = list(range(cfg.csv.folds))
    _apply_to_datasets(cfg, keys)
    for kind, training in cfg.training.items():
        prefix = f"training.{kind}"
        _apply_learning_rate(training, prefix, keys)
        for method in training.by_method:
            _apply_to_method(training, prefix, method, keys)
        _apply_limit(cfg, kind, keys)


def _drop_estimators(cfg: RunConfig, typed: dict[str, Any], keys: set[str]) -> None:
    """Drop estimators that only the experiment has options for, if the user selects others."""
    selected: Any = typed.get("estimator", list(cfg.estimator))
    names = map(str, selected if isinstance(selected, list) else [selected])
    for name in cfg.estimator.keys() - set(names):
        if not any(key.startswith(f"estimator.{name}.") for key in keys):
            del cfg.estimator[name]


def _apply_to_datasets(cfg: RunConfig, keys: set[str]) -> None:
    """Use `kernel=` and the like for all datasets, but for those whose own setting is typed."""
    for setting in FOR_ALL_DATASETS:
        value = getattr(cfg, setting)
        if value is None:
            continue
        for name, dataset in cfg.dataset.items():
            if f"dataset.{name}.{setting}" not in keys:
                setattr(dataset, setting, value)


def _apply_learning_rate(training: TrainingConfig, prefix: str, keys: set[str]) -> None:
    """Use a typed learning rate for estimators, too, that the protocol has another one for."""
    if f"{prefix}.lr" not in keys:
        return
    for name in training.estimator_lr:
        if f"{prefix}.estimator_lr.{name}" not in keys:
            training.estimator_lr[name] = training.lr


def _apply_to_method(training: TrainingConfig, prefix: str, method: str, keys: set[str]) -> None:
    """Use typed values for a method, too, that the protocol has values of its own for."""
    method_prefix = f"{prefix}.by_method.{method}"
    method_training = training.by_method[method]
    for name in method_training.initial.keys() & training.initial.keys():
        is_typed = f"{prefix}.initial.{name}" in keys
        if is_typed and f"{method_prefix}.initial.{name}" not in keys:
            method_training.initial[name] = training.initial[name]
    if "collapsed" in keys and f"{method_prefix}.collapsed" not in keys:
        method_training.collapsed = None


def _apply_limit(cfg: RunConfig, kind: str, keys: set[str]) -> None:
    """Let the decay of the learning rate and the limit of iterations fit each other.

    Without a stopping rule the decay ends with a limit that is typed. An experiment's limit gives
    way to the protocol's where it leaves no room for the protocol's decay: the stopping rule would
    never apply. What users or presets say about the limit holds.
    """
    training = cfg.training[kind]
    prefix = f"training.{kind}"
    is_limited = f"{prefix}.max_iterations" in keys
    has_rule = training.window is not None
    if is_limited and training.decay and not has_rule and f"{prefix}.decay" not in keys:
        training.decay = training.max_iterations
    leaves_no_room = training.max_iterations < training.least_iterations
    if leaves_no_room and not cfg.preset and not is_limited:
        usual = protocol_config(cfg.protocol, None).training[kind]
        training.max_iterations = usual.max_iterations


def plugins_in(overrides: Sequence[str]) -> list[str]:
    """Return the modules that `plugins=[...]` names on the command line.

    They are needed before anything is composed.
    """
    names: list[str] = []
    for override in parsed([text for text in overrides if _key(text) == "plugins"]):
        value: Any = override.value()
        modules = value if isinstance(value, list) else [value]
        names += map(str, modules)
    return names


def _check_together(cfg: RunConfig) -> None:
    """Raise a UserError about the first settings that can't be used with one another."""
    budget_seconds(cfg.budget)
    for group in ("method", "estimator"):
        if not getattr(cfg, group):
            raise UserError(f"{group}=[]: a run needs at least one")
    for kind in dict.fromkeys(dataset.kind for dataset in cfg.dataset.values()):
        _check_training(kind, cfg.training[kind])
    for name, method in cfg.method.items():
        shipped = entries("method").get(name)
        if shipped and not _is_variation(method, MethodConfig(**shipped)):
            raise UserError(
                f"method.{name}: a method of ours has this name, and another objective, variant or "
                "base; choose another name"
            )


def _is_variation(method: MethodConfig, shipped: MethodConfig) -> bool:
    """Return whether a method differs from another at most in what a setting can change."""
    changeable = {name: getattr(shipped, name) for name in CHANGEABLE}
    return replace(method, **changeable) == shipped


def _check_training(kind: str, training: TrainingConfig) -> None:
    """Raise a UserError about settings of the learning rate's decay that do not fit."""
    if (training.final_lr is None) != (training.decay is None):
        raise UserError(
            f"training.{kind}: final_lr and decay belong together; give both, or null for both"
        )
    least = training.least_iterations
    if training.max_iterations < least:
        limit = f"training.{kind}.max_iterations={training.max_iterations}"
        raise UserError(
            f"{limit}: give at least {least}, "
            "for decay and the window of the stopping rule after it"
        )


@cache
def protocol_config(protocol: str, preset: str | None) -> RunConfig:
    """Return the config of a protocol, made smaller by a preset, and nothing else.

    It is what settings are compared with.
    """
    overrides = [f"protocol={protocol}"]
    if preset:
        overrides.append(f"preset={preset}")
    values = cast(dict[str, Any], OmegaConf.to_container(_composed(overrides), resolve=True))
    training = values["training"]
    general = {name: training.pop(name) for name in FOR_ALL_KINDS}
    for setting, value, _ in _general_settings(general, {}):
        for kind in KINDS:
            _set(training[kind], setting, value)
    return checked(values)


def check_table_is_used(overrides: Sequence[str], jobs: Sequence[RunConfig]) -> None:
    """Refuse settings of a user's own table that no job reads."""
    typed = next((text for text in overrides if _key(text).startswith("csv.")), None)
    is_read = any(USER_TABLE in job.dataset or job.parts for job in jobs)
    if typed and not is_read:
        raise UserError(f"{typed}: say dataset=csv as well, or your table is not read")


def _check_table(composed: DictConfig) -> None:
    """Check what the user says of an own table before anything is resolved.

    The other settings are derived from it.
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


def launcher(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the settings of `hydra.launcher`, resolved.

    `_target_` is the class that Hydra would launch jobs with.
    """
    settings = _composed(overrides, hydra_too=True).hydra.launcher
    with hydra_errors_as_user_errors(overrides):
        return cast(dict[str, Any], OmegaConf.to_container(settings, resolve=True))


@dataclass(frozen=True)
class HydraSettings:
    """What is asked of Hydra itself: who makes the jobs, who starts them, and what is called.

    Attributes:
        launcher: The name of the class that starts jobs.
        has_own_sweeper: Whether another sweeper than Hydra's basic one makes them.
        has_callbacks: Whether callbacks are called.
    """

    launcher: str
    has_own_sweeper: bool
    has_callbacks: bool

    @property
    def has_own_launcher(self) -> bool:
        """Whether another launcher than those that `cluster` knows starts the jobs."""
        return self.launcher not in OUR_LAUNCHERS

    @property
    def is_foreign(self) -> bool:
        """Whether Hydra has to run the jobs by itself."""
        return self.has_own_sweeper or self.has_callbacks or self.has_own_launcher


def hydra_settings(overrides: Sequence[str]) -> HydraSettings:
    """Return what is asked of Hydra itself."""
    words = [text for text in overrides if _key(text).startswith(("hydra/", "hydra."))]
    if not words:
        return HydraSettings(OUR_LAUNCHERS[0], has_own_sweeper=False, has_callbacks=False)
    hydra = _composed(words, hydra_too=True).hydra
    sweeper = hydra.sweeper
    is_basic = sweeper["_target_"].endswith(".BasicSweeper")
    is_plain = is_basic and not sweeper.params and not sweeper.max_batch_size
    return HydraSettings(
        launcher=hydra.launcher["_target_"].rpartition(".")[2],
        has_own_sweeper=not is_plain,
        has_callbacks=bool(hydra.callbacks),
    )


@contextmanager
def initialized() -> Iterator[Hydra]:
    """Give Hydra as its own command has it, with our settings and those of users.

    Raises:
        UserError: A file of a user has the name of one of ours.
    """
    shipped, *others = conf_dirs()
    for folder in others:
        for file in folder.glob("*/*.yaml"):
            if (shipped / file.parent.name / file.name).exists():
                raise UserError(
                    f"{file}: we have a {file.parent.name} of that name, "
                    "which is taken first; rename yours"
                )
            read_settings(file)
    # Hydra itself may have called this job, and is one object for the whole process.
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(shipped), version_base="1.3"):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            yield hydra
    finally:
        GlobalHydra.instance().hydra = outer


def _composed(overrides: Sequence[str], hydra_too: bool = False) -> DictConfig:
    """Return what Hydra composes, not yet resolved."""
    with hydra_errors_as_user_errors(overrides), initialized():
        return hydra_compose("run", overrides=list(overrides), return_hydra_config=hydra_too)


def _key(override: str) -> str:
    """Return the key of an override, without the sign that adds or deletes."""
    return override.lstrip("+~").partition("=")[0]


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each job of a multirun: the product of all `key=a,b,c`."""
    choices: list[list[str]] = []
    parsed(overrides)  # its errors name single words
    with hydra_errors_as_user_errors(overrides), initialized() as hydra:
        # It knows the files that `glob()` chooses from.
        parser = OverridesParser.create(config_loader=hydra.config_loader)
        for override, text in zip(parser.parse_overrides(list(overrides)), overrides, strict=True):
            choices.append(_choices(override, text))
            if math.prod(map(len, choices)) > MAX_JOBS:
                raise UserError(f"{text}: that makes more than {MAX_JOBS} jobs; give fewer values")
    return [list(job) for job in product(*choices)]


def _choices(override: Override, text: str) -> list[str]:
    """Return an override for each value that makes a job, at most MAX_JOBS + 1 of them."""
    value = override.value()
    if isinstance(value, RangeSweep):
        # To shuffle a range Hydra would list it, however long; jobs have no order.
        value.shuffle = False
    if not override.is_sweep_override():
        return [text]
    if not override.is_discrete_sweep():
        raise UserError(f"{text}: an interval needs a sweeper of its own: hydra/sweeper=optuna")
    key = override.get_key_element()
    values = islice(override.sweep_string_iterator(), MAX_JOBS + 1)
    return [f"{key}={value}" for value in values] or [text]


def parts(cfg: RunConfig, around: Sequence[Sequence[str]] = ()) -> list[RunConfig]:
    """Return the selections that an experiment consists of.

    They are its own, if it names data, and those of its `parts`.

    Args:
        cfg: A composed config.
        around: The parts that this one is a part of.
    """
    selections = [cfg] if cfg.dataset else []
    for part in cfg.parts:
        if part in around:
            raise UserError(
                f"the part [{', '.join(part)}] is a part of itself, without an end: "
                "take it out of `parts`"
            )
        selections += parts(compose(part), [*around, part])
    return selections
