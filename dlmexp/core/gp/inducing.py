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
"""The most rows that a function looks at (2 M rows if that is more); of more rows it takes a random
subset. With M = 1000 and 20 features `kmeans` and `greedy` then take about 5 s on one core."""
PILOT_ROWS = 2000
"""The most rows that a pilot fit of the hyperparameters is trained on."""
LLOYD_ROUNDS = 30
"""The most rounds of k-means; it stops earlier when no row changes its cluster."""
MIN_RESIDUAL = 1e-10
"""Share of the prior variance below which `greedy` takes a residual variance for rounding."""
BITS = 64
"""Number of bits of a raw word of the bit generator."""


class InducingRequest(NamedTuple):
    """The arguments of a function that chooses inducing inputs.

    Attributes:
        X: The training inputs of a split, from which to choose.
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

    def __call__(self, request: InducingRequest) -> Float[Tensor, "M D"]:
        """Return M inducing inputs."""
        ...


def first(request: InducingRequest) -> Float[Tensor, "M D"]:
    """Return the first M training inputs."""
    return request.X[: request.M]


def last(request: InducingRequest) -> Float[Tensor, "M D"]:
    """Return the last M training inputs."""
    return request.X[-request.M :]


def kmeans(request: InducingRequest) -> Float[Tensor, "M D"]:
    """Return the centres of M clusters of the rows.

    The centres start at rows that k-means++ draws (Arthur and Vassilvitskii 2007), one after the
    other, with a probability proportional to the squared distance from the closest centre so far.
    Lloyd's algorithm then moves them.
    """
    rows = sampled_rows(request.X, max(MAX_ROWS["kmeans"], 2 * request.M), request.seed)
    if len(rows) <= request.M:
        return rows
    centres = rows[_first_centres(rows, request.M, request.seed)]
    cluster_of_row = None
    for _ in range(LLOYD_ROUNDS):
        last_cluster_of_row = cluster_of_row
        cluster_of_row = _closest_centres(rows, centres)
        if last_cluster_of_row is not None and torch.equal(last_cluster_of_row, cluster_of_row):
            break
        centres = _cluster_means(rows, cluster_of_row, centres)
    return centres


def greedy(request: InducingRequest) -> Float[Tensor, "M D"]:
    """Return the rows that a pivoted Cholesky factorisation of Kff takes first.

    Each pivot is the row with the largest residual variance, given the pivots before it, at the
    initial hyperparameters (Burt, Rasmussen, van der Wilk 2020, "Convergence of sparse variational
    inference in Gaussian processes regression"). If all residual variances vanish before there are
    M pivots, the first of the remaining rows are added.
    """
    rows = sampled_rows(request.X, max(MAX_ROWS["greedy"], 2 * request.M), request.seed)
    if len(rows) <= request.M:
        return rows
    pivots = _pivots(rows, request)
    is_remaining = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    is_remaining[pivots] = False
    remaining_rows = is_remaining.nonzero().squeeze(-1)
    chosen_rows = torch.cat([pivots, remaining_rows])[: request.M]
    return rows[chosen_rows]


INDUCING: dict[str, Choose] = {"first": first, "last": last, "kmeans": kmeans, "greedy": greedy}


def median_distance(X: Float[Tensor, "N D"], seed: int) -> float:
    """Return the median distance between rows that differ; 1 if all rows are equal."""
    distances = torch.pdist(sampled_rows(X, MAX_ROWS["median"], seed))
    positive_distances = distances[distances > 0]
    return float(positive_distances.median()) if len(positive_distances) else 1.0


def sampled_rows(X: Float[Tensor, "N D"], max_rows: int, seed: int) -> Float[Tensor, "n D"]:
    """Return the rows in float64; of more than `max_rows`, a random subset in the same order."""
    if len(X) > max_rows:
        order = np.argsort(_random_words(seed, len(X)), kind="stable")
        chosen = np.sort(order[:max_rows])
        X = X[torch.from_numpy(chosen).to(X.device)]
    return X.to(torch.float64)


def _random_words(seed: int, count: int) -> np.ndarray:
    """Return random 64-bit words of a stream that only this module uses."""
    stream = np.random.SeedSequence([seed, 0x696E6475])  # "indu" in ASCII
    return np.random.PCG64(stream).random_raw(count)


def _first_centres(rows: Float[Tensor, "N D"], M: int, seed: int) -> Int[Tensor, "M"]:
    """Return the numbers of M rows that k-means++ draws."""
    uniform = torch.from_numpy(_random_words(seed, M) / 2.0**BITS).to(rows.device)
    squared_norms = rows.square().sum(-1)
    # The first row is drawn with equal probabilities.
    weights = torch.ones_like(squared_norms)
    # Squared distances of the rows from the closest centre so far
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
        # If every row is at a centre already, the probabilities are equal again.
        weights = torch.where(distances.sum() > 0, distances, torch.ones_like(distances))
    return chosen


def _closest_centres(rows: Float[Tensor, "N D"], centres: Float[Tensor, "M D"]) -> Int[Tensor, "N"]:
    """Return the number of the closest centre of every row; the first of equally close ones."""
    # |x - z|^2 without |x|^2, which is the same for all centres
    squared = torch.addmm(centres.square().sum(-1), rows, centres.mT, alpha=-2)
    # Distances that differ by rounding alone become equal in float32, so all devices agree.
    return squared.to(torch.float32).argmin(-1)


def _cluster_means(
    rows: Float[Tensor, "N D"], cluster_of_row: Int[Tensor, "N"], centres: Float[Tensor, "M D"]
) -> Float[Tensor, "M D"]:
    """Return the mean of every cluster; a centre without rows stays where it is."""
    # [N, M]: 1 where the row is in the cluster, else 0
    is_member = rows.new_zeros(len(rows), len(centres)).scatter_(1, cluster_of_row[:, None], 1.0)
    counts = is_member.sum(0)
    # The sums are a matrix product: atomic additions on a GPU would round differently at each call.
    means = (is_member.mT @ rows) / counts.clamp_min(1)[:, None]
    return torch.where(counts[:, None] > 0, means, centres)


def _pivots(rows: Float[Tensor, "N D"], request: InducingRequest) -> Int[Tensor, "m"]:
    """Return the numbers of at most M rows in the order of a pivoted Cholesky factorisation."""
    batch = rows[None]
    residual = request.kernel.diagonal(batch, request.hyper)[0].clone()
    rounding_error = MIN_RESIDUAL * residual.max()
    factor = rows.new_zeros(request.M, len(rows))
    pivots = torch.empty(request.M, dtype=torch.int64, device=rows.device)
    residual_of_pivot = torch.empty_like(pivots, dtype=torch.float64)
    for number in range(request.M):
        # Residuals that differ by rounding alone become equal in float32; the first one is taken.
        row = residual.to(torch.float32).argmax()
        pivots[number] = row
        residual_of_pivot[number] = residual[row]
        # The next row of the factor: (k(x_row, .) - sum_j factor_j(row) factor_j) / sqrt(residual)
        covariance = request.kernel(batch[:, row[None]], batch, request.hyper)[0, 0]
        explained = factor[:number, row] @ factor[:number]
        next_row = (covariance - explained) * residual[row].clamp_min(rounding_error).rsqrt()
        factor[number] = next_row
        residual = (residual - next_row.square()).clamp_min_(0)
        residual[row] = 0
    # From the first residual on that is a rounding error, the pivots are arbitrary.
    arbitrary = (residual_of_pivot <= rounding_error).nonzero()
    return pivots if len(arbitrary) == 0 else pivots[: int(arbitrary[0])]
