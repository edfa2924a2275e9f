"""Regression data drawn from a Gaussian process, with noise of three kinds.

The true density of y is known. Features are uniform on [0, 1]^4, and f is drawn from a Gaussian
process with an RBF kernel of lengthscale 0.5 and outputscale 1, by random Fourier features (Rahimi
and Recht 2007). `options.noise` is `constant` (normal with standard deviation 0.3), `varying`
(normal with a standard deviation that grows from 0.05 to 0.75 with the first feature) or `heavy`
(0.3 times a Student's t with 3 degrees of freedom).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dlmexp.common.errors import UserError
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset
from dlmexp.data.published import size_and_rng

FEATURES = 4
LENGTHSCALE = 0.5
FOURIER_FEATURES = 2000
NOISE_SCALE = 0.3  # the standard deviation of constant noise, and the scale of heavy noise
VARYING_DEVIATIONS = (0.05, 0.75)  # the smallest and the largest deviation of varying noise
DEGREES_OF_FREEDOM = 3  # of heavy noise
NOISES = ("constant", "varying", "heavy")


@LOADERS.register("gaussian_process")
def gaussian_process(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Draw features, f and noise, and return X and y = f + noise.

    Raises:
        UserError: there is no noise of this kind.
    """
    kind = spec.options.get("noise", "constant")
    if kind not in NOISES:
        kinds = ", ".join(NOISES)
        raise UserError(f"dataset.{spec.name}.options.noise={kind}: choose one of {kinds}")
    rows, rng = size_and_rng(spec)
    X = rng.uniform(size=(rows, FEATURES))
    f = _draw_function(X, rng)
    if kind == "heavy":
        noise = NOISE_SCALE * rng.standard_t(DEGREES_OF_FREEDOM, rows)
    else:
        noise = _deviation(kind, X) * rng.standard_normal(rows)
    return Dataset(X, f + noise)


def _draw_function(
    X: Float[np.ndarray, "N D"], rng: np.random.Generator
) -> Float[np.ndarray, " N"]:
    """Draw a function f, and return it at the rows of X."""
    # f(x) = sqrt(2 / R) sum_r w_r cos(omega_r . x + b_r), w_r ~ N(0, 1), for R Fourier features
    frequencies = rng.standard_normal((FEATURES, FOURIER_FEATURES)) / LENGTHSCALE
    phases = rng.uniform(0, 2 * np.pi, FOURIER_FEATURES)
    weights = rng.standard_normal(FOURIER_FEATURES)
    scale = np.sqrt(2 / FOURIER_FEATURES)
    return scale * np.cos(X @ frequencies + phases) @ weights


def _deviation(kind: str, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return the standard deviation of normal noise at the rows of X."""
    if kind == "constant":
        return np.full(len(X), NOISE_SCALE)
    low, high = VARYING_DEVIATIONS
    return low + (high - low) * X[:, 0]


def nll_of_truth(kind: str) -> float:
    """Return the expected NLL of the true density of y given f, in the units of y.

    The NLLs of models are for normalised targets. To compare with one, subtract the logarithm of
    the standard deviation of its training targets.
    """
    if kind == "heavy":
        from scipy import stats  # takes so long to import that other runs should not wait for it

        return float(stats.t.entropy(DEGREES_OF_FREEDOM) + np.log(NOISE_SCALE))
    entropy = 0.5 * np.log(2 * np.pi * np.e)
    if kind == "constant":
        return float(entropy + np.log(NOISE_SCALE))
    low, high = VARYING_DEVIATIONS
    # The deviation s is uniform on [low, high]. The mean of log s is the integral of log s, with
    # the antiderivative s log s - s, divided by high - low.
    difference = high * np.log(high) - low * np.log(low)
    mean_log = difference / (high - low) - 1
    return float(entropy + mean_log)
