"""All that changes while a batch trains.

Parameters, Adam's moments, which cells run, and what was seen on the way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.common.errors import Unreadable
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.settings import Settings

BLOCK = 100
"""Iterations over which the acceptance rate is averaged."""

# Values of `State.outcome`.
RUNNING, CONVERGED, LIMIT, NOT_FINITE, NOT_FACTORISED, REPORTED = range(6)
STOPPED = {CONVERGED: "converged", LIMIT: "limit"}
FAILED = {
    NOT_FINITE: "the objective or its gradient is not finite",
    NOT_FACTORISED: "Kuu can't be factorised even with the largest jitter",
}


@dataclass
class State:
    """B cells side by side. Everything a resumed run needs is here, and nothing else is.

    Attributes:
        values: What Adam moves, unconstrained.
        first: Adam's first moments.
        second: Adam's second moments.
        steps: Steps that Adam has made. Iterations in which Kuu was not factorised are not among
            them.
        jitter: What is added to the diagonal of Kuu, relative to its mean.
        outcome: RUNNING, why the cell stopped, or REPORTED after its end has been reported.
        stopped_at: Iterations that were made when the cell stopped, or so far if it is live.
        window: The last objectives, a ring buffer of W iterations.
        history: The objective of every iteration.
        acceptance: The acceptance rate, summed over each BLOCK of iterations.
        iteration: Iterations that were made.
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
        # A Cholesky factor may lie in memory by columns; the update of a step goes by rows.
        contiguous = torch.contiguous_format
        values = {name: value.clone(memory_format=contiguous) for name, value in values.items()}
        example = next(iter(values.values()))
        B = example.shape[0]
        numbers = {"dtype": example.dtype, "device": example.device}
        counts = {"dtype": torch.int64, "device": example.device}
        blocks = -(-settings.iterations // BLOCK)  # rounded up
        return cls(
            values=values,
            first={name: torch.zeros_like(value) for name, value in values.items()},
            second={name: torch.zeros_like(value) for name, value in values.items()},
            steps=torch.zeros(B, **counts),
            jitter=torch.full((B,), FIRST_JITTER, **numbers),
            outcome=torch.full((B,), RUNNING, **counts),
            stopped_at=torch.zeros(B, **counts),
            window=torch.full((B, settings.window or 1), float("nan"), **numbers),
            history=torch.full((B, settings.iterations), float("nan"), **numbers),
            acceptance=torch.zeros(B, blocks, **numbers),
            iteration=torch.zeros((), **counts),
        )

    def keep(self, cells: Sequence[int]) -> "State":
        """Return the state of some of the cells."""
        index = torch.tensor(cells, dtype=torch.int64, device=self.outcome.device)
        return self._map(lambda tensor: tensor if tensor.ndim == 0 else tensor[index])

    def part(self, first: int, end: int) -> "State":
        """Return the state of consecutive cells, as views of this one; the iteration is a copy.

        A part may change while another is differentiated: as the views are of `data`, autograd does
        not take a change of one for a change of the others.
        """
        return self._map(
            lambda tensor: tensor.clone() if tensor.ndim == 0 else tensor[first:end].data
        )

    def clone(self) -> "State":
        """Return a copy."""
        return self._map(torch.clone)

    def copy_(self, other: "State") -> None:
        """Copy the contents of another state in place: captured graphs hold these very tensors."""
        theirs = other._tensors()
        for name, tensor in self._tensors().items():
            tensor.copy_(theirs[name])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return flat arrays for a checkpoint."""
        return {name: tensor.cpu().numpy() for name, tensor in self._tensors().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], device: torch.device) -> "State":
        """Return the state of a checkpoint's arrays: the inverse of `arrays`."""
        tensors = {name: torch.as_tensor(array).to(device) for name, array in arrays.items()}
        return cls._unflatten(tensors)

    def check(self, fresh: "State") -> None:
        """Check that training can go on from this state, which a checkpoint had.

        Args:
            fresh: A fresh state of the same cells.

        Raises:
            Unreadable: It can't.
        """
        ours = self._tensors()
        expected = fresh._tensors()
        wrong = _layouts(ours) ^ _layouts(expected)
        if wrong:
            names = sorted({name for name, _, _ in wrong})
            raise Unreadable(f"its tensors do not fit its cells: {', '.join(names)}")
        iterations = self.history.shape[1]
        largest = {
            "iteration": iterations,
            "stopped_at": iterations,
            "steps": iterations,
            "outcome": REPORTED,
        }
        for name, limit in largest.items():
            if ((ours[name] < 0) | (ours[name] > limit)).any():
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

    def _map(self, change: Callable[[Tensor], Tensor]) -> "State":
        return State._unflatten({name: change(tensor) for name, tensor in self._tensors().items()})

    @classmethod
    def _unflatten(cls, flat: Tensors) -> "State":
        """Return the state of tensors by flat names: the inverse of `_tensors`."""
        parts: dict[str, Any] = {}
        for name, tensor in flat.items():
            group, _, key = name.partition("/")
            if key:
                parts.setdefault(group, {})[key] = tensor
            else:
                parts[group] = tensor
        return cls(**parts)


def _layouts(tensors: Tensors) -> set[tuple[str, torch.Size, torch.dtype]]:
    return {(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
