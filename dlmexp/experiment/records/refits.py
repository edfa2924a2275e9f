"""Selection by folds: which candidates are trained on all rows (docs/SPEC.md, section 6).

A run with `cv` first trains the cells of all folds, and then, of the fits to all rows, only those
of the selected candidates. Which ones follows from the records of the folds. Here it is decided for
everyone: for a run that plans them, for tables, and for `dlmexp status`, which counts what is
missing.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from dlmexp.core.folds import Candidate, best_candidate, pooled
from dlmexp.experiment.plan.cell import Asked
from dlmexp.experiment.records.columns import columns_with
from dlmexp.experiment.records.manifests import read_manifests
from dlmexp.experiment.records.store import Store

METRICS = ("nll", "mse")
"""What selects a candidate, each for itself."""
COLUMNS = ("key", "y_std", "validation_nll", "validation_mse")


class FoldResult(NamedTuple):
    """What the record of a fold says: its mean losses on its rows; none if it has failed."""

    y_std: float
    losses: Mapping[str, float]


@dataclass(frozen=True)
class Selections:
    """The selections by folds of a results folder.

    Attributes:
        recorded: The keys of all cells with a record.
        results: The results of the folds, by key, of selections whose folds all have a record.
        packed: Method and key of the selected fits that packs have without their folds.
    """

    recorded: frozenset[str]
    results: Mapping[str, FoldResult]
    packed: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, store: Store, groups: Iterable[Asked]) -> "Selections":
        """Return what the folder says of these groups of candidates."""
        with_folds = [group for group in groups if group.folds]
        if not with_folds:
            return cls(frozenset(), {}, frozenset())
        done, failed = store.keys()
        recorded = frozenset(done | failed)
        keys: set[str] = set()
        for group in with_folds:
            if recorded.issuperset(group.folds):
                keys.update(group.folds)
        return cls(recorded, _fold_results(store, keys), _packed_selections(store))

    def refits(self, group: Asked) -> tuple[str, ...] | None:
        """Return the keys of the fits to all rows that are trained; None if it is not known yet.

        There are none if every candidate has failed in some fold.
        """
        if self._has_all_folds(group):
            numbers = self._selected(group)
            return tuple(group.keys[number] for number in sorted(numbers))
        # A fit to all rows may be that of another method, so it is not enough that it is recorded.
        selected = tuple(key for key in group.keys if (group.method, key) in self.packed)
        return selected or None

    def _has_all_folds(self, group: Asked) -> bool:
        """Return whether all folds of all candidates have a record."""
        return self.results.keys() >= set(group.folds)

    def _selected(self, group: Asked) -> set[int]:
        """Return the numbers of the candidates with the least loss, by every metric that counts."""
        count = len(group.keys)
        if count == 1:
            return {0}
        chosen = {metric: self._best(group, metric) for metric in METRICS}
        # A protocol may select by NLL whatever is reported.
        if chosen["nll"] is not None and group.setting.selection == "nll":
            chosen["mse"] = None
        return {number for number in chosen.values() if number is not None}

    def _best(self, group: Asked, metric: str) -> int | None:
        """Return the number of the candidate with the least pooled loss; None without losses."""
        losses = self.losses(group, metric)
        best = best_candidate(losses)
        return None if best is None else list(losses).index(best)

    def losses(self, group: Asked, metric: str) -> dict[Candidate, float]:
        """Return the mean loss over the rows of all folds by candidate, in their order.

        It is in the units of the target, and NaN where a fold has failed. Empty if folds lack
        records.
        """
        if not self._has_all_folds(group):
            return {}
        results = [self.results[key] for key in group.folds]
        count = len(results) // len(group.keys)
        losses: dict[Candidate, float] = {}
        for number, beta in enumerate(group.betas):
            components = group.components[number] if group.components else 1
            of_folds = results[number * count : (number + 1) * count]
            candidate = Candidate(1.0 if beta is None else beta, components)
            losses[candidate] = _pooled_loss(of_folds, metric)
        return losses

    def needed(self, group: Asked) -> tuple[str, ...]:
        """Return the keys of the cells that have to be trained for a group, as far as is known.

        One fit to all rows stands for those that are not known yet.
        """
        if not group.folds:
            return group.keys
        refits = self.refits(group)
        if refits is None:
            return (*group.folds, *group.keys[:1])
        return (*group.folds, *refits) if self._has_all_folds(group) else refits

    def shown(self, group: Asked) -> Asked:
        """Return the group as tables show it: with the selected fits as its only cells.

        It stays as it is where they are not known or have no record yet. One that failed in every
        candidate has its first fold, in place of a fit.
        """
        if not group.folds:
            return group
        refits = self.refits(group)
        if refits is None or not self.recorded.issuperset(refits):
            return group
        keys = refits or group.folds[:1]
        return replace(group, keys=keys, folds=(), only_selected=True)


def _packed_selections(store: Store) -> frozenset[tuple[str, str]]:
    """Return method and key of the selected fits in packs, which leave out the folds."""
    selections = set()
    for pack in store.packs:
        for group in pack.asked:
            if group.only_selected:
                selections.update((group.method, key) for key in group.keys)
    return frozenset(selections)


def _fold_results(store: Store, keys: Collection[str]) -> dict[str, FoldResult]:
    """Return the results of folds by key, of those that have a sound record."""
    if not keys:
        return {}
    table = store.cells(keys, columns_with(COLUMNS))
    return {row["key"]: _fold_result(row) for row in table.to_pylist()}


def _fold_result(row: Mapping[str, Any]) -> FoldResult:
    losses = {}
    for metric in METRICS:
        loss = row.get(f"validation_{metric}")
        if loss is not None:
            losses[metric] = loss
    return FoldResult(row.get("y_std") or 1.0, losses)


def _pooled_loss(of_folds: Sequence[FoldResult], metric: str) -> float:
    """Return the mean loss over the rows of all folds; NaN if a fold has failed."""
    means = [result.losses.get(metric, math.nan) for result in of_folds]
    return pooled(metric, means, [result.y_std for result in of_folds])


def losses_of_candidates(store: Store, key: str, metric: str) -> dict[Candidate, float]:
    """Return the losses of all candidates that folds have selected a fit to all rows from.

    They are as in `Selections.losses`, in the largest such selection; empty if there is none.
    """
    groups: list[Asked] = []
    for manifest in read_manifests(store.root):
        groups += [group for group in manifest.candidates if group.folds and key in group.keys]
    if not groups:
        return {}
    largest = max(groups, key=lambda group: len(group.keys))
    return Selections.of(store, [largest]).losses(largest, metric)


def unneeded_refits(store: Store) -> set[str]:
    """Return the keys of fits to all rows, asked for in a folder, that are not trained.

    They are those of candidates that are not selected. Where the folds are not all recorded yet,
    one fit stands for those that will be.
    """
    with_folds: list[Asked] = []
    for manifest in read_manifests(store.root):
        with_folds += [group for group in manifest.candidates if group.folds]
    selections = Selections.of(store, with_folds)
    refits: set[str] = set()
    needed: set[str] = set()
    for group in with_folds:
        refits.update(group.keys)
        needed.update(selections.needed(group))
    return refits - needed
