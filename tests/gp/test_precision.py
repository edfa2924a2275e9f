"""Sums of float32 rows in float64, and that float64 rows are summed as torch does."""

import pytest
import torch

from dlmexp.gp.cholesky import FIRST_JITTER, factorise
from dlmexp.gp.kernels import rbf
from dlmexp.gp.precision import as_rows, hyper_as_rows, row_gram, row_mean, row_sum, symmetrised


@pytest.fixture
def rows():
    """[B, M, N] with sums that float32 loses digits of."""
    return 1 + torch.randn(2, 7, 3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_float64_rows_are_left_as_they_are(rows):
    """So that nothing here changes a bit of a run in float64."""
    small = rows[..., :7]
    assert as_rows(rows, small)[0] is small
    assert hyper_as_rows(rows, {"Z": small})["Z"] is small
    assert symmetrised(small) is small
    assert torch.equal(row_gram(rows), rows @ rows.mT)
    assert torch.equal(row_sum(rows), rows.sum(-1))
    assert torch.equal(row_mean(rows), rows.mean(-1))


@pytest.mark.parametrize("n", [1, 63, 64, 200, 3000])
def test_sums_of_float32_rows(rows, n):
    rows = rows[..., :n].float()
    exact = rows.double() @ rows.double().mT
    gram = row_gram(rows)
    assert gram.dtype == row_sum(rows).dtype == row_mean(rows).dtype == torch.float64
    size = rows.double().square().sum(-1).sqrt()
    assert ((gram - exact).abs() <= 3e-7 * size[..., None] * size[..., None, :]).all()
    torch.testing.assert_close(row_sum(rows), rows.double().sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(row_mean(rows), rows.double().mean(-1), rtol=1e-12, atol=1e-12)


def test_many_inducing_inputs_make_longer_pieces():
    A = torch.randn(1, 200, 730, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(row_gram(A), A.double() @ A.double().mT, rtol=0, atol=6e-7 * 730)


def test_gradient_of_the_gram_matrix(rows):
    A, G = rows[..., :150].float().requires_grad_(), torch.randn(2, 7, 7, dtype=torch.float64)
    (found,) = torch.autograd.grad((row_gram(A) * G).sum(), A)
    expected = (G + G.mT) @ A.detach().double()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_kuu_that_float32_can_not_factorise():
    """Inducing inputs close together: with the first jitter, float32 finds a pivot that is not positive."""
    Z = torch.linspace(0, 1, 400, dtype=torch.float64)[None, :, None]
    one = torch.ones(1, dtype=torch.float64)
    K = rbf(Z, Z, {"lengthscale": one[:, None], "outputscale": one})
    assert factorise(K, FIRST_JITTER * one).ok
    assert not factorise(K.float(), FIRST_JITTER * one.float()).ok
