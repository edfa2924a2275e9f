"""The large elementwise chains of a training step as single GPU kernels, written in Triton.

Each does what the plain functions beside it do, to rounding, with fewer passes over arrays of [B,
M, N]. They are used where a tensor is on a CUDA device and Triton is installed (it comes with torch
for CUDA); elsewhere the plain functions are, and `DLMEXP_FUSED=0` asks for those. `stationary`:
kernel matrices and their gradients. `tile_products`: what the sparse posterior does with them.
`projected`: both in one function, so that Kuf's gradient is never written. `small`: jitter, KL and
triangles of [B, M, M]; log Phi and scores of counts."""

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor

MULTIPLE = 32  # of columns, which `tile_products` loads without a gap


def fused(tensor: Tensor) -> bool:
    """Whether operations on this tensor go through the kernels of this package."""
    return tensor.is_cuda and _installed()


@cache
def _installed() -> bool:
    return os.environ.get("DLMEXP_FUSED") != "0" and find_spec("triton") is not None
