"""Types of rows and parameters, and sums over rows in float64 and in pieces."""

import pytest
import torch

from dlmexp.core.gp.precision import hyper_in_type_of, in_type_of, row_mean, row_sum, sum_over_rows


@pytest.mark.parametrize("n", [1, 63, 64, 200, 3000])
def test_float32_rows_are_summed_in_float64(n):
    rows = 1 + torch.randn(2, 7, n, generator=torch.Generator().manual_seed(0))
    assert row_sum(rows).dtype == row_mean(rows).dtype == torch.float64
    torch.testing.assert_close(row_sum(rows), rows.double().sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(row_mean(rows), rows.double().mean(-1), rtol=1e-12, atol=1e-12)


def test_parameters_take_the_type_of_the_rows_and_keep_their_gradient():
    rows = torch.ones(2, 3)
    parameter = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (converted,) = in_type_of(rows, parameter)
    hyper = hyper_in_type_of(rows, {"noise": parameter})
    assert converted.dtype == hyper["noise"].dtype == torch.float32
    (converted.sum() + hyper["noise"].sum()).backward()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [2, 2]


def weighted_sums(X, y):
    """Return two sums over rows, of different shapes."""
    return (X * y[..., None]).sum(-2), y.square().sum(-1)


@pytest.mark.parametrize("rows_at_once", [None, 1, 4, 9, 10, 11])
@pytest.mark.parametrize("differentiated", [True, False])
def test_sum_over_pieces_is_the_sum_over_all_rows(rows_at_once, differentiated):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(2, 10, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(2, 10, dtype=torch.float64, generator=generator)
    with torch.set_grad_enabled(differentiated):
        sums = sum_over_rows(weighted_sums, X, y, rows_at_once)
    expected = weighted_sums(X, y)
    torch.testing.assert_close(sums, expected, rtol=1e-12, atol=1e-12)
    if differentiated:
        (gradient,) = torch.autograd.grad(sums[0].sum(), X)
        (expected_gradient,) = torch.autograd.grad(expected[0].sum(), X)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-12)


def test_no_piece_has_more_rows_than_asked_for():
    sizes = []

    def sizes_of_pieces(X, y):
        sizes.append(X.shape[-2])
        return (y.sum(-1),)

    with torch.no_grad():
        sum_over_rows(sizes_of_pieces, torch.ones(1, 10, 2), torch.ones(1, 10), 4)
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(("rows_at_once", "calls"), [(None, 1), (10, 1), (5, 4)])
def test_only_pieces_are_computed_again_in_the_backward_pass(rows_at_once, calls):
    X = torch.ones(1, 10, 2, dtype=torch.float64, requires_grad=True)
    y = torch.ones(1, 10, dtype=torch.float64)
    sizes = []

    def f(X, y):
        sizes.append(X.shape[-2])
        return ((X.exp().sum(-1) * y).sum(-1),)

    (total,) = sum_over_rows(f, X, y, rows_at_once)
    total.sum().backward()
    assert len(sizes) == calls


def test_backward_pass_keeps_only_views_of_the_rows():
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    X = torch.ones(1, 1000, 3, dtype=torch.float64)
    y = torch.ones(1, 1000, dtype=torch.float64)
    rows = {X.untyped_storage().data_ptr(), y.untyped_storage().data_ptr()}
    saved = []

    def save(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        sum_over_rows(lambda X, y: (((X @ w).exp() * y).sum(-1),), X, y, 100)
    # Some versions of torch's checkpoint save a tensor without elements with the arguments.
    saved = [tensor for tensor in saved if tensor.untyped_storage().nbytes() > 0]
    assert saved
    assert all(tensor.untyped_storage().data_ptr() in rows for tensor in saved)
