"""Initial inducing inputs of one split: `INDUCING` by name.

Everything random is drawn from raw words of a bit generator on the CPU, so that a CPU and a GPU
choose alike, to rounding.
"""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.kernels import Hyper, Kernel

MOST_ROWS = {"kmeans": 10_000, "greedy": 5000, "median": 1000}
"""Rows that a choice looks at, or twice M if that is more; of more rows, a random subset. With
M = 1000 and 20 features `kmeans` and `greedy` then take about 5 s on one core."""
PILOT_ROWS = 2000
"""Rows that the hyperparameters of a pilot fit come from; of more, a random subset."""
LLOYD_ROUNDS = 30
"""Rounds of k-means at most; it stops earlier where no row changes its cluster."""
LEAST_RESIDUAL = 1e-10
"""Share of the prior variance below which `greedy` takes a residual variance for rounding."""
BITS = 64
"""Bits of a raw word of the generator."""


class Start(NamedTuple):
    """What inducing inputs are chosen from.

    Attributes:
        X: The training inputs of a split.
        M: How many inducing inputs to choose.
        seed: The seed of the split.
        kernel: The kernel.
        hyper: Its initial hyperparameters, of one cell.
    """

    X: Float[Tensor, "N D"]
    M: int
    seed: int
    kernel: Kernel
    hyper: Hyper


class Choice(Protocol):
    """A way to choose initial inducing inputs."""

    def __call__(self, start: Start) -> Float[Tensor, "M D"]:
        """Return M inducing inputs."""
        ...


def first(start: Start) -> Float[Tensor, "M D"]:
    """Return the first M rows."""
    return start.X[: start.M]


def last(start: Start) -> Float[Tensor, "M D"]:
    """Return the last M rows."""
    return start.X[-start.M :]


def kmeans(start: Start) -> Float[Tensor, "M D"]:
    """Return the centres of M clusters of the rows.

    k-means++ (Arthur and Vassilvitskii 2007) chooses the first centres: rows, one after the other,
    with a probability proportional to the squared distance from the closest centre so far. Then
    come Lloyd's rounds.
    """
    rows = sampled_rows(start.X, max(MOST_ROWS["kmeans"], 2 * start.M), start.seed)
    if len(rows) <= start.M:
        return rows
    centres = rows[_spread_rows(rows, start.M, start.seed)]
    closest = None
    for _ in range(LLOYD_ROUNDS):
        before = closest
        closest = _closest_centres(rows, centres)
        if before is not None and torch.equal(before, closest):
            break
        centres = _means(rows, closest, centres)
    return centres


def greedy(start: Start) -> Float[Tensor, "M D"]:
    """Return the rows that a pivoted Cholesky factorisation of Kff takes first.

    Each row has the largest residual variance given those before it, at the initial hyperparameters
    (Burt, Rasmussen, van der Wilk 2020, "Convergence of sparse variational inference in Gaussian
    processes regression"). Where no variance is left, rows follow in their order.
    """
    rows = sampled_rows(start.X, max(MOST_ROWS["greedy"], 2 * start.M), start.seed)
    if len(rows) <= start.M:
        return rows
    pivots = _pivots(rows, start)
    is_left = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    is_left[pivots] = False
    others = is_left.nonzero().squeeze(-1)
    chosen = torch.cat([pivots, others])[: start.M]
    return rows[chosen]


INDUCING: dict[str, Choice] = {"first": first, "last": last, "kmeans": kmeans, "greedy": greedy}


def median_distance(X: Float[Tensor, "N D"], seed: int) -> float:
    """Return the median distance between rows that differ; 1 where none do."""
    distances = torch.pdist(sampled_rows(X, MOST_ROWS["median"], seed))
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 1.0


def sampled_rows(X: Float[Tensor, "N D"], most: int, seed: int) -> Float[Tensor, "n D"]:
    """Return the rows in their order, or a random subset of `most` of them, in float64."""
    if len(X) > most:
        order = np.argsort(_words(seed, len(X)), kind="stable")
        chosen = np.sort(order[:most])
        X = X[torch.from_numpy(chosen).to(X.device)]
    return X.to(torch.float64)


def _words(seed: int, count: int) -> np.ndarray:
    """Return raw words of a generator of this module: its stream is not that of the minibatches."""
    stream = np.random.SeedSequence([seed, 0x696E6475])
    return np.random.PCG64(stream).random_raw(count)


def _spread_rows(rows: Float[Tensor, "N D"], M: int, seed: int) -> Int[Tensor, "M"]:
    """Return the numbers of M rows that k-means++ draws."""
    uniform = torch.from_numpy(_words(seed, M) / 2.0**BITS).to(rows.device)
    squared_norms = rows.square().sum(-1)
    # The first row is drawn from all alike.
    weights = torch.ones_like(squared_norms)
    distances = torch.full_like(squared_norms, torch.inf)
    chosen = torch.empty(M, dtype=torch.int64, device=rows.device)
    for number in range(M):
        cumulated = weights.cumsum(0)
        row = torch.searchsorted(cumulated, uniform[number] * cumulated[-1], right=True)
        row = row.clamp(max=len(rows) - 1)
        chosen[number] = row
        # |x - z|^2 = |x|^2 - 2 x.z + |z|^2; rounding can leave it below 0.
        centre = rows[row]
        squared = squared_norms - 2 * (rows @ centre) + squared_norms[row]
        distances = torch.minimum(distances, squared.clamp_min(0))
        distances[row] = 0
        # Where every row is a centre already, all are drawn alike again.
        weights = torch.where(distances.sum() > 0, distances, torch.ones_like(distances))
    return chosen


def _closest_centres(rows: Float[Tensor, "N D"], centres: Float[Tensor, "M D"]) -> Int[Tensor, "N"]:
    """Return the number of the closest centre of every row; of equal ones, the first."""
    # |x - z|^2 without |x|^2, which is the same for all centres
    squared = torch.addmm(centres.square().sum(-1), rows, centres.mT, alpha=-2)
    # In float32 distances that differ by rounding alone are equal, on every device.
    return squared.to(torch.float32).argmin(-1)


def _means(
    rows: Float[Tensor, "N D"], closest: Int[Tensor, "N"], centres: Float[Tensor, "M D"]
) -> Float[Tensor, "M D"]:
    """Return the mean of every cluster; a centre without rows stays where it is."""
    members = rows.new_zeros(len(rows), len(centres)).scatter_(1, closest[:, None], 1.0)
    counts = members.sum(0)
    # A product, since sums in the order of their arrival would differ from call to call on a GPU.
    means = (members.mT @ rows) / counts.clamp_min(1)[:, None]
    return torch.where(counts[:, None] > 0, means, centres)


def _pivots(rows: Float[Tensor, "N D"], start: Start) -> Int[Tensor, "m"]:
    """Return at most M rows in the order of a pivoted Cholesky factorisation."""
    batch = rows[None]
    residual = start.kernel.diagonal(batch, start.hyper)[0].clone()
    least = LEAST_RESIDUAL * residual.max()
    factor = rows.new_zeros(start.M, len(rows))
    pivots = torch.empty(start.M, dtype=torch.int64, device=rows.device)
    largest = torch.empty_like(pivots, dtype=torch.float64)
    for number in range(start.M):
        # In float32 residuals that differ by rounding alone are equal: the first of them is taken.
        row = residual.to(torch.float32).argmax()
        pivots[number] = row
        largest[number] = residual[row]
        # A new line of the factor: (k(x_row, .) - sum_j factor_j(row) factor_j) / sqrt(residual)
        covariance = start.kernel(batch[:, row[None]], batch, start.hyper)[0, 0]
        explained = factor[:number, row] @ factor[:number]
        line = (covariance - explained) * residual[row].clamp_min(least).rsqrt()
        factor[number] = line
        residual = (residual - line.square()).clamp_min_(0)
        residual[row] = 0
    # After the first residual that is only rounding there is nothing to choose by.
    too_small = (largest <= least).nonzero()
    return pivots if len(too_small) == 0 else pivots[: int(too_small[0])]
