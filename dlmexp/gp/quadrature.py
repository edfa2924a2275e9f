"""Gauss-Hermite rules and expectations under one-dimensional Gaussians."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@lru_cache(maxsize=64)
def gauss_hermite(nodes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and log weights of `E_{e ~ N(0,1)} g(e) ~ sum_k exp(logw_k) g(e_k)`. Shapes: [K], [K].

    Kept per device, so that a captured CUDA graph never copies them from the host.
    """
    e, w = np.polynomial.hermite_e.hermegauss(nodes)
    log_w = np.log(w) - np.log(w.sum())
    rule = torch.tensor(e, dtype=dtype, device=device), torch.tensor(log_w, dtype=dtype, device=device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # the next to use them may be on another stream
    return rule


def at_nodes(
    mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], nodes: int
) -> tuple[Float[Tensor, "*B K N"], Float[Tensor, "K 1"]]:
    """f_k = mu + sqrt(v) e_k and the log weights, sample dimension at -2."""
    e, log_w = gauss_hermite(nodes, mu.dtype, mu.device)
    return mu.unsqueeze(-2) + v.sqrt().unsqueeze(-2) * e.unsqueeze(-1), log_w.unsqueeze(-1)


def expectation(
    g: Callable[[Tensor], Tensor], mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], nodes: int = 20
) -> Float[Tensor, "*B N"]:
    """E_{f ~ N(mu, v)} g(f) by Gauss-Hermite; `g` maps [..., K, N] to [..., K, N]."""
    f, log_w = at_nodes(mu, v, nodes)
    return (log_w.exp() * g(f)).sum(-2)
