"""What the benchmarks share: a measured quantity with its limit, the fastest run of a function, its
peak memory."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch


@dataclass
class Measurement:
    """A measured quantity, and its limit if it has one: an upper limit, or with `at_least` a lower
    one."""

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
        return self.limit is None or (
            self.value >= self.limit if self.at_least else self.value <= self.limit
        )


def print_all(measurements: Iterable[Measurement]) -> int:
    """Prints one line per measurement, as soon as it is made; exit code 0 if all limits are met,
    else 1."""
    missed = 0
    for measurement in measurements:
        print(measurement, flush=True)
        missed += not measurement.meets_limit
    return 1 if missed else 0


def arguments(
    suite: str, about: str | None, parts: Sequence[str], argv: Sequence[str] | None, **more: Any
) -> Any:
    """The arguments of a suite: its parts (default: all), `device`, and further options with their
    defaults. Prints the device and torch's version."""
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
    name = (
        torch.cuda.get_device_name()
        if args.device == "cuda"
        else f"{torch.get_num_threads()} threads"
    )
    print(f"torch {torch.__version__}, {args.device} ({name}), float64")
    return args


def fastest(
    cases: Mapping[str, Callable[[], object]], seconds: float, device: str = "cpu", repeats: int = 3
) -> dict[str, float]:
    """Seconds of the fastest run of each case, in about `seconds` in total. The minimum, because
    other programs on the machine can only slow a run down. Cases take turns of `repeats` runs, so
    that a slow phase of the machine affects all of them; the first turn is not timed."""
    best = dict.fromkeys(cases, float("inf"))
    for f in cases.values():
        for _ in range(repeats):
            f()
    end = perf_counter() + seconds
    while True:
        for name, f in cases.items():
            for _ in range(repeats):
                synchronise(device)
                start = perf_counter()
                f()
                synchronise(device)
                best[name] = min(best[name], perf_counter() - start)
        if perf_counter() > end:
            return best


def synchronise(device: str) -> None:
    """Waits until the GPU has finished, if `device` is one."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(f: Callable[[], object], device: str = "cpu") -> int:
    """The most memory that `f` holds at once, beyond what was allocated before. Exact, not sampled:
    torch's allocator reports every allocation and release of tensors on the device."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        f()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    # Not torch.profiler.profile, which wraps this one and, in some versions from torch 2.10 on,
    # warns at its first use.
    profile: Any = torch.autograd.profiler.profile(profile_memory=True)
    with profile:
        f()
    held = peak = 0
    for event in profile.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
