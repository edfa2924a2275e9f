"""Rows of a tidy table with made-up numbers, for every kind of panel."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from dlmexp import catalogue
from dlmexp.figures.panels import FIGURES
from tests.support.tidy import ROW, TASKS

METHODS = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
BETAS = (10.0, 1.0, 0.1)
MORE: dict[str, Any] = {"size": "100", "noise_floor": np.nan, "base": None, "norm2_G": np.nan, "test_nll": np.nan}
GROUP = [
    "dataset", "n", "seed", "method", "estimator", "samples", "role", "parameterisation", "protocol", "changes", "M",
    "evaluate", "data", "split", "noise_floor",
]  # fmt: skip


class MadeUp:
    """Stands in for `dlmexp.records.results.Results`; of each group the lowest validation metric is selected."""

    def __init__(
        self, rows: Iterable[dict[str, Any]], arrays: dict[str, dict[str, Any]] | None = None, label: str = ""
    ):
        fixed = {**ROW, **MORE, "stands_for": None}
        frame = pd.DataFrame(
            [fixed | {"task": TASKS.get(row.get("dataset", ""), "binary"), "key": f"key{i}"} | row
             for i, row in enumerate(rows)]
        )  # fmt: skip
        frame["group"] = frame.groupby(GROUP, dropna=False).ngroup()
        frame["candidates"] = frame.groupby("group")["key"].transform("size")
        selected = []
        for metric in ("nll", "mse") if "validation_mse" in frame else ("nll",):
            known = frame[frame[f"validation_{metric}"].notna() | ((metric == "nll") & (frame["role"] != "gradient"))]
            best = known.sort_values(f"validation_{metric}", kind="stable").drop_duplicates("group")
            selected.append(best.assign(selected_by=metric))
        self.table = pd.concat(selected, ignore_index=True)
        self.candidates = frame.drop(columns=["selected_by", "edge"])
        self.label, self.root, self._arrays = label, "results", arrays or {}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        return {name: np.asarray(values) for name, values in self._arrays.get(key, {}).items()}

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
    for method, n, seed in ((method, n, seed) for method in methods for n in sizes for seed in seeds):
        for beta in BETAS if catalogue.selects(method) else (1.0,):
            value = nll(method, n, seed, beta) + shift
            values = {"test_nll": value, "validation_nll": value + 0.001, f"test_{metric}": value}
            yield {"method": method, "n": n, "size": str(n), "seed": seed, "beta": beta, **values, **changes}


def curves(*estimators: tuple[str, float]) -> MadeUp:
    """Learning curves of joint DLM at beta = 0.1 on abalone, that fall to 1 + 1 / samples; of three lengths."""
    rows, arrays, key = [], {}, count()
    for estimator, samples in estimators:
        for seed in range(3):
            about = {"dataset": "abalone", "method": "joint_log_dlm", "role": "curve", "n": 2000, "evaluate": "10"}
            rows.append(about | {"estimator": estimator, "samples": samples, "beta": 0.1, "seed": seed})
            x = np.arange(0, 60 + 10 * seed, 10)
            arrays[f"key{next(key)}"] = {"evaluated_at": x, "test_nll": 1 + seed + 1 / samples + np.exp(-x / 10.0)}
    return MadeUp(rows, arrays)


@cache
def everything(protocols: tuple[str, ...] = ("paper",)) -> MadeUp:
    """Rows and arrays for every panel of every figure."""
    rows: dict[tuple, dict] = {}
    arrays: dict[str, dict[str, Any]] = {}

    def add(row: dict, **own: Any) -> None:
        what = tuple(str(row.get(name)) for name in (*GROUP, "beta", "size"))  # panels share cells
        key = rows.setdefault(what, {**row, "key": f"key{len(rows)}"})["key"]
        arrays.setdefault(key, {}).update(own)

    random, x, p = np.random.default_rng(0), np.arange(0.0, 40.0), np.array([0.01, 0.4, 0.98])
    metrics = (
        "nll",
        "mse",
        "error",
        "mre",
        "crps",
        "brier",
        "ece",
        "coverage_50",
        "coverage_90",
        "coverage_95",
        "width_95",
    )
    panels = dict.fromkeys(panel for name in FIGURES for panel in FIGURES[name].panels)
    several = [(panel, line, seed, protocol) for panel in panels for line in panel.lines for seed in range(2)
               for protocol in protocols]  # fmt: skip
    for panel, line, seed, protocol in several:
        row = {"dataset": panel.dataset, "protocol": protocol, "method": line.method, "estimator": line.estimator,
               "samples": line.samples or (10 if line.estimator == "bmc" else np.nan), "seed": seed,
               "beta": line.beta or 1.0}  # fmt: skip
        if panel.kind == "curve":
            value = 0.6 + 0.01 * seed + 0.1 / (line.samples or 100) + np.exp(-x / 5)
            both = {"test_nll": value, "test_error": value}
            add(row | {"role": "curve", "evaluate": "10"}, evaluated_at=x, epochs=x, **both)
        elif panel.kind == "histogram":
            own = {"role": "gradient", "norm2_G": 2.0, "bias": 0.1, "bias_quadrature": 0.01, "base": "b"}
            add(row | own, **{panel.metric: random.lognormal(size=30) * 3 / (line.samples or 1)})
        elif panel.kind == "effects":
            for method in ("elbo", "beta_elbo", "fitc", "ppgpr", "joint_log_dlm"):
                for how in ("whitened", "unwhitened"):
                    test = {"test_nll": nll(method, 100, seed, 1.0), "parameterisation": how}
                    add(row | {"role": "anatomy", "method": method, "estimator": "exact"} | test)
        else:
            for n, size, M in ((100, "5%", 10), (500, "80%", 10), (500, "500", 20)):
                for beta in BETAS:
                    value = nll(line.method, n, seed, beta)
                    more = {f"test_{name}": value for name in metrics} | {"validation_nll": value}
                    more |= {
                        "role": line.role or "fit",
                        "n": n,
                        "size": size,
                        "M": M if line.role == "inducing" else 10,
                        "split": "counts-train-v1" if line.version == "train" else "counts-v1",
                        "test_recalibrated_nll": value - 0.01,
                        "beta": beta,
                    }
                    add(row | more, reliability_p=p, reliability_y=p + 0.01)
    return MadeUp(rows.values(), arrays)
