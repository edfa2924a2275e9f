"""What `keep=` and `refit=` ask of a run: the models that fits leave behind, and how much room they take."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from dlmexp.data.schema import Schema
from dlmexp.data.splits import Normalisation
from dlmexp.models.file import TrainedModel, encoded, encoded_size
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.records.keeping import drop_unselected, without_model
from dlmexp.records.manifest import manifest
from dlmexp.records.store import Store
from dlmexp.running.processes import EXTRA_PROCESS
from dlmexp.running.sweep import Sweep
from dlmexp.training.program import Posterior

MUCH = 1e9  # bytes from which on a run says what it will write


class Scaled(Protocol):
    """What was done to the inputs and targets of a split."""

    @property
    def features(self) -> Normalisation: ...
    @property
    def y_mean(self) -> float: ...
    @property
    def y_std(self) -> float: ...


@dataclass(frozen=True)
class Keeper:
    """Makes the model files of fits, and deletes those that turn out not to be selected."""

    store: Store
    schemas: Mapping[str, Schema]  # by dataset

    def model(self, cell: Cell, split: Scaled, posterior: Posterior) -> bytes:
        """The model file of a cell."""
        return encoded(trained_model(cell, self.schemas[cell.dataset], split, posterior))

    def drop_unselected(self, keys: Collection[str] | None = None) -> None:
        """Delete models that no run keeps, as far as that is known by now."""
        drop_unselected(self.store, keys)


def trained_model(cell: Cell, schema: Schema, split: Scaled, posterior: Posterior) -> TrainedModel:
    """What a finished cell leaves behind, as a model."""
    hyper = {name: value[0].numpy() for name, value in posterior.hyper.items()}
    m, L, jitter = (value[0].numpy() for value in (posterior.m, posterior.L, posterior.jitter))
    return TrainedModel(cell, schema, split.features, split.y_mean, split.y_std, hyper, m, L, float(jitter))


def keeper(sweep: Sweep, store: Store) -> Keeper | None:
    """What keeps the models of a run; None for `keep=none`."""
    if sweep.cfg.keep == "none":
        return None
    return Keeper(store, {data.name: data.schema for _, data in sweep.datasets.values()})


def to_refit(sweep: Sweep, store: Store) -> set[str]:
    """The done cells that `refit=true` trains again: those that should have a model and have none."""
    if not sweep.cfg.refit:
        return set()
    return without_model(store, manifest("", sweep.candidates).candidates, sweep.cfg.keep)


def announced_size(sweep: Sweep, plan: Plan) -> str | None:
    """A sentence on the models that a run writes, where that is more than 1 GB; None in an extra process of a run."""
    if sweep.cfg.keep == "none" or os.environ.get(EXTRA_PROCESS):
        return None
    features = {data.name: data.X.shape[1] for _, data in sweep.datasets.values()}
    sizes = {
        cell.key: encoded_size(cell.M, features[cell.dataset])
        for batch in plan.batches
        for cell in batch
        if cell.kind == "fit"
    }
    written = sum(sizes.values())
    if written <= MUCH:
        return None
    what = f"keep={sweep.cfg.keep}: {len(sizes)} models of {_gigabytes(written)} are written to {sweep.cfg.results}"
    if sweep.cfg.keep == "all":
        return what
    stay = sum(max((sizes.get(cell.key, 0) for cell in some.cells), default=0) for some in sweep.candidates)
    return f"{what}, of which about {_gigabytes(stay)} stay once beta is selected (keep=none: no models)"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
