"""Tells records of different settings apart: what a cell would be under a setting, and where it differs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dlmexp import catalogue
from dlmexp.config import MethodTrainingConfig, TrainingConfig
from dlmexp.plan.cell import Cell
from dlmexp.plan.protocols import CLOSED_FORM, INITIAL, kind_of, trained
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice
from dlmexp.records.settings import (
    MODEL,
    TRAINING,
    UNWRITTEN,
    Changes,
    Setting,
    ordered,
    selects_beta,
    training_of,
    value_in,
)

BASE = "elbo"  # the method whose fit gives the fixed variants their hyperparameters


def _trained_otherwise(method: str, cell: Cell, training: TrainingConfig, regression: TrainingConfig) -> dict[str, Any]:
    """Training settings of a cell that are not what `training` makes of it: name -> the value that it has."""
    found: dict[str, Any] = {}
    own = training.by_method.get(method, MethodTrainingConfig())
    variant = own.variant or catalogue.methods().get(method, {}).get("variant", cell.variant)
    if cell.variant != variant:
        found[f"by_method.{method}.variant"] = cell.variant
    if cell.lr == 0.0:  # a closed form, or a gradient at the start: nothing is trained
        return found
    closed = cell.form == "collapsed"
    training = replace(training, **({"minibatch": None} if closed else {}))
    for name in ("epochs", "window", "minibatch"):  # the others depend on them
        if (value := getattr(cell, name)) != trained(training, cell.n)[name]:
            found[name] = value
            setattr(training, name, value)
    wanted = trained(training, cell.n) | (CLOSED_FORM if closed else {})
    if cell.variant == "fixed":
        wanted["inducing"] = "first"
    rate, wanted["lr"] = _learning_rate(cell, training, regression)
    found |= {
        rate if name == "lr" else name: getattr(cell, name)
        for name, value in wanted.items()
        if getattr(cell, name) != value
    }
    return found | _started_otherwise(method, cell, training, own)


def _learning_rate(cell: Cell, training: TrainingConfig, regression: TrainingConfig) -> tuple[str, float]:
    """The name and value of the learning rate that a cell should have."""
    if cell.form == "collapsed":
        return "lr", regression.lr
    usual = ("minibatch_lr", training.minibatch_lr) if cell.minibatch else ("lr", training.lr)
    alone = training.estimator_lr.get(cell.estimator)
    if alone is None or (cell.estimator == "exact" and cell.lr == usual[1]):  # `exact` is also no estimator at all
        return usual
    return f"estimator_lr.{cell.estimator}", alone


def _started_otherwise(
    method: str, cell: Cell, training: TrainingConfig, own: MethodTrainingConfig
) -> dict[str, float]:
    if cell.variant == "fixed":  # starts at the fit that it takes its hyperparameters from
        return {}
    absent = {name for name, has in (("noise", cell.task == "regression"), ("mean", cell.mean != "zero")) if not has}
    given = {**INITIAL, **training.initial, **own.initial}
    found = {}
    for name, value in {**INITIAL, **cell.initial}.items():
        if (name in cell.initial or name not in absent) and value != given.get(name):
            found[f"by_method.{method}.initial.{name}" if name in own.initial else f"initial.{name}"] = value
    return found


class Settings:
    """The settings of the records in one folder."""

    def __init__(self, records: Mapping[str, Record]):
        self.records = records
        self._known: dict[tuple[Any, ...], Changes] = {}

    @cached_property
    def _usual(self) -> dict[tuple[str, str], dict[str, Any]]:
        """(dataset, part) -> the values that are no change, for what is not trained."""
        counts: dict[tuple[str, str], dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
        for record in self.records.values():
            for name in (*UNWRITTEN, *MODEL):
                value = getattr(record.cell, name)
                if name != "M" or value < record.cell.n:
                    counts[record.cell.dataset, record.part][name][value] += 1
        found = {}
        for (dataset, part), values in counts.items():
            most = {name: min(count, key=lambda v: (-count[v], str(v))) for name, count in values.items()}
            file = catalogue.datasets().get(dataset, {})
            written = {name: file[name] for name in MODEL if file.get(name) is not None and "${" not in str(file[name])}
            found[dataset, part] = most | written
        return found

    @cached_property
    def _forms(self) -> set[tuple[str, str, str]]:
        return {(r.cell.objective, r.cell.likelihood, r.cell.form) for r in self.records.values()}

    def _others(self, one: Choice, setting: Setting) -> Iterator[tuple[str, Any, Any]]:
        """What is not training: name, the value that the choice has, and the one that the protocol alone asks for."""
        cell, part = one.cell, one.records[0].part
        usual = self._usual[cell.dataset, part]
        for name in (*UNWRITTEN, *MODEL):
            if name == "evaluate" and part != "curves":
                continue
            yield name, getattr(cell, name), usual.get(name, getattr(cell, name))
        yield "dtype", cell.dtype, "float64"
        file = catalogue.entries("estimator").get(cell.estimator, {})
        for name in sorted({*file, *cell.options} - {"samples"}):
            asked = file.get(name)
            value = cell.options.get(name, asked)  # a record without an option has the usual value
            listed = isinstance(asked, list) and value in asked
            yield f"estimator.{cell.estimator}.{name}", value, value if listed else asked
        if selects_beta(part, cell.dataset) and catalogue.selects(one.method):
            yield "beta", one.betas, catalogue.beta_rule("", setting.protocol)
        protocol = catalogue.entries("protocol").get(catalogue.of_preset(setting.protocol)[1], {})
        yield "selection", one.selection, protocol.get("selection", "reported")

    def _differing(self, one: Choice, setting: Setting) -> Changes:
        """What of a choice is not as `setting` asks, with the values it has."""
        cell = one.cell
        base = self.records.get(cell.base) if cell.base else None
        key = (setting, one.method, one.betas, one.selection, cell.group, base.cell.group if base else None)
        if key not in self._known:
            self._known[key] = ordered(dict(self._compared(one, setting, base.cell if base else None)))
        return self._known[key]

    def _compared(self, one: Choice, setting: Setting, base: Cell | None) -> Iterator[tuple[str, Any]]:
        cell, given = one.cell, dict(setting.changes)
        training = training_of(setting, kind_of(cell.task, cell.split))
        regression = training_of(setting, "regression")
        if base is not None:
            yield from ((TRAINING + k, v) for k, v in _trained_otherwise(BASE, base, training, regression).items())
        own = _trained_otherwise(one.method, cell, training, regression)
        yield from ((TRAINING + name, value) for name, value in own.items())
        for name, had, wanted in self._others(one, setting):
            wanted = given.get(name, wanted)
            if had != (min(wanted, cell.n) if name == "M" else wanted):
                yield name, had
        yield from self._form(one.method, cell, training, given.get("collapsed", True))

    def _form(self, method: str, cell: Cell, training: TrainingConfig, collapsed: bool) -> Iterator[tuple[str, bool]]:
        """Whether q is in closed form where it has one: that it has one is seen from some record."""
        by_method = training.by_method.get(method)
        asked = by_method.collapsed if by_method else None
        wanted = "collapsed" if (collapsed if asked is None else asked) else "explicit"
        if cell.form != wanted and (cell.objective, cell.likelihood, wanted) in self._forms:
            value = cell.form == "collapsed"
            yield ("collapsed" if asked is None else f"{TRAINING}by_method.{method}.collapsed"), value

    def of(self, one: Choice) -> Setting:
        """The protocol it was asked for under, with all that is different in it."""
        return Setting(one.protocol, self._differing(one, Setting(one.protocol)))

    def fits(self, one: Choice, setting: Setting) -> bool:
        """Whether a run with this setting would have asked for the same cells: it may not matter for all of them."""
        return one.protocol == setting.protocol and not self._differing(one, setting)

    def value(self, one: Choice, setting: Setting, name: str) -> Any:
        """The value of a setting by its name, for a choice that fits `setting`; None where it has no such thing."""
        given = dict(setting.changes)
        if name in given:
            return given[name]
        if name.startswith(TRAINING):
            training = training_of(setting, kind_of(one.cell.task, one.cell.split))
            return value_in(training, name.removeprefix(TRAINING).split("."))
        return {which: had for which, had, _ in self._others(one, setting)}.get(
            name, True if name == "collapsed" else None
        )

    def at_hand(self, several: Sequence[Choice], wanted: Iterable[Setting] = ()) -> dict[Setting, list[Choice]]:
        """The settings of these choices, each with all that fits it, those with most choices first.

        What does not matter for a cell is not seen in it: ELBO has no grid of betas, and a small n no minibatches. So
        changes that are seen apart are put together where one run could have asked for them all, and a setting is left
        out where all that shows it fits another one. Of `wanted` settings, those that some choice fits take part.
        """
        fitting: dict[Setting, set[int]] = {}
        showing: dict[Setting, set[int]] = defaultdict(set)
        for i, one in enumerate(several):
            showing[self.of(one)].add(i)
        for setting in dict.fromkeys([*showing, *wanted]):
            if fits := self._fitting(several, setting):
                fitting[setting] = fits
                showing[setting] = showing.get(setting) or fits
        new = list(fitting)
        while new:
            pairs = [(first, second) for first in fitting for second in new]
            new = []
            for first, second in pairs:
                together = _together(first, second)
                if together is not None and together not in fitting:
                    shows, fits = showing[first] | showing[second], self._fitting(several, together)
                    if fits >= shows:
                        fitting[together], showing[together] = fits, shows
                        new.append(together)
        kept = [
            setting
            for setting in fitting
            if not any(showing[setting] <= fits for other, fits in fitting.items() if other != setting)
        ]
        covered = set[int]().union(*(fitting[setting] for setting in kept))
        kept += [setting for setting in fitting if setting not in kept and not showing[setting] <= covered]
        kept.sort(key=lambda setting: (-len(fitting[setting]), setting.label))
        return {setting: [several[i] for i in sorted(fitting[setting])] for setting in kept}

    def _fitting(self, several: Sequence[Choice], setting: Setting) -> set[int]:
        return {i for i, one in enumerate(several) if self.fits(one, setting)}


def _together(first: Setting, second: Setting) -> Setting | None:
    """Both settings' changes, where they do not contradict each other."""
    ours, theirs = dict(first.changes), dict(second.changes)
    if first.protocol != second.protocol or any(theirs.get(name, value) != value for name, value in ours.items()):
        return None
    return first.changed(theirs)
