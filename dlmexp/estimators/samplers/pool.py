"""Rejection without a loop: some candidates to spare, and accepted ones in the place of those rejected.

Besides the L candidates asked for, a row draws some spares; a rejected candidate is replaced by an accepted one of the
row's first few. Which candidates are accepted says nothing about the values of those accepted, so every sample has
exactly the target's distribution; where several are rejected a value may serve twice, which leaves that true. Only a
row whose POOL first candidates are rejected altogether would keep one that was not accepted: a chance of 1e-12 at the
typical acceptance of 0.95, and of 4e-4 at 0.58, the worst that was found up to v = 10^4 (Poisson counts of 0).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

POOL = 9  # candidates of a row, spares first, that may stand in for rejected ones


def spares(samples: int) -> int:
    """How many candidates a row draws beyond the samples asked for."""
    return max(POOL - samples, 2) + samples // 16


def replace_rejected(
    x: Float[Tensor, "*B C N"], accepted: Bool[Tensor, "*B C N"], extra: int
) -> Float[Tensor, "*B L N"]:
    """Candidates from `extra` on; number l of these, if rejected, gives way to stand-in number l modulo `extra`.

    The stand-ins are the first `extra` accepted candidates of the row's pool, over again if it has fewer.
    """
    size = max(POOL, extra)
    pool, usable = x[..., :size, :], accepted[..., :size, :]
    count = usable.cumsum(-2)
    # Accepted values packed to the front; the rejected all land in a slot beyond the end.
    packed = torch.cat((pool, pool[..., -1:, :]), -2).scatter(-2, torch.where(usable, count - 1, size), pool)
    turn = torch.arange(extra, device=x.device).unsqueeze(-1) % count[..., -1:, :].clamp_min(1)
    stand_in = packed.gather(-2, turn)
    times = -(-(x.shape[-2] - extra) // extra)
    stand_in = torch.cat((stand_in,) * times, -2)[..., : x.shape[-2] - extra, :]
    return torch.where(accepted[..., extra:, :], x[..., extra:, :], stand_in)
