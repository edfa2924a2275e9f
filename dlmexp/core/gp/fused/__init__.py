"""The large elementwise chains of a training step as single GPU kernels, written in Triton.

Each does what a plain function outside this package does, to rounding, with fewer passes over
arrays of [B, M, N]. They are used where a tensor is on a CUDA device and Triton is installed (it
comes with torch for CUDA), unless `DLMEXP_FUSED=0`.

- `stationary`: kernel matrices and their gradients.
- `tile_products`: products of the sparse posterior.
- `projected`: both in one function, so that the gradient in Kuf is never written.
- `small`: jitter, KL and triangles of [B, M, M]; log Phi and scores of counts.
"""

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor

MULTIPLE = 32
"""Numbers of columns that are multiples of this are loaded by `tile_products` without a gap."""


def fused(tensor: Tensor) -> bool:
    """Return whether operations on this tensor go through the kernels of this package."""
    return tensor.is_cuda and _installed()


@cache
def _installed() -> bool:
    return os.environ.get("DLMEXP_FUSED") != "0" and find_spec("triton") is not None
