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
from dlmexp.core.gp.precision import hyper_in_type_of, row_sum
from dlmexp.core.likelihoods import Gaussian, Likelihood, Poisson, Probit
from dlmexp.core.likelihoods.mixture import Mixture, predictive_likelihood
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
"""The most entries of an array [B, M, rows] of predictions: 64 MB in float64."""
BINS = 15
"""Number of bins of a reliability diagram."""


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

    The rows are sorted by p and cut into `BINS` bins whose sizes differ by at most one. Where rows
    have equal p, the mean of their classes takes the place of each class, so that the order of
    these rows does not matter. Where all p are equal, the ECE is |p - share of class 1|.
    """
    B, N = p.shape
    p, order = p.sort(dim=-1)
    y = _mean_over_ties(p, y.gather(-1, order))
    # Bin i holds the sorted rows edges[i] to edges[i + 1].
    edges = torch.arange(BINS + 1, device=p.device) * N // BINS
    count = edges.diff().to(p.dtype).expand(B, BINS)

    def mean_by_bin(values: Float[Tensor, "B N"]) -> Float[Tensor, "B bins"]:
        sums_before = pad(values.cumsum(-1), (1, 0))  # entry i: the sum of the first i values
        return sums_before[:, edges].diff(dim=-1) / count

    return Reliability(mean_by_bin(p), mean_by_bin(y), count)


def _mean_over_ties(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Return the mean of y over all rows with the same p, for every row; p is sorted."""
    # group: the number of distinct p up to each row
    differs_from_last = p[:, 1:] != p[:, :-1]
    group = pad(differs_from_last.long().cumsum(-1), (1, 0))
    sums = torch.zeros_like(y).scatter_add(-1, group, y)
    sizes = torch.zeros_like(y).scatter_add(-1, group, torch.ones_like(y))
    return sums.gather(-1, group) / sizes.gather(-1, group)


class Evaluation(NamedTuple):
    """Metrics of every cell, as tensors on the device, which may still compute them.

    Attributes:
        cell_count: The number of cells.
        means: Mean metrics by part ("validation", "test") and name.
        diagram: The reliability diagram on the test rows; None if it was not asked for, and for
            data that are not binary.
        profile: The NLL on held-out rows of cross-validation at a grid of recalibrating factors;
            None without cross-validation.
    """

    cell_count: int
    means: dict[str, dict[str, Float[Tensor, "B"]]]
    diagram: Reliability | None
    profile: Float[Tensor, "B P"] | None = None

    def profiles(self) -> list[np.ndarray | None]:
        """Return the profile of every cell; None for every cell if there are no profiles."""
        if self.profile is None:
            return [None] * self.cell_count
        return list(self.profile.cpu().numpy())

    def read(self) -> list[tuple[dict[str, Metrics], dict[str, np.ndarray]]]:
        """Wait for the device; return by cell its metrics by part, and its diagram as arrays."""
        means = {part: _as_lists(metrics) for part, metrics in self.means.items()}
        bins = _arrays_of_diagram(self.diagram)
        results = []
        for cell in range(self.cell_count):
            metrics = {part: _metrics_of_cell(values, cell) for part, values in means.items()}
            bins_of_cell = {name: array[cell] for name, array in bins.items()}
            results.append((metrics, bins_of_cell))
        return results


def _as_lists(metrics: dict[str, Float[Tensor, "B"]]) -> dict[str, list[float]]:
    """Return metrics by name as lists with an entry per cell."""
    return {name: values.tolist() for name, values in metrics.items()}


def _metrics_of_cell(lists: dict[str, list[float]], cell: int) -> Metrics:
    """Return the metrics of one cell by name."""
    return {name: values[cell] for name, values in lists.items()}


def _arrays_of_diagram(diagram: Reliability | None) -> dict[str, np.ndarray]:
    """Return a reliability diagram as float32 arrays by the names that they have in records."""
    if diagram is None:
        return {}
    arrays = {}
    for name, tensor in diagram._asdict().items():
        arrays[f"reliability_{name}"] = tensor.float().cpu().numpy()
    return arrays


class RowPredictions(NamedTuple):
    """Predictions at some rows: the likelihood, mean and variance of f, and the targets."""

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

    Cells are evaluated in groups with the same numbers of rows, so that no padding is needed.

    Args:
        program: The cells.
        posterior: The posteriors of the cells.
        calibration: Whether to measure calibration and to recalibrate too. Objectives that predict
            no variance have no calibration.
        parts: The parts of the split to evaluate on, "validation" or "test"; None: all.
    """
    groups = program.data.cells_by_rows()
    if len(groups) == 1:
        return _evaluate_group(program, posterior, calibration, parts)
    evaluations = []
    for cells in groups:
        group = program.keep(cells)
        evaluations.append(_evaluate_group(group, posterior.keep(cells), calibration, parts))
    return _join_groups(evaluations, groups)


def _join_groups(evaluations: Sequence[Evaluation], groups: Sequence[Sequence[int]]) -> Evaluation:
    """Return the evaluation of the whole batch from those of groups of its cells.

    Args:
        evaluations: One per group.
        groups: The cells of each group.
    """
    cells = list(chain.from_iterable(groups))
    # Where cells 0, 1, ... stand in the concatenated groups
    positions = np.argsort(cells).tolist()

    def join(by_group: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(by_group))[positions]

    means: dict[str, Tensors] = {}
    for part, metrics in evaluations[0].means.items():
        means[part] = {}
        for name in metrics:
            by_group = [evaluation.means[part][name] for evaluation in evaluations]
            means[part][name] = join(by_group)
    diagrams = [evaluation.diagram for evaluation in evaluations]
    profiles = [evaluation.profile for evaluation in evaluations if evaluation.profile is not None]
    return Evaluation(
        cell_count=len(cells),
        means=means,
        diagram=_join_diagrams(diagrams, join),
        profile=join(profiles) if profiles else None,
    )


def _join_diagrams(
    by_group: Sequence[Reliability | None], join: Callable[[Sequence[Tensor]], Tensor]
) -> Reliability | None:
    """Return the diagrams of groups of cells as one; `join` joins tensors of groups."""
    diagrams = [diagram for diagram in by_group if diagram is not None]
    if not diagrams:
        return None
    return Reliability(
        p=join([diagram.p for diagram in diagrams]),
        y=join([diagram.y for diagram in diagrams]),
        rows=join([diagram.rows for diagram in diagrams]),
    )


def _evaluate_group(
    program: Program, posterior: Posterior, calibration: bool, parts: Collection[str] | None
) -> Evaluation:
    """Return mean metrics of cells with the same number of rows in each part."""
    # Cells that train on folds only choose settings: the refit to all rows is what is calibrated.
    if program.data.is_fold or not program.loss.objective.predicts_variance:
        calibration = False
    predictions = _predictions(program, posterior, parts)
    profile, factor = _recalibration(program, posterior, predictions, calibration)
    means: dict[str, Tensors] = {}
    diagrams: dict[str, Reliability | None] = {}
    for part, pieces in predictions.items():
        means[part], diagrams[part] = _part_means(program, posterior, pieces, calibration, factor)
    return Evaluation(
        cell_count=len(program.beta),
        means=means,
        diagram=diagrams.get("test"),
        profile=profile,
    )


def _predictions(
    program: Program, posterior: Posterior, parts: Collection[str] | None
) -> dict[str, Iterable[RowPredictions]]:
    """Return predictions at the rows of each part, in pieces of rows."""
    predictions: dict[str, Iterable[RowPredictions]] = {}
    for part in parts or program.data.parts:
        predictions[part] = predictions_of(program, posterior, part)
    if program.data.leave_one_out and not parts:
        # The training rows, each predicted from all others, take the place of validation rows.
        predictions["validation"] = left_out_predictions(program, posterior)
    if "validation" in predictions:
        # A list, since these predictions are read twice: to recalibrate, and for the metrics.
        predictions["validation"] = list(predictions["validation"])
    return predictions


def _recalibration(
    program: Program,
    posterior: Posterior,
    predictions: Mapping[str, Iterable[RowPredictions]],
    calibration: bool,
) -> tuple[Float[Tensor, "B P"] | None, Float[Tensor, "B"] | None]:
    """Return the profile of the validation rows, and the factor that recalibrates each cell.

    The factor comes from the first of these that there is:

    - Rows held out by cross-validation, as a fold or one by one: they have a profile, and the
      factor is the best one by the profile and a penalty.
    - Validation rows: the factor has the least NLL on them. They have no profile.
    - `BatchData.recalibration_factor`, where the factor is known before training.

    The profile and the factor are None where they are not needed.
    """
    data = program.data
    factor = data.recalibration_factor if calibration else None
    predicts_variance = program.loss.objective.predicts_variance
    has_profile = (data.is_fold or data.leave_one_out) and predicts_variance
    reads_validation = calibration or has_profile
    if "validation" not in predictions or not reads_validation:
        return None, factor
    mu, v, y = _join_pieces(predictions["validation"])
    likelihood = program.model.likelihood
    if not has_profile:
        return None, best_factor(likelihood, posterior.hyper, mu, v, y)
    profile = loss_profile(likelihood, posterior.hyper, mu, v, y)
    if calibration:
        factor = penalised_factors(profile)
    return profile, factor


def _join_pieces(
    pieces: Iterable[RowPredictions],
) -> tuple[Float[Tensor, "B *K N"], Float[Tensor, "B *K N"], Float[Tensor, "B N"]]:
    """Return means, variances and targets at the rows of all pieces."""
    pieces = list(pieces)
    mu = torch.cat([piece.mu for piece in pieces], -1)
    v = torch.cat([piece.v for piece in pieces], -1)
    y = torch.cat([piece.y for piece in pieces], -1)
    return mu, v, y


def _part_means(
    program: Program,
    posterior: Posterior,
    pieces: Iterable[RowPredictions],
    calibration: bool,
    factor: Float[Tensor, "B"] | None,
) -> tuple[Tensors, Reliability | None]:
    """Return the mean metrics on the rows of a part, and the reliability diagram of binary data.

    Args:
        program: The cells.
        posterior: Their posteriors.
        pieces: Predictions at the rows of the part.
        calibration: Whether to measure calibration too.
        factor: The factor that recalibrates each cell, for metrics after recalibration; None: there
            are no such metrics.
    """
    likelihood = program.model.likelihood
    predicts_variance = program.loss.objective.predicts_variance
    has_diagram = calibration and likelihood.task == "binary"
    sums: Tensors = {}
    probabilities: list[Tensor] = []
    targets: list[Tensor] = []
    count = 0
    for piece in pieces:
        scores = _scores(piece, predicts_variance, calibration)
        if factor is not None:
            scores |= recalibrated_scores(
                likelihood, posterior.hyper, factor, piece.mu, piece.v, piece.y
            )
        for name, values in scores.items():
            total = row_sum(values)
            sums[name] = sums[name] + total if name in sums else total
        count += piece.y.shape[1]
        if has_diagram:
            probabilities.append(piece.likelihood.mean(piece.mu, piece.v))
            targets.append(piece.y)
    means = {name: total / count for name, total in sums.items()}
    if not has_diagram:
        return means, None
    diagram = reliability(torch.cat(probabilities, -1), torch.cat(targets, -1))
    means["ece"] = diagram.ece()
    return means, diagram


def _scores(piece: RowPredictions, predicts_variance: bool, calibration: bool) -> Tensors:
    """Return the metrics of every row [B, n] by name; their means over rows are reported."""
    likelihood, mu, v, y = piece
    scores: Tensors = {}
    if predicts_variance:
        scores["nll"] = likelihood.log_loss(mu, v, y)
    for name, metric in likelihood.metrics.items():
        scores[name] = metric(likelihood, mu, v, y)
    if calibration:
        scores |= likelihood.calibration(mu, v, y)
    return scores


def predictions_of(program: Program, posterior: Posterior, part: str) -> Iterator[RowPredictions]:
    """Yield predictions at the rows of a part, in pieces of bounded memory."""
    X, y = program.data.parts[part]
    split_index = program.data.split_index
    hyper, m, L, jitter = posterior
    is_mixture = m.ndim == 3
    # Every piece replaces the X of this projection, so that Kuu is factorised only once, here.
    one_row = projection(program.model.kernel, hyper, X[:, :1][split_index], jitter)
    likelihood = predictive_likelihood(program.model.likelihood, one_row.hyper, is_mixture)
    marginals_of_q = component_marginals if is_mixture else marginals
    rows_at_once = max(1, ENTRIES_AT_ONCE // m.numel())
    for first in range(0, X.shape[1], rows_at_once):
        rows = slice(first, first + rows_at_once)
        piece = one_row._replace(X=X[:, rows][split_index])
        mu, v = marginals_of_q(piece, hyper["mean"], m, L)
        yield RowPredictions(likelihood, mu, v, y[:, rows][split_index])


def left_out_predictions(program: Program, posterior: Posterior) -> Iterator[RowPredictions]:
    """Yield predictions at the training rows, each from all others, in pieces of bounded memory."""
    objective = program.loss.objective
    assert objective.row_noise is not None
    collapsed = program
    if not isinstance(collapsed, Collapsed):
        collapsed = Collapsed(program.model, program.loss, program.data, program.beta)
    problem = collapsed.problem(posterior.hyper, posterior.jitter)
    row_hyper = hyper_in_type_of(problem.X, posterior.hyper)
    likelihood = predictive_likelihood(program.model.likelihood, row_hyper, is_mixture=False)
    for mu, v, y in left_out_marginals(problem, program.beta, objective.row_noise):
        yield RowPredictions(likelihood, mu, v, y)


@torch.no_grad()
def nll_error(program: Program, posterior: Posterior) -> Float[Tensor, "B"] | None:
    """Return by how much the NLL per row may be wrong, on the part where the error is larger.

    The likelihood of a plugin may be integrated too coarsely. The error on a part, validation or
    test rows, is the mean difference between the log losses and those of an integration with more
    nodes.

    Returns:
        The error of each cell. None for the likelihoods of this package, whose integrals are
        tested; for a mixture as q; and where there is no NLL.
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
    likelihood, f = trivial_predictor(task, _float64(y_train))
    metrics: dict[str, Metrics] = {}
    for part, targets in parts.items():
        if len(targets):
            metrics[part] = _metrics_of_constant(likelihood, f, _float64(targets))
    return metrics


def _metrics_of_constant(likelihood: Likelihood, f: float, targets: Float[Tensor, "T"]) -> Metrics:
    """Return the metrics of the predictor that is certain of the same f at all rows."""
    y = targets[None]
    mu = torch.full_like(y, f)
    v = torch.zeros_like(y)
    scores = {"nll": -likelihood.log_prob(mu, y)}
    for name, metric in likelihood.metrics.items():
        scores[name] = metric(likelihood, mu, v, y)
    scores |= likelihood.calibration(mu, v, y)
    metrics = {name: float(values.mean()) for name, values in scores.items()}
    if likelihood.task == "binary":
        metrics["ece"] = float(reliability(likelihood.mean(mu, v), y).ece())
    return metrics


def _float64(values: np.ndarray) -> Tensor:
    """Return a copy of the values as a tensor of float64."""
    return torch.from_numpy(np.array(values, dtype=np.float64))


def trivial_predictor(task: str, y: Float[Tensor, "n"]) -> tuple[Likelihood, float]:
    """Return the trivial predictor: a likelihood, and the value of f that it is certain of.

    It predicts

    - Regression: the Gaussian with the mean and the variance of the targets. If all targets are
      equal, the variance is 1, the unit to which targets are scaled.
    - Binary: the share of each class. If a class is absent, (1 + rows of the class) / (2 + n).
    - Counts: the Poisson distribution whose rate is the mean count. If all counts are 0, the rate
      is 1 / (n + 1).
    """
    n = len(y)
    total = float(y.sum())
    if task == "regression":
        variance = y.var(correction=0)
        return Gaussian(torch.where(variance > 0, variance, 1.0)), float(y.mean())
    if task == "binary":
        has_both_classes = 0 < total < n
        share = total / n if has_both_classes else (total + 1) / (n + 2)
        # Phi(f) = share
        f = torch.special.ndtri(torch.tensor(share, dtype=torch.float64))
        return Probit(), float(f)
    rate = total / n if total else 1 / (n + 1)
    # e^f = rate
    return Poisson(), float(np.log(rate))
