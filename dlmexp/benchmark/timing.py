"""Times of several things side by side in one process: rounds over all of them, and the fastest round of each."""

from collections.abc import Callable, Mapping
from time import perf_counter

import torch


def fastest(cases: Mapping[str, Callable[[], object]], seconds: float, device: str = "cpu") -> dict[str, float]:
    """Seconds of each case's fastest run. The minimum is what the machine can do: whatever else runs on it only adds.
    Rounds alternate, so that a slow minute of the machine does not fall on one case alone."""
    best = dict.fromkeys(cases, float("inf"))
    for f in cases.values():
        for _ in range(3):
            f()
    end = perf_counter() + seconds
    while True:
        for name, f in cases.items():
            for _ in range(3):
                _synchronise(device)
                began = perf_counter()
                f()
                _synchronise(device)
                best[name] = min(best[name], perf_counter() - began)
        if perf_counter() > end:
            return best


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
