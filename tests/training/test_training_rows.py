"""Minibatches: an epoch covers the rows, orders depend on (seed, epoch) alone."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.training.rows import Minibatches, shuffled
from tests.support.small_programs import split


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3), st.integers(0, 1000), st.integers(1, 300))
def test_an_order_is_a_permutation(seeds, epoch, n):
    orders = shuffled(seeds, epoch, n)
    assert torch.equal(orders.sort(1).values, torch.arange(n).expand(len(seeds), n))


def test_the_order_is_the_same_everywhere():
    assert shuffled([0, 7], 0, 10)[0].tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    assert shuffled([3], 2, 10)[0].tolist() == [4, 0, 8, 5, 3, 9, 7, 6, 1, 2]


@given(st.integers(0, 10**6), st.integers(0, 1000))
def test_the_order_is_that_of_unsigned_words(seed, epoch):
    words = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(200)
    assert np.array_equal(shuffled([seed], epoch, 200)[0], np.argsort(words, kind="stable"))


def test_an_epoch_covers_all_rows_and_the_next_one_in_another_order():
    batches = Minibatches(split((0, 1)), 10)
    assert batches.per_epoch == 3
    first = torch.cat([batches.rows(i) for i in range(3)], 1)
    second = torch.cat([batches.rows(i) for i in range(3, 6)], 1)
    for rows in (first, second):
        assert torch.equal(rows.sort(1).values, torch.arange(30).expand(2, 30))
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_rows_left_over_wait_for_another_epoch():
    batches = Minibatches(split((0,)), 8)
    seen = {int(row) for i in range(3) for row in batches.rows(i)[0]}
    assert len(seen) == 24
    assert seen | {int(row) for i in range(3, 30) for row in batches.rows(i)[0]} == set(range(30))


def test_any_iteration_can_be_asked_for_at_once():
    whole = Minibatches(split((0, 1)), 7)
    for iteration in range(9):
        expected = whole.rows(iteration)
        assert torch.equal(Minibatches(split((0, 1)), 7).rows(iteration), expected)


def test_a_seed_has_the_same_rows_whoever_shares_the_batch():
    both = split((0, 0, 1))
    alone = both.keep([2])
    assert torch.equal(Minibatches(both, 7).rows(5)[1:], Minibatches(alone, 7).rows(5))
