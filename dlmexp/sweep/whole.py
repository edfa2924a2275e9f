"""Whether a beta grid is whole: validation can only choose among betas that were run."""

import math
from collections.abc import Iterable
from functools import cache

import yaml

from dlmexp.paths import conf_dir

FEWEST = 3  # as many betas on a grid tell that it is the grid that was meant


@cache
def grids() -> tuple[tuple[float, float], ...]:
    """Ratio and smallest beta of every geometric grid in `conf/beta`, the finest first."""
    loaded = (yaml.safe_load(path.read_text()) for path in (conf_dir() / "beta").glob("*.yaml"))
    return tuple(sorted((float(grid["ratio"]), float(grid["smallest"])) for grid in loaded if "ratio" in grid))


def whole(n: int, betas: Iterable[float | None]) -> bool:
    """False if the betas are some of a grid n, n/ratio, ... but not all of it. Betas on no grid are a list, and whole;
    so is a method without beta (None or NaN)."""
    present = {beta for beta in betas if beta is not None and not math.isnan(beta)}
    for ratio, smallest in grids():
        expected = [float(n)]
        while expected[-1] / ratio >= smallest:
            expected.append(expected[-1] / ratio)
        found = sum(any(math.isclose(beta, wanted) for beta in present) for wanted in expected)
        if found >= FEWEST:
            return found == len(expected)
    return True
