"""Student-t likelihood: q~ through the noise variance that turns t into a Gaussian."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample, product_sampler
from dlmexp.estimators.samplers.envelope import Intervals, sample_under
from dlmexp.gp.likelihoods import Likelihood, StudentT

INTERVALS = 64
DROP = 12.0


def _layout(dtype: torch.dtype, device: torch.device) -> tuple[Float[Tensor, "K 1"], ...]:
    """Left ends of the intervals in [0, 1] (the two tails first and last), their lengths, and their directions."""
    number = torch.arange(INTERVALS + 2, dtype=dtype, device=device).unsqueeze(-1)
    start = (number - 1).clamp_min(0) / INTERVALS
    length = torch.full_like(start, 1 / INTERVALS).masked_fill((number == 0) | (start == 1), torch.inf)
    return start, length, torch.ones_like(start).masked_fill(number == 0, -1.0)


@product_sampler("scale_mixture", StudentT)
def scale_mixture(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """Draw u = log w from its density given y, proportional to InvGamma(w) N(y; mu, v + w) dw, then f given w and y.

    log of that density is A(u) + c(u) with A concave and c(u) = -(y - mu)^2 / (2 (v + w)) rising, convex for w < v and
    concave beyond: a tangent to A plus a tangent or a chord to c bounds it on each interval, so the rejection is exact.
    Shapes: [..., N] to [..., L, N].
    """
    assert isinstance(likelihood, StudentT)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    low, high = likelihood.mixture_range((y - mu).square(), v, DROP)
    lifted = likelihood.over_samples()
    a, b = lifted.nu / 2, lifted.nu * lifted.scale.square() / 2
    d2, v_, low_, span = ((t.unsqueeze(-2)) for t in ((y - mu).square(), v, low, high - low))

    def concave(u: Tensor) -> Tensor:
        return -a * u - b * (-u).exp() - 0.5 * (v_ + u.exp()).log()

    def mixed(u: Tensor) -> Tensor:
        return -0.5 * d2 / (v_ + u.exp())

    def mixed_slope(w: Tensor) -> Tensor:
        return 0.5 * d2 * w / (v_ + w).square()

    start, length, side = _layout(mu.dtype, mu.device)
    left = low_ + start * span
    step = span / INTERVALS
    tail = length.isinf()
    touch = left + torch.where(tail, 0.0, step / 2)
    w = touch.exp()
    slope = -a + b / w - 0.5 * w / (v_ + w)
    height = concave(touch) - slope * (touch - left)
    # c on the interval: tangent where concave; chord where convex; steepest line from the left end where it turns.
    first, last = left.exp() >= v_, (left + step).exp() <= v_
    c0 = mixed(left)
    c_slope = torch.where(
        first, mixed_slope(w), torch.where(last, (mixed(left + step) - c0) / step, d2 / (8 * v_).clamp_min(1e-300))
    )
    c_height = torch.where(first, mixed(touch) - mixed_slope(w) * (touch - left), c0)
    # In the tails: to the left c is below its value at the end; to the right, if still convex, below its limit 0.
    c_slope = torch.where(tail & ((side < 0) | ~first), 0.0, c_slope)
    c_height = torch.where(tail & (side > 0) & ~first, 0.0, torch.where(side < 0, c0, c_height))
    slope, height = slope + c_slope, height + c_height
    rising = (slope > 0) & ~tail
    origin = torch.where(rising, left + step, left)
    height = torch.where(rising, height + slope * step, height)
    top = height.amax(-2, keepdim=True)
    side = torch.where(rising, -1.0, side)
    intervals = Intervals(origin, side, length * span, height - top, -side * slope)
    u, accepted = sample_under(intervals, lambda u: concave(u) + mixed(u) - top, samples, draws)

    w = u.exp()
    centre = (v.sqrt() * (y - mu)).unsqueeze(-2) / (v_ + w)
    e = centre + (w / (v_ + w)).sqrt() * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2])
