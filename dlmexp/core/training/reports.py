"""The results of cells that have stopped."""

from collections.abc import Iterator

import numpy as np

from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.gap import evidence_gaps
from dlmexp.core.training.metrics import evaluate, nll_error
from dlmexp.core.training.state import ACCEPTANCE_BLOCK, FAILURE_REASONS, STOP_REASONS


def report_stopped(
    training: Training, indices: list[int], calibration: bool
) -> Iterator[FinishedFit | None]:
    """Evaluate cells that have stopped, and yield their results; yield None while a GPU is busy.

    Args:
        training: The batch.
        indices: The positions of the stopped cells in the batch.
        calibration: Whether calibration is measured too.
    """
    program, state = training.subset(indices)
    posterior = program.posterior(state.values, state.jitter)
    evaluation = evaluate(program, posterior, calibration)
    errors = nll_error(program, posterior)
    gaps = evidence_gaps(program, posterior)
    if training.on_gpu:
        yield None
    evaluations = evaluation.read()
    profiles = evaluation.profiles()
    posteriors = posterior.cells()
    outcomes = state.outcome.tolist()
    stopped_at = state.stopped_at.tolist()
    history = state.history[:, : max(stopped_at)].cpu().numpy()
    acceptance_sums = state.acceptance.cpu().numpy()
    for i, index in enumerate(indices):
        metrics, reliability = evaluations[i]
        acceptance, block_acceptance = acceptance_rates(acceptance_sums[i], stopped_at[i])
        yield FinishedFit(
            cell=training.cells[index],
            stopped=(STOP_REASONS | FAILURE_REASONS)[outcomes[i]],
            iterations=stopped_at[i],
            seconds=training.seconds[index],
            alone=training.alone,
            objective=history[i, : stopped_at[i]].copy(),
            metrics=metrics,
            reliability=reliability,
            posterior=posteriors[i],
            failed=outcomes[i] in FAILURE_REASONS,
            curve=training.curves[index],
            acceptance=acceptance,
            block_acceptance=block_acceptance,
            evidence_gap=gaps[i],
            profile=profiles[i],
            nll_error=None if errors is None else float(errors[i]),
        )


def acceptance_rates(sums: np.ndarray, iterations: int) -> tuple[float | None, np.ndarray]:
    """Return the mean acceptance rate of all iterations, and of each block of iterations.

    The first is None where the estimator does not draw by rejection: then all sums are zero.

    Args:
        sums: By block, the sum of the rates of its iterations (`State.acceptance`).
        iterations: The number of iterations that were made; the last block may be shorter.
    """
    starts = np.arange(0, iterations, ACCEPTANCE_BLOCK)
    block_sizes = np.minimum(ACCEPTANCE_BLOCK, iterations - starts)
    mean = float(sums.sum()) / iterations if sums.any() else None
    return mean, sums[: len(starts)] / block_sizes
