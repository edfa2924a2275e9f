"""What figures and claims read from `conf/`: methods, datasets, experiments, as plain YAML without Hydra."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dlmexp.config import BetaConfig
from dlmexp.paths import conf_dir

PAPER = (
    "pol", "cadata", "sarcos", "song", "banana", "thyroid", "twonorm", "ringnorm", "airline", "abalone", "peds1_dir0",
    "peds1_dir1", "peds1_dir2",
)  # fmt: skip


def _load(path: Path) -> dict[str, Any]:
    # libyaml's parser, where it was built in, is ten times as fast: a quarter of a second over all of `conf/`.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or {}


@cache
def methods() -> dict[str, dict[str, Any]]:
    """Every method of `conf/method`: name -> objective, variant, select."""
    return {path.stem: _load(path) for path in sorted((conf_dir() / "method").glob("*.yaml"))}


@cache
def datasets() -> dict[str, dict[str, Any]]:
    """Every dataset of `conf/dataset`."""
    return {path.stem: _load(path) for path in sorted((conf_dir() / "dataset").glob("*.yaml"))}


@cache
def experiments() -> dict[str, dict[str, Any]]:
    """Every experiment of `conf/experiment`, each file as it stands (its defaults are not followed)."""
    return {path.stem: _load(path) for path in sorted((conf_dir() / "experiment").glob("*.yaml"))}


def stands_for(dataset: str) -> str | None:
    """The paper's dataset that `dataset` stands in for, or None if it is one of the paper's or a user's own."""
    return datasets().get(dataset, {}).get("stands_for")


def labelled(dataset: str) -> str:
    """The dataset's name, with what it stands in for."""
    of = stands_for(dataset)
    return f"{dataset} (stand-in for {family(of)})" if of else dataset


def family(dataset: str) -> str:
    """`peds1` for each of Peds1's directions (a stand-in for one serves for all), else the dataset itself."""
    return dataset.split("_dir")[0] if dataset.startswith("peds1_dir") else dataset


def stand_ins(dataset: str) -> list[str]:
    """The datasets that stand in for the paper's `dataset`."""
    return [name for name in datasets() if (of := stands_for(name)) and family(of) == family(dataset)]


def training_sizes(dataset: str) -> list[int]:
    """The rows `conf/dataset` trains on, shares of the pool worked out; empty where that needs the data itself."""
    sizes = datasets().get(dataset, {}).get("sizes")
    if not isinstance(sizes, list):  # an interpolation that only a composed config can work out
        return []
    if not any(isinstance(size, str) for size in sizes):
        return [int(size) for size in sizes]
    pool = training_pool(dataset)
    return [size_in_rows(size, pool) for size in sizes] if pool else []


@cache
def training_pool(dataset: str) -> int | None:
    """Rows there are to train on (SPEC 5), where `conf/dataset` says how many the dataset has."""
    from dlmexp.data.splits import split

    spec = datasets().get(dataset, {})
    rows = spec.get("rows")
    return len(split(rows, spec["split"], seed=0).train_pool) if isinstance(rows, int) else None


def size_in_rows(size: int | str, pool: int) -> int:
    """`'5%'` of the pool, or a number of rows, as rows."""
    from dlmexp.data.splits import resolve_size

    return resolve_size(size, pool)


def repetitions(experiment: str) -> int:
    """How many seeds an experiment asks for; five unless its file says otherwise."""
    return len(experiments().get(experiment, {}).get("seeds", range(5)))


@cache
def beta_rule(experiment: str) -> str:
    """The betas that an experiment selects from, in the words of `BetaConfig.rule`; the paper's grid by default."""
    spec = experiments().get(experiment, {})
    group = next((d["override /beta"] for d in spec.get("defaults", ()) if "override /beta" in d), "grid")
    return BetaConfig(**(_load(conf_dir() / "beta" / f"{group}.yaml") | spec.get("beta", {}))).rule


def run_command(experiment: str, dataset: str) -> str:
    """What computes the cells of `experiment` on `dataset`, in as few words as `conf/` allows."""
    if f"{experiment}-{dataset}" in experiments():
        return f"dlmexp run experiment={experiment}-{dataset}"
    only = experiments().get(experiment, {}).get("defaults", [])
    chosen = next((d["override /dataset"] for d in only if isinstance(d, dict) and "override /dataset" in d), [])
    return f"dlmexp run experiment={experiment}" + ("" if chosen == [dataset] else f" dataset={dataset}")
