"""The program with q in closed form: its objective is the explicit one at its best q."""

import pytest
import torch
from small_programs import program

import dlmexp.training.collapsed as collapsed_module
from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.gp.posterior import kl, marginals, projection

HOW = {"likelihood": "gaussian", "objective": "elbo", "index": (0, 1, 1)}


def _value(made, values=None):
    values = values or made.initial()
    return made.objective(values, torch.full_like(made.beta, FIRST_JITTER), torch.tensor(0))


def _explicit(made, posterior):
    """The uncollapsed objective of a whitened q."""
    h, m, L, jitter = posterior
    index = made.split.index
    p = projection(made.model.kernel, h["Z"], made.split.X[index], h["lengthscale"], h["outputscale"], jitter)
    mu, v = marginals(p, h["mean"], m, L)
    loss = made.model.likelihood(h).elbo_loss(mu, v, made.split.y[index]).mean(-1)
    return loss + made.beta * kl(m, L) / made.n


def test_is_the_explicit_objective_at_the_posterior_it_returns():
    made = program("collapsed", **HOW)
    posterior = made.posterior(made.initial(), torch.full_like(made.beta, FIRST_JITTER))
    torch.testing.assert_close(_value(made).objective, _explicit(made, posterior), rtol=1e-10, atol=0)


@pytest.mark.parametrize("direction", ["m", "L"])
def test_no_other_q_is_better(direction):
    made = program("collapsed", **HOW)
    best = made.posterior(made.initial(), torch.full_like(made.beta, FIRST_JITTER))
    moved = torch.randn(getattr(best, direction).shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for size in (1e-3, -1e-3):
        other = best._replace(
            **{direction: getattr(best, direction) + size * moved.tril() if direction == "L" else best.m + size * moved}
        )
        assert (_explicit(made, other) > _explicit(made, best)).all()


def test_rows_in_pieces_change_nothing(monkeypatch):
    whole = program("collapsed", **HOW)
    monkeypatch.setitem(collapsed_module.ENTRIES_AT_ONCE, "cpu", 3 * 6 * 7)
    pieces = program("collapsed", **HOW)
    assert pieces._rows_at_once == 7
    torch.testing.assert_close(_value(pieces).objective, _value(whole).objective, rtol=1e-12, atol=0)


@pytest.mark.parametrize("objective", ["fitc", "sq_dlm"])
def test_the_other_closed_forms_are_per_row_and_differentiable(objective):
    made = program("collapsed", **(HOW | {"objective": objective}))
    values = {name: value.requires_grad_() for name, value in made.initial().items()}
    value = _value(made, values)
    twice = program("collapsed", n=60, **(HOW | {"objective": objective}))
    assert value.objective.shape == (3,)
    assert value.ok.all()
    assert (
        (
            twice.objective(twice.initial(), torch.full_like(made.beta, 1e-6), torch.tensor(0)).objective
            / value.objective
        )
        < 1.8
    ).all()
    grad = torch.autograd.grad(value.objective.sum(), values["lengthscale"])[0]
    assert (grad != 0).all()
