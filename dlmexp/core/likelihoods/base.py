"""What every likelihood p(y|f) offers. Observations and marginals are [..., N], broadcast against
each other; samples of f are [..., L, N].

A new likelihood is a class with a `log_prob`, registered under a name:

    @LIKELIHOODS.register("negative_binomial")
    @dataclass(frozen=True)
    class NegativeBinomial(Likelihood):
        dispersion: Tensor
        task = "count"
        parameters = {"dispersion": Parameter(1.0, positive=True)}
        metrics = {"mre": relative_error}

        def log_prob(self, f, y): ...

        def conditional_mean(self, f):
            return f.exp()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.gp.kernels import Hyper, Parameter
from dlmexp.core.gp.special import at_nodes, expectation
from dlmexp.core.likelihoods.calibration import Scores, brier

HERMITE_NODES = 64  # of the generic quadrature, where a likelihood has nothing better

Metric = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""metric(likelihood, mu [B,N], v [B,N], y [B,N]) -> [B,N]: what its mean over rows measures, lower is better"""


@dataclass(frozen=True)
class Likelihood(ABC):
    """A conditional density p(y|f) whose own parameters are tensors broadcastable against [..., N].

    `log_prob` must be written; the integrals over q(f) = N(f; mu, v) have generic forms by
    Gauss-Hermite quadrature, which a likelihood overrides where it knows better."""

    name: ClassVar[str]  # set when it is registered
    task: ClassVar[str] = "regression"  # regression | binary (y in {0, 1}) | count
    parameters: ClassVar[
        Mapping[str, Parameter]
    ] = {}  # learned with the kernel's; by default fields of these names
    metrics: ClassVar[Mapping[str, Metric]] = {}  # beside the NLL, also in learning curves
    conjugate: ClassVar[bool] = False  # Gaussian noise: q has a closed form
    product_sampler: ClassVar[str | None] = (
        None  # the fastest exact sampler of q(f) p(y|f), a name in SAMPLERS
    )

    @classmethod
    def from_hyper(cls, hyper: Hyper) -> Self:
        """The likelihood with each cell's own parameters, [B] in `hyper`, ready to meet rows [B,
        N]."""
        return cls(**{name: hyper[name][:, None] for name in cls.parameters})

    @abstractmethod
    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y|f), elementwise."""

    def log_loss(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], y: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"]:
        """-log E_{N(f; mu, v)} p(y|f) per row (log-loss DLM, section 2), differentiable in mu, v
        and own parameters."""
        return quadrature_log_loss(self, mu, v, y, HERMITE_NODES)

    def elbo_loss(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], y: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"]:
        """E_{N(f; mu, v)}[-log p(y|f)] per row (the ELBO's term, section 2)."""
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        lifted, y = self.over_samples(), y.unsqueeze(-2)
        return expectation(lambda f: -lifted.log_prob(f, y), mu, v)

    def conditional_mean(self, f: Tensor) -> Tensor:
        """E[y|f], elementwise: f itself in regression, p(1|f) of binary data; counts have to
        say."""
        if self.task == "count":
            raise UserError(
                f"the likelihood '{self.name}' has no conditional_mean, which its metrics need: write one"
            )
        return f if self.task == "regression" else self.log_prob(f, torch.ones_like(f)).exp()

    def mean(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"]:
        """E[y] under the predictive distribution: mean count, P(y = 1), or mu."""
        return expectation(self.over_samples().conditional_mean, mu, v, HERMITE_NODES)

    def std(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"] | None:
        """Standard deviation of y under the predictive distribution; None if the likelihood does
        not say (as for binary data, whose mean says it all)."""
        return None

    def interval(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"]
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"]] | None:
        """Ends of the central 95 % interval of y under the predictive distribution; None as for
        `std`."""
        return None

    def cdf(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Float[Tensor, "*B N"]:
        """P(Y <= y) under the predictive distribution, of likelihoods with an `interval`: for
        mixtures of models."""
        raise UserError(
            f"the likelihood '{self.name}' has no cdf, which mixtures of models need: write one"
        )

    def calibration(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Scores:
        """Scores per row of the whole predictive distribution, measured at the end of training
        (`calibration.py`).

        Binary data have a Brier score (and an ECE, which needs all rows at once:
        `training.metrics`). Other likelihoods have none unless they say so here."""
        return brier(self.mean(mu, v), y) if self.task == "binary" else {}

    def log_p_max(self, y: Float[Tensor, "*B N"]) -> Tensor:
        """sup_f log p(y|f), the constant of the paper's rejection sampler."""
        return self.log_prob(self.peak(y), y)

    def peak(self, y: Float[Tensor, "*B N"]) -> Tensor:
        """The f at which p(y|f), unimodal in f, is largest; plus or minus infinity where that is
        only a supremum."""
        raise UserError(
            f"sampler=rejection needs the peak of the likelihood '{self.name}': write that method"
        )

    def own_tensors(self) -> dict[str, Tensor]:
        """Its own parameters by field name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def over_samples(self) -> Self:
        """The same likelihood with its parameters ready to meet samples [..., L, N] instead of rows
        [..., N]."""
        return replace(
            self, **{k: t.unsqueeze(-2) if t.ndim else t for k, t in self.own_tensors().items()}
        )


LIKELIHOODS: Registry[type[Likelihood]] = Registry("likelihood", "dlmexp.core.likelihoods")


def quadrature_log_loss(
    likelihood: Likelihood,
    mu: Float[Tensor, "*#B #N"],
    v: Float[Tensor, "*#B #N"],
    y: Float[Tensor, "*#B #N"],
    nodes: int,
) -> Float[Tensor, "*B N"]:
    """`-log sum_k w_k p(y|mu + sqrt(v) e_k)` by Gauss-Hermite quadrature in log space."""
    f, log_w = at_nodes(mu, v, nodes)
    return -torch.logsumexp(log_w + likelihood.over_samples().log_prob(f, y.unsqueeze(-2)), -2)


def squared_error(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """(E[y] - y)^2 per row; its mean is the MSE."""
    return (likelihood.mean(mu, v) - y).square()


def misclassified(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """1 where the more probable class is the wrong one; its mean is the error rate."""
    mean = likelihood.mean(mu, v)
    return ((mean > 0.5) != (y > 0.5)).to(mean.dtype)


def relative_error(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """|E[y] - y| / max(1, y) per row; its mean is the MRE."""
    return (likelihood.mean(mu, v) - y).abs() / y.clamp(min=1)
