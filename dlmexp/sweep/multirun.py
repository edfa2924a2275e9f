"""`dlmexp run -m`: several jobs, launched by Hydra here or on a cluster."""

from collections.abc import Callable, Sequence
from typing import cast

from omegaconf import DictConfig, OmegaConf

from dlmexp.config import RunConfig
from dlmexp.sweep.run import device_of, execute, planned, work
from dlmexp.sweep.store import Store
from dlmexp.sweep.summary import summary


def multirun(jobs: Sequence[RunConfig], config_dirs: Sequence[str], launch: Callable[[], int]) -> int:
    """Check every job (configuration and data) before the first one starts; judge them by their records at the end."""
    checked = [work(cfg, config_dirs) for cfg in jobs]
    code = launch()
    if jobs[0].plan:
        return code
    verdicts = [
        summary(planned(found, Store(found.cfg.results), *device_of(found.cfg)), Store(found.cfg.results))
        for found in checked
    ]
    return max([code, *verdicts])


def job(cfg: DictConfig) -> int:
    """What Hydra calls for each job, in this process or on a node."""
    return execute(cast(RunConfig, OmegaConf.to_object(cfg)))
