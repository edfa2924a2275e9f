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
        cell: The index of the cell in the batch as it was started.
        stopped: "converged", "limit", "closed form", or why it failed.
        iterations: The number of iterations until the cell stopped.
        seconds: The share of the training time that is counted for the cell. Batches that train at
            the same time share the time of the device; cells share the time of their batch.
        alone: Whether no other batch trained at the same time in this process.
        objective: The objective per row, at every iteration.
        metrics: Mean metrics by part ("validation", "test") and name.
        reliability: For binary data, the bins of the reliability diagram on the test rows.
        posterior: The posterior of the cell, as a batch of one cell on the CPU.
        failed: Whether training failed.
        curve: The learning curve: test metrics during training.
        acceptance: The share of proposals that the rejection sampler accepted; None if the
            estimator has no such sampler.
        block_acceptance: The same share in each block of iterations (`state.ACCEPTANCE_BLOCK`).
        ends: The objective per row at the end of each start of L-BFGS; infinite where it is not
            finite. Start 0 is the one that was not perturbed. All other fields describe the start
            with the lowest end.
        evidence_gap: How much a larger M could gain at most, in nats per row; None if the bounds
            are not known (`gap`).
        profile: In cross-validation, the NLL of the held-out rows at a grid of recalibrating
            factors (`recalibration.loss_profile`).
        nll_error: By how much the NLL per row may be wrong; None if it was not checked
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
