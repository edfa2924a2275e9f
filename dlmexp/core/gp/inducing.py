"""Ways to choose the initial inducing inputs of a split, by name: `INDUCING`.

Random numbers are raw words of a bit generator on the CPU, so that a CPU and a GPU choose the same
inducing inputs, up to rounding.
"""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.kernels import Hyper, Kernel

MAX_ROWS = {"kmeans": 10_000, "greedy": 5000, "median": 1000}
"""The most rows that a choice is made from (2 M if that is more): a random subset of more rows.
With M = 1000 and 20 features `kmeans` and `greedy` then take about 5 s on one core."""
PILOT_ROWS = 2000
"""The most rows that the hyperparameters of a pilot fit are fitted to."""
LLOYD_ROUNDS = 30
"""The most rounds of k-means; it stops earlier when no row changes its cluster."""
MIN_RESIDUAL = 1e-10
"""Share of the prior variance below which `greedy` regards a residual variance as rounding."""
BITS = 64
"""Number of bits in a raw word of the generator."""


class Candidates(NamedTuple):
    """The rows that inducing inputs are chosen from, and what else a choice may depend on.

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


class Choose(Protocol):
    """A function that chooses initial inducing inputs."""

    def __call__(self, candidates: Candidates) -> Float[Tensor, "M D"]:
        """Return M inducing inputs."""
        ...


def first(candidates: Candidates) -> Float[Tensor, "M D"]:
    """Return the first M rows."""
    return candidates.X[: candidates.M]


def last(candidates: Candidates) -> Float[Tensor, "M D"]:
    """Return the last M rows."""
    return candidates.X[-candidates.M :]


def kmeans(candidates: Candidates) -> Float[Tensor, "M D"]:
    """Return the centres of M clusters of the rows.

    The centres start at rows that k-means++ draws (Arthur and Vassilvitskii 2007), one after the
    other, with a probability proportional to the squared distance from the closest centre so far.
    Lloyd's algorithm then moves them.
    """
    rows = sampled_rows(candidates.X, max(MAX_ROWS["kmeans"], 2 * candidates.M), candidates.seed)
    if len(rows) <= candidates.M:
        return rows
    centres = rows[_first_centres(rows, candidates.M, candidates.seed)]
    cluster = None
    for _ in range(LLOYD_ROUNDS):
        last_cluster = cluster
        cluster = _closest_centres(rows, centres)
        if last_cluster is not None and torch.equal(last_cluster, cluster):
            break
        centres = _means(rows, cluster, centres)
    return centres


def greedy(candidates: Candidates) -> Float[Tensor, "M D"]:
    """Return the rows that a pivoted Cholesky factorisation of Kff takes first.

    Each row has the largest residual variance given those before it, at the initial hyperparameters
    (Burt, Rasmussen, van der Wilk 2020, "Convergence of sparse variational inference in Gaussian
    processes regression"). When no row has any residual variance, the others follow in their order.
    """
    rows = sampled_rows(candidates.X, max(MAX_ROWS["greedy"], 2 * candidates.M), candidates.seed)
    if len(rows) <= candidates.M:
        return rows
    pivots = _pivots(rows, candidates)
    is_no_pivot = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    is_no_pivot[pivots] = False
    others = is_no_pivot.nonzero().squeeze(-1)
    chosen = torch.cat([pivots, others])[: candidates.M]
    return rows[chosen]


INDUCING: dict[str, Choose] = {"first": first, "last": last, "kmeans": kmeans, "greedy": greedy}


def median_distance(X: Float[Tensor, "N D"], seed: int) -> float:
    """Return the median distance between rows that differ; 1 if all rows are equal."""
    distances = torch.pdist(sampled_rows(X, MAX_ROWS["median"], seed))
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 1.0


def sampled_rows(X: Float[Tensor, "N D"], max_rows: int, seed: int) -> Float[Tensor, "n D"]:
    """Return all rows, or a random subset of `max_rows` if there are more, in order, in float64."""
    if len(X) > max_rows:
        order = np.argsort(_words(seed, len(X)), kind="stable")
        chosen = np.sort(order[:max_rows])
        X = X[torch.from_numpy(chosen).to(X.device)]
    return X.to(torch.float64)


def _words(seed: int, count: int) -> np.ndarray:
    """Return raw words of a stream of random numbers that nothing else uses."""
    stream = np.random.SeedSequence([seed, 0x696E6475])  # "indu" in ASCII
    return np.random.PCG64(stream).random_raw(count)


def _first_centres(rows: Float[Tensor, "N D"], M: int, seed: int) -> Int[Tensor, "M"]:
    """Return the numbers of M rows that k-means++ draws."""
    uniform = torch.from_numpy(_words(seed, M) / 2.0**BITS).to(rows.device)
    squared_norms = rows.square().sum(-1)
    # The first row is drawn with equal probabilities.
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
        # If every row is at a centre already, probabilities are equal again.
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
    # A product with 0 and 1, since atomic additions on a GPU would differ from call to call.
    means = (members.mT @ rows) / counts.clamp_min(1)[:, None]
    return torch.where(counts[:, None] > 0, means, centres)


def _pivots(rows: Float[Tensor, "N D"], candidates: Candidates) -> Int[Tensor, "m"]:
    """Return the numbers of at most M rows in the order of a pivoted Cholesky factorisation."""
    batch = rows[None]
    residual = candidates.kernel.diagonal(batch, candidates.hyper)[0].clone()
    least = MIN_RESIDUAL * residual.max()
    factor = rows.new_zeros(candidates.M, len(rows))
    pivots = torch.empty(candidates.M, dtype=torch.int64, device=rows.device)
    largest = torch.empty_like(pivots, dtype=torch.float64)
    for number in range(candidates.M):
        # As float32, residuals that differ by rounding alone are equal: the first of them is taken.
        row = residual.to(torch.float32).argmax()
        pivots[number] = row
        largest[number] = residual[row]
        # The next row of the factor: (k(x_row, .) - sum_j factor_j(row) factor_j) / sqrt(residual)
        covariance = candidates.kernel(batch[:, row[None]], batch, candidates.hyper)[0, 0]
        explained = factor[:number, row] @ factor[:number]
        next_row = (covariance - explained) * residual[row].clamp_min(least).rsqrt()
        factor[number] = next_row
        residual = (residual - next_row.square()).clamp_min_(0)
        residual[row] = 0
    # From the first residual on that is only rounding, the pivots are arbitrary.
    too_small = (largest <= least).nonzero()
    return pivots if len(too_small) == 0 else pivots[: int(too_small[0])]
