"""What objectives say of themselves, and of a mistake in one."""

import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.estimators import Draws, Exact
from dlmexp.gp.likelihoods import Probit
from dlmexp.gp.posterior import kl
from dlmexp.objectives import OBJECTIVES, Objective

MU = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(2, 6)
V = torch.linspace(0.1, 1.5, 12, dtype=torch.float64).reshape(2, 6)
Y = torch.tensor([[0, 1, 2, 0, 1, 3], [1, 1, 0, 4, 2, 1]], dtype=torch.float64)
DRAWS = Draws.fresh((2,))


@pytest.mark.parametrize(
    ("row_loss", "regulariser", "word"),
    [
        (lambda *given: (V.mean(), None), kl, r"row_loss is \[\]"),
        (lambda *given: (V.mean(-1), None), kl, r"row_loss is \[2\]"),
        (lambda *given: (1.5, None), kl, "row_loss is float"),
        (lambda *given: V, kl, "Tensor, not a pair"),
        (lambda *given: (V, V), kl, r"acceptance of row_loss is \[2, 6\]"),
        (lambda *given: (V, None), lambda m, L: kl(m, L).sum(), r"regulariser is \[\]"),
    ],
)
def test_wrong_shapes_of_an_objective_are_a_sentence_with_its_name(row_loss, regulariser, word):
    made = Objective("mine", row_loss, regulariser)
    L = torch.eye(3, dtype=V.dtype).repeat(2, 1, 1)
    with pytest.raises(UserError, match=f"'mine': .*{word}"):
        _ = made.losses(Probit(), Exact(), MU, V, Y, DRAWS), made.penalty(L[:, 0], L)


@pytest.mark.parametrize(
    ("name", "variant", "beta", "task", "said"),
    [
        ("sq_dlm", "joint", 0.0, "regression", True),
        ("sq_dlm", "fixed", 1.0, "regression", False),
        ("elbo", "joint", 0.0, "binary", True),
        ("elbo", "joint", 0.99, "regression", False),
        ("log_dlm", "joint", 0.99, "regression", True),
        ("log_dlm", "joint", 1.0, "regression", False),
        ("log_dlm", "fixed", 0.99, "regression", False),
        ("log_dlm", "joint", 0.01, "binary", True),
        ("log_dlm", "joint", 0.01, "count", False),
        ("fitc", "joint", None, "regression", False),
    ],
)
def test_fits_that_may_have_no_minimiser_say_so(name, variant, beta, task, said):
    assert bool(OBJECTIVES[name].note(variant, beta, task)) == said
