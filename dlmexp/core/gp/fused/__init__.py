"""The long chains of operations of a training step as single GPU kernels, written in Triton.

Each function computes what a plain function outside this package computes, to rounding, with fewer
passes over arrays of [B, M, N]. These functions are used where a tensor is on a CUDA device and
Triton is installed (it comes with torch for CUDA), unless `DLMEXP_FUSED=0`.

- `stationary`: kernel matrices, and the gradients in their parameters.
- `tile_products`: matrix products of the sparse posterior.
- `projected`: kernel matrix and products as one autograd function, so that the gradient in Kuf is
  never written to memory.
- `small`: many small operations as one kernel: jitter, KL and triangular inverses of [B, M, M];
  log Phi and scores of counts.
"""

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor

COLUMN_MULTIPLE = 32
"""Functions of `tile_products` are fastest, and some work only, if the number of columns is a
multiple of this."""


def uses_triton(tensor: Tensor) -> bool:
    """Return whether operations on this tensor go through the Triton kernels of this package."""
    return tensor.is_cuda and _is_available()


@cache
def _is_available() -> bool:
    """Return whether Triton is installed, and not switched off by `DLMEXP_FUSED=0`."""
    return os.environ.get("DLMEXP_FUSED") != "0" and find_spec("triton") is not None
