"""Statistics of gradients, against the true one."""

import numpy as np
import pytest
import torch

from dlmexp.core.estimators import BMC, UPS, Exact
from dlmexp.core.training import gradients
from dlmexp.core.training.gradients import gradient_statistics
from tests.support.small_programs import program


def _statistics(estimator, betas=(0.1,), index=(0,)):
    made = program("fixed", betas, index, estimator=estimator, likelihood="poisson")
    return [statistics for statistics in gradient_statistics(made) if statistics is not None]


@pytest.mark.slow
def test_the_exact_gradient_has_no_error():
    ((result, arrays),) = _statistics(Exact())
    names = ("condition_i", "condition_ii", "error")
    assert set(arrays) == {f"{name}{suffix}" for name in names for suffix in ("", "_quadrature")}
    assert all(array.shape == (gradients.DRAWS,) for array in arrays.values())
    assert (
        result["bias_quadrature"] < 1e-28 * result["norm2_G_quadrature"]
    )  # the rounding of a mean of 100
    assert np.allclose(arrays["condition_i_quadrature"], 1, rtol=1e-12)
    assert np.allclose(arrays["condition_ii_quadrature"], result["norm2_G_quadrature"], rtol=1e-12)
    # 10 000 samples leave an error of some percent in G.
    assert 0 < result["bias"] < 0.01 * result["norm2_G_quadrature"]


@pytest.mark.slow
def test_one_sample_of_bmc_is_biased_and_product_sampling_is_not():
    ((bmc, _),), ((ups, arrays),) = _statistics(BMC(1)), _statistics(UPS(1))
    # The mean of 100 unbiased draws is off by a 100th of one draw's squared error; 3 of them leave
    # room for chance.
    assert ups["bias_quadrature"] < 3 * arrays["error_quadrature"].mean() / gradients.DRAWS
    assert bmc["bias_quadrature"] > 10 * ups["bias_quadrature"]


@pytest.mark.slow
def test_cells_do_not_depend_on_each_other(monkeypatch):
    monkeypatch.setattr(gradients, "DRAWS", 5)
    monkeypatch.setattr(gradients, "TRUTH_SAMPLES", 50)
    (_, first), (_, second) = _statistics(BMC(2), (1.0, 0.1), (0, 1))
    ((_, alone),) = _statistics(BMC(2), (1.0,), (0,))
    for name, array in alone.items():
        np.testing.assert_allclose(first[name], array, rtol=1e-9)
    assert not np.allclose(first["error"], second["error"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_draws_by_a_captured_graph_are_those_of_single_calls():
    made = program("fixed", (0.1,), (0,), estimator=BMC(3), likelihood="poisson", device="cuda")
    pools = torch.cuda.graph_pool_handle(), None
    both = [gradients.gradient_of(made, made.loss.estimator, pool) for pool in pools]
    together, one_by_one = (torch.stack([one(draw) for draw in range(3)]) for one in both)
    torch.testing.assert_close(together, one_by_one, rtol=1e-12, atol=1e-12)
    assert not torch.equal(together[0], together[1])
