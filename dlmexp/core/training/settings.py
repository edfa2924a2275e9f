"""How a batch is trained: Adam's steps and the stopping rule (docs/SPEC.md, section 6)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.training.stopping import StoppingRule


@dataclass(frozen=True)
class Settings:
    """How Adam or L-BFGS steps, and when it stops.

    Attributes:
        lr: The learning rate at the start.
        iterations: The number of iterations after which training stops at the latest.
        window: The number of last iterations that the stopping rule compares; None: there is no
            stopping rule, and all `iterations` are made.
        tolerance: A fit has converged when its objective varies by at most this over the window.
        evaluate_every: Iterations between evaluations on the test rows; None: only at the end.
        check_every: Iterations between two checks which fits have stopped.
        criterion: What is compared with the tolerance: the spread of the objective per row
            ("mean"), of its sum over rows ("sum"), or relative to its size ("relative").
        final_lr: The learning rate after it has decayed; None: it does not decay.
        decay: The number of iterations over which the learning rate falls, as half a cosine, to
            `final_lr`. The stopping rule applies from `window` iterations after the decay.
        epsilon: Adam's epsilon, which is added to the root of the second moment.
        resolution: Adam's steps are rounded to multiples of `lr * resolution`; None: they are not
            rounded.
        calibration: Whether calibration is measured at the end.
        split_at: The number of iterations after which the Gaussian that a mixture starts from is
            split into components; None: q is no mixture. The stopping rule applies from `window`
            iterations after the split.
        optimizer: "adam", or "lbfgs" for objectives with a closed form over q. L-BFGS has no
            learning rate and no window: it stops when its last 20 steps together lowered the
            objective per row by less than `tolerance`; an iteration is an evaluation.
        restarts: Number of further starts of L-BFGS, from perturbed initial values. The fit is the
            end with the lowest objective.
    """

    lr: float = 0.1
    iterations: int = 3000
    window: int | None = 20
    tolerance: float = 1e-4
    evaluate_every: int | None = None
    check_every: int = 20
    criterion: str = "mean"
    final_lr: float | None = None
    decay: int | None = None
    epsilon: float = 1e-8
    resolution: float | None = None
    calibration: bool = True
    split_at: int | None = None
    optimizer: str = "adam"
    restarts: int = 0

    @property
    def first_check(self) -> int:
        """Return the iteration from which the stopping rule applies."""
        if self.decay is None and self.split_at is None:
            return 0
        return max(self.decay or 0, self.split_at or 0) + (self.window or 0)

    def stopping_rule(self, rows: int) -> StoppingRule | None:
        """Return the stopping rule for fits to `rows` training rows; None if there is none."""
        if self.window is None:
            return None
        return StoppingRule(self.window, self.tolerance, self.criterion, rows)

    def lr_at(self, iteration: Int[Tensor, ""]) -> float | Float[Tensor, ""]:
        """Return the learning rate of an iteration, counted from 0.

        A rate that decays is a tensor on the device of `iteration`, so that a captured graph
        computes it anew at every replay.
        """
        if self.decay is None or self.final_lr is None:
            return self.lr
        # final_lr + (lr - final_lr) (1 + cos(pi progress)) / 2
        progress = (iteration.to(torch.float64) / self.decay).clamp(max=1.0)
        return self.final_lr + (self.lr - self.final_lr) * 0.5 * (1 + torch.cos(math.pi * progress))
