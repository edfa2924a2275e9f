"""How good the predictions of a batch of cells are, on validation or test rows (docs/SPEC.md, section 7)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.posterior import predict
from dlmexp.gp.precision import hyper_as_rows, row_sum
from dlmexp.training.program import Posterior, Program
from dlmexp.training.reliability import Reliability, reliability

Metrics = dict[str, float]

ENTRIES_AT_ONCE = 8_000_000  # of the [B, M, rows] arrays that predictions need: 64 MB each in float64


class Predictions(NamedTuple):
    """Marginals of some rows of every cell, and their targets. Shapes: [B, rows]."""

    likelihood: Likelihood
    mu: Tensor
    v: Tensor
    y: Tensor


class Final(NamedTuple):
    """What is measured of a cell at its end: metrics by part, and the bins of its reliability diagram on test rows."""

    metrics: dict[str, Metrics]
    reliability: dict[str, np.ndarray]


class Evaluation(NamedTuple):
    """Metrics of every cell by part and name, and its bins on test rows: on the device, which may still be at work."""

    cells: int
    means: dict[str, dict[str, Float[Tensor, "B"]]]
    bins: Reliability | None

    def read(self) -> list[Final]:
        """The same cell by cell; waits for the device."""
        by_part = {part: metrics_of_cells(means, self.cells) for part, means in self.means.items()}
        arrays = self.bins.arrays() if self.bins else {}
        return [
            Final({part: cells[i] for part, cells in by_part.items()}, {name: bins[i] for name, bins in arrays.items()})
            for i in range(self.cells)
        ]


@torch.no_grad()
def evaluate(program: Program, posterior: Posterior, part: str) -> dict[str, Float[Tensor, "B"]]:
    """Mean metrics of every cell on one part of its split, without those of calibration: for learning curves."""
    sums: dict[str, Tensor] = {}
    for rows in _predictions(program, posterior, part):
        _add(sums, rowwise(program, *rows))
    return _means(sums, program, part)


@torch.no_grad()
def evaluate_finally(program: Program, posterior: Posterior) -> Evaluation:
    """Everything that is recorded of every cell: on all parts, with calibration where the objective predicts a
    variance."""
    means: dict[str, dict[str, Tensor]] = {}
    bins: dict[str, Reliability] = {}
    for part in program.split.parts:
        sums: dict[str, Tensor] = {}
        probabilities = []
        has_distribution = program.model.objective.predicts_variance
        for rows in _predictions(program, posterior, part):
            _add(sums, rowwise(program, *rows))
            if has_distribution:
                _add(sums, rows.likelihood.calibration(rows.mu, rows.v, rows.y))
                if program.model.likelihood.task == "binary":
                    probabilities.append(rows.likelihood.mean(rows.mu, rows.v))
        means[part] = _means(sums, program, part)
        if probabilities:
            bins[part] = reliability(torch.cat(probabilities, -1), program.split.parts[part][1][program.split.index])
            means[part]["ece"] = bins[part].ece()
    return Evaluation(len(program.beta), means, bins.get("test"))


def metrics_of_cells(means: dict[str, Float[Tensor, "B"]], cells: int) -> list[Metrics]:
    """Metrics by name, of each of so many cells; waits for the device."""
    numbers = {name: values.tolist() for name, values in means.items()}
    return [{name: values[i] for name, values in numbers.items()} for i in range(cells)]


def _predictions(program: Program, posterior: Posterior, part: str) -> Iterator[Predictions]:
    """Marginals at the rows of a part, in pieces of bounded memory."""
    X, y = program.split.parts[part]
    index = program.split.index
    hyper, m, L, jitter = posterior
    likelihood = program.model.likelihood.from_hyper(hyper_as_rows(X, hyper))
    B, M = m.shape
    at_once = max(1, ENTRIES_AT_ONCE // (B * M))
    for first in range(0, X.shape[1], at_once):
        rows = slice(first, first + at_once)
        mu, v = predict(program.model.kernel, hyper, m, L, jitter, X[:, rows][index])
        yield Predictions(likelihood, mu, v, y[:, rows][index])


def rowwise(
    program: Program,
    likelihood: Likelihood,
    mu: Float[Tensor, "B N"],
    v: Float[Tensor, "B N"],
    y: Float[Tensor, "B N"],
) -> dict[str, Float[Tensor, "B N"]]:
    """The metrics that the likelihood states, and the NLL where the objective predicts a variance."""
    found = {"nll": likelihood.log_loss(mu, v, y)} if program.model.objective.predicts_variance else {}
    return found | {name: metric(likelihood, mu, v, y) for name, metric in likelihood.metrics.items()}


def _add(sums: dict[str, Tensor], rows: dict[str, Float[Tensor, "B N"]]) -> None:
    for name, value in rows.items():
        total = row_sum(value)
        sums[name] = sums[name] + total if name in sums else total


def _means(sums: dict[str, Tensor], program: Program, part: str) -> dict[str, Tensor]:
    rows = program.split.parts[part][0].shape[1]
    return {name: total / rows for name, total in sums.items()}
