"""When and how fast: the numbers a training run is told."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Adam's learning rate and the stopping rule: the objective's spread over a window, or a number of iterations."""

    lr: float
    iterations: int  # stop here all the same
    window: int | None  # None: run all iterations
    tolerance: float = 1e-4
    evaluate_every: int | None = None  # iterations between evaluations on test; None: only at the end
    check_every: int = 20  # iterations between looks at which cells have stopped
