"""How good predictions are on validation or test rows (docs/SPEC.md, section 7): those of a batch
of cells, the same recalibrated, and those of the trivial predictor, which knows only the training
targets."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad, softplus

from dlmexp.core.gp.kernels import Hyper
from dlmexp.core.gp.posterior import marginals, projection
from dlmexp.core.gp.precision import hyper_as_rows, row_mean, row_sum
from dlmexp.core.likelihoods import Gaussian, Likelihood, Poisson, Probit
from dlmexp.core.training.program import Posterior, Program, Tensors

Metrics = dict[str, float]
Rows = tuple[
    Likelihood, Float[Tensor, "B n"], Float[Tensor, "B n"], Float[Tensor, "B n"]
]  # with mu, v, y
ENTRIES_AT_ONCE = (
    8_000_000  # of the [B, M, rows] arrays that predictions need: 64 MB each in float64
)
BINS = 15  # of a reliability diagram
WIDEST = 7.0  # the logarithm of a recalibrating factor lies between -WIDEST and WIDEST
POINTS, ROUNDS = 17, 5  # of a grid that is narrowed to its best point's neighbours in every round
FACTORED_AT_ONCE = ENTRIES_AT_ONCE // 4  # rows of predictions, times the nodes of a quadrature


class Reliability(NamedTuple):
    """Per bin: mean probability of class 1, share of class 1 (both NaN in an empty bin), and how
    many rows."""

    p: Float[Tensor, "B bins"]
    y: Float[Tensor, "B bins"]
    rows: Float[Tensor, "B bins"]

    def ece(self) -> Float[Tensor, "B"]:
        """Mean over rows of |mean probability - share of class 1| of their bin."""
        gaps = (self.p - self.y).abs() * self.rows
        return torch.where(self.rows > 0, gaps, 0.0).sum(-1) / self.rows.sum(-1)


def reliability(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Reliability:
    """Rows sorted by their probability p of class 1 and cut into `BINS` bins whose sizes differ by
    at most one.

    Rows of equal p share their class evenly, so that their order does not matter; where all p are
    equal, the ECE is |p - share of class 1|."""
    B, N = p.shape
    p, order = p.sort(dim=-1)
    y = _mean_over_ties(p, y.gather(-1, order))
    ends = torch.arange(BINS + 1, device=p.device) * N // BINS
    count = ends.diff().to(p.dtype).expand(B, BINS)
    p, y = (pad(t.cumsum(-1), (1, 0))[:, ends].diff(dim=-1) / count for t in (p, y))
    return Reliability(p, y, count)


def _mean_over_ties(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """y with rows of equal p replaced by their mean; p is sorted."""
    group = pad((p[:, 1:] != p[:, :-1]).long().cumsum(-1), (1, 0))
    sums, sizes = (torch.zeros_like(y).scatter_add(-1, group, t) for t in (y, torch.ones_like(y)))
    return sums.gather(-1, group) / sizes.gather(-1, group)


class Evaluation(NamedTuple):
    """Metrics of every cell by part and name, and its bins on test rows: on the device, which may
    still be at work."""

    cells: int
    means: dict[str, dict[str, Float[Tensor, "B"]]]
    bins: Reliability | None

    def read(self) -> list[tuple[dict[str, Metrics], dict[str, np.ndarray]]]:
        """Each cell's metrics by part, and the bins of its reliability diagram; waits for the
        device."""
        metrics: list[dict[str, Metrics]] = [
            {part: {} for part in self.means} for _ in range(self.cells)
        ]
        for part, means in self.means.items():
            for name, values in means.items():
                for of_cell, value in zip(metrics, values.tolist(), strict=True):
                    of_cell[part][name] = value
        bins = {} if self.bins is None else self.bins._asdict()
        arrays = {
            f"reliability_{name}": values.float().cpu().numpy() for name, values in bins.items()
        }
        return [
            (of_cell, {name: array[i] for name, array in arrays.items()})
            for i, of_cell in enumerate(metrics)
        ]


@torch.no_grad()
def evaluate(
    program: Program,
    posterior: Posterior,
    calibration: bool = True,
    parts: Collection[str] | None = None,
) -> Evaluation:
    """Mean metrics of every cell on these parts of its split (None: all), with `calibration` where
    the objective predicts a variance. Learning curves go without it."""
    means: dict[str, Tensors] = {}
    bins: dict[str, Reliability] = {}
    likelihood, factor = program.model.likelihood, None
    calibration = calibration and program.model.objective.predicts_variance
    predictions: dict[str, Iterable[Rows]] = {
        part: _predictions(program, posterior, part) for part in parts or program.split.parts
    }
    if calibration and "validation" in predictions:
        pieces = predictions["validation"] = list(predictions["validation"])
        mu, v, y = (torch.cat(arrays, -1) for arrays in list(zip(*pieces, strict=True))[1:])
        factor = best_factor(likelihood, posterior.hyper, mu, v, y)
    for part, pieces in predictions.items():
        X, y_part = program.split.parts[part]
        sums: Tensors = {}
        probabilities = []
        for made, mu, v, y in pieces:
            scores = (
                {"nll": made.log_loss(mu, v, y)}
                if program.model.objective.predicts_variance
                else {}
            )
            scores |= {name: metric(made, mu, v, y) for name, metric in made.metrics.items()}
            if calibration:
                scores |= made.calibration(mu, v, y)
            if factor is not None:
                scores |= _recalibrated(likelihood, posterior.hyper, factor, mu, v, y)
            if calibration and likelihood.task == "binary":
                probabilities.append(made.mean(mu, v))
            for name, values in scores.items():
                total = row_sum(values)
                sums[name] = sums[name] + total if name in sums else total
        means[part] = {name: total / X.shape[1] for name, total in sums.items()}
        if probabilities:
            bins[part] = reliability(torch.cat(probabilities, -1), y_part[program.split.index])
            means[part]["ece"] = bins[part].ece()
    return Evaluation(len(program.beta), means, bins.get("test"))


def _predictions(program: Program, posterior: Posterior, part: str) -> Iterator[Rows]:
    """Likelihood, marginals and targets at the rows of a part, in pieces of bounded memory."""
    X, y = program.split.parts[part]
    index = program.split.index
    hyper, m, L, jitter = posterior
    shared = projection(
        program.model.kernel, hyper, X[:, :1][index], jitter
    )  # by all pieces, which differ in X alone
    likelihood = program.model.likelihood.from_hyper(shared.hyper)
    at_once = max(1, ENTRIES_AT_ONCE // m.numel())
    for first in range(0, X.shape[1], at_once):
        rows = slice(first, first + at_once)
        mu, v = marginals(shared._replace(X=X[:, rows][index]), hyper["mean"], m, L)
        yield likelihood, mu, v, y[:, rows][index]


def rescale(
    likelihood: type[Likelihood],
    hyper: Hyper,
    factor: Float[Tensor, "B"],
    mu: Tensor,
    v: Tensor,
    y: Tensor,
) -> tuple[Likelihood, Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """The predictions mu, v at rows y (all [B, N]) recalibrated by one number per cell; 1 leaves
    them as they are: the likelihood, the variances of f, and the NLL of the rows.

    Regression: a factor on the predictive variance. Counts: a factor on the variance of f. Binary:
    a temperature, which divides the log-odds of the predicted probability (Guo et al., 2017)."""
    by_row = factor.to(mu.dtype)[:, None]
    if likelihood.task == "binary":
        made = likelihood.from_hyper(hyper_as_rows(mu, hyper))
        return made, v, softplus(_against_label(made, mu, v, y) / by_row)
    if likelihood.task == "regression" and "noise" in hyper:
        hyper = {**hyper, "noise": hyper["noise"] * factor}
    made = likelihood.from_hyper(hyper_as_rows(mu, hyper))
    return made, v * by_row, made.log_loss(mu, v * by_row, y)


def _against_label(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B N"]:
    """The log-odds of the class that a row does not have."""
    ones = torch.ones_like(y)
    odds = likelihood.log_loss(mu, v, 1 - ones) - likelihood.log_loss(mu, v, ones)
    return (1 - 2 * y) * odds


def best_factor(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B"]:
    """The factor of each cell with the least mean NLL on rows [B, N], to a relative 1e-4."""
    shared = None  # by all factors: the log-odds, which a temperature divides
    if likelihood.task == "binary":
        shared = _against_label(likelihood.from_hyper(hyper_as_rows(mu, hyper)), mu, v, y)

    def losses(logs: Float[Tensor, "P B"]) -> Float[Tensor, "P B"]:
        """Mean NLLs with the factors `exp(logs)`: P copies of every cell at once."""
        if shared is not None:
            return row_mean(softplus(shared / logs.exp().to(mu.dtype)[..., None]))
        copied = {
            name: value.repeat(len(logs), *[1] * (value.dim() - 1)) for name, value in hyper.items()
        }
        rows = (each.repeat(len(logs), 1) for each in (mu, v, y))
        return row_mean(rescale(likelihood, copied, logs.exp().flatten(), *rows)[2]).reshape(
            logs.shape
        )

    low, high = (torch.full_like(hyper["mean"], end) for end in (-WIDEST, WIDEST))
    cells = torch.arange(len(low), device=low.device)
    steps = torch.linspace(0, 1, POINTS, dtype=low.dtype, device=low.device)
    for _ in range(ROUNDS):
        logs = low + steps[:, None] * (high - low)
        best = torch.cat(
            [losses(some) for some in logs.split(max(1, FACTORED_AT_ONCE // mu.numel()))]
        ).argmin(0)
        low, high = (
            logs[(best - 1).clamp_min(0), cells],
            logs[(best + 1).clamp_max(POINTS - 1), cells],
        )
    return ((low + high) / 2).exp()


def _recalibrated(
    likelihood: type[Likelihood], hyper: Hyper, factor: Tensor, mu: Tensor, v: Tensor, y: Tensor
) -> Tensors:
    """NLL per row of recalibrated predictions, and their other scores in regression."""
    made, scaled, nll = rescale(likelihood, hyper, factor, mu, v, y)
    scores = made.calibration(mu, scaled, y) if made.task == "regression" else {}
    chosen = {name: scores[name] for name in ("crps", "coverage_95") if name in scores}
    return {f"recalibrated_{name}": value for name, value in {"nll": nll, **chosen}.items()}


def trivial_metrics(
    task: str, y_train: Float[np.ndarray, " n"], parts: dict[str, Float[np.ndarray, " T"]]
) -> dict[str, Metrics]:
    """Metrics of the trivial predictor on each part that has rows, targets scaled as in
    training."""
    likelihood, value = _fitted(task, torch.from_numpy(np.asarray(y_train, dtype=np.float64)))
    metrics: dict[str, Metrics] = {}
    for part, targets in parts.items():
        if not len(targets):
            continue
        y = torch.from_numpy(np.array(targets, dtype=np.float64))[None]
        f, v = torch.full_like(y, value), torch.zeros_like(y)
        rows = {"nll": -likelihood.log_prob(f, y)}
        rows |= {name: metric(likelihood, f, v, y) for name, metric in likelihood.metrics.items()}
        rows |= likelihood.calibration(f, v, y)
        metrics[part] = {name: float(values.mean()) for name, values in rows.items()}
        if likelihood.task == "binary":
            metrics[part]["ece"] = float(reliability(likelihood.mean(f, v), y).ece())
    return metrics


def _fitted(task: str, y: Tensor) -> tuple[Likelihood, float]:
    """A likelihood, and the one value of f that makes it the trivial predictor.

    Regression: the Gaussian with mean and variance of the targets (variance 1, the unit of their
    scale, if they are all equal). Binary: the share of each class, (1 + rows of it) / (2 + n) if
    one class is absent. Counts: the Poisson with the mean count as its rate, 1 / (n + 1) if all are
    0."""
    n, total = len(y), float(y.sum())
    if task == "regression":
        variance = y.var(correction=0)
        return Gaussian(torch.where(variance > 0, variance, 1.0)), float(y.mean())
    if task == "binary":
        share = total / n if 0 < total < n else (total + 1) / (n + 2)
        return Probit(), float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
    return Poisson(), float(np.log(total / n if total else 1 / (n + 1)))
