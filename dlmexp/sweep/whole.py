"""Whether a beta grid is whole: validation can only choose among betas that were run."""

import math
from collections.abc import Iterable
from functools import cache

import yaml

from dlmexp.paths import conf_dir

FEWEST = 3  # as many betas on the grid tell that it is the grid that was meant, and not a list
ROUNDING = 1e-9  # of a logarithm


@cache
def grid() -> tuple[float, float]:
    """Ratio and smallest beta of the paper's grid. (A coarse grid can't be told from a list of powers of ten.)"""
    values = yaml.safe_load((conf_dir() / "beta" / "grid.yaml").read_text())
    return float(values["ratio"]), float(values["smallest"])


def whole(n: int, betas: Iterable[float | None]) -> bool:
    """False if the betas are some of the paper's grid n, n/2, ... but not all of it. Other betas are a list, and whole;
    so is a method without beta (None or NaN)."""
    ratio, smallest = grid()
    last = math.floor(math.log(n / smallest, ratio) + ROUNDING)
    steps = [math.log(n / beta, ratio) for beta in betas if beta is not None and not math.isnan(beta)]
    found = {round(step) for step in steps if abs(step - round(step)) < ROUNDING and 0 <= round(step) <= last}
    return len(found) < FEWEST or len(found) == last + 1
