"""Whether a beta grid is whole: validation can only choose among betas that were run."""

import math
from collections.abc import Iterable
from functools import cache, lru_cache

import yaml

from dlmexp.paths import conf_dir

FEWEST = 2  # so many betas of the grid, or its first alone, tell that it is what was meant, and not a list
ROUNDING = 1e-9  # of a logarithm


@cache
def grid() -> tuple[float, float]:
    """Ratio and smallest beta of the paper's grid. (A coarse grid can't be told from a list of powers of ten.)"""
    values = yaml.safe_load((conf_dir() / "beta" / "grid.yaml").read_text())
    return float(values["ratio"]), float(values["smallest"])


def whole(n: int, betas: Iterable[float | None]) -> bool:
    """False if only part of the paper's grid n, n/2, ... is among the betas. Other betas are a list, and whole; so is a
    method without beta (None or NaN)."""
    present = frozenset(betas)
    return not present or bool(choices(n, present))


@lru_cache(maxsize=4096)  # the same for all seeds and methods
def choices(n: int, betas: frozenset[float | None]) -> frozenset[float | None]:
    """Among which of these betas validation chooses. If the paper's grid is there: its betas alone (the beta = 1 that
    every ELBO has is not one more try), and none while part of it has not been run. Of anything else: all."""
    ratio, smallest = grid()
    last = math.floor(math.log(n / smallest, ratio) + ROUNDING)
    steps = {beta: math.log(n / beta, ratio) for beta in betas if beta is not None and not math.isnan(beta)}
    places = {beta: round(step) for beta, step in steps.items() if abs(step - round(step)) < ROUNDING}
    on_grid = frozenset(beta for beta, place in places.items() if 0 <= place <= last)
    if len(on_grid) < FEWEST and betas != {float(n)}:
        return betas
    return on_grid if len(on_grid) == last + 1 else frozenset()
