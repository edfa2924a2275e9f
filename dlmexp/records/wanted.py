"""Which records are wanted: those of a protocol, or those with certain settings; and what is left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dlmexp import catalogue
from dlmexp.config import TrainingConfig
from dlmexp.errors import UserError, nearest
from dlmexp.plan.cell import FIRST_OPTIONS
from dlmexp.plan.protocols import LARGE, kind_of
from dlmexp.records.comparison import Settings
from dlmexp.records.selection import Choice
from dlmexp.records.settings import MODEL, PAPER, TRAINING, UNWRITTEN, Setting, shown

KINDS = ("regression", "binary", "count", LARGE)
OTHERS = (*MODEL, *UNWRITTEN, "dtype", "beta", "selection", "collapsed")


@dataclass(frozen=True)
class Term:
    """`name=text` of `--where`, for one kind of data or for all (None)."""

    name: str  # as in `Setting.changes`; of an estimator's option the last part
    text: str
    kind: str | None
    typed: str

    def holds(self, value: Any) -> bool:
        return same(value, self.text)


@dataclass(frozen=True)
class Wanted:
    """What a user asks for; without a protocol, the paper's, or another if there is nothing of it."""

    protocol: str | None = None
    where: tuple[Term, ...] = ()


ANY = Wanted()


@dataclass
class Settled:
    """The settings at hand, the one of them that is taken, the choices that fit it, and the keys of the cells of each
    other setting, which are left out."""

    at_hand: dict[Setting, list[Choice]]
    setting: Setting | None  # None: nothing fits
    kept: list[Choice]
    left_out: dict[Setting, set[str]]


def parse_where(terms: Iterable[str]) -> tuple[Term, ...]:
    """`training.lr=0.01` and the like; UserError for a name that no setting has."""
    training = {one.name for one in fields(TrainingConfig)} - {"parameterisation"}
    options = {name for file in catalogue.entries("estimator").values() for name in file} | {*FIRST_OPTIONS}
    valid = sorted({f"training.{name}" for name in training} | {*OTHERS} | (options - {"samples"}))
    found = []
    for typed in terms:
        name, equals, text = typed.partition("=")
        if not equals or not text:
            raise UserError(f"--where {typed}: write setting=value, for instance training.lr=0.01")
        path = name.removeprefix(TRAINING).split(".")
        kind = path.pop(0) if path[0] in KINDS and len(path) > 1 else None
        if path[0] in training:
            found.append(Term(TRAINING + ".".join(path), text, kind, typed))
        elif path[-1] in {*OTHERS, *options} - {"samples"} and len(path) in (1, 3):  # M, or dataset.banana.M
            found.append(Term(path[-1], text, kind, typed))
        else:
            raise UserError(f"--where {typed}: there is no setting '{name}': {nearest(name, valid)}")
    return tuple(found)


def same(value: object, text: str) -> bool:
    """Whether a value is what somebody typed."""
    if value is None:
        return text.lower() in ("none", "null")
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == float(value) or text == shown(value)
        except ValueError:
            return False
    return _plain(str(value)) == _plain(text)


def _plain(text: str) -> str:
    """A list is the same with brackets and spaces as without: candidates for beta are a text such as '1, 0.1'."""
    return text.lower().replace(" ", "").removeprefix("[").removesuffix("]")


def settle(settings: Settings, several: Sequence[Choice], usual: Setting, wanted: Wanted = ANY) -> Settled:
    """Of these choices, those of one setting: the one that is wanted, as near to `usual` as there is. `usual` is meant
    where nothing is said: a protocol, with what an experiment changes in it."""
    preferred = [usual, Setting(usual.protocol)]
    at_hand = settings.at_hand(several, preferred)
    fitting = [setting for setting, choices in at_hand.items() if has(settings, setting, choices, wanted)]
    best = min(fitting, key=lambda setting: _distance(setting, usual, wanted, at_hand[setting]), default=None)
    kept = at_hand[best] if best else []
    return Settled(at_hand, best, kept, _left_out(at_hand, kept))


def _distance(setting: Setting, usual: Setting, wanted: Wanted, choices: list[Choice]) -> tuple[Any, ...]:
    """The usual protocol first; in it the fewest values that are not usual, what is asked for aside; the most cells."""
    asked = {term.name for term in wanted.where}
    ours, theirs = (
        {name: value for name, value in one.changes if asked.isdisjoint((name, name.split(".")[-1]))}
        for one in (setting, usual)
    )
    differences = sum(ours.get(name, ...) != theirs.get(name, ...) for name in {*ours, *theirs})
    return setting.protocol != usual.protocol, differences, -_cells(choices), setting.label


def _left_out(at_hand: dict[Setting, list[Choice]], kept: list[Choice]) -> dict[Setting, set[str]]:
    seen = {record.key for one in kept for record in one.records}
    found = {}
    for setting, choices in at_hand.items():
        keys = {record.key for one in choices for record in one.records} - seen
        seen |= keys
        if keys:
            found[setting] = keys
    return found


def _cells(choices: Iterable[Choice]) -> int:
    return len({record.key for one in choices for record in one.records})


def has(settings: Settings, setting: Setting, choices: list[Choice], wanted: Wanted) -> bool:
    """Whether a setting, with the choices that fit it, is one of those wanted."""
    if wanted.protocol not in (None, setting.protocol):
        return False
    return all(any(map(term.holds, values(settings, setting, choices, term))) for term in wanted.where)


def values(settings: Settings, setting: Setting, choices: Iterable[Choice], term: Term) -> set[Any]:
    """The values that choices of a setting have for what a term names."""
    found = set()
    for one in choices:
        if term.kind in (None, kind_of(one.cell.task, one.cell.split)):
            name = term.name
            if name in one.cell.options:
                name = f"estimator.{one.cell.estimator}.{name}"
            found.add(settings.value(one, setting, name))
    return found


def check_at_hand(settings: Settings, several: Sequence[Choice], wanted: Wanted) -> None:
    """UserError if no record is of the protocol, or no record has the values, that are asked for."""
    protocols = list(dict.fromkeys(one.protocol for one in several))
    if wanted.protocol is not None and wanted.protocol not in protocols:
        raise UserError(f"no record was made under protocol '{wanted.protocol}': there are {', '.join(protocols)}")
    if not wanted.where:
        return
    asked = [one for one in several if wanted.protocol in (None, one.protocol)]
    at_hand = settings.at_hand(asked)
    for term in wanted.where:
        had = {value for setting, choices in at_hand.items() for value in values(settings, setting, choices, term)}
        had -= {None} if not term.holds(None) else set()
        if not any(term.holds(value) for value in had):
            there = ", ".join(sorted(_quoted(shown(value)) for value in had)) or "none at all"
            raise UserError(f"--where {term.typed}: no record has this value; there are {there}")


def _quoted(value: str) -> str:
    return f"'{value}'" if " " in value else value


def usual_protocol(several: Iterable[Choice], wanted: Wanted = ANY) -> str:
    """The protocol that is meant: the one named, the paper's, or the one with most cells where there is none of it."""
    if wanted.protocol:
        return wanted.protocol
    cells: dict[str, int] = {}
    for one in several:
        cells[one.protocol] = cells.get(one.protocol, 0) + len(one.records)
    return PAPER if PAPER in cells or not cells else min(cells, key=lambda name: (-cells[name], name))
