"""GPyTorch's likelihoods in terms of ours. Another one is a line in TRANSLATIONS."""

from collections.abc import Callable
from typing import Any

import gpytorch.likelihoods as theirs
import torch

from dlmexp.errors import UserError
from dlmexp.gp import likelihoods as ours
from dlmexp.mlls.poisson import PoissonExpLikelihood

TRANSLATIONS: dict[type, Callable[[Any], ours.Likelihood]] = {
    theirs.GaussianLikelihood: lambda l: ours.Gaussian(l.noise),
    theirs.BernoulliLikelihood: lambda l: ours.Probit(),
    theirs.StudentTLikelihood: lambda l: ours.StudentT(l.noise.sqrt(), l.deg_free),
    PoissonExpLikelihood: lambda l: ours.Poisson(),
}
if hasattr(theirs, "PoissonLikelihood"):  # not in GPyTorch's older versions
    TRANSLATIONS[theirs.PoissonLikelihood] = lambda l: ours.PoissonSoftplus()


def translate(likelihood: torch.nn.Module) -> ours.Likelihood:
    """Our likelihood with the current parameters of GPyTorch's (still attached to their gradients). Exact types only: a
    subclass may mean something else."""
    if type(likelihood) not in TRANSLATIONS:
        valid = ", ".join(kind.__name__ for kind in TRANSLATIONS)
        raise UserError(f"there is no direct loss for {type(likelihood).__name__}: use one of {valid}")
    return TRANSLATIONS[type(likelihood)](likelihood)
