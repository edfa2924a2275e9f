"""The readable file of the method against the package."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dlmexp

EXAMPLE = Path(__file__).parents[1] / "examples" / "dlm.py"


@pytest.fixture
def example() -> Iterator[SimpleNamespace]:
    """Return what the example defines; it sets torch's default type, which is put back."""
    default = torch.get_default_dtype()
    yield SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
    torch.set_default_dtype(default)


@pytest.mark.parametrize(
    ("objective", "row_loss"), [("elbo", "elbo_loss"), ("log_dlm", "log_loss")]
)
@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_example_takes_the_same_steps_as_the_package(
    example: SimpleNamespace, objective: str, row_loss: str, beta: float
) -> None:
    X, y = example.drawn_data(60)
    parameters, history = example.train(getattr(example, row_loss), X, y, beta, steps=30)

    (fit,) = dlmexp.fit(
        X[None],  # a stack of splits keeps the order of its rows
        y[None],
        dlmexp.Model("rbf", M=example.M),
        objective,
        betas=beta,
        settings=dlmexp.Settings(lr=0.02, iterations=30, window=None),
        collapsed=False,
        device="cpu",
    )

    np.testing.assert_allclose(history, fit.objective, rtol=1e-8, atol=1e-8)
    Z = parameters["Z"].detach().numpy()
    np.testing.assert_allclose(Z, fit.hyperparameters["Z"], rtol=1e-8, atol=1e-8)


def test_example_imports_nothing_of_the_package() -> None:
    assert "import dlmexp" not in EXAMPLE.read_text()
    assert "from dlmexp" not in EXAMPLE.read_text()
