"""GPyTorch's likelihoods in terms of ours, and counts with the exp link, which GPyTorch does not have."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import gpytorch.likelihoods as theirs
import torch
from gpytorch.likelihoods.likelihood import _OneDimensionalLikelihood
from torch import Tensor
from torch.distributions import Poisson

from dlmexp.errors import UserError
from dlmexp.gp import likelihoods as ours


class PoissonExpLikelihood(_OneDimensionalLikelihood):
    """y ~ Poisson(exp(f)), as a GPyTorch likelihood: it works with GPyTorch's objectives too.

    Example:
        ```python
        from dlmexp.mlls import DirectLoss, PoissonExpLikelihood

        likelihood = PoissonExpLikelihood()
        mll = DirectLoss(likelihood, model, num_data=len(y))
        ```
    """

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Poisson:
        return Poisson(function_samples.exp())


@dataclass(frozen=True)
class ByQuadrature(ours.Likelihood):
    """Any one-dimensional likelihood of GPyTorch, through what its `forward` says of samples [L, *batch, N]."""

    name: ClassVar[str] = "gpytorch"
    module: _OneDimensionalLikelihood
    samples_first: bool = False

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        if not self.samples_first:
            return self.module(f).log_prob(y)
        return self.module(f.movedim(-2, 0)).log_prob(y.movedim(-2, 0)).movedim(0, -2)

    def over_samples(self) -> Self:
        return replace(self, samples_first=True)


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
    subclass may mean something else, and is integrated by quadrature."""
    if type(likelihood) in TRANSLATIONS:
        return TRANSLATIONS[type(likelihood)](likelihood)
    if isinstance(likelihood, _OneDimensionalLikelihood):
        return ByQuadrature(likelihood)
    valid = ", ".join(kind.__name__ for kind in TRANSLATIONS)
    raise UserError(
        f"there is no direct loss for {type(likelihood).__name__}: use one of {valid}, or derive your own from "
        "gpytorch.likelihoods.likelihood._OneDimensionalLikelihood"
    )
