"""Results in memory with made-up numbers: what figures read, without records and folders."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from dlmexp import catalogue

METHODS = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
BETAS = (10.0, 1.0, 0.1)
ROW: dict[str, Any] = {
    "dataset": "banana", "stands_for": None, "task": "binary", "n": 100, "size": "100", "seed": 0, "method": "elbo",
    "estimator": "exact", "samples": np.nan, "parameterisation": "whitened", "role": "fit", "protocol": "paper",
    "changes": "", "evaluate": "end", "data": "made-up", "split": "counts-v1", "experiment": "class-log",
    "selected_by": "nll", "beta": 1.0, "candidates": 1, "missing": 0, "failed": 0, "edge": "", "status": "done",
    "form": "explicit", "noise_floor": np.nan, "lr": 0.1, "M": 50, "minibatch": np.nan, "base": None, "bias": np.nan,
    "bias_quadrature": np.nan, "norm2_G": np.nan, "command": "dlmexp run experiment=made-up", "test_nll": np.nan,
    "validation_nll": np.nan,
}  # fmt: skip


GROUP = [
    "dataset", "n", "seed", "method", "estimator", "samples", "role", "parameterisation", "protocol", "changes",
    "evaluate", "data", "split", "noise_floor",
]  # fmt: skip


class MadeUp:
    """Stands in for `dlmexp.records.results.Results`; of each group the lowest validation metric is selected."""

    def __init__(
        self, rows: Iterable[dict[str, Any]], arrays: dict[str, dict[str, np.ndarray]] | None = None, label: str = ""
    ):
        frame = pd.DataFrame([{**ROW, "key": f"key{i}", **row} for i, row in enumerate(rows)])
        frame["group"] = frame.groupby(GROUP, dropna=False).ngroup()
        frame["candidates"] = frame.groupby("group")["key"].transform("size")
        selected = []
        for metric in ("nll", "mse"):
            if f"validation_{metric}" in frame:
                known = frame[
                    frame[f"validation_{metric}"].notna() | ((metric == "nll") & (frame["role"] != "gradient"))
                ]
                best = known.sort_values(f"validation_{metric}", kind="stable").drop_duplicates("group")
                selected.append(best.assign(selected_by=metric))
        self.table = pd.concat(selected, ignore_index=True)
        self.candidates = frame.drop(columns=["selected_by", "edge"])
        self.label, self.root, self._arrays = label, "results", arrays or {}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        return self._arrays.get(key, {})

    def command(self, command: str) -> str:
        return command


def nll(method: str, n: int, seed: int, beta: float) -> float:
    """A made-up NLL: lower with n, by method, best at beta = 1."""
    level = {"elbo": 0.1, "beta_elbo": 0.05}.get(method, 0.0)
    return level + 3 / n**0.5 + 0.01 * seed + 0.02 * abs(np.log10(beta))


def sweep(
    methods: Iterable[str] = METHODS, sizes: Iterable[int] = (100, 500), seeds: Iterable[int] = range(3),
    metric: str = "nll", shift: float = 0.0, **changes: Any,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Rows of a figure against n: every method, size, seed and beta."""
    for method in methods:
        for n in sizes:
            for seed in seeds:
                for beta in BETAS if catalogue.selects(method) else (1.0,):
                    value = nll(method, n, seed, beta) + shift
                    values = {"test_nll": value, "validation_nll": value + 0.001, f"test_{metric}": value}
                    yield {"method": method, "n": n, "size": str(n), "seed": seed, "beta": beta, **values, **changes}


def curves(estimators: Iterable[tuple[str, float]], seeds: Iterable[int] = range(3), **changes: Any) -> MadeUp:
    """Learning curves of joint DLM at beta = 0.1 on abalone, that fall to 1 + 1 / samples."""
    rows, arrays, key = [], {}, count()
    for estimator, samples in estimators:
        for seed in seeds:
            about = {"dataset": "abalone", "task": "count", "method": "joint_log_dlm", "role": "curve", "n": 2000}
            about |= {"estimator": estimator, "samples": samples, "beta": 0.1, "seed": seed, "evaluate": "10"}
            rows.append({**about, **changes})
            x = np.arange(0, 60 + 10 * seed, 10)
            arrays[f"key{next(key)}"] = {"evaluated_at": x, "test_nll": 1 + seed + 1 / samples + np.exp(-x / 10.0)}
    return MadeUp(rows, arrays)
