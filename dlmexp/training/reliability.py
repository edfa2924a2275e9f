"""Reliability of predicted probabilities: bins of equal mass, and the expected calibration error (ECE)."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Per bin: mean probability of class 1, share of class 1 (both NaN in an empty bin), and how many rows."""

    p: Float[Tensor, "B bins"]
    y: Float[Tensor, "B bins"]
    rows: Float[Tensor, "B bins"]

    def ece(self) -> Float[Tensor, "B"]:
        """Mean over rows of |mean probability - share of class 1| of their bin."""
        gaps = (self.p - self.y).abs() * self.rows
        return torch.where(self.rows > 0, gaps, 0.0).sum(-1) / self.rows.sum(-1)

    def arrays(self) -> dict[str, Float32[np.ndarray, "B bins"]]:
        """As they are stored beside the record of each cell."""
        return {f"reliability_{field.name}": getattr(self, field.name).float().cpu().numpy() for field in fields(self)}


def reliability(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Reliability:
    """Rows sorted by their probability p of class 1 and cut into `BINS` bins whose sizes differ by at most one.

    Rows of equal p share their class evenly, so that their order does not matter; where all p are equal, the ECE is
    |p - share of class 1|.
    """
    B, N = p.shape
    p, order = p.sort(dim=-1)
    y = _mean_over_ties(p, y.gather(-1, order))
    ends = torch.arange(BINS + 1, device=p.device) * N // BINS
    count = ends.diff().to(p.dtype).expand(B, BINS)
    p, y = (torch.nn.functional.pad(t.cumsum(-1), (1, 0))[:, ends].diff(dim=-1) / count for t in (p, y))
    return Reliability(p, y, count)


def _mean_over_ties(p: Float[Tensor, "B N"], y: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """y with rows of equal p replaced by their mean; p is sorted."""
    group = torch.nn.functional.pad((p[:, 1:] != p[:, :-1]).long().cumsum(-1), (1, 0))
    sums, sizes = (torch.zeros_like(y).scatter_add(-1, group, t) for t in (y, torch.ones_like(y)))
    return sums.gather(-1, group) / sizes.gather(-1, group)
