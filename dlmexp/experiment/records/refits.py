"""Selection by folds: which candidates are trained on all rows (docs/SPEC.md, section 6).

A run with `cv` first trains every candidate on every fold. It then selects candidates by the losses
in the records of the folds, and trains only the selected ones on all rows; these fits are called
refits. This module is the only place that decides which they are. Runs plan by it, tables show by
it, and `dlmexp status` counts by it what is missing.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from msgspec.structs import replace

from dlmexp.core.folds import Candidate, best_candidate, pooled
from dlmexp.experiment.plan.cell import CandidateGroup
from dlmexp.experiment.records.columns import columns_with
from dlmexp.experiment.records.manifests import read_manifests
from dlmexp.experiment.records.store import Store

METRICS = ("nll", "mse")
"""The metrics that select: each of them selects a candidate."""
COLUMNS = ("key", "y_std", "validation_nll", "validation_mse")


class FoldResult(NamedTuple):
    """The result of a fit that leaves out a fold: its mean losses on the rows of the fold.

    Attributes:
        y_std: The standard deviation of the training targets, which the losses are relative to.
        losses: The losses by metric; empty if the fit has failed.
    """

    y_std: float
    losses: Mapping[str, float]


@dataclass(frozen=True)
class Selections:
    """The selections by folds of a results folder.

    Attributes:
        recorded: The keys of all cells with a record.
        results: The results of folds by key, of the groups whose folds all have a record.
        packed: Method and key of selected fits in packs, which leave out the folds.
    """

    recorded: frozenset[str]
    results: Mapping[str, FoldResult]
    packed: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, store: Store, groups: Iterable[CandidateGroup]) -> "Selections":
        """Return the selections from these groups by the records of a folder."""
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

    def refits(self, group: CandidateGroup) -> tuple[str, ...] | None:
        """Return the keys of the fits to all rows that are trained; None if it is not known yet.

        There are none if every candidate has failed in some fold.
        """
        if self._has_all_folds(group):
            numbers = sorted(self._selected(group))
            return tuple(group.keys[number] for number in numbers)
        # Without folds, only a pack can say which fits were selected. A record of a fit to all rows
        # says nothing: it may be there because another method selected it.
        selected = tuple(key for key in group.keys if (group.method, key) in self.packed)
        return selected or None

    def _has_all_folds(self, group: CandidateGroup) -> bool:
        """Return whether all folds of all candidates have a record."""
        return self.results.keys() >= set(group.folds)

    def _selected(self, group: CandidateGroup) -> set[int]:
        """Return the numbers of the candidates with the least loss, by each metric that selects."""
        if len(group.keys) == 1:
            return {0}
        best_by_nll = self._best(group, "nll")
        best_by_mse = self._best(group, "mse")
        # A protocol may select by NLL also for other reported metrics.
        if group.setting.selection == "nll" and best_by_nll is not None:
            best_by_mse = None
        selected: set[int] = set()
        for number in (best_by_nll, best_by_mse):
            if number is not None:
                selected.add(number)
        return selected

    def _best(self, group: CandidateGroup, metric: str) -> int | None:
        """Return the number of the candidate with the least pooled loss; None without losses."""
        losses = self.losses(group, metric)
        best = best_candidate(losses)
        return None if best is None else list(losses).index(best)

    def losses(self, group: CandidateGroup, metric: str) -> dict[Candidate, float]:
        """Return the mean loss over the rows of all folds for each candidate, in their order.

        It is in the units of the target, and NaN if the fit to a fold has failed. The result is
        empty if a fold has no record.
        """
        if not self._has_all_folds(group):
            return {}
        results = [self.results[key] for key in group.folds]
        count = group.folds_per_candidate
        losses: dict[Candidate, float] = {}
        for number, beta in enumerate(group.betas):
            components = group.components[number] if group.components else 1
            candidate = Candidate(1.0 if beta is None else beta, components)
            results_of_candidate = results[number * count : (number + 1) * count]
            losses[candidate] = _pooled_loss(results_of_candidate, metric)
        return losses

    def needed(self, group: CandidateGroup) -> tuple[str, ...]:
        """Return the keys of the cells that have to be trained for a group, as far as is known.

        While the selected candidates are not known, the first fit to all rows stands for theirs.
        """
        if not group.folds:
            return group.keys
        refits = self.refits(group)
        if refits is None:
            return (*group.folds, *group.keys[:1])
        # Refits from a pack need no folds.
        return (*group.folds, *refits) if self._has_all_folds(group) else refits

    def shown(self, group: CandidateGroup) -> CandidateGroup:
        """Return the group as tables show it: with the selected fits as its only cells.

        The group itself is returned while the selected fits are not known or have no record. If
        every candidate has failed in some fold, the first fold is shown as the failure.
        """
        if not group.folds:
            return group
        refits = self.refits(group)
        if refits is None or not self.recorded.issuperset(refits):
            return group
        keys = refits or group.folds[:1]
        return replace(group, keys=keys, folds=(), only_selected=True)


def _packed_selections(store: Store) -> frozenset[tuple[str, str]]:
    """Return method and key of selected fits in packs, which leave out the folds."""
    selections: set[tuple[str, str]] = set()
    for pack in store.packs:
        for group in pack.groups:
            if group.only_selected:
                selections.update(product([group.method], group.keys))
    return frozenset(selections)


def _fold_results(store: Store, keys: Collection[str]) -> dict[str, FoldResult]:
    """Return the results of folds by key, without those that have no sound record."""
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


def _pooled_loss(results: Sequence[FoldResult], metric: str) -> float:
    """Return the mean loss over the rows of all folds; NaN if the fit to one of them has failed."""
    means: list[float] = []
    y_stds: list[float] = []
    for result in results:
        means.append(result.losses.get(metric, math.nan))
        y_stds.append(result.y_std)
    return pooled(metric, means, y_stds)


def losses_of_candidates(store: Store, key: str, metric: str) -> dict[Candidate, float]:
    """Return the losses (`Selections.losses`) of a fit to all rows and of its rivals.

    Of several groups that the fit was selected from, the largest is taken. The result is empty if
    there is none.

    Args:
        store: The records.
        key: The key of the fit to all rows.
        metric: The loss.
    """
    groups = [group for group in _groups_with_folds(store) if key in group.keys]
    if not groups:
        return {}
    largest = max(groups, key=lambda group: len(group.keys))
    return Selections.of(store, [largest]).losses(largest, metric)


def unneeded_refits(store: Store) -> set[str]:
    """Return the keys of those fits to all rows that the manifests list and no run trains.

    They are the fits of candidates that are not selected. While a selection is not known yet, one
    of its fits counts as needed.
    """
    groups = _groups_with_folds(store)
    selections = Selections.of(store, groups)
    refits: set[str] = set()
    needed: set[str] = set()
    for group in groups:
        refits.update(group.keys)
        needed.update(selections.needed(group))
    return refits - needed


def _groups_with_folds(store: Store) -> list[CandidateGroup]:
    """Return the groups in the manifests of a folder that folds select from."""
    groups: list[CandidateGroup] = []
    for manifest in read_manifests(store.root):
        groups += [group for group in manifest.candidates if group.folds]
    return groups
