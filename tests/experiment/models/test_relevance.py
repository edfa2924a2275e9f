"""Lengthscales by column, as records have them."""

import math

import numpy as np
import pandas as pd
import pytest

import dlmexp

pytestmark = pytest.mark.slow
QUICK = {"training.regression.max_iterations": 60, "training.regression.decay": 60, "M": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table whose target is a sine of `wave` plus what `kind` says; `noise` says nothing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["u", "v", "w"], 300),
            "noise": rng.normal(size=300),
            "wave": rng.uniform(-3, 3, 300),
            "same": 1.0,
        }
    )
    step = frame["kind"].map({"u": 0.0, "v": 2.0, "w": -2.0})
    frame["y"] = np.sin(2 * frame["wave"]) * (1 + step) + 0.1 * rng.normal(size=300)
    return dlmexp.run(
        frame,
        "elbo",
        target="y",
        task="regression",
        results=tmp_path_factory.mktemp("relevance"),
        verbose=False,
        **QUICK,  # pyright: ignore[reportArgumentType]
    )


def test_records_have_a_lengthscale_per_column(trained):
    (cell,) = trained.cells.to_dict("records")
    names = [name for name in cell if name.startswith("hyper_lengthscale[")]
    assert len(names) == 4
    assert cell["hyper_lengthscale[wave]"] < cell["hyper_lengthscale[noise]"]
    numbers = [cell[f"hyper_lengthscale[{name}]"] for name in ("noise", "wave")]
    hyper = trained.model()._predictor.members[0].model.hyper
    np.testing.assert_allclose(numbers, hyper["lengthscale"][:2])
    np.testing.assert_allclose(
        cell["hyper_lengthscale[kind]"], hyper["category_lengthscale"].item()
    )


def test_column_without_variation_in_training_rows_is_not_relevant(trained):
    assert trained.cells["hyper_lengthscale[same]"].item() == math.inf
