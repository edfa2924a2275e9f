"""The settings behind a record: the protocol it was asked for under, and what was changed in it.

A setting is said in the words of `dlmexp run`: protocol `paper` with `training.lr=0.01`. What a cell would be under a
setting follows from the files in `conf/`; where the cell differs, that is a change. So records that share their name of
a protocol but not its values are told apart, whoever changed what, and when.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dlmexp import catalogue
from dlmexp.config import MethodTrainingConfig, TrainingConfig
from dlmexp.plan.protocols import kind_of, treated_apart
from dlmexp.records.selection import Choice

Changes = tuple[tuple[str, Any], ...]  # name -> value, what is trained first
PAPER = "paper"  # the protocol that is meant where none is named
PROTOCOLS = (PAPER, "released", "converged")  # the order in which they are shown; others follow
TRAINING = "training."
MODEL = ("kernel", "ard", "mean", "likelihood", "M")  # what the file of a dataset says
UNWRITTEN = ("data", "split", "evaluate")  # what no file says: the usual value of a dataset is the one of most cells


@dataclass(frozen=True)
class Setting:
    """A protocol, and what is different from it."""

    protocol: str = PAPER
    changes: Changes = ()

    @property
    def label(self) -> str:
        """`paper`, `paper, lr=0.01, max_iterations=200`."""
        return ", ".join([self.protocol, *(f"{name.removeprefix(TRAINING)}={shown(v)}" for name, v in self.changes)])

    def changed(self, changes: Mapping[str, Any]) -> "Setting":
        return Setting(self.protocol, ordered({**dict(self.changes), **changes}))


PLAIN = Setting()  # the paper's protocol as it stands


def selects_beta(part: str, dataset: str) -> bool:
    """Whether beta is selected, so that the grid is part of a setting: not among learning curves of the paper, which
    figures show at given betas, but among those of a user's own data."""
    return part == "fits" or (part == "curves" and catalogue.is_own(dataset))


def shown(value: Any) -> str:
    """A value as `dlmexp run` takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def ordered(changes: Mapping[str, Any]) -> Changes:
    return tuple(sorted(changes.items(), key=lambda item: (not item[0].startswith(TRAINING), item[0])))


def of_experiment(experiment: str, protocol: str, kind: str, selects: bool = True) -> Setting:
    """What an experiment asks for on one kind of data: the protocol, with what the experiment's own file changes in it.
    `selects`: whether beta is selected, so that the grid matters."""
    usual = catalogue.training(protocol).get(kind, TrainingConfig())
    own = catalogue.own_training(experiment, protocol).get(kind, {})
    changes = {TRAINING + name: value for name, value in own.items() if getattr(usual, name, None) != value}
    if selects and (rule := catalogue.beta_rule(experiment, protocol)) != catalogue.beta_rule("", protocol):
        changes["beta"] = rule
    return Setting(protocol, ordered(changes))


def protocol_words(protocol: str) -> list[str]:
    """What makes `dlmexp run` use a protocol, which may be a preset's: `preset=quick protocol=released`."""
    preset, whole = catalogue.of_preset(protocol)
    return [f"preset={preset}"] * bool(preset) + [f"protocol={whole}"] * (whole != PAPER)


def run_words(setting: Setting, experiment: str, dataset: str, kind: str) -> str:
    """What `dlmexp run experiment=... dataset=...` needs beside that for records of a setting: ' protocol=released'."""
    own = of_experiment(experiment, setting.protocol, kind).changes
    words = protocol_words(setting.protocol)
    for name, value in _said_for_all(setting, kind):
        if (name, value) in own:
            continue
        if name.startswith(TRAINING):
            words.append(f"{TRAINING}{kind}.{name.removeprefix(TRAINING)}={shown(value)}")
        elif name in MODEL:
            words.append(f"dataset.{dataset}.{name}={shown(value)}")
        elif name == "beta":
            named = (group for group in catalogue.entries("beta") if catalogue.beta_rule_of(group) == value)
            listed = "beta=list beta.values=[{}]".format(value.replace(" ", ""))
            words.append(next((f"beta={group}" for group in named), listed if value[:1].isdigit() else ""))
        elif name not in UNWRITTEN or name == "evaluate":
            words.append(f"{name}={shown(value)}")
    return "".join(f" {word}" for word in words if word)


def _said_for_all(setting: Setting, kind: str) -> Changes:
    """The changes, and the protocol's own values where a change for all would else be one of them too."""
    training, said = training_of(Setting(setting.protocol), kind), dict(setting.changes)
    for name, _ in setting.changes:
        for one in treated_apart(training, name.removeprefix(TRAINING)):
            said.setdefault(TRAINING + one, value_in(training, one.split(".")))
    return ordered(said)


def experiment_of(setting: Setting, one: Choice) -> str | None:
    """The experiment whose own values these are: '' for a protocol as it stands, None for values of no experiment. An
    estimator's options may be any: figures and claims tell them apart by other means."""
    changes = tuple((name, value) for name, value in setting.changes if not name.startswith("estimator."))
    if not changes:
        return ""
    kind = kind_of(one.cell.task, one.cell.split)
    selects = selects_beta(one.records[0].part, one.cell.dataset)
    for name in catalogue.experiments():
        if changes == of_experiment(name, setting.protocol, kind, selects).changes:
            return name
    return None


@lru_cache(maxsize=4096)
def training_of(setting: Setting, kind: str) -> TrainingConfig:
    """How a setting trains one kind of data. A protocol without a file here has the values of the schema."""
    found = replace(catalogue.training(setting.protocol).get(kind, TrainingConfig()))
    for name, value in setting.changes:
        if name.startswith(TRAINING):
            _set(found, name.removeprefix(TRAINING).split("."), value)
    return found


def _set(training: TrainingConfig, path: Sequence[str], value: Any) -> None:
    match path:
        case ("initial" | "estimator_lr" as group, name):
            setattr(training, group, {**getattr(training, group), name: value})
        case ("by_method", method, "initial", name):
            own = training.by_method.get(method, MethodTrainingConfig())
            own = replace(own, initial={**own.initial, name: value})
            training.by_method = {**training.by_method, method: own}
        case ("by_method", method, name):
            own = replace(training.by_method.get(method, MethodTrainingConfig()), **{name: value})
            training.by_method = {**training.by_method, method: own}
        case (name,):
            setattr(training, name, value)


def options(setting: Setting, usual: Setting, kind: str, selects: bool) -> list[str]:
    """What makes `dlmexp plot` take the records of a setting where it would take those of `usual`. `selects`: whether
    there are selections of beta among them."""
    said = [] if setting.protocol == PAPER else ["--protocol", setting.protocol]
    plain = training_of(Setting(setting.protocol), kind)
    values = dict(setting.changes)
    for name, _ in usual.changes:  # what is usual and not so here
        if name.startswith(TRAINING):
            values.setdefault(name, value_in(plain, name.removeprefix(TRAINING).split(".")))
        elif name == "beta" and selects:
            values.setdefault(name, catalogue.beta_rule("", setting.protocol))
    differing = ordered(dict(values.items() - set(usual.changes)))
    return said + [word for name, value in differing for word in ("--where", f"{name}={shown(value)}")]


def value_in(training: TrainingConfig, path: Sequence[str]) -> Any:
    """A value by its path, as `initial.noise`; None where there is none."""
    found: Any = training
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
    return found
