"""How good predictions are on validation or test rows (docs/SPEC.md, section 7).

The predictions are those of a batch of cells, or those of the trivial predictor, which knows only
the training targets.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from dlmexp.core.gp.leave_one_out import left_out_marginals
from dlmexp.core.gp.posterior import component_marginals, marginals, projection
from dlmexp.core.gp.precision import hyper_as_rows, row_sum
from dlmexp.core.likelihoods import Gaussian, Likelihood, Poisson, Probit
from dlmexp.core.likelihoods.mixture import Mixture, predictive
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import Posterior, Program
from dlmexp.core.training.recalibration import (
    best_factor,
    loss_profile,
    penalised_factors,
    recalibrated_scores,
)

Metrics = dict[str, float]
ENTRIES_AT_ONCE = 8_000_000
"""Of the [B, M, rows] arrays that predictions need: 64 MB each in float64."""
BINS = 15  # of a reliability diagram


class Reliability(NamedTuple):
    """The bins of a reliability diagram.

    Attributes:
        p: Mean probability of class 1; NaN in an empty bin.
        y: Share of class 1; NaN in an empty bin.
        rows: Number of rows.
    """

    p: Float[Tensor, "B bins"]
    y: Float[Tensor, "B bins"]
    rows: Float[Tensor, "B bins"]

    def ece(self) -> Float[Tensor, "B"]:
        """Return the mean over rows of |mean probability - share of class 1| of their bin."""
        gaps = (self.p - self.y).abs() * self.rows
        return torch.where(self.rows > 0, gaps, 0.0).sum(-1) / self.rows.sum(-1)


def reliability(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Reliability:
    """Return the reliability diagram of rows with probability p of class 1.

    The rows are sorted by p and cut into `BINS` bins whose sizes differ by at most one. Each of the
    rows of equal p counts with their mean class, so that their order does not matter; where all p
    are equal, the ECE is |p - share of class 1|.
    """
    B, N = p.shape
    p, order = p.sort(dim=-1)
    y = _mean_over_ties(p, y.gather(-1, order))
    ends = torch.arange(BINS + 1, device=p.device) * N // BINS
    count = ends.diff().to(p.dtype).expand(B, BINS)

    def mean_by_bin(values: Float[Tensor, "B N"]) -> Float[Tensor, "B bins"]:
        sums_before = pad(values.cumsum(-1), (1, 0))  # entry i: the sum of the first i values
        return sums_before[:, ends].diff(dim=-1) / count

    return Reliability(mean_by_bin(p), mean_by_bin(y), count)


def _mean_over_ties(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Return y with rows of equal p replaced by their mean; p is sorted."""
    is_new = p[:, 1:] != p[:, :-1]
    group = pad(is_new.long().cumsum(-1), (1, 0))
    sums = torch.zeros_like(y).scatter_add(-1, group, y)
    sizes = torch.zeros_like(y).scatter_add(-1, group, torch.ones_like(y))
    return sums.gather(-1, group) / sizes.gather(-1, group)


class Evaluation(NamedTuple):
    """Metrics of every cell, on the device, which may still be at work.

    Attributes:
        cells: The number of cells.
        means: Mean metrics by part and name.
        bins: The reliability diagram on test rows, of binary data.
        profile: The NLL on the rows of a fold at a grid of recalibrating factors.
    """

    cells: int
    means: dict[str, dict[str, Float[Tensor, "B"]]]
    bins: Reliability | None
    profile: Float[Tensor, "B P"] | None = None

    def profiles(self) -> list[np.ndarray | None]:
        """Return the profile of every cell; None where it leaves none."""
        if self.profile is None:
            return [None] * self.cells
        return list(self.profile.cpu().numpy())

    def read(self) -> list[tuple[dict[str, Metrics], dict[str, np.ndarray]]]:
        """Return each cell's metrics by part, and its reliability diagram; wait for the device."""
        means = {part: _as_lists(metrics) for part, metrics in self.means.items()}
        diagrams = _diagrams(self.bins)
        results = []
        for i in range(self.cells):
            metrics = {part: _entries(values, i) for part, values in means.items()}
            diagram = {name: array[i] for name, array in diagrams.items()}
            results.append((metrics, diagram))
        return results


def _as_lists(metrics: dict[str, Float[Tensor, "B"]]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in metrics.items()}


def _entries(lists: dict[str, list[float]], i: int) -> Metrics:
    return {name: values[i] for name, values in lists.items()}


def _diagrams(bins: Reliability | None) -> dict[str, np.ndarray]:
    """Return a reliability diagram as float32 arrays by the names that they have in records."""
    if bins is None:
        return {}
    tensors = bins._asdict()
    return {f"reliability_{name}": t.float().cpu().numpy() for name, t in tensors.items()}


class Rows(NamedTuple):
    """Predictions at some rows: the likelihood, the marginals of f, and the targets."""

    likelihood: Likelihood | Mixture
    mu: Float[Tensor, "B *K n"]
    v: Float[Tensor, "B *K n"]
    y: Float[Tensor, "B n"]


@torch.no_grad()
def evaluate(
    program: Program,
    posterior: Posterior,
    calibration: bool = True,
    parts: Collection[str] | None = None,
) -> Evaluation:
    """Return mean metrics of every cell on its validation and test rows.

    Cells whose splits differ in their number of rows are evaluated apart.

    Args:
        program: The cells.
        posterior: Their posteriors.
        calibration: Also measure calibration and recalibrate, where the objective predicts a
            variance. Learning curves go without it.
        parts: The parts of the split; None: all.
    """
    groups = program.data.cells_by_rows()
    if len(groups) == 1:
        return _evaluate_equal(program, posterior, calibration, parts)
    evaluations = []
    for cells in groups:
        group = program.keep(cells)
        evaluations.append(_evaluate_equal(group, posterior.keep(cells), calibration, parts))
    return _joined(evaluations, groups)


def _joined(evaluations: Sequence[Evaluation], groups: Sequence[Sequence[int]]) -> Evaluation:
    """Return the evaluations of groups of cells as one."""
    cells = list(chain.from_iterable(groups))
    position = np.argsort(cells).tolist()  # of each cell among those of all groups

    def in_order(values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values))[position]

    means: dict[str, Tensors] = {}
    for part, metrics in evaluations[0].means.items():
        means[part] = {}
        for name in metrics:
            means[part][name] = in_order([group.means[part][name] for group in evaluations])
    diagrams = [group.bins for group in evaluations if group.bins is not None]
    profiles = [group.profile for group in evaluations if group.profile is not None]
    return Evaluation(
        cells=len(cells),
        means=means,
        bins=_joined_diagrams(diagrams, in_order) if diagrams else None,
        profile=in_order(profiles) if profiles else None,
    )


def _joined_diagrams(
    diagrams: Sequence[Reliability], in_order: Callable[[Sequence[Tensor]], Tensor]
) -> Reliability:
    """Return the diagrams of groups of cells as one, by a function that joins tensors of groups."""
    return Reliability(
        p=in_order([diagram.p for diagram in diagrams]),
        y=in_order([diagram.y for diagram in diagrams]),
        rows=in_order([diagram.rows for diagram in diagrams]),
    )


def _evaluate_equal(
    program: Program, posterior: Posterior, calibration: bool, parts: Collection[str] | None
) -> Evaluation:
    """Return mean metrics of cells with the same number of rows in each part."""
    data = program.data
    if data.leaves_profile or not program.loss.objective.predicts_variance:
        calibration = False
    predictions = _predictions(program, posterior, parts)
    profile, factor = _recalibration(program, posterior, predictions, calibration)
    means: dict[str, Tensors] = {}
    bins: dict[str, Reliability] = {}
    for part, pieces in predictions.items():
        means[part], diagram = _part_means(program, posterior, pieces, calibration, factor)
        if diagram is not None:
            bins[part] = diagram
    return Evaluation(len(program.beta), means, bins.get("test"), profile)


def _predictions(
    program: Program, posterior: Posterior, parts: Collection[str] | None
) -> dict[str, Iterable[Rows]]:
    """Return predictions at the rows of each part, piece by piece."""
    predictions: dict[str, Iterable[Rows]] = {}
    for part in parts or program.data.parts:
        predictions[part] = predictions_of(program, posterior, part)
    if program.data.leave_one_out and not parts:
        predictions["validation"] = left_out_predictions(program, posterior)
    if "validation" in predictions:
        predictions["validation"] = list(predictions["validation"])  # they are read twice
    return predictions


def _recalibration(
    program: Program,
    posterior: Posterior,
    predictions: Mapping[str, Iterable[Rows]],
    calibration: bool,
) -> tuple[Tensor | None, Float[Tensor, "B"] | None]:
    """Return the loss by factor of the predictive variance, and the factor to recalibrate with.

    The losses are kept where validation rows stand for others: those of folds are summed over the
    folds, and rows that were left out are penalised. Both are None where they are not needed.
    """
    data = program.data
    factor = data.temperature if calibration else None
    predicts_variance = program.loss.objective.predicts_variance
    leaves_profile = (data.leaves_profile or data.leave_one_out) and predicts_variance
    reads_validation = calibration or leaves_profile
    if "validation" not in predictions or not reads_validation:
        return None, factor
    joined = _joined_rows(predictions["validation"])
    rows = (program.model.likelihood, posterior.hyper, *joined)
    if not leaves_profile:
        return None, best_factor(*rows)
    profile = loss_profile(*rows)
    if calibration:
        factor = penalised_factors(profile)
    return profile, factor


def _joined_rows(pieces: Iterable[Rows]) -> tuple[Tensor, Tensor, Tensor]:
    """Return means, variances and targets of all pieces as one."""
    pieces = list(pieces)
    mu = torch.cat([rows.mu for rows in pieces], -1)
    v = torch.cat([rows.v for rows in pieces], -1)
    y = torch.cat([rows.y for rows in pieces], -1)
    return mu, v, y


def _part_means(
    program: Program,
    posterior: Posterior,
    pieces: Iterable[Rows],
    calibration: bool,
    factor: Float[Tensor, "B"] | None,
) -> tuple[Tensors, Reliability | None]:
    """Return the mean metrics on the rows of a part, and the reliability diagram of binary data."""
    likelihood = program.model.likelihood
    predicts_variance = program.loss.objective.predicts_variance
    has_diagram = calibration and likelihood.task == "binary"
    sums: Tensors = {}
    probabilities: list[Tensor] = []
    targets: list[Tensor] = []
    count = 0
    for rows in pieces:
        scores = _scores(rows, predicts_variance, calibration)
        if factor is not None:
            scores |= recalibrated_scores(
                likelihood, posterior.hyper, factor, rows.mu, rows.v, rows.y
            )
        for name, values in scores.items():
            total = row_sum(values)
            sums[name] = sums[name] + total if name in sums else total
        count += rows.y.shape[1]
        if has_diagram:
            probabilities.append(rows.likelihood.mean(rows.mu, rows.v))
            targets.append(rows.y)
    means = {name: total / count for name, total in sums.items()}
    if not has_diagram:
        return means, None
    diagram = reliability(torch.cat(probabilities, -1), torch.cat(targets, -1))
    means["ece"] = diagram.ece()
    return means, diagram


def _scores(rows: Rows, predicts_variance: bool, calibration: bool) -> Tensors:
    """Return the metrics of every row, whose means are reported."""
    likelihood, mu, v, y = rows
    scores: Tensors = {}
    if predicts_variance:
        scores["nll"] = likelihood.log_loss(mu, v, y)
    for name, metric in likelihood.metrics.items():
        scores[name] = metric(likelihood, mu, v, y)
    if calibration:
        scores |= likelihood.calibration(mu, v, y)
    return scores


def predictions_of(program: Program, posterior: Posterior, part: str) -> Iterator[Rows]:
    """Yield predictions at the rows of a part, in pieces of bounded memory."""
    X, y = program.data.parts[part]
    index = program.data.index
    hyper, m, L, jitter = posterior
    # All pieces share this projection; `X`, here of a single row, is replaced for each of them.
    shared = projection(program.model.kernel, hyper, X[:, :1][index], jitter)
    likelihood = predictive(program.model.likelihood, shared.hyper, is_mixture=m.ndim == 3)
    marginals_of_q = component_marginals if m.ndim == 3 else marginals
    rows_at_once = max(1, ENTRIES_AT_ONCE // m.numel())
    for first in range(0, X.shape[1], rows_at_once):
        rows = slice(first, first + rows_at_once)
        mu, v = marginals_of_q(shared._replace(X=X[:, rows][index]), hyper["mean"], m, L)
        yield Rows(likelihood, mu, v, y[:, rows][index])


def left_out_predictions(program: Program, posterior: Posterior) -> Iterator[Rows]:
    """Yield predictions at the training rows, each from all others, in pieces of bounded memory."""
    objective = program.loss.objective
    assert objective.row_noise is not None
    cells = program
    if not isinstance(cells, Collapsed):
        cells = Collapsed(program.model, program.loss, program.data, program.beta)
    problem = cells.problem(posterior.hyper, posterior.jitter)
    row_hyper = hyper_as_rows(problem.X, posterior.hyper)
    likelihood = predictive(program.model.likelihood, row_hyper, is_mixture=False)
    for mu, v, y in left_out_marginals(problem, program.beta, objective.row_noise):
        yield Rows(likelihood, mu, v, y)


@torch.no_grad()
def nll_error(program: Program, posterior: Posterior) -> Float[Tensor, "B"] | None:
    """Return by how much the NLL per row may be wrong: the larger of validation and test.

    It is the mean difference of the log losses to an integration with more nodes. None for the
    likelihoods of this package, whose integrals are tested, for mixtures, and where there is no
    NLL.
    """
    is_tested = program.model.likelihood.__module__.startswith("dlmexp.core.")
    is_mixture = posterior.m.ndim == 3
    if is_tested or is_mixture or not program.loss.objective.predicts_variance:
        return None
    errors = [_nll_error_on(program, posterior, part) for part in program.data.parts]
    return torch.stack(errors).amax(0) if errors else None


def _nll_error_on(program: Program, posterior: Posterior, part: str) -> Float[Tensor, "B"]:
    """Return by how much the NLL per row of a part may be wrong."""
    total = torch.zeros_like(program.beta)
    count = 0
    for likelihood, mu, v, y in predictions_of(program, posterior, part):
        assert isinstance(likelihood, Likelihood)
        total += row_sum(likelihood.log_loss_error(mu, v, y))
        count += y.shape[1]
    return total / max(count, 1)


def trivial_metrics(
    task: str, y_train: Float[np.ndarray, " n"], parts: dict[str, Float[np.ndarray, " T"]]
) -> dict[str, Metrics]:
    """Return the metrics of the trivial predictor on each part that has rows.

    Args:
        task: "regression", "binary" or "count".
        y_train: The training targets, all that the predictor knows.
        parts: Targets by part, scaled as in training.
    """
    likelihood, value = trivial_predictor(task, _float64(y_train))
    metrics: dict[str, Metrics] = {}
    for part, targets in parts.items():
        if len(targets):
            metrics[part] = _metrics_of_constant(likelihood, value, _float64(targets))
    return metrics


def _metrics_of_constant(
    likelihood: Likelihood, value: float, targets: Float[Tensor, "T"]
) -> Metrics:
    """Return the metrics of the predictor that knows f to be one value at all rows."""
    y = targets[None]
    f = torch.full_like(y, value)
    v = torch.zeros_like(y)
    scores = {"nll": -likelihood.log_prob(f, y)}
    for name, metric in likelihood.metrics.items():
        scores[name] = metric(likelihood, f, v, y)
    scores |= likelihood.calibration(f, v, y)
    metrics = {name: float(values.mean()) for name, values in scores.items()}
    if likelihood.task == "binary":
        metrics["ece"] = float(reliability(likelihood.mean(f, v), y).ece())
    return metrics


def _float64(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))


def trivial_predictor(task: str, y: Float[Tensor, "n"]) -> tuple[Likelihood, float]:
    """Return a likelihood, and the one value of f that makes it the trivial predictor.

    Regression: the Gaussian with mean and variance of the targets (variance 1, the unit of their
    scale, if they are all equal). Binary: the share of each class, (1 + rows of it) / (2 + n) if
    one class is absent. Counts: the Poisson with the mean count as its rate, 1 / (n + 1) if all are
    0.
    """
    n = len(y)
    total = float(y.sum())
    if task == "regression":
        variance = y.var(correction=0)
        return Gaussian(torch.where(variance > 0, variance, 1.0)), float(y.mean())
    if task == "binary":
        share = total / n if 0 < total < n else (total + 1) / (n + 2)
        return Probit(), float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
    rate = total / n if total else 1 / (n + 1)
    return Poisson(), float(np.log(rate))
