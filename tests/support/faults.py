"""What may go wrong around a run, in a process of its own: an operation on the results folder, a
clock, a machine that is another one, memory."""

import builtins
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from dlmexp.common import atomic
from dlmexp.common.errors import UserError
from dlmexp.core.training import stepper
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.running import run
from tests.support.processes import SWEEP

EVENTS = {"os.mkdir": "mkdir", "os.rename": "replace", "os.remove": "unlink", "os.utime": "utime"}


class Injector:
    """Counts what a process does to the files under `root`; at operation number `at` it is killed,
    or gets an error.

    Python tells an audit hook of most operations before it does them; of `write` and `fsync` it
    does not."""

    def __init__(self, root: str, log: str, at: int, what: str):
        self.root, self.at, self.what, self.count = os.path.realpath(root), at, what, 0
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT)
        plain_open, plain_fsync = builtins.open, os.fsync

        def opened(file: Any, mode: str = "r", *rest: Any, **how: Any) -> Any:
            made = plain_open(file, mode, *rest, **how)
            if "r" in mode or not self._concerns(file):
                return made
            plain_write = made.write

            def write(content: Any) -> int:
                def half() -> None:
                    plain_write(content[: len(content) // 2])
                    made.flush()

                self.operation("write", file, half)
                return plain_write(content)

            made.write = write
            return made

        def fsync(descriptor: int) -> None:
            self.operation("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
            plain_fsync(descriptor)

        builtins.open = io.open = opened
        os.fsync = fsync
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, mode, _ = arguments
            self.operation(f"open {mode}" if mode else "os.open", path)
        elif event in EVENTS:
            self.operation(EVENTS[event], arguments[0])

    def _concerns(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(os.fspath(path)).startswith(
            self.root
        )

    def operation(self, name: str, path: Any, before: Callable[[], None] = lambda: None) -> None:
        if not self._concerns(path):
            return
        self.count += 1
        os.write(self.log, f"{name}\n".encode())
        if self.count == self.at:
            before()
            if self.what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, self.what)
            raise OSError(number, os.strerror(number), str(path))


def shift_clock(seconds: Callable[[], float]) -> None:
    """The wall clock is wrong by so much."""
    plain, plain_ns = time.time, time.time_ns
    time.time = lambda: plain() + seconds()
    time.time_ns = lambda: plain_ns() + int(seconds() * 1e9)


def limit_batches(most: int) -> None:
    """A step of more cells than `most` asks torch for more bytes than a machine can address."""
    plain = stepper.step

    def step(program: Any, state: Any, settings: Any) -> None:
        if len(state.outcome) > most:
            torch.empty(1 << 60, dtype=torch.uint8)
        plain(program, state, settings)

    stepper.step = step


@cache
def composed(words: tuple[str, ...]) -> RunConfig:
    return compose(words)


composed(tuple(SWEEP))  # before processes are forked: it takes longer than so small a run


def faulty_run(
    words: Sequence[str],
    root: str,
    log: str,
    at: int = 0,
    what: str = "kill",
    jumps: bool = False,
    skew: float = 0.0,
    machine: str = "",
    most_cells: int | None = None,
) -> int:
    """Run these overrides into `root`; something goes wrong. Operations on files are noted in
    `log`.

    The clock jumps by a day, forwards and backwards, whenever somebody looks at it, or is wrong by
    `skew` seconds. Process ids are those of another `machine`, whose host has the same name."""
    cfg = replace(composed(tuple(words)), results=root)
    # The summary takes most of the time, and touches no file.
    run.summarize = lambda *_: SimpleNamespace(exit_code=0)
    run.print_summary = lambda *_: None
    looks = iter(range(10**9))
    shift_clock((lambda: (0, 86400, -86400)[next(looks) % 3]) if jumps else (lambda: skew))
    if machine:
        atomic.machine = lambda: machine  # pyright: ignore[reportAttributeAccessIssue]
    if most_cells is not None:
        limit_batches(most_cells)
    Injector(root, log, at, what)
    try:
        return run.execute(cfg)
    except UserError as error:
        print(f"dlmexp: {error}")
        return 2
