"""A batch in training: everything that a checkpoint holds and a resumed run needs."""

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
        state: The parameters of the cells, and everything else that changes in training.
        cells: The index of each cell in the batch as it was started.
        seconds: The training time of each cell so far.
        curves: The learning curve of each cell so far.
        alone: Whether no other batch of this process has trained at the same time.
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
    """A copy of `state.outcome` on the host, which can be read without waiting for the device."""

    def __post_init__(self) -> None:
        self._mirror_state()

    @classmethod
    def start(cls, program: Program, settings: Settings) -> "Training":
        """Return the training of all cells of a program, from their initial values."""
        state = State.fresh(program.initial(), settings)
        B = len(state.outcome)
        return cls(
            program=program,
            state=state,
            cells=list(range(B)),
            seconds=[0.0] * B,
            curves=[[] for _ in range(B)],
        )

    @property
    def on_gpu(self) -> bool:
        """Return whether the batch trains on a GPU."""
        return self.state.outcome.is_cuda

    def fetch(self) -> None:
        """Copy the outcomes to the host, once the device has done its work up to here.

        On a GPU this call does not wait: the copy is complete when the GPU is idle.
        """
        self._outcome.copy_(self.state.outcome, non_blocking=True)

    def live(self) -> Bool[np.ndarray, "B"]:
        """Return which cells still run, as of the last `fetch`."""
        return (self._outcome == RUNNING).numpy()

    def unreported(self) -> Bool[np.ndarray, "B"]:
        """Return which cells are not reported yet, whether they still run or have stopped."""
        return (self._outcome != REPORTED).numpy()

    def mark_reported(self, indices: list[int]) -> None:
        """Mark these cells as reported."""
        self.state.outcome[indices] = REPORTED
        self._outcome[indices] = REPORTED

    def subset(self, indices: list[int]) -> tuple[Program, State]:
        """Return program and state of these cells."""
        if len(indices) == len(self.cells):
            return self.program, self.state
        return self.program.keep(indices), self.state.keep(indices)

    def keep(self, indices: list[int]) -> None:
        """Continue with these cells alone."""
        self.program, self.state = self.subset(indices)
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
        """Read the iteration, and copy the outcomes to the host.

        A GPU can copy into pinned memory without waiting (`fetch`).
        """
        self.iteration = int(self.state.iteration)
        outcome = self.state.outcome.cpu()
        self._outcome = outcome.pin_memory() if self.on_gpu else outcome
