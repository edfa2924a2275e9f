"""A batch in training: what a checkpoint holds, and what a resumed run starts from."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool
from torch import Tensor

from dlmexp.core.training.finished import Curve
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import REPORTED, RUNNING, State


@dataclass
class Training:
    """The cells of a batch that have not left it.

    Attributes:
        program: The objective and the data of the cells.
        state: Their parameters, and everything else that changes.
        cells: Their indices in the batch that was started.
        seconds: The training time of each cell so far.
        curves: The learning curve of each cell so far.
        alone: Whether no other batch has trained at the same time.
        iteration: The number of iterations that were made.
    """

    program: Program
    state: State
    cells: list[int]
    seconds: list[float]
    curves: list[Curve]
    alone: bool = True
    iteration: int = field(init=False)
    _outcome: Tensor = field(init=False)
    """A copy of `state.outcome` that the processor reads without waiting for the device."""

    def __post_init__(self) -> None:
        self._mirror_state()

    @classmethod
    def start(cls, program: Program, settings: Settings) -> "Training":
        """Return the training of all cells of a program, from their initial values."""
        state = State.fresh(program.initial(), settings)
        B = len(state.outcome)
        return cls(program, state, list(range(B)), [0.0] * B, [[] for _ in range(B)])

    @property
    def on_gpu(self) -> bool:
        """Return whether the batch trains on a GPU."""
        return self.state.outcome.is_cuda

    def fetch(self) -> None:
        """Copy the outcomes from the device, once it has done its work up to here.

        On a GPU this does not wait: the copy is there when the GPU is idle.
        """
        self._outcome.copy_(self.state.outcome, non_blocking=True)

    def live(self) -> Bool[np.ndarray, "B"]:
        """Return which cells still run, as of the last `fetch`."""
        return (self._outcome == RUNNING).numpy()

    def unreported(self) -> Bool[np.ndarray, "B"]:
        """Return which cells are not reported yet: they still run, or have stopped."""
        return (self._outcome != REPORTED).numpy()

    def mark_reported(self, indices: list[int]) -> None:
        """Mark cells as reported."""
        self.state.outcome[indices] = REPORTED
        self._outcome[indices] = REPORTED

    def part(self, indices: list[int]) -> tuple[Program, State]:
        """Return program and state of some of the cells."""
        if len(indices) == len(self.cells):
            return self.program, self.state
        return self.program.keep(indices), self.state.keep(indices)

    def keep(self, indices: list[int]) -> None:
        """Continue with some of the cells."""
        self.program, self.state = self.part(indices)
        self._mirror_state()
        self.cells = [self.cells[i] for i in indices]
        self.seconds = [self.seconds[i] for i in indices]
        self.curves = [self.curves[i] for i in indices]

    def share_time(self, seconds: float, live: Bool[np.ndarray, "B"], batches_at_once: int) -> None:
        """Share the seconds of some iterations equally between the cells that were live in them.

        Batches that train at the same time are taken to share the device equally.
        """
        self.alone &= batches_at_once == 1
        share = seconds / (batches_at_once * max(1, int(live.sum())))
        for i in np.flatnonzero(live):
            self.seconds[i] += share

    def _mirror_state(self) -> None:
        """Read the iteration, and copy the outcomes to the host (on a GPU: into pinned memory)."""
        self.iteration = int(self.state.iteration)
        outcome = self.state.outcome.cpu()
        self._outcome = outcome.pin_memory() if self.on_gpu else outcome
