"""A tidy table made of rows given by hand, for tests of what reads it."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TASKS = dict.fromkeys(("pol", "cadata", "sarcos", "song", "sarcos_test"), "regression")
TASKS |= dict.fromkeys(("abalone", "peds1_left", "peds1_dir0", "peds1_dir1", "peds1_dir2"), "count")
STANDS_FOR = {"sarcos_test": "sarcos", "peds1_left": "peds1_dir1", "flights": "airline"}
ROW: dict[str, Any] = {
    "dataset": "banana", "n": 100, "seed": 0, "method": "elbo", "estimator": "exact", "samples": np.nan,
    "parameterisation": "whitened", "role": "fit", "protocol": "paper", "changes": "", "evaluate": "end",
    "data": "d", "split": "s", "experiment": "made-up", "selected_by": "nll", "beta": 1.0, "candidates": 1,
    "missing": 0, "failed": 0, "edge": "", "status": "done", "objective": "elbo", "variant": "joint",
    "form": "explicit", "kernel": "rbf", "M": 10, "lr": 0.1, "minibatch": np.nan, "window": 20.0,
    "max_iterations": 3000.0, "epochs": np.nan, "sampler": None, "converged": True, "stopped": "converged",
    "seconds": 1.0, "iterations": 100.0, "alone": True, "acceptance": np.nan, "bias": np.nan,
    "bias_quadrature": np.nan, "validation_nll": np.nan, "device": "cpu", "host": "h", "reason": None,
    "time": "2000-01-01T00:00:00Z", "commit": "abc", "command": "dlmexp run experiment=made-up", "version": "0",
    "python": "3", "torch": "2", "gpytorch": "1",
}  # fmt: skip


class Made:
    """What `dlmexp.records.results.Results` offers to readers."""

    root, label = Path("results"), ""

    def __init__(self, rows: list[dict[str, Any]], arrays: dict[str, dict[str, np.ndarray]] | None = None):
        full = []
        for number, row in enumerate(rows):
            dataset = row.get("dataset", "banana")
            facts = {"task": TASKS.get(dataset, "binary"), "stands_for": STANDS_FOR.get(dataset), "group": number}
            full.append(ROW | facts | {"key": f"k{number}", "size": str(row.get("n", 100))} | row)
        self.candidates = pd.DataFrame(full)
        self.table = self.candidates[self.candidates["role"] != "gradient"].reset_index(drop=True)
        self._arrays = arrays or {}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        return self._arrays.get(key, {})

    def command(self, command: str) -> str:
        return command


def fits(
    dataset: str, method: str, mean: float, *, sizes: tuple[int, ...] = (100, 200, 500), seeds: int = 5,
    metric: str = "nll", scatter: float = 0.001, trivial: float = 1.0, **more: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Fits of a method at every size and seed around a mean, with noise that depends on all of these."""
    rows = []
    count = TASKS.get(dataset) == "count" and method.endswith("log_dlm")
    line = {"estimator": "bmc", "samples": 10.0} if count else {}
    for n in sizes:
        noise = np.random.default_rng([n, len(method), sum(map(ord, method))]).normal(size=seeds) * scatter
        for seed in range(seeds):
            values = {f"test_{metric}": mean + noise[seed], f"trivial_test_{metric}": trivial}
            rows.append({"dataset": dataset, "method": method, "n": n, "seed": seed, **line, **values, **more})
    return rows


def judged(rows: list[dict[str, Any]], number: int, **options: Any) -> Any:
    """The verdicts on one claim and its parts that were run, of rows."""
    from dlmexp.claims.judge import judge

    arrays = options.pop("arrays", None)
    found = judge(Made(rows, arrays), [number], **options)  # pyright: ignore[reportArgumentType]
    return found
