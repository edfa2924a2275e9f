"""Shared by the benchmarks: a measured quantity with its limit, fastest runs, peak memory."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch


@dataclass
class Measurement:
    """A measured quantity.

    Attributes:
        name: What was measured.
        value: The value.
        unit: Its unit.
        limit: The largest value that is accepted; None: any.
        at_least: Whether the limit is the smallest value that is accepted instead.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    def __str__(self) -> str:
        line = f"{self.name:64} {self.value:10.4g} {self.unit:6} "
        if self.limit is None:
            return line
        relation = ">=" if self.at_least else "<="
        verdict = "met" if self.meets_limit else "NOT MET"
        return f"{line}{relation} {self.limit:g}  {verdict}"

    @property
    def meets_limit(self) -> bool:
        """Whether the value is accepted."""
        if self.limit is None:
            return True
        if self.at_least:
            return self.value >= self.limit
        return self.value <= self.limit


def print_all(measurements: Iterable[Measurement]) -> int:
    """Print a line per measurement as soon as it is made.

    Returns:
        The exit code: 0 if all limits are met, else 1.
    """
    exit_code = 0
    for measurement in measurements:
        print(measurement, flush=True)
        if not measurement.meets_limit:
            exit_code = 1
    return exit_code


def arguments(
    suite: str, about: str | None, parts: Sequence[str], argv: Sequence[str] | None, **more: Any
) -> Any:
    """Return the arguments of a suite, and print the device and the version of torch.

    Args:
        suite: Its name.
        about: The help text.
        parts: The names of its parts; all are measured if none is typed.
        argv: The words after the name of the suite.
        more: Further options with their defaults.
    """
    parser = argparse.ArgumentParser(prog=f"python -m scripts.benchmark {suite}", description=about)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"what to measure: {', '.join(parts)} (default: all)",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is a GPU")
    for name, default in more.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"default: {default}"
        )
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in parts:
            parser.error(f"unknown part '{part}': {', '.join(parts)}")
    args.parts = args.parts or list(parts)
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    hardware = f"{torch.get_num_threads()} threads"
    if args.device == "cuda":
        hardware = torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {args.device} ({hardware}), float64")
    return args


def fastest(
    cases: Mapping[str, Callable[[], object]], seconds: float, device: str = "cpu", repeats: int = 3
) -> dict[str, float]:
    """Return the seconds of the fastest run of each case, by its name.

    It is the fastest run that counts, because other programs can only slow a run down. Cases take
    turns, so that a slow phase of the machine affects all of them. The first turn is not timed.

    Args:
        cases: Functions by name.
        seconds: About how long to measure, in total.
        device: Where they run.
        repeats: The number of runs in a turn.
    """
    best = dict.fromkeys(cases, float("inf"))
    for run in cases.values():
        for _ in range(repeats):
            run()
    end = perf_counter() + seconds
    while True:
        for name, run in cases.items():
            for _ in range(repeats):
                synchronise(device)
                start = perf_counter()
                run()
                synchronise(device)
                best[name] = min(best[name], perf_counter() - start)
        if perf_counter() > end:
            return best


def synchronise(device: str) -> None:
    """Wait until the GPU has finished, if `device` is one."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(run: Callable[[], object], device: str = "cpu") -> int:
    """Return the most memory of tensors that a function holds at once, beyond that before it.

    It is exact, not sampled: torch's allocator reports every allocation and release.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    # Not torch.profiler.profile, which wraps this one and, in some versions from torch 2.10 on,
    # warns at its first use.
    profile: Any = torch.autograd.profiler.profile(profile_memory=True)
    with profile:
        run()
    held = 0
    peak = 0
    for event in profile.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
