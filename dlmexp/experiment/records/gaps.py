"""How much a larger M could gain, as recorded: a line per dataset and method."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow.compute as pc

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
    singles = [asked for asked in candidates if _is_single(asked)]
    recorded = _recorded_gaps(store, {asked.keys[0] for asked in singles})
    largest: dict[tuple[str, str], EvidenceGap] = {}
    for asked in singles:
        row = recorded.get(asked.keys[0])
        if row is None:
            continue
        gap = EvidenceGap(asked.dataset, asked.method, row["n"], row["M"], row["evidence_gap"])
        known = largest.get((gap.dataset, gap.method))
        if known is None or gap.gap > known.gap:
            largest[gap.dataset, gap.method] = gap
    return list(largest.values())


def _is_single(asked: Asked) -> bool:
    """Return whether nothing is selected, and the KL divergence has its usual weight."""
    return len(asked.keys) == 1 and asked.betas[0] in (1.0, None)


def _recorded_gaps(store: Store, keys: set[str]) -> dict[str, dict[str, Any]]:
    """Return the gaps of cells that have a sound record with one, by key, with their n and M."""
    if not keys:
        return {}
    cells = store.own_cells(keys, warn=False).select(["key", "n", "M", "evidence_gap"])
    has_gap = pc.field("evidence_gap").is_valid()
    return {row["key"]: row for row in cells.filter(has_gap).to_pylist()}
