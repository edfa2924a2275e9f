"""A beta grid that is not whole selects nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.config import BetaConfig
from dlmexp.sweep.grid import betas
from dlmexp.sweep.whole import choices, whole

PAPER, SHORT = BetaConfig(ratio=2, smallest=0.01), BetaConfig(ratio=10, smallest=0.01)


@pytest.mark.parametrize("grid", [PAPER, SHORT])
@pytest.mark.parametrize("n", [60, 691, 2000])
def test_a_whole_grid_is_whole(grid, n):
    assert whole(n, betas(grid, n))


@given(st.integers(50, 20_000), st.data())
def test_one_beta_less_is_not(n, data):
    grid = betas(PAPER, n)
    without = data.draw(st.sampled_from(grid))
    assert not whole(n, [beta for beta in grid if beta != without])


def test_betas_beside_the_grid_do_not_matter():
    grid = betas(PAPER, 100)
    assert whole(100, [*grid, 1.0, 0.3])
    assert not whole(100, [*grid[:-1], 1.0, 0.3])


@pytest.mark.parametrize("values", [[1.0], [0.1, 1.0, 10.0], [None], [float("nan")], []])
def test_lists_and_methods_without_beta_are_whole(values):
    assert whole(1000, values)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_beginning_of_a_grid_is_not_a_list(count):
    assert not whole(1000, betas(PAPER, 1000)[:count])


def test_beta_one_is_no_candidate_beside_the_grid():
    grid = betas(PAPER, 100)
    assert choices(100, frozenset([*grid, 1.0])) == set(grid)
    assert choices(100, frozenset([*grid[1:], 1.0])) == set()
    assert choices(100, frozenset([0.1, 1.0, 10.0])) == {0.1, 1.0, 10.0}
    assert choices(100, frozenset([None])) == {None}
    assert 1.0 in choices(64, frozenset(betas(PAPER, 64)))
