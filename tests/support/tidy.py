"""A tidy table made of rows given by hand, and the published ones, for tests of what reads them."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.common import catalogue
from dlmexp.experiment.plan.cell import Changes, Setting
from dlmexp.experiment.records.table import tidy

TASKS: dict[str, str] = dict.fromkeys(
    ("pol", "cadata", "sarcos", "song", "sarcos_test"), "regression"
)
TASKS |= dict.fromkeys(("abalone", "peds1_left", "peds1_dir0", "peds1_dir1", "peds1_dir2"), "count")
STANDS_FOR = {"sarcos_test": "sarcos", "peds1_left": "peds1_dir1", "flights": "airline"}
ROW: dict[str, Any] = {
    "dataset": "banana", "n": 100, "seed": 0, "method": "elbo", "estimator": "exact", "samples": np.nan,
    "parameterisation": "whitened", "role": "fit", "protocol": "paper", "changes": {}, "evaluate": "end",
    "data": "d", "split": "s", "experiment": "made-up", "beta": 1.0, "missing": 0, "failed": 0, "status": "done",
    "objective": "elbo", "variant": "joint", "form": "explicit", "kernel": "rbf", "M": 10, "lr": 0.1,
    "minibatch": np.nan, "window": 20.0, "max_iterations": 3000.0, "epochs": np.nan, "sampler": None,
    "converged": True, "stopped": "converged", "seconds": 1.0, "iterations": 100.0, "alone": True,
    "acceptance": np.nan, "bias": np.nan, "bias_quadrature": np.nan, "validation_nll": np.nan, "test_nll": np.nan,
    "device": "cpu", "host": "h", "reason": None, "time": "2000-01-01T00:00:00Z", "commit": "abc",
    "command": "dlmexp run experiment=made-up", "version": "0", "python": "3", "torch": "2", "gpytorch": "1",
    "noise_floor": np.nan, "base": None, "norm2_G": np.nan, "selection": "reported",
}  # fmt: skip
GROUP = [
    "dataset", "n", "seed", "method", "estimator", "samples", "role", "parameterisation", "protocol", "changes", "M",
    "evaluate", "data", "split", "noise_floor",
]  # fmt: skip
METHODS = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
BETAS = (10.0, 1.0, 0.1)
RESULTS = Path(__file__).parents[2] / "results"


@cache
def published(folder: str) -> Any:
    """The results in `results/FOLDER` of this repository, read once by all tests of a process."""
    from dlmexp.experiment.records.results import ResultsFolder

    return ResultsFolder(RESULTS / folder)


class Made:
    """Stands in for `dlmexp.experiment.records.results.ResultsFolder`."""

    root = Path("results")

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        arrays: dict[str, dict[str, Any]] | None = None,
        baselines: Iterable[dict[str, Any]] = (),
    ):
        from dlmexp.experiment.records.baselines import COLUMNS

        self.baselines = pd.DataFrame(list(baselines), columns=list(COLUMNS))
        full = []
        self.changes: dict[str, Changes] = {}
        for i, row in enumerate(rows):
            dataset = row.get("dataset", "banana")
            facts = {"task": TASKS.get(dataset, "binary"), "stands_for": STANDS_FOR.get(dataset)}
            values = ROW | facts | {"key": f"key{i}", "size": str(row.get("n", 100))} | row
            changes: Any = values["changes"]
            text = Setting("paper", changes).text
            self.changes[text] = changes
            full.append(values | {"changes": text})
        frame = pd.DataFrame(full).astype(
            {"command": "category", "commit": "category"}
        )  # as in packs
        frame["group"] = frame.groupby(GROUP, dropna=False).ngroup()
        frame["candidates"] = frame.groupby("group")["key"].transform("size")
        betas = frame.groupby("group")["beta"]
        has_choice = betas.transform("nunique") > 1
        frame["smallest_beta"] = betas.transform("min").where(has_choice)
        frame["largest_beta"] = betas.transform("max").where(has_choice)
        self.table, self.candidates = tidy(frame), frame
        self._arrays = arrays or {}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(values) for name, values in self._arrays.get(key, {}).items()}

    def command(self, command: str) -> str:
        return command


def fits(
    dataset: str, method: str, mean: float, *, sizes: tuple[int, ...] = (100, 200, 500), seeds: int = 5,
    metric: str = "nll", scatter: float = 0.001, trivial: float = 1.0, **more: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Fits of a method at every size and seed around a mean, with noise that depends on all of
    these."""
    rows = []
    count = TASKS.get(dataset) == "count" and method.endswith("log_dlm")
    line = {"estimator": "bmc", "samples": 10.0} if count else {}
    for n in sizes:
        noise = (
            np.random.default_rng([n, len(method), sum(map(ord, method))]).normal(size=seeds)
            * scatter
        )
        for seed in range(seeds):
            values = {f"test_{metric}": mean + noise[seed], f"trivial_test_{metric}": trivial}
            rows.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "n": n,
                    "seed": seed,
                    **line,
                    **values,
                    **more,
                }
            )
    return rows


def nll(method: str, n: int, seed: int, beta: float) -> float:
    """A made-up NLL: lower with n, by method, best at beta = 1."""
    level = {"elbo": 0.1, "beta_elbo": 0.05}.get(method, 0.0)
    return level + 3 / n**0.5 + 0.01 * seed + 0.02 * abs(np.log10(beta))


def sweep(
    methods: Iterable[str] = METHODS, sizes: Iterable[int] = (100, 500), seeds: Iterable[int] = range(3),
    metric: str = "nll", shift: float = 0.0, **changes: Any,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Rows of a figure against n: every method, size, seed and beta."""
    for method, n, seed in (
        (method, n, seed) for method in methods for n in sizes for seed in seeds
    ):
        for beta in BETAS if catalogue.has_beta_to_select(method) else (1.0,):
            value = nll(method, n, seed, beta) + shift
            values = {"test_nll": value, "validation_nll": value + 0.001, f"test_{metric}": value}
            yield {"method": method, "n": n, "seed": seed, "beta": beta, **values, **changes}
