"""The trivial predictor: it knows only the training targets, and says the same of every row.

What a model explains is how far it gets below the trivial predictor's metrics (docs/SPEC.md, sections 7 and 8).
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.likelihoods import Gaussian, Likelihood, Poisson, Probit
from dlmexp.training.reliability import reliability

Metrics = dict[str, float]


def trivial_metrics(
    task: str, y_train: Float[np.ndarray, " n"], parts: dict[str, Float[np.ndarray, " T"]]
) -> dict[str, Metrics]:
    """Its metrics on each part that has rows, targets scaled as in training."""
    likelihood, f = _fitted(task, torch.from_numpy(np.asarray(y_train, dtype=np.float64)))
    given = {name: torch.from_numpy(np.array(y, dtype=np.float64))[None] for name, y in parts.items()}
    return {name: _metrics(likelihood, f, y) for name, y in given.items() if y.numel()}


def _fitted(task: str, y: Tensor) -> tuple[Likelihood, float]:
    """A likelihood, and the one value of f that makes it the trivial predictor.

    Regression: the Gaussian with mean and variance of the targets (variance 1, the unit of their scale, if they are all
    equal). Binary: the share of each class, (1 + rows of it) / (2 + n) if one class is absent. Counts: the Poisson with
    the mean count as its rate, 1 / (n + 1) if all are 0.
    """
    n, total = len(y), float(y.sum())
    if task == "regression":
        variance = y.var(correction=0)
        return Gaussian(torch.where(variance > 0, variance, 1.0)), float(y.mean())
    if task == "binary":
        share = total / n if 0 < total < n else (total + 1) / (n + 2)
        return Probit(), float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
    return Poisson(), float(np.log(total / n if total else 1 / (n + 1)))


def _metrics(likelihood: Likelihood, value: float, y: Float[Tensor, "1 T"]) -> Metrics:
    f, v = torch.full_like(y, value), torch.zeros_like(y)
    rows = {"nll": -likelihood.log_prob(f, y)}
    rows |= {name: metric(likelihood, f, v, y) for name, metric in likelihood.metrics.items()}
    rows |= likelihood.calibration(f, v, y)
    found = {name: float(values.mean()) for name, values in rows.items()}
    if likelihood.task == "binary":
        found["ece"] = float(reliability(likelihood.mean(f, v), y).ece())
    return found
