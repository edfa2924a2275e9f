"""Selection by folds: which candidates are trained on all rows (docs/SPEC.md, section 6).

A run with `cv` first trains every candidate on every fold. It then selects candidates by the losses
in the records of the folds, and trains only the selected ones on all rows. These fits are called
refits. Only this module decides which fits are refits: runs, tables and `dlmexp status` ask it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from dlmexp.core.folds import Candidate, best_candidate, pooled_mean
from dlmexp.experiment.plan.cell import CandidateGroup
from dlmexp.experiment.records.columns import columns_with
from dlmexp.experiment.records.manifests import read_manifests
from dlmexp.experiment.records.store import Store

METRICS = ("nll", "mse")
"""The metrics that select: each of them selects a candidate."""
FOLD_COLUMNS = ("key", "y_std", "validation_nll", "validation_mse")
"""The columns of records that a `FoldResult` is read from."""


class FoldResult(NamedTuple):
    """The result of a fit that leaves out a fold: its mean losses on the rows of the fold.

    Attributes:
        y_std: The standard deviation by which the targets were normalised. The losses are those of
            normalised targets.
        losses: The losses by metric; empty if the fit has failed.
    """

    y_std: float
    losses: Mapping[str, float]


@dataclass(frozen=True)
class Selections:
    """The selections by folds of a results folder.

    Attributes:
        recorded: The keys of all cells with a record.
        results: The results of folds by key, for groups whose folds all have a record.
        packed: Method and key of the refits in packs that lack the folds.
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
        """Return the keys of the refits of a group; None if they are not known yet.

        The result is empty if every candidate has failed in some fold.
        """
        if self._has_all_folds(group):
            numbers = sorted(self._selected(group))
            return tuple(group.keys[number] for number in numbers)
        # Without folds, only a pack can tell which fits were selected. The record of a fit to all
        # rows does not tell, since another method may have selected the fit.
        selected = tuple(key for key in group.keys if (group.method, key) in self.packed)
        return selected or None

    def _has_all_folds(self, group: CandidateGroup) -> bool:
        """Return whether all folds of all candidates have a record.

        `results` has the folds of a group only if all of them have a record (`of`).
        """
        return self.results.keys() >= set(group.folds)

    def _selected(self, group: CandidateGroup) -> set[int]:
        """Return the numbers of the candidates with the least loss, by each metric that selects."""
        if len(group.keys) == 1:
            return {0}
        best_by_nll = self._best(group, "nll")
        best_by_mse = self._best(group, "mse")
        selected: set[int] = set()
        if best_by_nll is not None:
            selected.add(best_by_nll)
        # A protocol may select by NLL alone. Objectives without an NLL select by MSE all the same.
        is_by_nll_alone = group.setting.selection == "nll" and best_by_nll is not None
        if best_by_mse is not None and not is_by_nll_alone:
            selected.add(best_by_mse)
        return selected

    def _best(self, group: CandidateGroup, metric: str) -> int | None:
        """Return the number of the candidate with the least pooled loss; None without losses."""
        losses = self.losses(group, metric)
        best = best_candidate(losses)
        return None if best is None else list(losses).index(best)

    def losses(self, group: CandidateGroup, metric: str) -> dict[Candidate, float]:
        """Return the mean loss over the rows of all folds for each candidate of a group.

        Losses are in the units of the target, and NaN for a candidate that failed in a fold. They
        are in the order of `group.keys`. The result is empty if a fold has no record.
        """
        if not self._has_all_folds(group):
            return {}
        # Candidate by candidate, with `folds_per_candidate` results each.
        results = [self.results[key] for key in group.folds]
        losses: dict[Candidate, float] = {}
        for number, beta in enumerate(group.betas):
            components = group.components[number] if group.components else 1
            candidate = Candidate(1.0 if beta is None else beta, components)
            first = number * group.folds_per_candidate
            results_of_candidate = results[first : first + group.folds_per_candidate]
            losses[candidate] = _pooled_loss(results_of_candidate, metric)
        return losses

    def needed(self, group: CandidateGroup) -> tuple[str, ...]:
        """Return the keys of the cells that have to be trained for a group.

        While the refits are not known, the first fit to all rows stands for them.
        """
        if not group.folds:
            return group.keys
        refits = self.refits(group)
        if refits is None:
            return (*group.folds, *group.keys[:1])
        if not self._has_all_folds(group):
            return refits  # which are known from a pack that lacks the folds
        return (*group.folds, *refits)

    def shown(self, group: CandidateGroup) -> CandidateGroup:
        """Return the group as tables show it: with the refits as its only cells.

        The group itself is returned while the refits are not known or have no record. If every
        candidate has failed in some fold, there are no refits, and the first fold is shown: it
        represents the failure.
        """
        if not group.folds:
            return group
        refits = self.refits(group)
        if refits is None or not self.recorded.issuperset(refits):
            return group
        keys = refits or group.folds[:1]
        return replace(group, keys=keys, folds=(), only_selected=True)


def _packed_selections(store: Store) -> frozenset[tuple[str, str]]:
    """Return method and key of the refits in packs that lack the folds."""
    selections: set[tuple[str, str]] = set()
    for pack in store.packs:
        for group in pack.groups:
            if group.only_selected:
                selections.update((group.method, key) for key in group.keys)
    return frozenset(selections)


def _fold_results(store: Store, keys: Collection[str]) -> dict[str, FoldResult]:
    """Return the results of those folds with these keys that have a sound record, by key."""
    if not keys:
        return {}
    table = store.cells(keys, columns_with(FOLD_COLUMNS))
    return {row["key"]: _fold_result(row) for row in table.to_pylist()}


def _fold_result(row: Mapping[str, Any]) -> FoldResult:
    losses = {}
    for metric in METRICS:
        loss = row.get(f"validation_{metric}")
        if loss is not None:
            losses[metric] = loss
    y_std = row.get("y_std") or 1.0  # a failed fit has no y_std, and no losses to scale
    return FoldResult(y_std, losses)


def _pooled_loss(results: Sequence[FoldResult], metric: str) -> float:
    """Return the mean loss over the rows of all folds; NaN if the fit for a fold has failed."""
    means: list[float] = []
    y_stds: list[float] = []
    for result in results:
        means.append(result.losses.get(metric, math.nan))
        y_stds.append(result.y_std)
    return pooled_mean(metric, means, y_stds)


def losses_of_candidates(store: Store, key: str, metric: str) -> dict[Candidate, float]:
    """Return the losses (`Selections.losses`) of all candidates that a refit was selected from.

    If it is a candidate of several groups, the largest group is taken; the result is empty if it is
    a candidate of none.

    Args:
        store: The records.
        key: The key of the refit.
        metric: The name of the loss: nll or mse.
    """
    groups = [group for group in _groups_with_folds(store) if key in group.keys]
    if not groups:
        return {}
    largest = max(groups, key=lambda group: len(group.keys))
    return Selections.of(store, [largest]).losses(largest, metric)


def unneeded_refits(store: Store) -> set[str]:
    """Return the keys of fits to all rows that manifests list, but that no run trains.

    They are the fits of candidates that are not selected. While a selection is not known yet, one
    of its fits counts as needed.
    """
    groups = _groups_with_folds(store)
    selections = Selections.of(store, groups)
    fits_to_all_rows: set[str] = set()
    needed: set[str] = set()
    for group in groups:
        fits_to_all_rows.update(group.keys)
        needed.update(selections.needed(group))
    return fits_to_all_rows - needed


def _groups_with_folds(store: Store) -> list[CandidateGroup]:
    """Return those groups in the manifests of a folder whose candidates are selected by folds."""
    groups: list[CandidateGroup] = []
    for manifest in read_manifests(store.root):
        groups += [group for group in manifest.candidates if group.folds]
    return groups
