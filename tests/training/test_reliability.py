"""Bins of reliability diagrams and the ECE, against a plain loop."""

import itertools

import numpy as np
import pytest
import torch

from dlmexp.training.metrics import BINS, reliability


def plain(p: np.ndarray, y: np.ndarray) -> float:
    """The ECE of distinct probabilities, bin by bin."""
    order = np.argsort(p, kind="stable")
    ends = [len(p) * b // BINS for b in range(BINS + 1)]
    total = 0.0
    for first, last in itertools.pairwise(ends):
        rows = order[first:last]
        if len(rows):
            total += len(rows) * abs(p[rows].mean() - y[rows].mean())
    return total / len(p)


@pytest.mark.parametrize("rows", [1, 7, 15, 100, 1000])
def test_against_a_loop(rows):
    rng = np.random.default_rng(rows)
    p = rng.random((3, rows))
    y = (rng.random((3, rows)) < p**2).astype(float)
    found = reliability(torch.from_numpy(p), torch.from_numpy(y))
    assert found.ece().tolist() == pytest.approx([plain(*pair) for pair in zip(p, y, strict=True)], rel=1e-12)
    assert found.rows.sum(-1).tolist() == [rows] * 3
    assert found.rows.max() - found.rows.min() <= 1


def test_ties_share_their_classes_so_that_order_does_not_matter():
    rng = np.random.default_rng(0)
    p = torch.from_numpy(rng.integers(0, 4, 200) / 4)
    y = torch.from_numpy((rng.random(200) < 0.4).astype(float))
    order = torch.from_numpy(rng.permutation(200))
    both = reliability(torch.stack((p, p[order])), torch.stack((y, y[order])))
    assert torch.allclose(both.y[0], both.y[1])
    constant = torch.full_like(p, 0.7)[None]
    assert reliability(constant, y[None]).ece().item() == pytest.approx(abs(0.7 - y.mean().item()), rel=1e-12)


def test_what_is_stored_is_small():
    arrays = reliability(torch.rand(2, 50), torch.ones(2, 50)).arrays()
    assert list(arrays) == ["reliability_p", "reliability_y", "reliability_rows"]
    assert all(array.shape == (2, BINS) and array.dtype == np.float32 for array in arrays.values())
