"""Cells with nothing special about them, records with the scores that a test wants, and folders that hold them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
from msgspec.structs import asdict, replace

from dlmexp.data.dataset import Dataset
from dlmexp.plan.cell import Asked, Cell, Setting
from dlmexp.plan.compose import compose
from dlmexp.records.record import Made, Record, Result
from dlmexp.records.store import Manifest, Store, write_manifest

PLAIN = Cell(
    kind="fit", dataset="banana", data="abc", split="counts-v1", task="binary", likelihood="probit", kernel="rbf",
    ard=False, mean="constant", M=53, n=100, objective="log_dlm", variant="fixed", form="explicit",
    parameterisation="whitened", estimator="bmc", options={"samples": 10}, lr=0.1, minibatch=None, window=20,
    tolerance=1e-4, max_iterations=3000, epochs=None, evaluate="end", dtype="float64", seed=3, beta=0.1, base="feed",
)  # fmt: skip
ELBO = replace(PLAIN, objective="elbo", variant="joint", estimator="exact", options={}, base=None)
PAPER = Setting("paper")
KNOWN: dict[str, Cell] = {}  # the cells of all `candidates`, by key
MADE = Made(device="cpu", host="h", time="2000-01-01T00:00:00Z", version="0", commit="c", command="dlmexp run")


def scored(
    cell: Cell, status: Literal["done", "failed"] = "done", reason: str = "no reason", **validation: float
) -> Record:
    """A record with these validation metrics; those on the test rows are larger by 1/2."""
    test = {name: value + 0.5 for name, value in validation.items()}
    result = Result(validation=validation, test=test, iterations=5, seconds=1.0, hyperparameters={"noise": 0.1})
    if status == "failed":
        result = Result(reason=reason, iterations=3)
    return Record(key=cell.key, status=status, cell=cell, result=result, made=MADE)


def candidates(
    method: str, cells: list[Cell], setting: Setting = PAPER, role: str = "fit", experiment: str = "test"
) -> Asked:
    """Cells as one selection of a run."""
    ordered = tuple(sorted(cells, key=lambda cell: -(cell.beta or 0.0)))
    KNOWN.update({cell.key: cell for cell in cells})
    return Asked.of(method, ordered, setting=setting, experiment=experiment, role=role, size=str(cells[0].n))


def fill(root: Path, *several: Asked) -> None:
    """Results that were asked for as `test`: what is best at beta = 1, and better with larger n."""
    write_manifest(root, Manifest("test", several))
    for cell in (KNOWN[key] for each in several for key in each.keys):
        nll = 3 / cell.n**0.5 + 0.1 * abs(np.log(cell.beta or 1.0)) + 0.01 * cell.seed
        Store(root).write(scored(cell, nll=nll, error=nll / 3))


def planned(*words: str, rows: int = 600) -> list[SimpleNamespace]:
    """What overrides ask for, and its `cells`, on random data of so many rows and two features."""
    from dlmexp.plan.grid import (
        Grid,  # needs torch
        check,
    )

    cfg, rng = compose(list(words)), np.random.default_rng(0)
    check(cfg)
    groups = []
    for key, dataset in cfg.dataset.items():
        y = rng.normal(size=rows) if dataset.task == "regression" else rng.integers(0, 2, rows).astype(float)
        data = Dataset(rng.normal(size=(rows, 2)), y, name=dataset.name, task=dataset.task, checksum="sum")
        for each, cells in Grid(cfg, key, dataset, data).candidates():
            groups.append(SimpleNamespace(**asdict(each), cells=cells))
    return groups
