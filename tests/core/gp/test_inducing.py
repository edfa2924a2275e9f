"""Initial inducing inputs, against slow definitions and properties."""

import numpy as np
import pytest
import torch

from dlmexp.core.gp import inducing
from dlmexp.core.gp.inducing import (
    INDUCING,
    InducingRequest,
    _closest_centres,
    _first_centres,
    greedy,
    kmeans,
    median_distance,
    sampled_rows,
)
from dlmexp.core.gp.kernels import KERNELS

HYPER = {
    "lengthscale": torch.tensor([[2.0]], dtype=torch.float64),
    "outputscale": torch.tensor([1.3], dtype=torch.float64),
}


def start(X, M, seed=3, kernel="rbf"):
    return InducingRequest(torch.as_tensor(X), M, seed, KERNELS[kernel], HYPER)


@pytest.fixture(name="X")
def rows():
    """60 rows of three features."""
    return np.random.default_rng(5).normal(size=(60, 3))


def rows_of(Z, X):
    """The numbers of the rows of X that Z consists of."""
    return [int(np.flatnonzero((z == X).all(1))[0]) for z in Z.numpy()]


def test_first_and_last_take_rows_at_the_ends(X):
    assert rows_of(INDUCING["first"](start(X, 3)), X) == [0, 1, 2]
    assert rows_of(INDUCING["last"](start(X, 3)), X) == [57, 58, 59]


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_greedy_takes_the_row_of_largest_residual_variance(X, kernel):
    K = KERNELS[kernel](torch.as_tensor(X)[None], torch.as_tensor(X)[None], HYPER)[0].numpy()
    expected = [0]
    for _ in range(19):
        of_chosen = K[expected]
        explained = of_chosen.T @ np.linalg.solve(of_chosen[:, expected], of_chosen)
        expected.append(int(np.argmax(np.diag(K - explained))))
    assert rows_of(greedy(start(X, 20, kernel=kernel)), X) == expected


def test_greedy_takes_each_distinct_row_once_before_any_copy(X):
    doubled = np.concatenate([X[:10], X[:10]])
    Z = greedy(start(doubled, 12))
    assert sorted(rows_of(Z[:10], X)) == list(range(10))
    assert rows_of(Z[10:], X) == [0, 1]


def test_kmeans_ends_where_every_centre_is_the_mean_of_its_rows(X):
    Z = kmeans(start(X, 7))
    closest = _closest_centres(torch.as_tensor(X), Z).numpy()
    means = np.stack([X[closest == number].mean(0) for number in range(7)])
    np.testing.assert_allclose(Z.numpy(), means, rtol=1e-12, atol=1e-12)


def test_kmeans_finds_clusters_that_lie_far_apart(X):
    corners = 100 * np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1]])
    clusters = corners[np.arange(60) % 4] + 0.1 * X
    Z = kmeans(start(clusters, 4)).numpy()
    found = sorted((Z / 100).round().tolist())
    assert found == sorted((corners / 100).tolist())


def test_kmeans_starts_with_rows_drawn_by_squared_distance():
    # The rows lie at 0, 1 and 2 of a line: after the first, the odds are those of the squares.
    rows = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    seconds = []
    for seed in range(600):
        first_row, second_row = _first_centres(rows, 2, seed).tolist()
        assert first_row != second_row
        if first_row == 0:
            seconds.append(second_row)
    assert 0.7 < np.mean(np.array(seconds) == 2) < 0.9  # 4 / (1 + 4)


@pytest.mark.parametrize("name", INDUCING)
def test_choice_depends_on_rows_and_seed_alone(X, name):
    Z = INDUCING[name](start(X, 9))
    assert torch.equal(Z, INDUCING[name](start(X.copy(), 9)))
    assert Z.shape == (9, 3)
    assert Z.unique(dim=0).shape == (9, 3)


def test_seeds_start_kmeans_differently(X):
    assert not torch.equal(kmeans(start(X, 9, seed=1)), kmeans(start(X, 9, seed=2)))


@pytest.mark.parametrize("name", INDUCING)
def test_all_rows_are_taken_as_they_are(X, name):
    assert torch.equal(INDUCING[name](start(X, len(X))), torch.as_tensor(X))


@pytest.mark.parametrize("name", ["kmeans", "greedy"])
def test_rows_that_are_all_alike_are_no_fault(name):
    Z = INDUCING[name](start(np.ones((20, 2)), 5))
    assert torch.equal(Z, torch.ones(5, 2, dtype=torch.float64))


@pytest.mark.parametrize("name", ["kmeans", "greedy"])
def test_of_many_rows_a_subset_is_looked_at(X, name, monkeypatch):
    monkeypatch.setitem(inducing.MAX_ROWS, name, 25)
    subset = sampled_rows(torch.as_tensor(X), 25, 3)
    assert subset.unique(dim=0).shape == (25, 3)
    numbers = rows_of(subset, X)
    assert numbers == sorted(numbers)
    assert torch.equal(INDUCING[name](start(X, 5)), INDUCING[name](start(subset, 5)))


def test_median_distance_is_that_of_pairs_of_different_rows():
    X = torch.tensor([[0.0], [0.0], [1.0], [3.0]], dtype=torch.float64)
    # Between different rows: 1, 1, 2, 3, 3
    assert median_distance(X, 0) == 2
    assert median_distance(torch.ones(3, 2), 0) == 1
