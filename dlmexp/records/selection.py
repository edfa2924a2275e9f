"""The selection of beta: among the candidates that a run asked for, the one with the lowest validation metric.

The closing table of a run, `collect`, figures, claims and the report all select here. No refit follows a selection.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dlmexp.plan.cell import Cell
from dlmexp.records.manifest import Asked
from dlmexp.records.schema import Record


def on_test(record: Record, metric: str) -> float:
    """A record's test metric; NaN for a failed cell and for a metric it does not have."""
    return record.result.test.get(metric, math.nan)


def on_validation(record: Record, metric: str) -> float:
    return record.result.validation.get(metric, math.nan)


@dataclass(frozen=True)
class Choice:
    """The candidates of one method on one split: those with a record, and how many have none yet."""

    method: str
    betas: str  # the rule or list that they come from
    records: tuple[Record, ...]  # the largest beta first
    missing: int
    protocol: str = "paper"
    selection: str = "reported"  # the metric that chooses: the one that is reported, or this one
    keys: tuple[str, ...] = ()  # of all candidates, those without a record too

    @cached_property
    def cell(self) -> Cell:
        """What all candidates share (whatever its beta)."""
        return self.records[0].cell

    @property
    def failed(self) -> int:
        return sum(not record.done for record in self.records)

    def selected_by(self, metric: str) -> str:
        """MSE selects what is reported as MSE, NLL everything else, unless the protocol says which metric selects.
        Square-loss methods have no NLL: for them it is always MSE (docs/SPEC.md, section 6)."""
        wanted = ("mse" if metric == "mse" else "nll") if self.selection == "reported" else self.selection
        had = {name for record in self.records for name in record.result.validation}
        return next((name for name in (wanted, "nll", "mse", *sorted(had)) if name in had), wanted)

    def selected(self, metric: str = "nll") -> Record | None:
        """The candidate with the lowest validation metric, the larger beta of equals. None while some candidates have
        no record, and where none has a finite one."""
        return None if self.missing else lowest(self.records, self.selected_by(metric))


def lowest(records: Iterable[Record], metric: str) -> Record | None:
    """The done record with the lowest finite validation metric, the larger beta of equals; None if there is none."""
    usable = [record for record in records if record.done and math.isfinite(on_validation(record, metric))]
    return min(usable, key=lambda r: (on_validation(r, metric), -(r.cell.beta or 0.0)), default=None)


def choices(asked: Iterable[Asked], records: Mapping[str, Record]) -> list[Choice]:
    """The candidates that were asked for, with their records; those of which none has a record are left out."""
    return [choice for one in dict.fromkeys(asked) if (choice := _choice(one, records)) is not None]


def _choice(one: Asked, records: Mapping[str, Record]) -> Choice | None:
    present = tuple(records[key] for key in one.keys if key in records)
    missing = len(one.keys) - len(present)
    return Choice(one.method, one.betas, present, missing, one.protocol, one.selection, one.keys) if present else None
