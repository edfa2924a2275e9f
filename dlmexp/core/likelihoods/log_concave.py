"""Log-concave likelihoods without a closed-form log loss: the integral of N(f; mu, v) p(y|f).

The integral over f must be right for all mu, v and y. The trapezoidal rule converges exponentially
on an analytic integrand that vanishes at both ends. It converges slowly where q is wide (v >> 1)
and the likelihood cuts it off at a knee, where log p bends on a scale of about 1: exp(-e^f) under
N(0, 100^2) is a step.

So the nodes are uniform in t, where f = knee + W sinh(t). Near the knee the distances between nodes
are proportional to W, further away to the distance from the knee. The smaller the integrand at the
knee, the less the knee matters, and the larger W is. Where q is narrow, W is large compared with
the range of the nodes, which are then uniform around the mode.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.special import once_differentiable
from dlmexp.core.likelihoods.base import Likelihood


class Terms(NamedTuple):
    """log p(y|f) up to a constant, its derivative in f, and minus its second derivative."""

    value: Tensor
    slope: Tensor
    curvature: Tensor

    def over_samples(self) -> "Terms":
        """Return the terms with a dimension for samples [..., L, N]."""
        return Terms(
            value=self.value.unsqueeze(-2),
            slope=self.slope.unsqueeze(-2),
            curvature=self.curvature.unsqueeze(-2),
        )


class Mode(NamedTuple):
    """The mode of q(f) p(y|f) at every row [..., N].

    Attributes:
        f: The mode.
        shift: f - mu.
        precision: 1/v, the precision of q.
        terms: log p and its derivatives at the mode.
        y: The targets.
    """

    f: Tensor
    shift: Tensor
    precision: Tensor
    terms: Terms
    y: Tensor

    @property
    def height(self) -> Tensor:
        """Return log(q p) at the mode, without `log_constant` and the normalisation of q."""
        return self.terms.value - self.precision * self.shift.square() / 2

    def over_samples(self) -> "Mode":
        """Return the mode with a dimension for samples [..., L, N]."""
        return Mode(
            f=self.f.unsqueeze(-2),
            shift=self.shift.unsqueeze(-2),
            precision=self.precision.unsqueeze(-2),
            terms=self.terms.over_samples(),
            y=self.y.unsqueeze(-2),
        )


@dataclass(frozen=True)
class LogConcave(Likelihood):
    """A likelihood whose log p(y|f) is concave in f, so that q(f) p(y|f) has one mode.

    It has no parameters to learn.
    """

    product_sampler: ClassVar[str | None] = "log_concave"
    knee_width: ClassVar[float] = 3.0
    """The scale in f on which log p bends at its knee."""

    @abstractmethod
    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """Return log p(y|f) - log_constant(y) and its derivatives in f.

        They are computed together because they share exponentials and logarithms.
        """

    @abstractmethod
    def log_constant(self, y: Tensor) -> Tensor:
        """Return the part of log p(y|f) that does not depend on f."""

    @abstractmethod
    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return (mode of q(f) p(y|f)) - mu [..., N], the root of s = v slope(mu + s).

        An approximation will do: the integral does not depend on where its nodes are centred.
        """

    def mode(self, mu: Tensor, v: Tensor, y: Tensor) -> Mode:
        """Return the mode of q(f) p(y|f) [..., N]."""
        shift = self.shift(mu, v, y)
        f = mu + shift
        return Mode(f=f, shift=shift, precision=v.reciprocal(), terms=self.terms(f, y), y=y)

    @abstractmethod
    def knee(self, mode: Mode) -> Tensor:
        """Return the distance from the mode to the knee, where log p bends most sharply."""

    def fall(self, x: Tensor, mode: Mode) -> Tensor:
        """Return how far log(q p) lies below its mode at a distance x from it, elementwise."""
        fall_of_p = mode.terms.value - self.terms(mode.f + x, mode.y).value
        # The fall of q is ((x + shift)^2 - shift^2) / (2v).
        return torch.addcmul(fall_of_p, x * (x + 2 * mode.shift), mode.precision / 2)

    def reach(self, mode: Mode, drop: float) -> tuple[Tensor, Tensor]:
        """Return distances left and right at which log(q p) has fallen by at least `drop` [..., N].

        The fall is a convex function, so that Newton's steps towards `fall = drop` end at or beyond
        the root. They start where a parabola with the curvature at the mode has fallen by `drop`.
        log p is concave, so q p falls at least as fast as q alone, which bounds the distances.
        """
        bound = (2 * drop / mode.precision).sqrt()
        start = (2 * drop / (mode.terms.curvature + mode.precision)).sqrt()
        x = torch.stack((-start, start))
        for _ in range(3):
            terms = self.terms(mode.f + x, mode.y)
            fall = mode.terms.value - terms.value + x * (x + 2 * mode.shift) * (mode.precision / 2)
            slope_of_fall = (x + mode.shift) * mode.precision - terms.slope
            x = x - (fall - drop) / slope_of_fall
            x = torch.minimum(torch.maximum(x, -bound), bound)
        return -x[0], x[1]

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log p(y|f)."""
        return self.terms(f, y).value + self.log_constant(y)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return -log E_{N(f; mu, v)} p(y|f)."""
        return -(log_product_integral(self, mu, v, y) + self.log_constant(y))

    def log_loss_around(self, mode: Mode) -> Tensor:
        """Return `log_loss` [..., N] for a known mode, without derivatives.

        This is faster than `log_loss`, with an error of 1e-7 where v <= 2.
        """
        return -(log_product_integral_around(self, mode) + self.log_constant(mode.y))


class TrapezoidalRule(NamedTuple):
    """A rule of coarse * fine nodes, between the points where the integrand is e^-drop of its peak.

    Nodes are numbered fine * i + j, with 0 <= i < coarse and 0 <= j < fine, so that their
    exponentials can be computed as an outer product (`_nodes`).
    """

    coarse: int
    fine: int
    drop: float


ACCURATE_RULE = TrapezoidalRule(coarse=5, fine=8, drop=23.0)
"""The rule of `log_product_integral`."""
FAST_RULE = TrapezoidalRule(coarse=4, fine=5, drop=14.0)
"""The rule of `log_product_integral_around`."""
SLACK = 12.0
"""W grows with exp(fall at the knee / SLACK). SLACK was chosen by the errors of value and
derivatives on a grid of extreme mu, v and y."""


def log_product_integral(
    likelihood: LogConcave,
    mu: Float[Tensor, "*#B #N"],
    v: Float[Tensor, "*#B #N"],
    y: Float[Tensor, "*#B #N"],
) -> Float[Tensor, "*B N"]:
    """Return log E_{N(f; mu, v)} exp(likelihood.terms(f, y).value) [..., N].

    Differentiable once in mu and v. The error for counts up to 10^4 is rounding (1e-11) for
    v <= 10, 1e-9 for v <= 100, and 2e-5 up to v = 10^4 (all tested).
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    return _LogProductIntegral.apply(likelihood, mu, v, y)  # pyright: ignore[reportReturnType]


def log_product_integral_around(likelihood: LogConcave, mode: Mode) -> Float[Tensor, "*B N"]:
    """Return `log_product_integral` for a known mode, with half the nodes, without derivatives.

    The error for Poisson counts up to 10^4 is 1e-7 for v <= 2, 2e-6 for v <= 100 and |mu| <= 8, and
    at worst 5e-4 for v up to 10^4 (all tested).
    """
    x, jacobian = _nodes(likelihood, mode, FAST_RULE)
    total = _sum_over_nodes(likelihood.fall(x, mode).neg_().exp_().mul_(jacobian))
    return mode.height + (total * (mode.precision / (2 * math.pi)).sqrt()).log()


class _LogProductIntegral(torch.autograd.Function):
    """(mu, v) -> `log_product_integral`.

    The derivatives are moments under the product density, and use the nodes of the value.
    """

    @staticmethod
    def forward(ctx: Any, likelihood: LogConcave, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        mode = likelihood.mode(mu, v, y)
        x, jacobian = _nodes(likelihood, mode, ACCURATE_RULE)
        terms = likelihood.terms(mode.f + x, y)
        # s = f - mu, in the memory of x, which is not needed any more
        s = x.add_(mode.shift)
        # log p(y|f) - s^2/(2v) - height
        log_weight = torch.addcmul(mode.height, s * s, mode.precision / 2).neg_().add_(terms.value)
        weight = log_weight.exp_().mul_(jacobian)
        total = _sum_over_nodes(weight)
        if any(ctx.needs_input_grad):
            d_mu, d_v = _derivatives(
                weight, total, s, slope=terms.slope, curvature=terms.curvature, v=v
            )
            ctx.save_for_backward(d_mu, d_v)
        return mode.height + (total / (2 * math.pi * v).sqrt()).log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor, None]:
        d_mu, d_v = ctx.saved_tensors
        return None, grads[0] * d_mu, grads[0] * d_v, None


def _nodes(
    likelihood: LogConcave, mode: Mode, rule: TrapezoidalRule
) -> tuple[Float[Tensor, "K *B N"], Float[Tensor, "K *B N"]]:
    """Return offsets x of the nodes from the mode, and dx/dt times the step in t.

    x = knee + W sinh(t), for K = coarse * fine values of t between the ends.
    """
    left, right = likelihood.reach(mode, rule.drop)
    knee = torch.minimum(torch.maximum(likelihood.knee(mode), -left), right)
    fall = likelihood.fall(knee, mode)
    width = likelihood.knee_width * (fall / SLACK).clamp(0, 30).exp()
    # With W = 20 times the range, sinh is a straight line to rounding; a larger W loses digits.
    width = torch.minimum(width, 20 * (left + right))
    # asinh(x) = log(x + sqrt(x^2 + 1)), which on a CPU takes half the time of torch.asinh. It loses
    # digits, which only moves the ends of the range a little.
    ends = torch.stack((left + knee, right - knee)) / width
    ends = (ends + (ends * ends + 1).sqrt()).log()
    start = -ends[0]
    step = ends.sum(0) / (rule.coarse * rule.fine - 1)
    # e^t over a uniform grid is an outer product of two short ones: t = start + step (fine i + j).
    i = torch.arange(rule.coarse, device=knee.device).view(-1, *(1,) * knee.ndim)
    j = torch.arange(rule.fine, device=knee.device).view(-1, *(1,) * knee.ndim)
    exp_of_coarse = torch.addcmul(start, step, rule.fine * i).exp()
    exp_of_fine = (step * j).exp()
    exp_t = (exp_of_coarse.unsqueeze(1) * exp_of_fine).flatten(0, 1)
    exp_minus_t = exp_t.reciprocal()
    half_width = width / 2
    x = torch.addcmul(knee, half_width, exp_t - exp_minus_t)
    jacobian = exp_t.add_(exp_minus_t).mul_(half_width * step)
    return x, jacobian


def _sum_over_nodes(a: Float[Tensor, "K *B N"]) -> Float[Tensor, "*B N"]:
    """Return the sum over the first dimension."""
    # A product with ones is 2.5 times faster than sum(0) on a CPU.
    return (a.new_ones(a.shape[0]) @ a.flatten(1)).view(a.shape[1:])


def _derivatives(
    weight: Float[Tensor, "K *B N"],
    total: Float[Tensor, "*B N"],
    s: Float[Tensor, "K *B N"],
    slope: Float[Tensor, "K *B N"],
    curvature: Float[Tensor, "K *B N"],
    v: Float[Tensor, "*B N"],
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """Return d/dmu and d/dv of the log integral.

    With E under the product density and s = f - mu,

        d/dmu = E[s] / v                  = E[slope]
        d/dv  = (E[s^2] / v - 1) / (2 v)  = E[slope^2 - curvature] / 2

    The forms on the right follow by Stein's lemma. They are used for narrow q, where the terms of
    the forms in the middle would cancel. For wide q the forms in the middle are used, as the terms
    of those on the right would cancel.
    """
    weighted_s = weight * s
    weighted_slope = weight * slope
    mean_curvature = _sum_over_nodes(weight * curvature) / total
    is_narrow = v * mean_curvature < 1
    slope_sum = _sum_over_nodes(weighted_slope)
    s_sum = _sum_over_nodes(weighted_s)
    d_mu = torch.where(is_narrow, slope_sum, s_sum / v) / total
    # E[slope^2] or E[s^2] / v^2, and what is subtracted from it
    slope_moment = _sum_over_nodes(weighted_slope.mul_(slope))
    s_moment = _sum_over_nodes(weighted_s.mul_(s)) / (v * v)
    moment = torch.where(is_narrow, slope_moment, s_moment) / total
    subtracted = torch.where(is_narrow, mean_curvature, 1 / v)
    return d_mu, (moment - subtracted) / 2
