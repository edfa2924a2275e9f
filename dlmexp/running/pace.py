"""The pace of this device: measured in a few seconds, remembered in the user's cache folder, checked at every start.

Seconds are those that the device itself takes. On a CPU that is what each core computes; how much longer it takes
by the clock, because other programs want the cores too, is the `load` of the moment, and is not remembered."""

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.errors import Unreadable
from dlmexp.objectives import OBJECTIVES
from dlmexp.paths import user_cache
from dlmexp.plan.cell import Cell
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.files import write_atomically
from dlmexp.running.cost import CELL_ROWS, Costs, Pace, Rows, kind_of, rows_of, shape_of, units_of
from dlmexp.running.threads import core_seconds

Batch = tuple[Cell, ...]

BASE_SHAPES = {  # (B, n, M) of joint steps: all latency, the same with more columns, and much work
    "cpu": ((1, 64, 8), (1, 64, 8), (4, 1000, 74)),
    "cuda": ((1, 64, 32), (1, 256, 206), (32, 4000, 128)),
}
# For timing kinds of steps of which nothing is remembered: so many seconds, and no more than this share of the run.
TRIAL_SECONDS, TRIAL_SHARE = 4.0, 0.05
BASE_SECONDS, SHAPE_SECONDS = 0.3, 0.25  # for one of them
LARGEST_TRIAL = {"cpu": (6, 1000), "cuda": (1000, 20_000)}  # cells and rows
FASTER = 0.8  # a check below this share of what is remembered shows that it was measured on a busy machine
LEARNING = 0.5  # the weight of a finished run among those before it
MOST_CORRECTION = 3.0
SHORTEST_LESSON = 5.0  # expected seconds of a kind of steps: less says little


class Timed(NamedTuple):
    """Seconds of a step, and how many times longer it took by the clock."""

    seconds: float
    load: float = 1.0


class Measured(NamedTuple):
    """The pace to count on now, and where it comes from."""

    pace: Pace
    load: float
    remembered: bool
    covered: float  # the share of the expected time in kinds of steps that were timed, now or before
    key: str


def measured_pace(
    batches: Sequence[Batch],
    expected: Callable[[Costs], Iterable[float]],
    rows: Mapping[str, Rows],
    device: str,
    timer: Callable[[Batch, int], Timed] | None = None,
) -> Measured:
    """The pace of the device for these batches. `expected` gives the seconds of each of them at some pace; `timer`
    times a step of a batch with so many features."""
    timer = timer or (lambda batch, features: timed_step(batch, features, device))
    key = device_key(device)
    known = _remembered(device)
    began = perf_counter()
    pace = known or base_pace(device)
    seconds: dict[str, float] = defaultdict(float)
    trials: dict[str, tuple[float, Batch]] = {}
    for batch, some in zip(batches, expected(Costs(pace, dict(rows))), strict=True):
        if batch[0].kind == "fit" and not OBJECTIVES[batch[0].objective].solved(batch[0].variant):
            kind = kind_of(batch[0])
            seconds[kind] += some
            trials[kind] = max((some, trial_of(batch, device)), trials.get(kind, (0.0, ())), key=lambda one: one[0])
    end = began + min(TRIAL_SECONDS, TRIAL_SHARE * sum(seconds.values()))
    factors, loads, check, covered = dict(pace.factors), list[float](), 1.0, 0.0
    for kind in sorted(seconds, key=lambda kind: -seconds[kind]):
        trial = trials[kind][1]
        shape = shape_of(trial[0])
        checks = known is not None and not loads and shape in factors
        if checks or (shape not in factors and (not loads or perf_counter() < end)):
            found = timer(trial, rows.get(trial[0].dataset, Rows()).features)
            modelled = Costs(replace(pace, factors={}, corrections={})).step(trial[0], len(trial)).alone
            loads.append(found.load)
            if checks:
                check = found.seconds / modelled / factors[shape]
            else:
                factors[shape] = found.seconds / modelled / check
        covered += seconds[kind] if shape in factors else 0.0
    _free_memory(device)
    lasting = replace(pace, factors=factors)
    if check < FASTER:
        lasting, check = _scaled(lasting, check), 1.0
    if lasting != known:
        remember(key, lasting)
    load = sum(loads) / len(loads) if loads else 1.0
    share = covered / sum(seconds.values()) if seconds else 1.0
    return Measured(_scaled(lasting, check * load), load, known is not None, share, key)


def _free_memory(device: str) -> None:
    """Give back what trials took: how much a run may use is counted from what is free."""
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def _scaled(pace: Pace, by: float) -> Pace:
    times = {name: by * getattr(pace, name) for name in ("latency", "column", "per_unit")}
    return replace(pace, **times)


def trial_of(batch: Batch, device: str) -> Batch:
    """A batch of the same kind that is small enough to be timed."""
    cells, rows = LARGEST_TRIAL[device]
    first = batch[0]
    if rows_of(first) <= rows:
        return batch[:cells]
    size = {"minibatch": rows} if first.minibatch else {"n": rows}
    return tuple(replace(cell, **size, M=min(cell.M, rows)) for cell in batch[:cells])


def timed_step(batch: Batch, features: int, device: str) -> Timed:
    """The step of such a batch, as the engine does it."""
    import torch

    from dlmexp.running.device import Target
    from dlmexp.running.trial import step_like

    return timed(step_like(batch, features, Target(torch.device(device), getattr(torch, batch[0].dtype))), device)


def timed(step: Callable[[], object], device: str, seconds: float = SHAPE_SECONDS) -> Timed:
    """The median time of a step on a CPU; the mean on a GPU, where steps are given to it without waiting."""
    if device == "cuda":
        return Timed(_on_gpu(step, seconds))
    step()
    spent, began, own = [], perf_counter(), core_seconds()
    while len(spent) < 2 or perf_counter() - began < seconds:
        before = core_seconds()
        step()
        spent.append(core_seconds() - before)
    load = (perf_counter() - began) / max(core_seconds() - own, 1e-9)
    return Timed(max(sorted(spent)[len(spent) // 2], 1e-9), max(1.0, load))


def _on_gpu(step: Callable[[], object], seconds: float) -> float:
    import torch

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    steps, began = 0, perf_counter()
    while steps < 4 or perf_counter() - began < seconds:
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        steps += 4
    return (perf_counter() - began) / steps


def base_pace(device: str) -> Pace:
    """Latency and work of joint steps. On a GPU the latency grows with M, as Kuu is factorised column by column."""
    from dlmexp.training.trial import joint_step

    small, wide, large = BASE_SHAPES[device]
    found = {
        shape: timed(joint_step(shape[0], n=shape[1], M=shape[2], device=device), device, BASE_SECONDS).seconds
        for shape in dict.fromkeys((small, wide, large))
    }
    column = max(0.0, found[wide] - found[small]) / max(1, wide[2] - small[2])
    latency = max(found[small] - column * small[2], 1e-6)
    rest = found[large] - latency - column * large[2]
    units = units_of(_joint(large[1], large[2]), large[0], large[1], CELL_ROWS[device])
    return Pace(latency, max(rest, 0.1 * found[large]) / units, column, cell_rows=CELL_ROWS[device])


def _joint(n: int, M: int) -> Cell:
    """What `joint_step` trains, as far as its work goes."""
    return Cell(
        kind="fit", dataset="trial", data="", split="", task="binary", likelihood="probit", kernel="rbf", ard=False,
        mean="constant", M=M, n=n, objective="log_dlm", variant="joint", form="explicit", parameterisation="whitened",
        estimator="exact", options={}, lr=1e-3, minibatch=None, window=None, tolerance=None, max_iterations=1,
        epochs=None, evaluate="end", dtype="float64", seed=0, beta=1.0,
    )  # fmt: skip


def learn(key: str, batches: Mapping[str, tuple[float, float]]) -> None:
    """Correct what is remembered by a finished run: for each kind of step, the seconds it took and those expected."""
    known = remembered().get(key)
    lessons = {kind: took / some for kind, (took, some) in batches.items() if took > 0 and some >= SHORTEST_LESSON}
    if known is None or not lessons:
        return
    corrections = dict(known.corrections)
    for kind, ratio in lessons.items():
        weight = LEARNING if kind in corrections else 1.0
        corrected = math.log(corrections.get(kind, 1.0)) + weight * math.log(ratio)
        corrections[kind] = math.exp(max(-math.log(MOST_CORRECTION), min(math.log(MOST_CORRECTION), corrected)))
    remember(key, replace(known, corrections=corrections))


def device_key(device: str) -> str:
    """What a pace is remembered for: the device, the threads that compute, and the versions."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else f"{_processor()}, {torch.get_num_threads()} threads"
    return f"{name}, dlmexp {__version__}, torch {torch.__version__}"


def _processor() -> str:
    """The model of the CPU as the system names it."""
    import platform

    with contextlib.suppress(OSError, UnicodeDecodeError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith(("model name", "CPU part")):
                return f"{platform.machine()} {line.partition(':')[2].strip()}"
    return f"{platform.machine()} {platform.processor()}".strip()


def remembered() -> dict[str, Pace]:
    """By device; nothing if there is no sound file."""
    try:
        return typed_json(content(user_cache() / "pace.json"), dict[str, Pace])
    except (OSError, Unreadable):
        return {}


def known_pace(device: str) -> Pace:
    """What is remembered of this device; measured, in a second or so, if it is nothing."""
    return _remembered(device) or base_pace(device)


def _remembered(device: str) -> Pace | None:
    """Of this device, unless what was measured was divided into latency and work in another way."""
    pace = remembered().get(device_key(device))
    return None if pace is None or pace.cell_rows != CELL_ROWS[device] else pace


def remember(key: str, pace: Pace) -> None:
    """Write it down for the next run. Where that is impossible, the next run measures again."""
    with contextlib.suppress(OSError):
        write_atomically(user_cache() / "pace.json", msgspec.json.encode(remembered() | {key: pace}))
