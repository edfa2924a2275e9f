"""Products in strips, of shared factors, and of float32 rows."""

import pytest
import torch

from dlmexp.core.gp import matrix_products
from dlmexp.core.gp.matrix_products import (
    gram,
    padded_columns,
    projected_variance,
    row_gram,
    shared_gram,
    symmetric_product,
    triangular_product,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def short_strips(monkeypatch):
    """Strips pay for every product."""
    monkeypatch.setattr(matrix_products, "MIN_WORK", 1)


STRIPS = [(44, 1), (91, 2), (206, 5), (1, 1)]


@pytest.mark.parametrize(("M", "strips"), STRIPS)
def test_strips_cover_every_row_once(M, strips, short_strips):
    slices = matrix_products._strips(random(2, M, 30))
    assert len(slices) == strips
    assert [i for rows in slices for i in range(rows.start, rows.stop)] == list(range(M))


@pytest.mark.parametrize(("M", "strips"), [(206, 1), (206, 5)])
def test_small_products_are_not_cut_into_strips(M, strips):
    N = matrix_products.MIN_WORK * strips // M**2 + 1
    assert len(matrix_products._strips(torch.empty(1, M, N))) == strips


@pytest.mark.parametrize(("M", "strips"), STRIPS)
@pytest.mark.parametrize("into", ["an array", "a new one"])
def test_triangular_product_in_strips_is_the_product(M, strips, into, short_strips):
    R = random(2, M, M).tril()
    K = random(2, M, 30, seed=1)
    out = torch.full_like(K, torch.nan) if into == "an array" else None
    product = triangular_product(R, K, out)
    torch.testing.assert_close(product, R @ K, rtol=1e-12, atol=1e-12)
    assert out is None or product is out


@pytest.mark.parametrize(("M", "strips"), STRIPS)
@pytest.mark.parametrize("differentiated", [True, False])
def test_symmetric_product_in_strips_is_the_product(M, strips, differentiated, short_strips):
    K = random(2, M, 30).requires_grad_(differentiated)
    h = random(2, 1, 30, seed=1)
    product = symmetric_product(K * h, K)
    expected = (K * h) @ K.mT
    torch.testing.assert_close(product, expected, rtol=1e-12, atol=1e-12)
    if differentiated:
        gradient = torch.autograd.grad(product.sum(), K)
        expected_gradient = torch.autograd.grad(expected.sum(), K)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-11, atol=1e-11)


def test_gram_weighs_the_columns():
    A = random(2, 3, 7)
    h = random(2, 7, seed=1)
    torch.testing.assert_close(gram(A), A @ A.mT)
    torch.testing.assert_close(gram(A, h), A @ torch.diag_embed(h) @ A.mT)


def test_cells_that_share_a_factor_have_their_own_products():
    A = random(2, 4, 7)
    L = random(2, 3, 4, 4, seed=1).tril()
    h = random(2, 3, 7, seed=2)
    squares = projected_variance(L, A)
    grams = shared_gram(A, h)
    for s in range(2):
        for k in range(3):
            torch.testing.assert_close(squares[s, k], (L[s, k].mT @ A[s]).square().sum(0))
            torch.testing.assert_close(grams[s, k], A[s] @ torch.diag(h[s, k]) @ A[s].mT)


def test_columns_are_added_only_where_tiles_pay(monkeypatch):
    Z = random(2, 5, 3)
    assert padded_columns(Z, 33) == 33
    monkeypatch.setattr(matrix_products, "uses_triton", lambda tensor: True)
    assert padded_columns(Z, 33) == 33
    monkeypatch.setattr(matrix_products, "LARGE_PRODUCT", 2 * 5 * 33)
    assert padded_columns(Z, 33) == 64
    assert padded_columns(Z, 64) == 64
    assert padded_columns(Z.float(), 33) == 33
    assert padded_columns(Z, 32) == 32


@pytest.mark.parametrize("n", [1, 63, 64, 200, 3000, 100_000])
def test_gram_of_float32_rows_keeps_the_digits_of_float64_sums(n):
    rows = 1 + torch.randn(2, 7, n, generator=torch.Generator().manual_seed(0))
    exact = rows.double() @ rows.double().mT
    result = row_gram(rows)
    assert result.dtype == torch.float64
    size = rows.double().square().sum(-1).sqrt()
    assert ((result - exact).abs() <= 3e-7 * size[..., None] * size[..., None, :]).all()
