"""What a cell leaves when its training has stopped."""

from dataclasses import dataclass, field

import numpy as np

from dlmexp.core.training.metrics import Metrics
from dlmexp.core.training.program import Posterior

Curve = list[tuple[int, Metrics]]
"""The iterations of evaluations on the way, each with the test metrics there."""


def curve_arrays(curve: Curve) -> dict[str, np.ndarray]:
    """Return the iterations of a learning curve ("evaluated_at") and its metrics, as arrays."""
    arrays = {"evaluated_at": np.array([iteration for iteration, _ in curve])}
    names = curve[0][1] if curve else ()
    for name in names:
        arrays[f"test_{name}"] = np.array([metrics[name] for _, metrics in curve])
    return arrays


@dataclass
class FinishedFit:
    """Why a cell stopped, its metrics, posterior and curves.

    Attributes:
        cell: Its index in the batch that was started.
        stopped: "converged", "limit", "closed form", or why it failed.
        iterations: Iterations until it stopped.
        seconds: Its share of the time of its batch, which is a share of the time of the device.
        alone: No other batch trained at the same time in this process.
        objective: The objective per row of every iteration.
        metrics: Mean metrics by part ("validation", "test") and name.
        reliability: Bins of the reliability diagram on test rows, of binary data.
        posterior: Of this cell alone, on the CPU.
        failed: Whether training failed.
        curve: Test metrics on the way.
        acceptance: The share of accepted proposals; None where nothing is drawn by rejection.
        block_acceptance: The same by blocks of iterations (`state.BLOCK`).
        ends: The objective per row where each start of L-BFGS ended, the start that was not
            perturbed first; infinite where it is not finite. The least of them is the fit.
        evidence_gap: How much a larger M could gain at most, in nats per row; None: not known
            (`gap`).
        profile: The NLL on validation rows at a grid of recalibrating factors, of a fold.
        nll_error: By how much the NLL per row may be wrong; None: not checked (`metrics`).
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
