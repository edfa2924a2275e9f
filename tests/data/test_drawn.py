"""Data drawn from a Gaussian process with known noise."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dlmexp.common.errors import UserError
from dlmexp.data.dataset import read_spec
from dlmexp.data.drawn import NOISES, gaussian_process, nll_of_truth
from dlmexp.data.raw_files import load


def drawn(noise: str, rows: int = 4000, seed: int = 0):
    spec = read_spec(f"gp_{noise}")
    return gaussian_process(replace(spec, options=spec.options | {"rows": rows, "seed": seed}), {})


@pytest.mark.slow
def test_function_has_the_covariance_of_the_kernel():
    """At two rows, over many draws."""
    products = []
    expected = []
    for seed in range(400):
        data = drawn("constant", 2, seed)
        distance2 = ((data.X[0] - data.X[1]) ** 2).sum()
        products.append(data.y[0] * data.y[1])
        expected.append(np.exp(-distance2 / (2 * 0.5**2)))
    error = np.std(products) / np.sqrt(len(products))
    assert np.mean(products) == pytest.approx(np.mean(expected), abs=4 * error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "low", "high"), [("constant", 0.3, 0.3), ("varying", 0.085, 0.715)]
)
def test_noise_has_the_deviation_that_is_said(kind, low, high):
    """Neighbours have nearly the same f: the variance of their difference is that of the noise."""
    data = drawn(kind, 40_000)
    for edge, deviation in ((data.X[:, 0] < 0.1, low), (data.X[:, 0] > 0.9, high)):
        X = data.X[edge]
        y = data.y[edge]
        distances = ((X[:, None, :] - X[None, :400, :]) ** 2).sum(-1)
        distances[np.arange(400), np.arange(400)] = np.inf
        nearest = distances.argmin(0)
        differences = y[nearest] - y[:400]
        measured = np.sqrt(differences.var() / 2)
        # f differs by up to 0.1 between neighbours.
        assert 0.9 * deviation < measured < 1.1 * np.hypot(deviation, 0.1)


@pytest.mark.parametrize("kind", NOISES)
def test_nll_of_the_truth_is_the_mean_over_draws(kind):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=400_000)
    if kind == "heavy":
        density = stats.t(3, scale=0.3)
    else:
        density = stats.norm(0, 0.3 if kind == "constant" else 0.05 + 0.7 * x)
    y = density.rvs(size=x.size, random_state=rng)
    assert nll_of_truth(kind) == pytest.approx(-density.logpdf(y).mean(), abs=0.01)  # pyright: ignore[reportAttributeAccessIssue]


def test_drawn_data_has_its_size_and_seed():
    assert drawn("heavy", 50).X.shape == (50, 4)
    assert not np.array_equal(drawn("heavy", 50).y, drawn("heavy", 50, seed=1).y)
    np.testing.assert_array_equal(drawn("heavy", 50).y, drawn("heavy", 50).y)


def test_unknown_noise_is_refused_with_what_there_is():
    spec = read_spec("gp_heavy")
    with pytest.raises(
        UserError, match=r"options\.noise=loud: choose one of constant, varying, heavy"
    ):
        load(replace(spec, options=spec.options | {"noise": "loud"}), "")
