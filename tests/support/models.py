"""A trained model with made-up numbers, for tests that need no training."""

from typing import Any

import numpy as np
from msgspec.structs import replace

from dlmexp.data.schema import Column, Schema
from dlmexp.data.splits import Normalisation
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.models.file import TrainedCell
from tests.support.cells import PLAIN


def made_up_model(
    likelihood: str = "gaussian", M: int = 5, D: int = 3, seed: int = 0, schema: Schema | None = None, **changes: Any
) -> TrainedCell:
    """A model on D features; `changes` are of its cell."""
    rng, task = np.random.default_rng(seed), LIKELIHOODS[likelihood].task
    schema = schema or Schema.plain(D, task)
    D = len(schema.features)
    usual = {"objective": "log_dlm", "variant": "joint", "base": None, "estimator": "exact", "options": {}}
    cell = replace(PLAIN, likelihood=likelihood, task=task, M=M, seed=seed, **usual | changes)
    hyper = {
        "Z": rng.normal(size=(M, D)),
        "mean": np.array(0.1),
        "lengthscale": np.array([1.3]),
        "outputscale": np.array(0.8),
    }
    if task == "regression":
        hyper["noise"] = np.array(0.2)
    features = Normalisation(rng.normal(size=D), rng.uniform(0.5, 2, size=D), np.zeros(D, dtype=bool))
    L = np.tril(0.2 * rng.normal(size=(M, M))) + 0.5 * np.eye(M)
    mean, std = (3.0, 2.0) if task == "regression" else (0.0, 1.0)
    return TrainedCell(cell, schema, features, mean, std, hyper, rng.normal(size=M), L, 1e-6)


MIXED = Schema("price", (Column("rooms"), Column("sort", "category", ("a", "b", "c")), Column("age")))
