"""How good predictions are on validation or test rows (docs/SPEC.md, section 7): those of a batch of cells, and of the
trivial predictor, which knows only the training targets and says the same of every row."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from dlmexp.gp.likelihoods import Gaussian, Likelihood, Poisson, Probit
from dlmexp.gp.posterior import predict
from dlmexp.gp.precision import hyper_as_rows, row_sum
from dlmexp.training.program import Posterior, Program
from dlmexp.training.recalibration import best_factor, rescale

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Per bin: mean probability of class 1, share of class 1 (both NaN in an empty bin), and how many rows."""

    p: Float[Tensor, "B bins"]
    y: Float[Tensor, "B bins"]
    rows: Float[Tensor, "B bins"]

    def ece(self) -> Float[Tensor, "B"]:
        """Mean over rows of |mean probability - share of class 1| of their bin."""
        gaps = (self.p - self.y).abs() * self.rows
        return torch.where(self.rows > 0, gaps, 0.0).sum(-1) / self.rows.sum(-1)

    def arrays(self) -> dict[str, Float32[np.ndarray, "B bins"]]:
        """As they are stored beside the record of each cell."""
        return {f"reliability_{field.name}": getattr(self, field.name).float().cpu().numpy() for field in fields(self)}


def reliability(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Reliability:
    """Rows sorted by their probability p of class 1 and cut into `BINS` bins whose sizes differ by at most one.

    Rows of equal p share their class evenly, so that their order does not matter; where all p are equal, the ECE is
    |p - share of class 1|.
    """
    B, N = p.shape
    p, order = p.sort(dim=-1)
    y = _mean_over_ties(p, y.gather(-1, order))
    ends = torch.arange(BINS + 1, device=p.device) * N // BINS
    count = ends.diff().to(p.dtype).expand(B, BINS)
    p, y = (torch.nn.functional.pad(t.cumsum(-1), (1, 0))[:, ends].diff(dim=-1) / count for t in (p, y))
    return Reliability(p, y, count)


def _mean_over_ties(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """y with rows of equal p replaced by their mean; p is sorted."""
    group = torch.nn.functional.pad((p[:, 1:] != p[:, :-1]).long().cumsum(-1), (1, 0))
    sums, sizes = (torch.zeros_like(y).scatter_add(-1, group, t) for t in (y, torch.ones_like(y)))
    return sums.gather(-1, group) / sizes.gather(-1, group)


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
    factor = _recalibration(program, posterior)
    for part in program.split.parts:
        sums: dict[str, Tensor] = {}
        probabilities = []
        has_distribution = program.model.objective.predicts_variance
        for rows in _predictions(program, posterior, part):
            _add(sums, rowwise(program, *rows))
            if has_distribution:
                _add(sums, rows.likelihood.calibration(rows.mu, rows.v, rows.y))
                if factor is not None:
                    _add(sums, _recalibrated(program, posterior, factor, rows))
                if program.model.likelihood.task == "binary":
                    probabilities.append(rows.likelihood.mean(rows.mu, rows.v))
        means[part] = _means(sums, program, part)
        if probabilities:
            bins[part] = reliability(torch.cat(probabilities, -1), program.split.parts[part][1][program.split.index])
            means[part]["ece"] = bins[part].ece()
    return Evaluation(len(program.beta), means, bins.get("test"))


def _recalibration(program: Program, posterior: Posterior) -> Float[Tensor, "B"] | None:
    """The factor of each cell that recalibrates its predictions on the validation rows; None without such rows or
    without a predicted variance."""
    if "validation" not in program.split.parts or not program.model.objective.predicts_variance:
        return None
    pieces = list(_predictions(program, posterior, "validation"))
    mu, v, y = (torch.cat([getattr(piece, name) for piece in pieces], -1) for name in ("mu", "v", "y"))
    return best_factor(program.model.likelihood, posterior.hyper, mu, v, y)


def _recalibrated(program: Program, posterior: Posterior, factor: Tensor, rows: Predictions) -> dict[str, Tensor]:
    """NLL per row of recalibrated predictions, and their other scores in regression."""
    _, mu, v, y = rows
    likelihood, scaled, nll = rescale(program.model.likelihood, posterior.hyper, factor, mu, v, y)
    scores = likelihood.calibration(mu, scaled, y) if likelihood.task == "regression" else {}
    chosen = {name: scores[name] for name in ("crps", "coverage_95") if name in scores}
    return {f"recalibrated_{name}": value for name, value in {"nll": nll, **chosen}.items()}


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
