"""Many small fits on hostile data: `python -m scripts.benchmark hostile --cells 100000`.

Every fit has rows of its own: duplicated rows, constant or collinear features, outliers of 1e6,
tiny or huge inputs, constant targets, and as many inducing inputs as rows. Models start at
lengthscales from 1e-3 to 1e3. The script checks that no fit which is not marked as failed has a
number that is not finite, and that fits which trained beside failing ones have the numbers that
they have alone. It prints a table and ends with 1 if a check fails.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from dlmexp.core.fit import Fit, fit
from dlmexp.core.training.model import Model
from dlmexp.core.training.settings import Settings

ROWS = 24
FEATURES = 3
ITERATIONS = 60
BETAS = (10.0, 1.0, 0.01)
LENGTHSCALES = (1e-3, 1.0, 1e3)
FITS_PER_CALL = 3000
COMPARED_ITERATIONS = 10  # the first ones, whose objectives are compared
ALONE = 3  # splits of each call whose fits are trained again alone
# Rounding errors grow with the steps, most on steep objectives. A fit that trains together with
# others may differ from the fit alone by TOLERANCE, or by SENSITIVITY times as much as the fit
# alone changes if the inputs change in their last digits.
TOLERANCE = {"float64": 1e-5, "float32": 5e-2}
LAST_DIGITS = {"float64": 1e-15, "float32": 1e-7}
SENSITIVITY = 100.0
# An iteration in which Kuu needs a larger jitter has no objective: from 1e-6 to 1e-1.
LARGER_JITTERS = 5


@dataclass(frozen=True)
class Kind:
    """The objective and the model of a call of `fit`."""

    objective: str
    likelihood: str
    kernel: str
    M: int

    @property
    def betas(self) -> tuple[float, ...]:
        """Return the weights of the penalty; for power EP, its powers."""
        if self.objective == "power_ep":
            return (1.0, 0.5, 0.01)
        return BETAS if self.objective in ("elbo", "log_dlm", "sq_dlm") else (1.0,)


KINDS = [
    Kind("elbo", "gaussian", "rbf", 8),
    Kind("elbo", "gaussian", "matern32", ROWS),
    Kind("log_dlm", "gaussian", "matern52", 8),
    Kind("log_dlm", "gaussian", "rbf", ROWS),
    Kind("sq_dlm", "gaussian", "rbf", 8),
    Kind("fitc", "gaussian", "matern52", 8),
    Kind("power_ep", "gaussian", "rbf", ROWS),
    Kind("tighter", "gaussian", "rbf", 8),
    Kind("block_tighter", "gaussian", "rbf", 8),
    Kind("t_pep", "gaussian", "matern32", 8),
    Kind("loo", "gaussian", "rbf", 8),
    Kind("crps", "gaussian", "matern52", 8),
    Kind("exact", "gaussian", "rbf", ROWS),
    Kind("elbo", "student_t", "rbf", 8),
    Kind("elbo", "probit", "rbf", 8),
    Kind("log_dlm", "probit", "matern52", ROWS),
    Kind("elbo", "poisson", "rbf", 8),
    Kind("log_dlm", "poisson", "rbf", 8),
]


def hostile_inputs(random: np.random.Generator) -> np.ndarray:
    """Return inputs [ROWS, FEATURES] with one or more of the usual troubles."""
    X = random.normal(size=(ROWS, FEATURES))
    troubles = random.random(6) < 0.35
    if troubles[0]:  # duplicated rows
        X[ROWS // 2 :] = X[: ROWS - ROWS // 2]
    if troubles[1]:  # a constant feature
        X[:, 0] = 0.0
    if troubles[2]:  # collinear features
        X[:, 2] = -2 * X[:, 1]
    if troubles[3]:  # an outlier
        X[random.integers(ROWS)] *= 1e6
    if troubles[4]:  # another scale
        X *= 10.0 ** random.integers(-12, 7)
    if troubles[5]:  # all rows equal but one
        X[1:] = X[1]
    return X


def hostile_targets(random: np.random.Generator, likelihood: str) -> np.ndarray:
    """Return targets [ROWS] that the likelihood allows."""
    if likelihood == "probit":
        return (random.random(ROWS) < random.choice([0.0, 0.05, 0.5, 1.0])).astype(float)
    if likelihood == "poisson":
        return random.poisson(random.choice([0.0, 0.1, 5.0, 1e4]), ROWS).astype(float)
    y = random.normal(size=ROWS)
    if random.random() < 0.2:
        y[:] = 3.0
    if random.random() < 0.3:
        y[random.integers(ROWS)] = 1e6
    return y * 10.0 ** random.integers(-6, 4)


def calls(cells: int) -> Iterator[tuple[Kind, float, np.ndarray, np.ndarray]]:
    """Yield kinds, initial lengthscales and the data [S, ...] of all calls of `fit`."""
    random = np.random.default_rng(0)
    combinations = list(product(KINDS, LENGTHSCALES))
    share = math.ceil(cells / len(combinations))
    for kind, lengthscale in combinations:
        fits_left = share
        while fits_left > 0:
            fits = min(fits_left, FITS_PER_CALL)
            splits = math.ceil(fits / len(kind.betas))
            X = np.stack([hostile_inputs(random) for _ in range(splits)])
            y = np.stack([hostile_targets(random, kind.likelihood) for _ in range(splits)])
            yield kind, lengthscale, X, y
            fits_left -= fits


def trained(
    kind: Kind, lengthscale: float, X: np.ndarray, y: np.ndarray, device: str, dtype: str
) -> list[Fit]:
    """Return the fits of all splits and betas, tested on their own rows."""
    return fit(
        X,
        y,
        Model(kind.kernel, kind.likelihood, M=kind.M, initial={"lengthscale": lengthscale}),
        kind.objective,
        betas=kind.betas,
        settings=Settings(lr=0.1, iterations=ITERATIONS, window=None),
        test=(X, y),
        device=device,
        dtype=dtype,
    )


def not_finite(result: Fit) -> list[str]:
    """Return the names of the numbers of a fit that are not finite."""
    numbers = {name: np.asarray(value) for name, value in result.hyperparameters.items()}
    numbers |= {"m": result.posterior.m.numpy(), "L": result.posterior.L.numpy()}
    numbers["last objective"] = np.asarray(result.objective[-1])
    for rows, metrics in result.metrics.items():
        for name, value in metrics.items():
            numbers[f"{name} of {rows} rows"] = np.asarray(value)
    names = [name for name, values in numbers.items() if not np.isfinite(values).all()]
    if np.isnan(result.objective).sum() > LARGER_JITTERS:
        names.append("objectives")
    return names


def distance(ours: Fit, alone: Fit) -> float:
    """Return the largest difference of the first objectives, relative to their size (at least 1).

    Later ones say less, because steep objectives amplify rounding errors.
    """
    together = ours.objective[:COMPARED_ITERATIONS]
    by_itself = alone.objective[:COMPARED_ITERATIONS]
    scale = np.maximum(1.0, np.abs(by_itself))
    return float(np.nanmax(np.abs(together - by_itself) / scale))


def main(arguments: list[str]) -> int:
    """Train all, check, and print a table."""
    parser = argparse.ArgumentParser("scripts.benchmark hostile", description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float64", choices=tuple(TOLERANCE))
    options = parser.parse_args(arguments)
    outcomes: dict[Kind, Counter[str]] = {kind: Counter() for kind in KINDS}
    problems: list[str] = []
    device_and_dtype = (options.device, options.dtype)
    for kind, lengthscale, X, y in calls(options.cells):
        fits = trained(kind, lengthscale, X, y, *device_and_dtype)
        outcomes[kind].update("failed" if result.failed else "done" for result in fits)
        problems += not_finite_in(fits, kind, lengthscale)
        problems += different_alone(fits, kind, lengthscale, X, y, device_and_dtype)
        print(f"{len(fits)} fits of {kind}, lengthscale {lengthscale}", file=sys.stderr, flush=True)
    print_outcomes(outcomes)
    for problem, times in Counter(problems).most_common(20):
        print(f"PROBLEM ({times} times): {problem}")
    total = sum(counts.total() for counts in outcomes.values())
    print(f"{total} fits, {len(problems)} problems, {options.dtype}")
    return 1 if problems else 0


def print_outcomes(outcomes: dict[Kind, Counter[str]]) -> None:
    """Print a line per kind with the number of fits that are done, and of those that failed."""
    for kind, counts in outcomes.items():
        name = f"{kind.objective} {kind.likelihood} {kind.kernel} M={kind.M}"
        print(f"{name:40} {counts['done']:7} done {counts['failed']:6} failed")


def not_finite_in(fits: list[Fit], kind: Kind, lengthscale: float) -> list[str]:
    """Return a line for each fit with numbers that are not finite, failed ones aside."""
    problems = []
    for result in fits:
        names = [] if result.failed else not_finite(result)
        if names:
            listed = ", ".join(names)
            problems.append(f"{kind}, lengthscale {lengthscale}: not finite: {listed}")
    return problems


def different_alone(
    fits: list[Fit],
    kind: Kind,
    lengthscale: float,
    X: np.ndarray,
    y: np.ndarray,
    device_and_dtype: tuple[str, str],
) -> list[str]:
    """Return a line for each fit of the first splits that differs if its split is trained alone."""
    problems = []
    betas = len(kind.betas)
    _, dtype = device_and_dtype
    for split in range(min(ALONE, len(X))):
        together = fits[split * betas : (split + 1) * betas]
        inputs = X[split : split + 1]
        targets = y[split : split + 1]
        alone = trained(kind, lengthscale, inputs, targets, *device_and_dtype)
        # The sensitivity of the fits to rounding errors, by inputs with other last digits.
        moved_inputs = inputs * (1 + LAST_DIGITS[dtype])
        moved = trained(kind, lengthscale, moved_inputs, targets, *device_and_dtype)
        for ours, single, neighbour in zip(together, alone, moved, strict=True):
            if ours.failed != single.failed:
                if single.failed == neighbour.failed:
                    problems.append(f"{kind}, lengthscale {lengthscale}: fails in one of two ways")
            elif not ours.failed:
                allowed = max(TOLERANCE[dtype], SENSITIVITY * distance(single, neighbour))
                if distance(ours, single) > allowed:
                    problems.append(
                        f"{kind}, lengthscale {lengthscale}: differs from the fit alone"
                    )
    return problems
