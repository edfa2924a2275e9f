"""Which numbers `dtype=float32` makes float32, and which are float64 all the same: decided here, for all of the core.

What has an entry for every row is of the rows' type: inputs and targets, Kuf and its products with M x M matrices,
marginals, losses per row, samples. What has none is float64: hyperparameters, q and Adam's moments, Kuu with its
Cholesky factor and the inverse of that, the KL, closed forms over q, sums over rows. So the large work is done in the
rows' type, and what would fail in float32 (a Cholesky factor with a jitter of 1e-6, a spread of 1e-5 in a sum) is not.

Functions meet both kinds. Those that go on with rows take the small ones in `as_rows`; those that leave rows behind
take `row_sum` or `row_mean`. With rows in float64 neither does anything.
"""

import torch
from torch import Tensor

from dlmexp.gp.hyperparameters import Hyper

PARAMETERS = torch.float64
"""The type of everything without an entry for every row."""


def as_rows(rows: Tensor, *small: Tensor) -> tuple[Tensor, ...]:
    """The small tensors in the type of the rows that they are about to meet; differentiable."""
    return tuple(each.to(rows.dtype) for each in small)


def hyper_as_rows(rows: Tensor, hyper: Hyper) -> Hyper:
    """The same for hyperparameters by name."""
    return {name: value.to(rows.dtype) for name, value in hyper.items()}


def row_sum(each: Tensor) -> Tensor:
    """The sum over rows [..., N], of float32 ones in float64."""
    return each.sum(-1, dtype=PARAMETERS)


def row_mean(each: Tensor) -> Tensor:
    """The mean over rows [..., N], of float32 ones in float64."""
    return each.mean(-1, dtype=PARAMETERS)
