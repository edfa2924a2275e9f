"""How much a larger M could gain: bounds of the log evidence (docs/SPEC.md, section 2).

At fixed hyperparameters the log evidence of the exact Gaussian process lies between a lower bound,
minus the objective, and an upper bound. A larger M moves the lower bound towards the evidence, so
it can gain at most the distance between the two bounds. This is called the evidence gap.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.closed_form import Problem, gaussian_posterior, moments, row_projection
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.program import Posterior, Program

MAX_ROWS = 20_000
"""With more training rows the gap is not computed, as the upper bound needs n^2 / 2 values of the
kernel."""
KFF_BLOCK_SIZE = 1000
"""Kff is computed in blocks with this number of rows and columns."""


@torch.no_grad()
def evidence_gaps(program: Program, posterior: Posterior) -> list[float | None]:
    """Return for every cell how much a larger M could gain at most, in nats per row.

    The gap is None where the objective does not bound the log evidence, where hyperparameters are
    held, and where there are too many rows.
    """
    gaps: list[float | None] = [None] * len(program.beta)
    objective = program.loss.objective
    is_bound = objective.bounds_evidence and program.model.likelihood.conjugate
    if not is_bound or program.n > MAX_ROWS or isinstance(program, Fixed):
        return gaps
    # The objective is a bound only with beta = 1.
    cells = (program.beta == 1).nonzero().squeeze(-1).tolist()
    if not cells:
        return gaps
    bounded = program.keep(cells)
    if not isinstance(bounded, Collapsed):
        bounded = Collapsed(bounded.model, bounded.loss, bounded.data, bounded.beta)
    q = posterior.keep(cells)
    # bounds of minus the log evidence
    upper = bounded.closed(q.hyper, q.jitter).loss
    lower = lower_bound_of_negative_evidence(bounded.problem(q.hyper, q.jitter))
    gap = (upper - lower) / bounded.n
    for cell, value in zip(cells, gap.clamp_min(0).tolist(), strict=True):
        gaps[cell] = value if math.isfinite(value) else None
    return gaps


def lower_bound_of_negative_evidence(problem: Problem) -> Float[Tensor, "B"]:
    """Return a lower bound of `-log N(y; 0, Kff + noise I)`.

    With D = Kff - Qff, `v = (Qff + noise I)^-1 y` and `a = y^T v` it is

        1/2 ( n log(2 pi) + log |Qff + noise I| + a^2 / (a + v^T D v) )

    It is computed in float64, even from float32 rows, since v^T D v is a small difference of large
    numbers.
    """
    problem = problem._replace(X=problem.X.to(PARAMETER_DTYPE), y=problem.y.to(PARAMETER_DTYPE))
    noise = problem.hyper["noise"]
    # In the formulas below, Qff = A^T A with A = Luu^-1 Kuf (module `closed_form`), m is the mean
    # of the whitened q, and y is centred.
    s = moments(problem)
    q = gaussian_posterior(s.AA / noise[..., None, None], s.Ay / noise[..., None])
    # a = y^T (Qff + noise I)^-1 y
    a = s.yy / noise - q.explained
    # v = (y - A^T m) / noise, and A v = m
    v = (problem.centred_y - _explained_part(problem, q.m)) / noise[..., None]
    # v^T D v = v^T Kff v - |A v|^2
    vDv = (_quadratic_form(problem, v) - q.m.square().sum(-1)).clamp_min(0)
    # n log(2 pi) + log |Qff + noise I|
    log_det = problem.n * torch.log(2 * math.pi * noise) + q.log_det
    return 0.5 * (log_det + a.square() / (a + vDv))


def _explained_part(problem: Problem, m: Float[Tensor, "B M"]) -> Float[Tensor, "B N"]:
    """Return A^T m."""
    projection = row_projection(problem)
    parts = []
    for X in problem.X.split(problem.rows_at_once or problem.n, dim=-2):
        A, _ = projection(X)
        parts.append((A.mT @ m[..., None]).squeeze(-1))
    return torch.cat(parts, dim=-1)


def _quadratic_form(problem: Problem, v: Float[Tensor, "B N"]) -> Float[Tensor, "B"]:
    """Return v^T Kff v, block by block of Kff.

    Kff is symmetric: only blocks on and below the diagonal are computed, and each block below it
    counts twice.
    """
    kernel = problem.kernel
    blocks = problem.X.split(KFF_BLOCK_SIZE, dim=-2)
    parts = v.split(KFF_BLOCK_SIZE, dim=-1)
    total = torch.zeros_like(v[..., 0])
    for i, X in enumerate(blocks):
        for j in range(i + 1):
            K = kernel(X, blocks[j], problem.hyper)
            product = (parts[i][..., None, :] @ K @ parts[j][..., None]).squeeze((-2, -1))
            total += product if i == j else 2 * product
    return total
