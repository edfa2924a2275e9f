"""What is refused before any data is read or anything is written."""

import math
import re
from itertools import product
from pathlib import Path
from typing import Any

from dlmexp.catalogue import methods
from dlmexp.config import (
    CRITERIA,
    INDUCING,
    KEEP,
    MINIBATCH_ROWS,
    PARAMETERISATIONS,
    SELECTIONS,
    DatasetConfig,
    RunConfig,
    TrainingConfig,
)
from dlmexp.console import budget_seconds
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.spec import as_spec, dataset_names, read_spec
from dlmexp.errors import UserError, nearest
from dlmexp.estimators import ESTIMATORS
from dlmexp.gp.kernels import KERNELS, kernel_named
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.shorthand import KINDS

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a folder in the results
DEVICES = ("auto", "cpu", "cuda")
METHOD = ("objective", "variant", "select")  # what a method is
NUMBERS = (  # of TrainingConfig, all > 0 where they are given
    "lr", "final_lr", "decay", "epsilon", "resolution", "minibatch", "minibatch_lr", "window", "max_iterations",
    "epochs", "noise_floor",
)  # fmt: skip
LARGEST_SEED = 2**31 - 1
MOST_SAMPLES = 1_000_000  # of an estimator


def check(cfg: RunConfig) -> None:
    """Raise a sentence about the first thing that can't be run as it was typed."""
    _one_of("measure", cfg.measure, ["fit", "gradient"])
    _one_of("dtype", cfg.dtype, ["float64", "float32"])
    check_device(cfg.device)
    if cfg.evaluate not in ("end", "epoch") and not (cfg.evaluate.isdigit() and int(cfg.evaluate) > 0):
        raise UserError(f"evaluate={cfg.evaluate}: give 'end', 'epoch' or a number of iterations")
    _one_of("selection", cfg.selection, list(SELECTIONS))
    _one_of("keep", cfg.keep, list(KEEP))
    if cfg.refit and cfg.keep == "none":
        raise UserError("refit=true fits cells again to keep their models: give keep=selected or keep=all with it")
    for name in cfg.parameterisation or ():
        if cfg.parameterisation != ["all"]:
            _one_of("parameterisation", name, list(PARAMETERISATIONS))
    for name in KINDS:
        if name not in cfg.training:
            raise UserError(f"training.{name} was deleted: {name} data is trained by it")
    for name, training in cfg.training.items():
        _one_of("training", name, list(KINDS))
        _training(f"training.{name}", training)
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


def check_device(device: str) -> None:
    """`cuda` is the first GPU that CUDA sees: all that trains, or measures time and memory, is on that one."""
    if re.fullmatch(r"cuda:\d+", device):
        number = device.removeprefix("cuda:")
        raise UserError(f"device={device}: give device=cuda, with CUDA_VISIBLE_DEVICES={number} in the environment")
    if device not in DEVICES:
        raise UserError(f"device={device}: give {', '.join(DEVICES[:-1])} or {DEVICES[-1]}")


def _not_empty(cfg: RunConfig) -> None:
    for what in ("method", "seeds", "parameterisation", "estimator"):
        if not getattr(cfg, what) and getattr(cfg, what) is not None:
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
        "batch_cells": cfg.batch_cells, "checkpoint_seconds": cfg.checkpoint_seconds, "workers": cfg.workers,
        "M": cfg.M, "largest": cfg.largest, "init.lengthscale": cfg.init.lengthscale,
        "init.outputscale": cfg.init.outputscale, "init.noise": cfg.init.noise,
    }  # fmt: skip
    for name, dataset in cfg.dataset.items():
        found |= {f"dataset.{name}.M": dataset.M, f"dataset.{name}.test_cap": dataset.test_cap}
    for name, training in cfg.training.items():
        for what in NUMBERS:
            found[f"training.{name}.{what}"] = getattr(training, what)
        found |= {f"training.{name}.estimator_lr.{which}": lr for which, lr in training.estimator_lr.items()}
    return found


def _training(what: str, training: TrainingConfig) -> None:
    """Names among the settings of one kind of data, and settings that need one another."""
    _one_of(f"{what}.criterion", training.criterion, list(CRITERIA))
    _one_of(f"{what}.inducing", training.inducing, list(INDUCING))
    _one_of(f"{what}.minibatch_rows", training.minibatch_rows, list(MINIBATCH_ROWS))
    if not training.parameterisation:
        raise UserError(f"{what}.parameterisation=[]: name at least one of {', '.join(PARAMETERISATIONS)}")
    for name in training.parameterisation:
        _one_of(f"{what}.parameterisation", name, list(PARAMETERISATIONS))
    if (training.final_lr is None) != (training.decay is None):
        raise UserError(f"{what}: final_lr and decay belong together; give both, or null for both")
    if training.decay is not None and not training.has_room:
        shorter = f", or {what}.decay={training.longest_decay} at most" if training.longest_decay > 0 else ""
        raise UserError(
            f"{what}.max_iterations={training.max_iterations}: it leaves no room for the decay of {training.decay} "
            f"iterations and the stopping rule's window after it; give at least "
            f"{training.decay + (training.window or 0)}{shorter}"
        )
    starts = {f"{what}.initial": training.initial}
    for name, method in training.by_method.items():
        starts[f"{what}.by_method.{name}.initial"] = method.initial
        if method.variant is not None:
            _one_of(f"{what}.by_method.{name}.variant", method.variant, ["joint", "fixed"])
    for where, values in starts.items():
        for name, value in values.items():
            if not math.isfinite(value) or (value <= 0 and name in ("lengthscale", "outputscale", "noise")):
                raise UserError(f"{where}.{name}={value}: give a number > 0")


def _earned(key: str, dataset: DatasetConfig) -> None:
    """A name that we ship belongs to the data we ship it for: results under it are taken for that data."""
    if not PLAIN_NAME.fullmatch(dataset.name):
        raise UserError(
            f"dataset name '{dataset.name[:80]}': it names a folder; choose at most 100 letters, digits, '-', '_', '.'"
        )
    if dataset.name not in dataset_names():
        return
    given, ours = as_spec(dataset), read_spec(dataset.name)
    source = ("loader", "files") if loader_of(ours).drawn else ("loader", "files", "options")
    if key != dataset.name or any(getattr(given, part) != getattr(ours, part) for part in source):
        raise UserError(f"the name '{dataset.name}' belongs to a dataset of ours: give your data another name")


def _methods(cfg: RunConfig) -> None:
    for name, method in cfg.method.items():
        _one_of(f"method.{name}.variant", method.variant, ["joint", "fixed"])
        _one_of(f"method.{name}.objective", method.objective, OBJECTIVES.names())
        ours = methods().get(name)
        if ours and (method.objective, method.variant, method.select) != tuple(ours[part] for part in METHOD):
            raise UserError(f"the name '{name}' belongs to a method of ours: give yours another, in conf/method")


def _registered(cfg: RunConfig) -> None:
    """Names that come from YAML files, which may be a user's own, and what goes with what."""
    for dataset in cfg.dataset.values():
        if "." not in dataset.kernel:
            _one_of("kernel", dataset.kernel, KERNELS.names())
        kernel_named(dataset.kernel, typed=True)
        _one_of("likelihood", dataset.likelihood, LIKELIHOODS.names())
        likelihood = LIKELIHOODS[dataset.likelihood]
        if likelihood.task != dataset.task:
            raise UserError(
                f"dataset.{dataset.name}.likelihood={dataset.likelihood} is for {likelihood.task} data and the task of "
                f"{dataset.name} is {dataset.task}"
            )
    for name in cfg.method:
        for dataset in cfg.dataset.values():
            _fitting(cfg, name, dataset)
    for name, options in cfg.estimator.items():
        _one_of("estimator", name, ESTIMATORS.names())
        _options(name, options)
        if any(OBJECTIVES[method.objective].takes_estimator for method in cfg.method.values()):
            for dataset in cfg.dataset.values():
                for values in product(*(each if isinstance(each, list) else [each] for each in options.values())):
                    made = ESTIMATORS[name](**dict(zip(options, values, strict=True)))
                    made.check(LIKELIHOODS[dataset.likelihood])


def _fitting(cfg: RunConfig, name: str, dataset: DatasetConfig) -> None:
    """Refuse a method whose objective needs Gaussian noise on other data."""
    likelihood = LIKELIHOODS[dataset.likelihood]
    if OBJECTIVES[cfg.method[name].objective].fits(likelihood):
        return
    fitting = [n for n, spec in {**methods(), **cfg.method}.items() if OBJECTIVES[_objective(spec)].fits(likelihood)]
    raise UserError(
        f"method {name} is for regression and {dataset.name} is {dataset.task} data: choose among {', '.join(fitting)}"
    )


def _objective(spec: Any) -> str:
    return spec["objective"] if isinstance(spec, dict) else spec.objective


def _options(name: str, given: dict[str, Any]) -> None:
    """Options that an estimator has, with values of their type; a list of values is swept."""
    known = ESTIMATORS[name].options()
    for option, value in given.items():
        what = f"estimator.{name}.{option}"
        if option not in known:
            raise UserError(f"{what}: {name} takes {', '.join(sorted(known)) or 'no options'}")
        if value == []:
            raise UserError(f"{what}=[]: give at least one value")
        for one in value if isinstance(value, list) else [value]:
            _typed(what, one, known[option].type)
    for option, about in known.items():
        if about.required and given.get(option) is None:
            raise UserError(f"estimator.{name}.{option}: give at least one value")


def _typed(what: str, value: Any, kind: type) -> None:
    fits = {int: isinstance(value, int), float: isinstance(value, int | float), str: isinstance(value, str)}
    if isinstance(value, bool) != (kind is bool) or not fits.get(kind, True):
        raise UserError(f"{what}={value}: give {_KINDS.get(kind, 'another value')}")
    if kind in (int, float) and not 0 < value < math.inf:
        raise UserError(f"{what}={value}: give a number > 0")
    if kind is int and value > MOST_SAMPLES:
        raise UserError(f"{what}={value}: give at most {MOST_SAMPLES}")


_KINDS = {int: "a whole number", float: "a number", str: "a name", bool: "true or false"}


def _one_of(what: str, given: str, valid: list[str]) -> None:
    if given not in valid:
        raise UserError(f"{what}={given}: {nearest(given, valid)}")
