"""The result of a cell whose training has stopped."""

from dataclasses import dataclass, field

import numpy as np

from dlmexp.core.training.metrics import Metrics
from dlmexp.core.training.program import Posterior

Curve = list[tuple[int, Metrics]]
"""Iterations at which a cell was evaluated during training, each with its test metrics."""


def curve_arrays(curve: Curve) -> dict[str, np.ndarray]:
    """Return the iterations of a learning curve ("evaluated_at") and its metrics, as arrays."""
    arrays = {"evaluated_at": np.array([iteration for iteration, _ in curve])}
    if not curve:
        return arrays
    _, first_metrics = curve[0]
    for name in first_metrics:
        arrays[f"test_{name}"] = np.array([metrics[name] for _, metrics in curve])
    return arrays


@dataclass
class FinishedFit:
    """Why a cell stopped, its metrics, posterior and curves.

    Attributes:
        cell: Its index in the batch that was started.
        stopped: "converged", "limit", "closed form", or why it failed.
        iterations: Iterations until it stopped.
        seconds: Its share of the training time: cells of a batch share the time of the batch,
            batches that train at the same time share that of the device.
        alone: Whether no other batch trained at the same time in this process.
        objective: The objective per row of every iteration.
        metrics: Mean metrics by part ("validation", "test") and name.
        reliability: Bins of the reliability diagram on test rows, of binary data.
        posterior: The posterior of this cell alone, on the CPU.
        failed: Whether training failed.
        curve: Its learning curve: test metrics during training.
        acceptance: The share of accepted proposals; None where nothing is drawn by rejection.
        block_acceptance: The same for each block of iterations (`state.ACCEPTANCE_BLOCK`).
        ends: The objective per row at the end of each start of L-BFGS, first that of the start that
            was not perturbed; infinite where it is not finite. This result is that of the lowest.
        evidence_gap: How much a larger M could gain at most, in nats per row; None if that is not
            known (`gap`).
        profile: The NLL on validation rows at a grid of recalibrating factors, if they are a fold.
        nll_error: By how much the NLL per row may be wrong; None if that was not checked
            (`metrics.nll_error`).
    """

    cell: int
    stopped: str
    iterations: int
    seconds: float
    alone: bool
    objective: np.ndarray
    metrics: dict[str, Metrics]
    reliability: dict[str, np.ndarray]
    posterior: Posterior
    failed: bool = False
    curve: Curve = field(default_factory=list)
    acceptance: float | None = None
    block_acceptance: np.ndarray = field(default_factory=lambda: np.zeros(0))
    evidence_gap: float | None = None
    profile: np.ndarray | None = None
    nll_error: float | None = None
    ends: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def hyperparameters(self) -> dict[str, np.ndarray]:
        """Return the constrained hyperparameters by name."""
        return {name: value[0].numpy() for name, value in self.posterior.hyper.items()}
