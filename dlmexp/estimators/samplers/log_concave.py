"""Any log-concave likelihood: q~ under tangents to its log density."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample, product_sampler
from dlmexp.estimators.samplers.envelope import Intervals, sample_under
from dlmexp.gp.likelihoods import Likelihood, LogConcave

INTERVALS = 4  # on each side of the mode, and a tail
DROP = 8.0  # the tails start where a Gaussian is four standard deviations out


def _layout(dtype: torch.dtype, device: torch.device) -> tuple[Float[Tensor, "K 1"], ...]:
    """Per interval, in units of the reach: where it starts, where the tangent touches, how long it is; and its side."""
    number = torch.arange(2 * INTERVALS + 2, dtype=dtype, device=device).unsqueeze(-1)
    side = torch.ones_like(number).masked_fill(number <= INTERVALS, -1.0)
    start = number % (INTERVALS + 1) / INTERVALS
    tail = start == 1
    touch = (start + 0.5 / INTERVALS).masked_fill(tail, 1.0)
    return start, touch, torch.full_like(start, 1 / INTERVALS).masked_fill(tail, torch.inf), side


@product_sampler("log_concave", LogConcave)
def log_concave(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """Exact rejection under 10 tangents to log(q p), four on either side of the mode and the tails (`envelope`).

    Shapes: [..., N] to [..., L, N].
    """
    assert isinstance(likelihood, LogConcave)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    left, right = likelihood.reach(mode, DROP)
    over = mode.over_samples()

    start, touch, length, side = _layout(mu.dtype, mu.device)
    reach = torch.where(side < 0, left.unsqueeze(-2), right.unsqueeze(-2))
    x = side * touch * reach
    slope = likelihood.terms(over.f + x, over.y).slope - over.precision * (x + over.shift)
    height = -likelihood.fall(x, over)
    origin = side * start * reach
    height = height + slope * (origin - x)
    # A tangent that touches behind a bend rises far above the mode where its interval starts: there flat is better.
    steep = height > 0.5
    height, slope = height.masked_fill(steep, 0.0), slope.masked_fill(steep, 0.0)
    intervals = Intervals(origin, side, length * reach, height, -side * slope)

    x, accepted = sample_under(intervals, lambda x: -likelihood.fall(x, over), samples, draws)
    e = (x + over.shift) * v.rsqrt().unsqueeze(-2)
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2])
