"""What is refused before any data is read or anything is written."""

import inspect
import math
import re
from pathlib import Path

from dlmexp.catalogue import methods
from dlmexp.config import DatasetConfig, RunConfig
from dlmexp.console import budget_seconds
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.spec import as_spec, dataset_names, read_spec
from dlmexp.errors import UserError, nearest

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
REGRESSION_ONLY = ("sq_dlm", "fitc")
LARGEST_SEED = 2**31 - 1


def check(cfg: RunConfig) -> None:
    """Raise a sentence about the first thing that can't be run as it was typed."""
    _one_of("measure", cfg.measure, ["fit", "gradient"])
    _one_of("dtype", cfg.dtype, ["float64", "float32"])
    if not DEVICE.fullmatch(cfg.device):
        raise UserError(f"device={cfg.device}: give auto, cpu, cuda or cuda:0")
    if cfg.evaluate not in ("end", "epoch") and not (cfg.evaluate.isdigit() and int(cfg.evaluate) > 0):
        raise UserError(f"evaluate={cfg.evaluate}: give 'end', 'epoch' or a number of iterations")
    for name in cfg.parameterisation:
        _one_of("parameterisation", name, ["whitened", "unwhitened"])
    budget_seconds(cfg.budget)
    if Path(cfg.results).exists() and not Path(cfg.results).is_dir():
        raise UserError(f"results={cfg.results}: that is a file; name a folder")
    _not_empty(cfg)
    if any(not 0 <= seed <= LARGEST_SEED for seed in cfg.seeds):
        raise UserError(f"seeds={list(cfg.seeds)}: seeds are 0, 1, 2, ... up to {LARGEST_SEED}")
    for name, value in _positive(cfg).items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{name}={value}: give a number > 0")
    for name, dataset in cfg.dataset.items():
        _one_of(f"dataset.{name}.mean", dataset.mean, ["zero", "constant"])
        _earned(name, dataset)
    _methods(cfg)
    _registered(cfg)


def _not_empty(cfg: RunConfig) -> None:
    for what in ("method", "seeds", "parameterisation", "estimator"):
        if not getattr(cfg, what):
            raise UserError(f"{what}=[]: the grid is empty; name at least one")
    if cfg.sizes is not None and not cfg.sizes:
        raise UserError("sizes=[]: the grid is empty; name at least one size, or leave it out for the dataset's own")
    if cfg.beta.values is not None and not cfg.beta.values:
        raise UserError("beta.values=[]: the grid is empty; name at least one beta")
    for name, dataset in cfg.dataset.items():
        if not (cfg.sizes or dataset.sizes):
            raise UserError(f"dataset '{name}' has no sizes: give some, e.g. sizes=[100,'50%']")


def _positive(cfg: RunConfig) -> dict[str, float | None]:
    """Settings that are numbers of something, or speeds."""
    found: dict[str, float | None] = {
        "batch_cells": cfg.batch_cells, "checkpoint_seconds": cfg.checkpoint_seconds, "workers": cfg.workers
    }  # fmt: skip
    for name, dataset in cfg.dataset.items():
        found |= {f"dataset.{name}.M": dataset.M, f"dataset.{name}.test_cap": dataset.test_cap}
    for name, training in cfg.training.items():
        for what in ("lr", "minibatch", "minibatch_lr", "ups_lr", "window", "max_iterations", "epochs"):
            found[f"training.{name}.{what}"] = getattr(training, what)
    for name, estimator in cfg.estimator.items():
        found |= {f"estimator.{name}.{what}": getattr(estimator, what) for what in ("nu", "nodes")}
        found |= {f"estimator.{name}.samples": samples for samples in estimator.samples}
    return found


def _earned(key: str, dataset: DatasetConfig) -> None:
    """A name that we ship belongs to the data we ship it for: results under it are taken for that data."""
    if not PLAIN_NAME.fullmatch(dataset.name):
        raise UserError(f"dataset name '{dataset.name}': it names a folder; choose letters, digits, '-', '_', '.'")
    if dataset.name not in dataset_names():
        return
    given, ours = as_spec(dataset), read_spec(dataset.name)
    source = ("loader", "files") if loader_of(ours).drawn else ("loader", "files", "options")
    if key != dataset.name or any(getattr(given, part) != getattr(ours, part) for part in source):
        raise UserError(f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name")


def _methods(cfg: RunConfig) -> None:
    for name, method in cfg.method.items():
        _one_of(f"method.{name}.variant", method.variant, ["joint", "fixed"])
        for ours, spec in methods().items():
            if name not in methods() and (method.objective, method.variant) == (spec["objective"], spec["variant"]):
                raise UserError(
                    f"method {name}: {method.objective}, {method.variant} is our {ours}, and its records will say so: "
                    f"use method={ours} (beta=list beta.values=[1] sets beta)"
                )
        for dataset in cfg.dataset.values():
            if method.objective in REGRESSION_ONLY and dataset.task != "regression":
                fitting = [name for name, m in cfg.method.items() if m.objective not in REGRESSION_ONLY]
                raise UserError(
                    f"method {name} is for regression and {dataset.name} is {dataset.task} data: choose among "
                    f"{', '.join(fitting or ['elbo', 'beta_elbo', 'joint_log_dlm', 'fixed_log_dlm'])}"
                )


def _registered(cfg: RunConfig) -> None:
    """Names that reach us from a user's own YAML files, and the parameters that an estimator has."""
    from dlmexp.estimators import ESTIMATORS
    from dlmexp.estimators.samplers import sampler_named
    from dlmexp.gp.kernels import KERNELS
    from dlmexp.gp.likelihoods import LIKELIHOODS
    from dlmexp.objectives import OBJECTIVES

    for dataset in cfg.dataset.values():
        _one_of("kernel", dataset.kernel, list(KERNELS))
        _one_of("likelihood", dataset.likelihood, list(LIKELIHOODS))
    for method in cfg.method.values():
        _one_of("objective", method.objective, list(OBJECTIVES))
    for name, estimator in cfg.estimator.items():
        _one_of("estimator", name, list(ESTIMATORS))
        takes = inspect.signature(ESTIMATORS[name]).parameters
        for what in ("samples", "nu", "nodes", "sampler"):
            if getattr(estimator, what) and what not in takes:
                raise UserError(f"estimator.{name}.{what}: {name} takes {', '.join(sorted(takes)) or 'no parameters'}")
        if "samples" in takes and not estimator.samples:
            raise UserError(f"estimator.{name}.samples=[]: give at least one number of samples")
        if estimator.sampler:
            sampler_named(estimator.sampler)


def _one_of(what: str, given: str, valid: list[str]) -> None:
    if given not in valid:
        raise UserError(f"{what}={given}: {nearest(given, valid)}")
