"""Every objective follows the same path on a GPU as on the CPU, and in float32 as in float64."""

import numpy as np
import pytest
import torch

import dlmexp
from dlmexp.core.objectives import OBJECTIVES

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
NAMES = sorted(OBJECTIVES)


def rows(n=60):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * random.normal(size=n)


ROUNDING = 1e-5
"""What rounding rows to 24 bits may change; more would mean that digits cancel somewhere."""


def objectives(device, name, settings, collapsed=True, dtype="float64", **of_model):
    X, y = rows()
    M = None if OBJECTIVES[name].all_rows_inducing else 12
    betas = [1.0, 0.5] if OBJECTIVES[name].has_beta else 1.0
    fits = dlmexp.fit(
        X,
        y,
        dlmexp.Model(M=M, **of_model),
        name,
        betas,
        settings=settings,
        collapsed=collapsed,
        device=device,
        dtype=dtype,
    )
    assert not any(fit.failed for fit in fits)
    return np.stack([fit.objective for fit in fits])


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_first_steps_of_an_objective_are_those_of_the_cpu(name):
    settings = dlmexp.Settings(lr=0.05, iterations=8, window=None)
    on_gpu, on_cpu = (objectives(device, name, settings) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-6, atol=1e-8)


@needs_gpu
@pytest.mark.parametrize("name", [name for name in NAMES if OBJECTIVES[name].row_loss])
def test_first_steps_with_an_explicit_q_are_those_of_the_cpu(name):
    settings = dlmexp.Settings(lr=0.05, iterations=8, window=None)
    on_gpu, on_cpu = (
        objectives(device, name, settings, collapsed=False) for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-6, atol=1e-8)


@needs_gpu
def test_first_steps_of_a_mixture_are_those_of_the_cpu():
    settings = dlmexp.Settings(lr=0.05, iterations=8, window=None, split_at=4)
    on_gpu, on_cpu = (
        objectives(device, "log_dlm", settings, components=3) for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-6, atol=1e-8)


@needs_gpu
@pytest.mark.parametrize("name", [name for name in NAMES if OBJECTIVES[name].collapsed])
def test_lbfgs_takes_the_steps_that_it_takes_on_the_cpu(name):
    settings = dlmexp.Settings(optimizer="lbfgs", iterations=8, restarts=2)
    on_gpu, on_cpu = (objectives(device, name, settings) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-6, atol=1e-8)


DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_first_steps_in_float32_are_those_in_float64(device, name):
    settings = dlmexp.Settings(lr=0.05, iterations=8, window=None)
    narrow = objectives(device, name, settings, dtype="float32")
    wide = objectives(device, name, settings)
    assert not np.array_equal(narrow, wide)
    np.testing.assert_allclose(narrow, wide, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [name for name in NAMES if OBJECTIVES[name].row_loss])
def test_first_steps_in_float32_with_an_explicit_q_are_those_in_float64(device, name):
    settings = dlmexp.Settings(lr=0.05, iterations=8, window=None)
    narrow = objectives(device, name, settings, collapsed=False, dtype="float32")
    wide = objectives(device, name, settings, collapsed=False)
    assert not np.array_equal(narrow, wide)
    np.testing.assert_allclose(narrow, wide, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("device", DEVICES)
def test_first_steps_of_a_mixture_in_float32_are_those_in_float64(device):
    settings = dlmexp.Settings(lr=0.05, iterations=8, window=None, split_at=4)
    narrow = objectives(device, "log_dlm", settings, dtype="float32", components=3)
    wide = objectives(device, "log_dlm", settings, components=3)
    assert not np.array_equal(narrow, wide)
    np.testing.assert_allclose(narrow, wide, rtol=ROUNDING, atol=ROUNDING)
