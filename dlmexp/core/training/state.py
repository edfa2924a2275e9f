"""Everything that changes while a batch trains.

These are the parameters, Adam's moments, which cells run, and the objectives so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.common.errors import Unreadable
from dlmexp.core.gp.cholesky import FIRST_JITTER, LAST_JITTER
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.settings import Settings

ACCEPTANCE_BLOCK = 100
"""Number of iterations whose acceptance rates are recorded as one average."""
MAX_JITTER = LAST_JITTER * (1 + 1e-9)
"""`LAST_JITTER`, which tenfold steps from `FIRST_JITTER` reach with a rounding error."""

# The values of `State.outcome`. A cell starts as RUNNING. When it stops, its outcome is the reason,
# and when its result has been handed out, REPORTED. LIMIT: all iterations were made.
RUNNING, CONVERGED, LIMIT, NOT_FINITE, NOT_FACTORISED, REPORTED = range(6)
STOP_REASONS = {CONVERGED: "converged", LIMIT: "limit"}
"""Why a cell that did not fail has stopped, in words."""
FAILURE_REASONS = {
    NOT_FINITE: "the objective or its gradient is not finite",
    NOT_FACTORISED: "Kuu can't be factorised even with the largest jitter",
}
"""Why a cell failed, in words."""


@dataclass
class State:
    """Everything that a resumed run needs of B cells, and nothing else.

    W is the length of the window, T the largest number of iterations, and K the number of blocks of
    `ACCEPTANCE_BLOCK` iterations.

    Attributes:
        values: The unconstrained parameters that Adam moves, by name.
        first: Adam's first moments, by name.
        second: Adam's second moments, by name.
        steps: The number of Adam's steps. It does not count iterations in which Kuu could not be
            factorised, as they leave the parameters unchanged.
        jitter: What is added to the diagonal of Kuu, relative to the mean of the diagonal.
        outcome: RUNNING, the reason why the cell has stopped, or REPORTED.
        stopped_at: The number of iterations when the cell stopped, or so far if it is live.
        window: The objectives of the last W iterations, as a ring buffer.
        history: The objective of every iteration.
        acceptance: By block, the sum over its iterations of the share of proposals that the
            estimator's rejection sampler accepted; 0 if the estimator has no such sampler.
        iteration: The number of iterations that were made.
    """

    values: Tensors
    first: Tensors
    second: Tensors
    steps: Int[Tensor, "B"]
    jitter: Float[Tensor, "B"]
    outcome: Int[Tensor, "B"]
    stopped_at: Int[Tensor, "B"]
    window: Float[Tensor, "B W"]
    history: Float[Tensor, "B T"]
    acceptance: Float[Tensor, "B K"]
    iteration: Int[Tensor, ""]

    @property
    def live(self) -> Bool[Tensor, "B"]:
        """Return which cells still run."""
        return self.outcome == RUNNING

    @classmethod
    def fresh(cls, values: Tensors, settings: Settings) -> "State":
        """Return the state of cells at their initial values."""
        # A Cholesky factor may lie in memory column by column; the Triton update of a step reads
        # row by row.
        contiguous = torch.contiguous_format
        values = {name: value.clone(memory_format=contiguous) for name, value in values.items()}
        example = next(iter(values.values()))
        B = example.shape[0]
        float_options = {"dtype": example.dtype, "device": example.device}
        int_options = {"dtype": torch.int64, "device": example.device}
        blocks = -(-settings.iterations // ACCEPTANCE_BLOCK)  # rounded up
        return cls(
            values=values,
            first={name: torch.zeros_like(value) for name, value in values.items()},
            second={name: torch.zeros_like(value) for name, value in values.items()},
            steps=torch.zeros(B, **int_options),
            jitter=torch.full((B,), FIRST_JITTER, **float_options),
            outcome=torch.full((B,), RUNNING, **int_options),
            stopped_at=torch.zeros(B, **int_options),
            # Without a stopping rule the window is written but not read.
            window=torch.full((B, settings.window or 1), float("nan"), **float_options),
            history=torch.full((B, settings.iterations), float("nan"), **float_options),
            acceptance=torch.zeros(B, blocks, **float_options),
            iteration=torch.zeros((), **int_options),
        )

    def keep(self, cells: Sequence[int]) -> "State":
        """Return the state of these cells alone."""
        index = torch.tensor(cells, dtype=torch.int64, device=self.outcome.device)
        return self._map(lambda tensor: tensor if tensor.ndim == 0 else tensor[index])

    def view_of_cells(self, first: int, end: int) -> "State":
        """Return the state of the cells `first` to `end - 1`, as views of this state.

        The iteration alone is a copy. The views are slices of `.data`, which autograd does not
        track: plain slices share a counter of changes in their memory, so that autograd would
        refuse to differentiate one slice after another thread has changed another slice.
        """
        return self._map(
            lambda tensor: tensor.clone() if tensor.ndim == 0 else tensor[first:end].data
        )

    def clone(self) -> "State":
        """Return a copy."""
        return self._map(torch.clone)

    def copy_(self, other: "State") -> None:
        """Copy another state into the tensors of this one, to which captured graphs refer."""
        new_values = other._tensors()
        for name, tensor in self._tensors().items():
            tensor.copy_(new_values[name])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return flat arrays for a checkpoint."""
        return {name: tensor.cpu().numpy() for name, tensor in self._tensors().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], device: torch.device) -> "State":
        """Return the state from the arrays of a checkpoint: the inverse of `arrays`."""
        tensors = {name: torch.as_tensor(array).to(device) for name, array in arrays.items()}
        return cls._unflatten(tensors)

    def check(self, fresh: "State") -> None:
        """Check that training can go on from this state, which was read from a checkpoint.

        Args:
            fresh: A fresh state of the same cells.

        Raises:
            Unreadable: The names, shapes or types of its tensors differ from those of `fresh`, or
                one of its counts is out of range.
        """
        tensors = self._tensors()
        mismatches = _layouts(tensors) ^ _layouts(fresh._tensors())
        if mismatches:
            names = sorted({name for name, _, _ in mismatches})
            raise Unreadable(f"its tensors do not fit its cells: {', '.join(names)}")
        iterations = self.history.shape[1]
        limits = {
            "iteration": iterations,
            "stopped_at": iterations,
            "steps": iterations,
            "outcome": REPORTED,
        }
        for name, limit in limits.items():
            is_outside = (tensors[name] < 0) | (tensors[name] > limit)
            if is_outside.any():
                raise Unreadable(f"its {name} is not within 0 and {limit}")

    def _tensors(self) -> Tensors:
        """Return all tensors by flat names, such as `values/m`."""
        flat: Tensors = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                flat |= {f"{field.name}/{key}": tensor for key, tensor in value.items()}
            else:
                flat[field.name] = value
        return flat

    def _map(self, function: Callable[[Tensor], Tensor]) -> "State":
        """Return the state with `function` applied to each tensor."""
        mapped = {name: function(tensor) for name, tensor in self._tensors().items()}
        return State._unflatten(mapped)

    @classmethod
    def _unflatten(cls, flat: Tensors) -> "State":
        """Return the state from tensors by flat names: the inverse of `_tensors`."""
        parts: dict[str, Any] = {}
        for name, tensor in flat.items():
            group, _, key = name.partition("/")
            if key:
                parts.setdefault(group, {})[key] = tensor
            else:
                parts[group] = tensor
        return cls(**parts)


def _layouts(tensors: Tensors) -> set[tuple[str, torch.Size, torch.dtype]]:
    """Return name, shape and type of every tensor."""
    return {(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
