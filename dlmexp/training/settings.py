"""When and how fast: the numbers a training run is told."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.training.adam import EPSILON


@dataclass(frozen=True)
class Settings:
    """Adam's steps and the stopping rule: the objective's spread over a window, or a number of iterations."""

    lr: float
    iterations: int  # stop here all the same
    window: int | None  # None: run all iterations
    tolerance: float = 1e-4
    evaluate_every: int | None = None  # iterations between evaluations on test; None: only at the end
    check_every: int = 20  # iterations between looks at which cells have stopped
    criterion: str = "mean"  # what is compared with the tolerance: the spread per row, of the sum, or relative
    final_lr: float | None = None  # what the learning rate decays to ...
    decay: int | None = None  # ... within so many iterations, after which the stopping rule applies
    epsilon: float = EPSILON  # added to the size of a gradient that Adam divides by
    resolution: float | None = None  # Adam's steps are multiples of lr * resolution

    def lr_at(self, iteration: Int[Tensor, ""]) -> float | Float[Tensor, ""]:
        """The learning rate of an iteration (counted from 0), on its device: a captured graph works it out anew."""
        if self.decay is None or self.final_lr is None:
            return self.lr
        share = (iteration.to(torch.float64) / self.decay).clamp(max=1.0)
        return self.final_lr + (self.lr - self.final_lr) * 0.5 * (1 + torch.cos(math.pi * share))
