"""Predictions are the marginals, without gradients."""

import pytest
import torch

from dlmexp.gp.kernels import KERNELS
from dlmexp.gp.posterior import marginals, predict, projection


@pytest.mark.parametrize("name", list(KERNELS))
def test_equals_marginals(name, cells):
    c = cells(3, 5, 20, 2)
    p = projection(KERNELS[name], c, c["X"], c["jitter"])
    expected = marginals(p, c["mean"], c["m"], c["L"])
    found = predict(KERNELS[name], c, c["m"], c["L"], c["jitter"], c["X"])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_nothing_to_predict_is_an_empty_answer(cells):
    c = cells(2, 5, 20, 2)
    mu, v = predict(KERNELS["rbf"], c, c["m"], c["L"], c["jitter"], c["X"][:, :0])
    assert mu.shape == v.shape == (2, 0)


def test_carries_no_gradient(cells):
    c = cells(2, 5, 20, 2)
    mu, v = predict(KERNELS["rbf"], c, c["m"].requires_grad_(), c["L"], c["jitter"], c["X"])
    assert not mu.requires_grad
    assert not v.requires_grad
