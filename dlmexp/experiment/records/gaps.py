"""The recorded bounds of what a larger M could gain, as a line per dataset and method."""

import contextlib
from collections.abc import Iterable

import msgspec

from dlmexp.common.errors import Unreadable
from dlmexp.experiment.plan.cell import CandidateGroup
from dlmexp.experiment.records.store import Store


class EvidenceGap(msgspec.Struct, frozen=True):
    """The fit of a method with the largest gap between the bounds of the log evidence.

    Attributes:
        dataset: The dataset.
        method: The method.
        n: The number of training rows of this fit.
        M: The number of inducing inputs of this fit.
        gap: The gap: what a larger M could gain at most, in nats per row (docs/SPEC.md, section 2).
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


def largest_gaps(store: Store, groups: Iterable[CandidateGroup]) -> list[EvidenceGap]:
    """Return the largest gap of each dataset and method, in the order of the groups of candidates.

    Only groups with a single candidate are reported, and only if its beta is 1 or it has no beta.
    Packed records are not read.
    """
    largest: dict[tuple[str, str], EvidenceGap] = {}
    for group in groups:
        if len(group.keys) > 1 or group.betas[0] not in (1.0, None):
            continue
        gap = _recorded_gap(store, group)
        if gap is None:
            continue
        largest_so_far = largest.get((gap.dataset, gap.method))
        if largest_so_far is None or gap.gap > largest_so_far.gap:
            largest[gap.dataset, gap.method] = gap
    return list(largest.values())


def _recorded_gap(store: Store, group: CandidateGroup) -> EvidenceGap | None:
    """Return the gap of the only candidate of a group; None if no sound record of it has a gap."""
    (key,) = group.keys
    record = None
    with contextlib.suppress(Unreadable):
        record = store.read(store.path(group.dataset, key))
    if record is None or record.result.evidence_gap is None:
        return None
    cell = record.cell
    return EvidenceGap(cell.dataset, group.method, cell.n, cell.M, record.result.evidence_gap)
