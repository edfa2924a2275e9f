"""What is found wrong with the `collapsed` of an objective, before anything is trained on it."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from dlmexp import UserError
from dlmexp.core.objectives import ELBO, OBJECTIVES, Objective
from dlmexp.core.training.collapsed_check import check_collapsed
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.model import Loss, Model

N = 30


def data(dtype: torch.dtype = torch.float64) -> BatchData:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(1, N, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(6 * X[..., 0]) + 0.1 * torch.randn(1, N, generator=generator, dtype=torch.float64)
    return BatchData(X.to(dtype), y.to(dtype), {}, [0], [0])


def check(objective: Objective, dtype: torch.dtype = torch.float64, whitened: bool = True) -> None:
    M = N if objective.all_rows_inducing else 5
    check_collapsed(Model(M=M, whitened=whitened), Loss(objective), data(dtype))


def changed(problem, beta, change):
    assert ELBO.collapsed is not None
    return change(ELBO.collapsed(problem, beta))


def elbo_with(change) -> Objective:
    """Return the ELBO with something else in place of what `collapsed` returns."""
    return replace(ELBO, name="mine", collapsed=partial(changed, change=change))


def with_other_covariance(closed):
    return closed._replace(L=1.5 * closed.L)


CLOSED_FORMS = [name for name in OBJECTIVES if OBJECTIVES[name].collapsed is not None]
MISTAKES = {
    "L is transposed": (lambda c: c._replace(L=c.L.mT), "not lower triangular"),
    "loss is detached": (lambda c: c._replace(loss=c.loss.detach()), "has no gradient"),
    "another loss": (lambda c: c._replace(loss=c.loss + c.loss.detach()), "has a derivative of"),
    "NaN": (lambda c: c._replace(loss=c.loss * torch.nan), "has a derivative of nan"),
    "m of another shape": (lambda c: c._replace(m=c.m[..., None]), r"m of collapsed is \[1, 5, 1\]"),
    "L for one cell": (lambda c: c._replace(L=c.L[0]), r"L of collapsed is \[5, 5\]"),
    "single precision": (lambda c: c._replace(m=c.m.float()), "m of collapsed is torch.float32"),
    "ok as numbers": (lambda c: c._replace(ok=c.ok.double()), "ok of collapsed is torch.float64"),
    "m is off": (lambda c: c._replace(m=0.9 * c.m), "do not attain the minimum"),
    "L is off": (with_other_covariance, "do not attain the minimum"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_objectives_of_ours_pass(name):
    check(OBJECTIVES[name].with_options({}))


def test_rows_in_single_precision_and_other_coordinates_pass():
    check(ELBO, torch.float32, whitened=False)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_told_with_the_name_of_the_objective(mistake):
    change, problem = MISTAKES[mistake]
    with pytest.raises(UserError, match=f"objective 'mine': .*{problem}"):
        check(elbo_with(change))
