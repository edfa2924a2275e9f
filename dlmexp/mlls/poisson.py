"""Counts with the exp link, which GPyTorch does not have (its own Poisson uses softplus)."""

from typing import Any

from gpytorch.likelihoods.likelihood import _OneDimensionalLikelihood
from torch import Tensor
from torch.distributions import Poisson


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
