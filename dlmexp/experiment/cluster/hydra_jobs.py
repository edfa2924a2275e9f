"""Jobs that Hydra itself starts, with the sweepers, launchers and callbacks of its plugins.

A job trains a block of cells as `dlmexp run` does, and returns the number that a sweeper minimises:
the mean validation metric of the selected fits.
"""

import math
from collections.abc import Sequence

import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.experiment.plan.compose import HydraSettings, compose, hydra_initialized
from dlmexp.experiment.plan.overrides import expand_shorthand, message_of_hydra, parse_overrides
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import FAILURE
from dlmexp.experiment.running.run import execute_sweep
from dlmexp.experiment.running.summary import summarize
from dlmexp.experiment.running.sweep import Sweep, prepare_sweep


def run_by_hydra(overrides: Sequence[str], settings: HydraSettings, multirun: bool) -> int:
    """Let Hydra run one job, or with `multirun` the jobs of a sweep, and return the exit code."""
    root = _results_folder(overrides)
    if settings.has_own_launcher:
        status_command = with_results_option("dlmexp status", root)
        print(
            f"{settings.launcher} starts the jobs: none of them is submitted again, and "
            f"`{status_command}` can show only their records",
            flush=True,
        )
    _, failed_before = Store(root).keys()
    with hydra_initialized() as hydra:
        start = hydra.multirun if multirun else hydra.run
        try:
            start("run", train_block, list(overrides), with_log_configuration=False)
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(message_of_hydra(error)) from error
    _, failed = Store(root).keys()
    return FAILURE if failed - failed_before else 0


def _results_folder(overrides: Sequence[str]) -> str:
    """Return the results folder that the overrides name, or the default."""
    for override in parse_overrides(overrides):
        if override.key_or_group == "results":
            return str(override.value())
    return "results"


def train_block(composed: DictConfig) -> float:
    """Train the block of a job, and return the mean validation metric of its selected fits.

    Args:
        composed: Hydra's config of the job, which is not used: Hydra keeps the overrides of the
            job in a global object, and they are composed again with all checks.

    Raises:
        UserError: The settings can't be used, or the job was stopped.
    """
    words = expand_shorthand(list(HydraConfig.get().overrides.task))
    sweep = prepare_sweep(compose(words))
    code = execute_sweep(sweep, words)
    if code > FAILURE:  # the budget was spent, or a signal received
        raise UserError("a job was stopped; the same command goes on from there")
    return validation_metric(sweep)


def validation_metric(sweep: Sweep) -> float:
    """Return the mean of the metrics that selected the fits; NaN if no fit is selected."""
    selected = summarize(sweep.candidates, Store(sweep.cfg.results)).selected
    values: list[float] = []
    for metric, fits in selected.groupby("selected_by"):
        values += fits[f"validation_{metric}"].tolist()
    return float(np.mean(values)) if values else math.nan
