"""From overrides to a composed config, with every mistake in them turned into one sentence."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import islice, product
from typing import Any, cast, get_args

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import RangeSweep
from omegaconf import DictConfig, OmegaConf

from dlmexp.common.catalogue import entries, read_settings
from dlmexp.common.console import budget_seconds
from dlmexp.common.errors import UserError, shortened
from dlmexp.common.extensions import import_plugins
from dlmexp.common.literals import flat
from dlmexp.common.paths import conf_dirs
from dlmexp.data.dataset import USER_TABLE, Task
from dlmexp.experiment.config import KINDS, MethodConfig, RunConfig, checked
from dlmexp.experiment.plan.overrides import as_sentences, parsed, spelled_out, unknown

MOST_JOBS = 10_000  # of a multirun
ConfigStore.instance().store(name="schema", node=RunConfig)  # which `conf/run.yaml` starts from


def with_default(overrides: Sequence[str]) -> list[str]:
    """The overrides, with the embedded default job where they select no data, and with the
    experiment for a user's own table where they select that alone."""
    typed = {_key(override): override.partition("=")[2].strip(" []") for override in overrides}
    if "experiment" in typed or "parts" in typed or typed.get("dataset", USER_TABLE) != USER_TABLE:
        return list(overrides)
    return ["experiment=own" if "dataset" in typed else "experiment=default", *overrides]


def compose(overrides: Sequence[str]) -> RunConfig:
    """The config of one job, from our conf folder and users' own (`dlmexp.common.paths.conf_dirs`),
    with its values checked; its plugins are imported.

    An experiment's parts get what the user typed, so that e.g. `seeds=[0]` holds for all of them.
    """
    typed = parsed(overrides)
    for override, text in zip(typed, overrides, strict=True):
        if override.is_sweep_override():
            raise UserError(
                f"{text}: several values are several jobs, for which add -m; a list is written as [a,b]"
            )
        if override.value() == {} and not override.is_add() and not override.is_force_add():
            raise UserError(
                f"{text}: that changes nothing, since values are added; ~{_key(text)}.NAME takes one out"
            )
    composed = _composed(overrides)
    _check_table(composed)
    with as_sentences(overrides):
        values = cast(
            dict[str, Any], OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        )
        cfg = checked(values)
        if (
            strange := dict(flat(values)).keys() - dict(flat(cfg)).keys()
        ):  # which was added as +name=value
            raise UserError(unknown(min(strange)))
    if odd := sorted(cfg.training.keys() ^ {*KINDS}):
        raise UserError(
            f"training.{shortened(odd[0])}: it has all of {', '.join(KINDS)}, and no others"
        )
    _follow_typed(cfg, {override.key_or_group: override.value() for override in typed})
    _check_together(cfg)
    import_plugins(cfg.plugins)
    if cfg.name == "custom" and len(cfg.dataset) == 1:
        (dataset,) = cfg.dataset.values()
        if (
            dataset.loader == "table"
        ):  # an own table: an experiment of its own, named after its data
            cfg.name = dataset.name
    if cfg.preset:
        cfg.name = f"{cfg.name}-{cfg.preset}"
    for_parts = [text for text in overrides if _key(text) not in ("experiment", "parts")]
    own = [spelled_out(part) for part in cfg.parts]
    cfg.parts = [
        [*part, *(o for o in for_parts if _key(o) not in {_key(p) for p in part})] for part in own
    ]
    return cfg


def _follow_typed(cfg: RunConfig, typed: dict[str, Any]) -> None:
    """What is typed holds where the protocol or the experiment says more.

    Estimators that only the experiment has options for are dropped if the user selects others. What
    is typed for all methods or estimators (`training.regression.initial.noise=0.3`) holds for those
    too that the protocol has a value of their own for, unless the user types theirs. An
    experiment's limit of iterations gives way to the protocol's where it leaves no room for the
    protocol's decay: the stopping rule would never apply. What users or presets say about the limit
    holds; without a stopping rule the decay ends with it."""
    keys = {name for name, _ in flat(typed)}
    selected: Any = typed.get("estimator", list(cfg.estimator))
    for name in cfg.estimator.keys() - {
        *map(str, selected if isinstance(selected, list) else [selected])
    }:
        if not any(key.startswith(f"estimator.{name}.") for key in keys):
            del cfg.estimator[name]
    for kind, training in cfg.training.items():
        at = f"training.{kind}"
        for name in training.estimator_lr if f"{at}.lr" in keys else ():
            if f"{at}.estimator_lr.{name}" not in keys:
                training.estimator_lr[name] = training.lr
        for method, own in training.by_method.items():
            for name in own.initial.keys() & training.initial.keys():
                if (
                    f"{at}.initial.{name}" in keys
                    and f"{at}.by_method.{method}.initial.{name}" not in keys
                ):
                    own.initial[name] = training.initial[name]
            if "collapsed" in keys and f"{at}.by_method.{method}.collapsed" not in keys:
                own.collapsed = None
        limited = f"{at}.max_iterations" in keys
        if limited and training.decay and training.window is None and f"{at}.decay" not in keys:
            training.decay = training.max_iterations
        if training.max_iterations < training.least_iterations and not cfg.preset and not limited:
            training.max_iterations = (
                protocol_config(cfg.protocol, None).training[kind].max_iterations
            )


def plugins_in(overrides: Sequence[str]) -> list[str]:
    """The modules that `plugins=[...]` names on the command line: they are needed before anything
    is composed."""
    values: list[Any] = [
        override.value() for override in parsed([o for o in overrides if _key(o) == "plugins"])
    ]
    return [str(name) for value in values for name in (value if isinstance(value, list) else [])]


def _check_together(cfg: RunConfig) -> None:
    """Raise a UserError about the first settings that can't be used with one another."""
    budget_seconds(cfg.budget)
    for group in ("method", "estimator"):
        if not getattr(cfg, group):
            raise UserError(f"{group}=[]: a run needs at least one")
    for kind in {dataset.kind: None for dataset in cfg.dataset.values()}:
        training = cfg.training[kind]
        if (training.final_lr is None) != (training.decay is None):
            raise UserError(
                f"training.{kind}: final_lr and decay belong together; give both, or null for both"
            )
        if training.max_iterations < (least := training.least_iterations):
            given = f"training.{kind}.max_iterations={training.max_iterations}"
            raise UserError(
                f"{given}: give at least {least}, for decay and the window of the stopping rule after it"
            )
    for name, method in cfg.method.items():
        ours = entries("method").get(name)
        if ours and method != MethodConfig(**ours):
            raise UserError(
                f"method.{name}: a method of ours has this name, and other settings; choose another name"
            )


@cache
def protocol_config(protocol: str, preset: str | None) -> RunConfig:
    """The config of a protocol, made smaller by a preset, and nothing else: what settings are
    compared with."""
    words = [f"protocol={protocol}", *([f"preset={preset}"] if preset else [])]
    return cast(RunConfig, OmegaConf.to_object(_composed(words)))


def check_table_is_used(overrides: Sequence[str], jobs: Sequence[RunConfig]) -> None:
    """Refuse settings of a user's own table that no job reads."""
    typed = next((word for word in overrides if _key(word).startswith("csv.")), None)
    if typed and not any(USER_TABLE in job.dataset or job.parts for job in jobs):
        raise UserError(f"{typed}: say dataset=csv as well, or your table is not read")


def _check_table(composed: DictConfig) -> None:
    """Check what the user says of an own table before anything is resolved: the other settings are
    derived from it."""
    if USER_TABLE in composed.dataset:
        if composed.csv.task not in get_args(Task):
            raise UserError(
                f"csv.task={composed.csv.task or ''}: give one of {', '.join(get_args(Task))}"
            )
        if missing := [f"csv.{name}" for name in ("path", "target") if not composed.csv[name]]:
            raise UserError(
                f"dataset=csv needs {missing[0]}: csv.path=FILE csv.target=COLUMN csv.task=TASK"
            )


def launcher(overrides: Sequence[str]) -> dict[str, Any]:
    """The settings of `hydra.launcher`, resolved; `_target_` is the class that Hydra would launch
    jobs with."""
    chosen = _composed(overrides, hydra_too=True).hydra.launcher
    with as_sentences(overrides):
        return cast(dict[str, Any], OmegaConf.to_container(chosen, resolve=True))


def _composed(overrides: Sequence[str], hydra_too: bool = False) -> DictConfig:
    ours, *others = conf_dirs()
    for file in (file for folder in others for file in folder.glob("*/*.yaml")):
        if (ours / file.parent.name / file.name).exists():
            raise UserError(
                f"{file}: we have a {file.parent.name} of that name, which is taken first; rename yours"
            )
        read_settings(file)
    with as_sentences(overrides), initialize_config_dir(str(ours), version_base="1.3"):
        return hydra_compose("run", overrides=list(overrides), return_hydra_config=hydra_too)


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job of a multirun: the product of all `key=a,b,c`."""
    choices = []
    for override, text in zip(parsed(overrides), overrides, strict=True):
        with as_sentences(overrides):
            if isinstance(value := override.value(), RangeSweep):
                value.shuffle = (
                    False  # for which it would be listed, however long; jobs have no order
                )
            values = (
                islice(override.sweep_string_iterator(), MOST_JOBS + 1)
                if override.is_sweep_override()
                else ()
            )
            choices.append([f"{override.get_key_element()}={value}" for value in values] or [text])
        if math.prod(map(len, choices)) > MOST_JOBS:
            raise UserError(f"{text}: that makes more than {MOST_JOBS} jobs; give fewer values")
    return [list(job) for job in product(*choices)]


def parts(cfg: RunConfig, around: Sequence[Sequence[str]] = ()) -> list[RunConfig]:
    """The selections an experiment consists of: its own, if it names data, and those of its
    `parts`. `around`: the parts that this one is a part of."""
    selections = [cfg] if cfg.dataset else []
    for part in cfg.parts:
        if part in around:
            raise UserError(
                f"the part [{', '.join(part)}] is a part of itself, without an end: take it out of `parts`"
            )
        selections += parts(compose(part), [*around, part])
    return selections
