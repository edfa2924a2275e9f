"""Batched L-BFGS against SciPy's, and against each problem alone."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from dlmexp.core.training.lbfgs import LBFGSState, advance, start_search


def rosenbrock(x):
    leaf = x.detach().requires_grad_()
    valley = (leaf[:, 1:] - leaf[:, :-1].square()).square()
    value = (100 * valley + (1 - leaf[:, :-1]).square()).sum(-1)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def minimised(evaluate, x, tolerance=1e-12, evaluations=2000) -> tuple[LBFGSState, int]:
    state = start_search(evaluate, x)
    for count in range(evaluations):
        if state.done.all():
            return state, count
        advance(state, evaluate, tolerance)
    raise AssertionError("not all problems stopped")


def starts(B=4, P=8):
    g = torch.Generator().manual_seed(0)
    return 2 * torch.randn(B, P, generator=g, dtype=torch.float64)


def test_minima_and_costs_are_those_of_scipy():
    x = starts()
    state, evaluations = minimised(rosenbrock, x)
    theirs = []
    for problem in x:

        def one(values):
            value, gradient = rosenbrock(torch.from_numpy(values)[None])
            return float(value), gradient[0].numpy()

        options = {"maxcor": 20, "ftol": 1e-15, "gtol": 1e-10}
        theirs.append(minimize(one, problem.numpy(), jac=True, method="L-BFGS-B", options=options))
    expected = np.array([result.fun for result in theirs])
    np.testing.assert_allclose(state.value.numpy(), expected, atol=1e-8)
    assert evaluations < 2 * max(result.nfev for result in theirs)


@pytest.mark.slow
def test_a_problem_alone_ends_where_it_ends_in_a_batch():
    x = starts()
    together, _ = minimised(rosenbrock, x)
    for b in range(len(x)):
        alone, _ = minimised(rosenbrock, x[b : b + 1])
        torch.testing.assert_close(alone.x[0], together.x[b], rtol=1e-10, atol=1e-10)


def test_quadratic_function_is_solved():
    g = torch.Generator().manual_seed(1)
    roots = torch.randn(3, 6, 6, generator=g, dtype=torch.float64)
    H = roots @ roots.mT + 0.1 * torch.eye(6, dtype=torch.float64)
    b = torch.randn(3, 6, generator=g, dtype=torch.float64)

    def quadratic(x):
        Hx = (H @ x.unsqueeze(-1)).squeeze(-1)
        return 0.5 * (x * Hx).sum(-1) - (b * x).sum(-1), Hx - b

    state, _ = minimised(quadratic, torch.zeros(3, 6, dtype=torch.float64), tolerance=1e-14)
    torch.testing.assert_close(state.x, torch.linalg.solve(H, b), rtol=1e-4, atol=1e-4)


def test_every_step_lowers_the_objective():
    state = start_search(rosenbrock, starts())
    before = state.value
    for _ in range(60):
        advance(state, rosenbrock, 0.0)
        assert (state.value <= before).all()
        before = state.value


def test_values_that_are_not_finite_make_the_step_shorter():
    """x log x is undefined for x < 0, which the first step reaches."""

    def function(x):
        value = (x * x.log()).sum(-1)
        return value, x.log() + 1

    state, _ = minimised(function, torch.full((1, 2), 3.0, dtype=torch.float64))
    torch.testing.assert_close(state.x, torch.full_like(state.x, np.exp(-1)), rtol=1e-5, atol=0)


def test_a_start_that_is_not_finite_is_done_at_once():
    state = start_search(lambda x: (x.sum(-1).log(), 1 / x), torch.tensor([[-1.0], [2.0]]).double())
    assert state.done.tolist() == [True, False]


def test_kept_problems_go_on_as_if_the_others_were_there():
    x = starts()
    state = start_search(rosenbrock, x)
    for _ in range(10):
        advance(state, rosenbrock, 1e-12)
    kept = state.keep([2])
    for _ in range(10):
        advance(state, rosenbrock, 1e-12)
        advance(kept, rosenbrock, 1e-12)
    torch.testing.assert_close(kept.x[0], state.x[2], rtol=1e-10, atol=1e-10)
    assert kept.iterations[0] == state.iterations[2]


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_a_looser_tolerance_stops_earlier_and_not_far_from_the_minimum(tolerance):
    state, evaluations = minimised(rosenbrock, starts(), tolerance)
    exact, more = minimised(rosenbrock, starts(), 1e-13)
    assert evaluations <= more
    assert (state.value - exact.value <= 100 * tolerance).all()
