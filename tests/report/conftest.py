"""A results folder with something of everything, and hostile names."""

from pathlib import Path

import pytest

from tests.support.hostile import NAME, REASON
from tests.support.made_up import cell, failed, fill, fit, method_cell, sweep

FOUR = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Banana (30 rows in the table and a figure), a dataset named like a script, and failures."""
    where = tmp_path_factory.mktemp("results")
    fill(where, sweep("banana", FOUR, [100, 200, 500, 1000, 2000], range(3), 3))
    fill(where, sweep("twonorm", FOUR, [100, 200, 500, 1000, 2000], range(2), 3, parameterisation="unwhitened"))
    fill(where, sweep("thyroid", FOUR, [100, 200, 500, 1000, 2000], range(2), 3))
    fill(where, [fit(cell(NAME, task="binary", seed=seed), nll=0.1 + seed, error=0.1) for seed in range(2)])
    fill(where, [failed(method_cell("joint_log_dlm", "ringnorm", seed=seed), REASON) for seed in range(7)])
    fill(where, [fit(method_cell("elbo", "ringnorm", n=500), nll=float("inf"), error=0.1, validation=0.1)])
    return where
