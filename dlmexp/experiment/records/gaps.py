"""How much a larger M could gain, as recorded: a line per dataset and method."""

import contextlib
from collections.abc import Iterable

import msgspec

from dlmexp.common.errors import Unreadable
from dlmexp.experiment.plan.cell import Asked
from dlmexp.experiment.records.store import Store


class EvidenceGap(msgspec.Struct, frozen=True):
    """The largest gap between the bounds of the log evidence among fits of a method.

    Attributes:
        dataset: The dataset.
        method: The method.
        n: Training rows of that fit.
        M: Its inducing inputs.
        gap: What a larger M could gain at most, in nats per row (docs/SPEC.md, section 2).
    """

    dataset: str
    method: str
    n: int
    M: int
    gap: float

    @property
    def line(self) -> str:
        """The gap as a line for people."""
        return (
            f"{self.dataset} {self.method}: at its hyperparameters a larger M than {self.M} gains "
            f"at most {self.gap:.2g} nats per row (n = {self.n})"
        )


def largest_gaps(store: Store, candidates: Iterable[Asked]) -> list[EvidenceGap]:
    """Return the largest gap of each dataset and method, in the order of the candidates.

    Methods that select beta are left out: their candidate with beta = 1 is a fit of another one.
    Packed records are not read.
    """
    largest: dict[tuple[str, str], EvidenceGap] = {}
    for asked in candidates:
        if len(asked.keys) > 1 or asked.betas[0] not in (1.0, None):
            continue
        gap = _recorded_gap(store, asked)
        if gap is None:
            continue
        known = largest.get((gap.dataset, gap.method))
        if known is None or gap.gap > known.gap:
            largest[gap.dataset, gap.method] = gap
    return list(largest.values())


def _recorded_gap(store: Store, asked: Asked) -> EvidenceGap | None:
    """Return the gap of a single candidate; None if it has no sound record, or none there."""
    (key,) = asked.keys
    record = None
    with contextlib.suppress(Unreadable):
        record = store.read(store.path(asked.dataset, key))
    if record is None or record.result.evidence_gap is None:
        return None
    cell = record.cell
    return EvidenceGap(cell.dataset, asked.method, cell.n, cell.M, record.result.evidence_gap)
