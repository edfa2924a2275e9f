"""`dlmexp run -m`: several jobs, launched by Hydra here or on a cluster."""

import os
from collections.abc import Callable, Sequence

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dlmexp.config import RunConfig
from dlmexp.sweep.compose import compose
from dlmexp.sweep.run import device_of, execute, planned, work
from dlmexp.sweep.store import Store
from dlmexp.sweep.summary import summary

STOPPED = 128  # exit codes from here on mean that a signal asked to stop
CONFIG_DIRS = "DLMEXP_CONFIG_DIRS"  # tells jobs in other processes of a user's own conf folders


def multirun(jobs: Sequence[RunConfig], config_dirs: Sequence[str], launch: Callable[[], int]) -> int:
    """Check every job (configuration and data) before the first one starts; judge them by their records at the end."""
    checked = [work(cfg, config_dirs) for cfg in jobs]
    os.environ[CONFIG_DIRS] = os.pathsep.join(os.path.abspath(folder) for folder in config_dirs)
    codes = [launch()]
    for found in checked if not jobs[0].plan else ():
        store = Store(found.cfg.results)
        codes.append(summary(planned(found, store, *device_of(found.cfg)), store))
    return max(codes)


def job(cfg: DictConfig) -> int:
    """What Hydra calls for each job, in this process or on a node: the overrides it was given are composed as ours."""
    folders = [folder for folder in os.environ.get(CONFIG_DIRS, "").split(os.pathsep) if folder]
    code = execute(compose(list(HydraConfig.get().overrides.task), folders), folders)
    if code >= STOPPED:
        raise SystemExit(code)  # else Hydra would begin the next job
    return code
