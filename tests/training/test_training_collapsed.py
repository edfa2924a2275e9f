"""The program with q in closed form: its objective is the explicit one at its best q."""

import pytest
import torch

import dlmexp.training.variants as collapsed_module
from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.gp.collapsed import collapsed_square
from dlmexp.gp.fitc import fitc
from dlmexp.gp.posterior import kl, marginals, projection
from dlmexp.training.variants import Collapsed
from tests.support.small_programs import program

HOW = {"likelihood": "gaussian", "objective": "elbo", "index": (0, 1, 1)}


def _value(made, values=None):
    values = values or made.initial()
    return made.objective(values, torch.full_like(made.beta, FIRST_JITTER), torch.tensor(0))


def _explicit(made, posterior):
    """The uncollapsed objective of a whitened q."""
    h, m, L, jitter = posterior
    index = made.split.index
    p = projection(made.model.kernel, h, made.split.X[index], jitter)
    mu, v = marginals(p, h["mean"], m, L)
    loss = made.model.likelihood.from_hyper(h).elbo_loss(mu, v, made.split.y[index]).mean(-1)
    return loss + made.beta * kl(m, L) / made.n


def test_is_the_explicit_objective_at_the_posterior_it_returns():
    made = program("collapsed", **HOW)
    posterior = made.posterior(made.initial(), torch.full_like(made.beta, FIRST_JITTER))
    torch.testing.assert_close(_value(made).objective, _explicit(made, posterior), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("direction", ["m", "L"])
def test_no_other_q_is_better(direction):
    made = program("collapsed", **HOW)
    best = made.posterior(made.initial(), torch.full_like(made.beta, FIRST_JITTER))
    moved = torch.randn(getattr(best, direction).shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if direction == "L":
        moved = moved.tril()
    for size in (1e-3, -1e-3):
        other = best._replace(**{direction: getattr(best, direction) + size * moved})
        assert (_explicit(made, other) > _explicit(made, best)).all()


def test_rows_in_pieces_change_nothing(monkeypatch):
    whole = program("collapsed", **HOW)
    monkeypatch.setitem(collapsed_module.ENTRIES_AT_ONCE, "cpu", 3 * 6 * 7)
    pieces = program("collapsed", **HOW)
    assert isinstance(pieces, Collapsed)
    assert pieces._rows_at_once == 7
    torch.testing.assert_close(_value(pieces).objective, _value(whole).objective, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("objective", "form"), [("fitc", fitc), ("sq_dlm", collapsed_square)])
def test_the_other_closed_forms_per_row(objective, form):
    made = program("collapsed", **(HOW | {"objective": objective}))
    X, y = made.split.X[made.split.index], made.split.y[made.split.index]
    whole = form(
        made.model.kernel, made.hyperparameters(made.initial()), X, y, made.beta, torch.full((3,), 1e-6).double()
    )
    torch.testing.assert_close(_value(made).objective, whole.loss / 30, rtol=1e-12, atol=1e-12)
