"""Cells with nothing special about them, records with the scores that a test wants, folders that
hold them, and trained models with made-up numbers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from msgspec.structs import asdict, replace

from dlmexp.common.provenance import Provenance
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.data.dataset import Dataset
from dlmexp.data.schema import Column, Schema
from dlmexp.data.splits import Normalisation
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.plan.cell import CandidateGroup, Cell, Setting
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.record import Record, Result
from dlmexp.experiment.records.store import Store

PLAIN = Cell(
    kind="fit", dataset="banana", data="abc", split="counts-v1", task="binary", likelihood="probit", kernel="rbf",
    ard=False, mean="constant", M=53, n=100, objective="log_dlm", variant="fixed", form="explicit",
    parameterisation="whitened", estimator="bmc", options={"samples": 10}, lr=0.1, minibatch=None, window=20,
    tolerance=1e-4, max_iterations=3000, epochs=None, evaluate="end", dtype="float64", seed=3, beta=0.1, base="feed",
)  # fmt: skip
ELBO = replace(PLAIN, objective="elbo", variant="joint", estimator="exact", options={}, base=None)
PAPER = Setting("paper")
MIXED = Schema(
    "price", (Column("rooms"), Column("sort", "category", ("a", "b", "c")), Column("age"))
)
KNOWN: dict[str, Cell] = {}  # the cells of all `candidates`, by key
MADE = Provenance(
    device="cpu",
    host="h",
    time="2000-01-01T00:00:00Z",
    version="0",
    commit="c",
    command="dlmexp run",
)


def scored(
    cell: Cell,
    status: Literal["done", "failed"] = "done",
    reason: str = "no reason",
    **validation: float,
) -> Record:
    """A record with these validation metrics; those on the test rows are larger by 1/2."""
    test = {name: value + 0.5 for name, value in validation.items()}
    result = Result(
        validation=validation, test=test, iterations=5, seconds=1.0, hyperparameters={"noise": 0.1}
    )
    if status == "failed":
        result = Result(reason=reason, iterations=3)
    return Record(key=cell.key, status=status, cell=cell, result=result, made=MADE)


def candidates(
    method: str,
    cells: list[Cell],
    setting: Setting = PAPER,
    role: str = "fit",
    experiment: str = "test",
) -> CandidateGroup:
    """Cells as one selection of a run."""
    ordered = tuple(sorted(cells, key=lambda cell: (-(cell.beta or 0.0), cell.components)))
    KNOWN.update({cell.key: cell for cell in cells})
    return CandidateGroup.of(
        method, ordered, setting=setting, experiment=experiment, role=role, size=str(cells[0].n)
    )


def fill(root: Path, *several: CandidateGroup) -> None:
    """Results that were asked for as `test`: what is best at beta = 1, and better with larger n."""
    write_manifest(root, Manifest("test", several))
    for cell in (KNOWN[key] for each in several for key in each.keys):
        nll = 3 / cell.n**0.5 + 0.1 * abs(np.log(cell.beta or 1.0)) + 0.01 * cell.seed
        Store(root).write(scored(cell, nll=nll, error=nll / 3))


def planned(*words: str, rows: int = 600) -> list[SimpleNamespace]:
    """What overrides ask for, and its `cells`, on random data of so many rows and two features."""
    from dlmexp.experiment.plan.grid import Grid, check  # which need torch

    cfg, rng = compose(list(words)), np.random.default_rng(0)
    check(cfg)
    groups = []
    for key, dataset in cfg.dataset.items():
        y = (
            rng.normal(size=rows)
            if dataset.task == "regression"
            else rng.integers(0, 2, rows).astype(float)
        )
        data = Dataset(
            rng.normal(size=(rows, 2)), y, name=dataset.name, task=dataset.task, checksum="sum"
        )
        for each, cells in Grid(cfg, key, dataset, data).candidates():
            groups.append(SimpleNamespace(**asdict(each), cells=cells))
    return groups


def made_up_model(
    likelihood: str = "gaussian",
    M: int = 5,
    D: int = 3,
    seed: int = 0,
    schema: Schema | None = None,
    **changes: Any,
) -> TrainedCell:
    """A model on D features; `changes` are of its cell."""
    rng, task = np.random.default_rng(seed), LIKELIHOODS[likelihood].task
    schema = schema or Schema.plain(D, task)
    D = len(schema.features)
    usual = {
        "objective": "log_dlm",
        "variant": "joint",
        "base": None,
        "estimator": "exact",
        "options": {},
    }
    cell = replace(PLAIN, likelihood=likelihood, task=task, M=M, seed=seed, **usual | changes)
    hyper = {
        "Z": rng.normal(size=(M, D)),
        "mean": np.array(0.1),
        "lengthscale": np.array([1.3]),
        "outputscale": np.array(0.8),
    }
    if task == "regression":
        hyper["noise"] = np.array(0.2)
    features = Normalisation(
        rng.normal(size=D), rng.uniform(0.5, 2, size=D), np.zeros(D, dtype=bool)
    )
    components = (cell.components,) if cell.components > 1 else ()
    L = np.tril(0.2 * rng.normal(size=(*components, M, M))) + 0.5 * np.eye(M)
    m = rng.normal(size=(*components, M))
    mean, std = (3.0, 2.0) if task == "regression" else (0.0, 1.0)
    return TrainedCell(cell, schema, features, mean, std, hyper, m, L, 1e-6)
