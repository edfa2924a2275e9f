"""Memory that steps share."""

import pytest
import torch

from dlmexp.core.gp.workspace import Workspace

LIKE = torch.ones(1, dtype=torch.float64)


def test_array_is_the_same_memory_as_long_as_it_fits():
    memory = Workspace()
    assert memory.array("A", LIKE, (2, 3)) is memory.array("A", LIKE, (2, 3))


@pytest.mark.parametrize("change", ["name", "shape", "dtype"])
def test_array_that_does_not_fit_is_a_new_one(change):
    memory = Workspace()
    first = memory.array("A", LIKE, (2, 3))
    second = {
        "name": lambda: memory.array("B", LIKE, (2, 3)),
        "shape": lambda: memory.array("A", LIKE, (3, 2)),
        "dtype": lambda: memory.array("A", LIKE.float(), (2, 3)),
    }[change]()
    assert second is not first
    assert second.shape == ((3, 2) if change == "shape" else (2, 3))
    assert second.dtype == (torch.float32 if change == "dtype" else torch.float64)


def test_derived_array_is_computed_once_per_source():
    memory = Workspace()
    calls = []

    def double(x):
        calls.append(x)
        return 2 * x

    source = torch.ones(2)
    assert memory.derived("double", source, double) is memory.derived("double", source, double)
    assert len(calls) == 1
    # An equal tensor is another source.
    assert memory.derived("double", source.clone(), double).tolist() == [2, 2]
    assert len(calls) == 2
