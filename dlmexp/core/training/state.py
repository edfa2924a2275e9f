"""What a training run is told, and all that changes while a batch trains: parameters, Adam's
moments, who is live, what was seen on the way."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.common.errors import Unreadable
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.training.program import Tensors


@dataclass(frozen=True)
class Settings:
    """Adam's steps and the stopping rule: the objective's spread over a window, or a number of
    iterations."""

    lr: float
    iterations: int  # stop here all the same
    window: int | None  # None: run all iterations
    tolerance: float = 1e-4
    evaluate_every: int | None = (
        None  # iterations between evaluations on test; None: only at the end
    )
    check_every: int = 20  # iterations between looks at which cells have stopped
    criterion: str = (
        "mean"  # what is compared with the tolerance: the spread per row, of the sum, or relative
    )
    final_lr: float | None = None  # what the learning rate decays to ...
    decay: int | None = None  # ... within so many iterations, after which the stopping rule applies
    epsilon: float = 1e-8  # added to the size of a gradient that Adam divides by
    resolution: float | None = None  # Adam's steps are multiples of lr * resolution
    calibration: bool = True  # whether calibration is measured at the end

    @property
    def first_check(self) -> int:
        """The iteration from which the stopping rule applies: a window after the learning rate has
        decayed."""
        return 0 if self.decay is None else self.decay + (self.window or 0)

    def lr_at(self, iteration: Int[Tensor, ""]) -> float | Float[Tensor, ""]:
        """The learning rate of an iteration (counted from 0), on its device: a captured graph works
        it out anew."""
        if self.decay is None or self.final_lr is None:
            return self.lr
        share = (iteration.to(torch.float64) / self.decay).clamp(max=1.0)
        return self.final_lr + (self.lr - self.final_lr) * 0.5 * (1 + torch.cos(math.pi * share))


BLOCK = 100  # iterations over which acceptance is averaged

BETA1, BETA2 = 0.9, 0.999  # of Adam
RUNNING, CONVERGED, LIMIT, NOT_FINITE, NOT_FACTORISED, REPORTED = range(6)
STOPPED = {CONVERGED: "converged", LIMIT: "limit"}
FAILED = {
    NOT_FINITE: "the objective or its gradient is not finite",
    NOT_FACTORISED: "Kuu can't be factorised even with the largest jitter",
}


@dataclass
class State:
    """B cells side by side. Everything a resumed run needs is here, and nothing else is."""

    values: Tensors
    first: Tensors
    second: Tensors
    steps: Int[Tensor, "B"]  # updates made
    jitter: Float[Tensor, "B"]
    outcome: Int[Tensor, "B"]  # RUNNING, why it stopped, or REPORTED once that has been told
    stopped_at: Int[Tensor, "B"]  # iterations made when it stopped
    window: Float[Tensor, "B I"]  # the last objectives, a ring
    history: Float[Tensor, "B T"]  # the objective of every iteration
    acceptance: Float[Tensor, "B K"]  # summed over each BLOCK iterations
    iteration: Int[Tensor, ""]

    @property
    def live(self) -> Bool[Tensor, "B"]:
        return self.outcome == RUNNING

    @classmethod
    def fresh(cls, values: Tensors, settings: Settings) -> "State":
        """Straight after initialisation."""
        # A Cholesky factor may lie in memory by columns; the update of a step goes by rows.
        values = {
            name: value.clone(memory_format=torch.contiguous_format)
            for name, value in values.items()
        }
        some = next(iter(values.values()))
        B, like = some.shape[0], {"dtype": some.dtype, "device": some.device}
        whole = {"dtype": torch.int64, "device": some.device}
        return cls(
            values=values,
            first={name: torch.zeros_like(value) for name, value in values.items()},
            second={name: torch.zeros_like(value) for name, value in values.items()},
            steps=torch.zeros(B, **whole),
            jitter=torch.full((B,), FIRST_JITTER, **like),
            outcome=torch.full((B,), RUNNING, **whole),
            stopped_at=torch.zeros(B, **whole),
            window=torch.full((B, settings.window or 1), float("nan"), **like),
            history=torch.full((B, settings.iterations), float("nan"), **like),
            acceptance=torch.zeros(B, -(-settings.iterations // BLOCK), **like),
            iteration=torch.zeros((), **whole),
        )

    def keep(self, cells: Sequence[int]) -> "State":
        """The state of some of the cells."""
        index = torch.tensor(cells, dtype=torch.int64, device=self.outcome.device)
        return self._map(lambda tensor: tensor if tensor.ndim == 0 else tensor[index])

    def part(self, first: int, end: int) -> "State":
        """The state of consecutive cells: views of this one, but for the number of the iteration.
        They may change while other parts are differentiated: `data` does not count as a change of
        the whole."""
        return self._map(
            lambda tensor: tensor.clone() if tensor.ndim == 0 else tensor[first:end].data
        )

    def clone(self) -> "State":
        return self._map(torch.clone)

    def copy_(self, other: "State") -> None:
        """Take over the other's contents in place (a captured graph holds on to these very
        tensors)."""
        for mine, theirs in zip(self._tensors().values(), other._tensors().values(), strict=True):
            mine.copy_(theirs)

    def arrays(self) -> dict[str, np.ndarray]:
        """As flat arrays for a checkpoint."""
        return {name: tensor.cpu().numpy() for name, tensor in self._tensors().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], device: torch.device) -> "State":
        """The inverse of `arrays`."""
        return cls._unflatten(
            {name: torch.as_tensor(array).to(device) for name, array in arrays.items()}
        )

    def check(self, fresh: "State") -> None:
        """Raises `Unreadable` unless this state, of a checkpoint, can go on where a `fresh` one of
        the same cells could begin."""
        mine = self._tensors()
        shapes, wanted = (
            {(n, t.shape, t.dtype) for n, t in state._tensors().items()} for state in (self, fresh)
        )
        if wrong := {name for name, *_ in shapes ^ wanted}:
            raise Unreadable(f"its tensors do not fit its cells: {', '.join(sorted(wrong))}")
        most = self.history.shape[1]
        for name, top in (
            ("iteration", most),
            ("stopped_at", most),
            ("steps", most),
            ("outcome", REPORTED),
        ):
            if ((mine[name] < 0) | (mine[name] > top)).any():
                raise Unreadable(f"its {name} is not within 0 and {top}")

    def _tensors(self) -> Tensors:
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
        """The inverse of `_tensors`."""
        parts: dict[str, Any] = {}
        for name, tensor in flat.items():
            group, _, key = name.partition("/")
            if key:
                parts.setdefault(group, {})[key] = tensor
            else:
                parts[group] = tensor
        return cls(**parts)
