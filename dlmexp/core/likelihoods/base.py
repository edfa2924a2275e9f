"""What every likelihood p(y|f) offers (docs/SPEC.md, section 3).

Observations and marginals are [..., N], broadcast against each other; samples of f are [..., L, N].

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
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.gp.kernels import Hyper, Parameter
from dlmexp.core.gp.special import expectation
from dlmexp.core.likelihoods.calibration import Scores, brier
from dlmexp.core.likelihoods.integration import HERMITE_NODES, checked_log_loss, panel_log_loss

Metric = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""metric(likelihood, mu [B, N], v [B, N], y [B, N]) returns the metric of every row [B, N]. Lower
is better; its mean over rows is reported."""


@dataclass(frozen=True)
class Likelihood(ABC):
    """A conditional density p(y|f) whose own parameters are tensors that broadcast to [..., N].

    A subclass must have `log_prob`. The integrals over q(f) = N(f; mu, v) are computed by
    quadrature, unless a subclass overrides a method with a better one.
    """

    name: ClassVar[str]
    """The name under which the likelihood is registered, which sets this attribute."""
    task: ClassVar[str] = "regression"
    """The kind of targets: "regression", "binary" (y in {0, 1}) or "count"."""
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    """Parameters that are learned with those of the kernel; fields of these names hold them."""
    metrics: ClassVar[Mapping[str, Metric]] = {}
    """Metrics that are reported with the NLL, also in learning curves."""
    conjugate: ClassVar[bool] = False
    """Whether the noise is Gaussian, so that the best q may have a closed form."""
    product_sampler: ClassVar[str | None] = None
    """The fastest exact sampler of q(f) p(y|f), a name in `SAMPLERS`; None: there is none."""

    @classmethod
    def from_hyper(cls, hyper: Hyper) -> Self:
        """Return the likelihood with parameters of B cells that broadcast to rows [B, N]."""
        by_name = {name: hyper[name][:, None] for name in cls.parameters}
        return cls(**by_name)

    @abstractmethod
    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log p(y|f), elementwise."""

    def log_loss(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], y: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"]:
        """Return -log E_{N(f; mu, v)} p(y|f) per row, the loss of log-loss DLM (section 2).

        Differentiable in mu, v and the likelihood's own parameters. It is computed by quadrature,
        with more nodes where p is narrow or has kinks (`integration`).
        """
        return checked_log_loss(self, mu, v, y)

    def elbo_loss(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], y: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"]:
        """Return E_{N(f; mu, v)}[-log p(y|f)] per row (the ELBO's term, section 2)."""
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        sampled = self.over_samples()
        y = y.unsqueeze(-2)
        return expectation(lambda f: -sampled.log_prob(f, y), mu, v)

    def conditional_mean(self, f: Tensor) -> Tensor:
        """Return E[y|f], elementwise: f in regression, p(y = 1|f) for binary data.

        Raises:
            UserError: A likelihood of counts has not overridden this method.
        """
        if self.task == "count":
            raise UserError(
                f"the likelihood '{self.name}' has no conditional_mean, which its metrics need: "
                "write one"
            )
        if self.task == "regression":
            return f
        return self.log_prob(f, torch.ones_like(f)).exp()

    def mean(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"]:
        """Return E[y] under the predictive distribution: mean count, P(y = 1), or mu."""
        return expectation(self.over_samples().conditional_mean, mu, v, HERMITE_NODES)

    def std(
        self, mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"]
    ) -> Float[Tensor, "*B N"] | None:
        """Return the standard deviation of y under the predictive distribution.

        None if a likelihood does not override this method. Likelihoods of binary data need not, as
        the mean determines their predictive distribution.
        """
        return None

    def interval(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"]
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"]] | None:
        """Return the ends of the central 95 % interval of y under the predictive distribution.

        None if a likelihood does not override this method.
        """
        return None

    def cdf(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Float[Tensor, "*B N"]:
        """Return P(Y <= y) under the predictive distribution, which mixtures of models need.

        Raises:
            UserError: The likelihood has not overridden this method. Likelihoods with an `interval`
                should.
        """
        raise UserError(
            f"the likelihood '{self.name}' has no cdf, which mixtures of models need: write one"
        )

    def calibration(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Scores:
        """Return scores per row of the whole predictive distribution, by name.

        Likelihoods of binary data have a Brier score; their ECE needs all rows at once and is
        computed in `training.metrics`. Other likelihoods have no scores unless they override this
        method, with functions of `calibration.py`.
        """
        if self.task != "binary":
            return {}
        return brier(self.mean(mu, v), y)

    def log_p_max(self, y: Float[Tensor, "*B N"]) -> Tensor:
        """Return sup_f log p(y|f), the constant of the paper's rejection sampler."""
        return self.log_prob(self.peak(y), y)

    def peak(self, y: Float[Tensor, "*B N"]) -> Tensor:
        """Return the f at which p(y|f) is largest; p must be unimodal in f.

        Return plus or minus infinity where p has no maximum but a supremum at this end.

        Raises:
            UserError: The likelihood has not overridden this method.
        """
        raise UserError(
            f"sampler=rejection needs the peak of the likelihood '{self.name}': "
            "write the method `peak`"
        )

    def log_loss_error(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Float[Tensor, "*B N"]:
        """Return by how much `log_loss` differs from an integration with more nodes, per row."""
        return (self.log_loss(mu, v, y) - panel_log_loss(self, mu, v, y, effort=3)).abs()

    def kinks(self, y: Float[Tensor, "*B N"]) -> tuple[Float[Tensor, "*B N"], ...]:
        """Return the f at which p(y|f) bends or has a narrow peak.

        The quadrature of `log_loss` has more nodes there. Unless a likelihood overrides this
        method, regression has a kink at y, and other tasks have none.
        """
        return (y,) if self.task == "regression" else ()

    def at_rows(self, rows: Bool[Tensor, "*B N"]) -> Likelihood | None:
        """Return the likelihood of the selected rows [n]; None if it can't be cut into rows."""
        selected = {}
        for name, value in self.own_tensors().items():
            selected[name] = value.expand(rows.shape)[rows] if value.ndim else value
        return replace(self, **selected)

    def own_tensors(self) -> dict[str, Tensor]:
        """Return the tensors among its fields, by name."""
        tensors = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                tensors[field.name] = value
        return tensors

    def over_samples(self) -> Self:
        """Return the likelihood whose parameters broadcast against samples [..., L, N] of f."""
        with_sample_dimension = {}
        for name, value in self.own_tensors().items():
            with_sample_dimension[name] = value.unsqueeze(-2) if value.ndim else value
        return replace(self, **with_sample_dimension)


LIKELIHOODS: Registry[type[Likelihood]] = Registry("likelihood", "dlmexp.core.likelihoods")


def has_own_log_loss(likelihood: type[Likelihood]) -> bool:
    """Return whether a likelihood computes `log_loss` itself, not by the generic quadrature."""
    return likelihood.log_loss is not Likelihood.log_loss


def squared_error(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """Return (E[y] - y)^2 per row; its mean is the MSE."""
    return (likelihood.mean(mu, v) - y).square()


def misclassified(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the predicted (more probable) class is wrong; its mean is the error rate."""
    mean = likelihood.mean(mu, v)
    return ((mean > 0.5) != (y > 0.5)).to(mean.dtype)


def relative_error(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """Return |E[y] - y| / max(1, y) per row; its mean is the MRE."""
    return (likelihood.mean(mu, v) - y).abs() / y.clamp(min=1)
