"""What may go wrong around a run, in a process that `tests.support.launcher` has forked for it: an operation on the
results folder, a clock, a machine that is another one, memory."""

import builtins
import errno
import io
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from dlmexp.config import RunConfig
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.running import run as module

OPERATIONS = ("mkdir", "replace", "rename", "unlink", "utime")  # of `os`, that take a path


class Injector:
    """Counts what a process does to the files under `root`; at operation number `at` it is killed, or gets an error."""

    def __init__(self, root: str, log: str, at: int, what: str):
        self.root, self.at, self.what, self.count = os.path.realpath(root), at, what, 0
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT)

    def install(self) -> None:
        for name in OPERATIONS:
            setattr(os, name, self._on_path(name, getattr(os, name)))
        plain_open, plain_fsync, plain_os_open = builtins.open, os.fsync, os.open

        def opened(file: Any, mode: str = "r", *rest: Any, **how: Any) -> Any:
            if not self._concerns(file):
                return plain_open(file, mode, *rest, **how)
            self.count_one(f"open {mode}", file)
            found = plain_open(file, mode, *rest, **how)
            return found if "r" in mode else _Written(found, self)

        def os_opened(path: Any, *rest: Any, **how: Any) -> int:
            if self._concerns(path) and not how.get("dir_fd"):
                self.count_one("os.open", path)
            return plain_os_open(path, *rest, **how)

        def fsync(descriptor: int) -> None:
            if self._concerns(path := os.readlink(f"/proc/self/fd/{descriptor}")):
                self.count_one("fsync", path)
            plain_fsync(descriptor)

        builtins.open = io.open = opened
        os.open, os.fsync = os_opened, fsync

    def _on_path(self, name: str, plain: Any) -> Any:
        def called(path: Any, *rest: Any, **how: Any) -> Any:
            if self._concerns(path):
                self.count_one(name, path)
            return plain(path, *rest, **how)

        return called

    def _concerns(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(os.fspath(path)).startswith(self.root)

    def count_one(self, name: str, path: Any, before: Any = None) -> None:
        self.count += 1
        os.write(self.log, f"{name}\n".encode())
        if self.count == self.at:
            if before:
                before()
            if self.what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, self.what)
            raise OSError(number, os.strerror(number), str(path))


class _Written:
    """A file in writing, of which half a content may be written."""

    def __init__(self, file: Any, injector: Injector):
        self._file, self._injector = file, injector

    def write(self, content: Any) -> int:
        def half() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        self._injector.count_one("write", self._file.name, half)
        return self._file.write(content)

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def jumping_clock() -> None:
    """The wall clock jumps by a day, forwards and backwards, whenever somebody looks at it."""
    plain, plain_ns, looks = time.time, time.time_ns, [0]

    def offset() -> int:
        looks[0] += 1
        return (0, 86400, -86400)[looks[0] % 3]

    time.time = lambda: plain() + offset()
    time.time_ns = lambda: plain_ns() + offset() * 10**9


def other_machine(name: str) -> None:
    """Process ids are those of another machine, whose host has the same name."""
    from dlmexp import atomic as owner
    from dlmexp.running import leases

    owner.machine = leases.machine = lambda: name  # pyright: ignore[reportAttributeAccessIssue]


def limited_batches(most: int) -> None:
    """A step of more cells than `most` asks torch for more bytes than a machine can address."""
    import torch

    from dlmexp.training import step as module

    plain = module.step

    def step(program: Any, state: Any, settings: Any) -> None:
        if len(state.outcome) > most:
            torch.empty(1 << 60, dtype=torch.uint8)
        plain(program, state, settings)

    module.step = step


@cache
def _composed(words: tuple[str, ...]) -> RunConfig:
    return compose(words)


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
) -> Callable[[], int]:
    """A run of these overrides into `root` in which something goes wrong, to be called in a process of its own. It
    notes its operations on files in `log`. Composing takes longer than so small a run: it is done here, once."""
    cfg = replace(_composed(tuple(words)), results=root)

    def run() -> int:
        module.summary = lambda *_: 0  # the closing table takes most of the time, and touches no file
        plain = time.time
        if jumps:
            jumping_clock()
        elif skew:
            time.time = lambda: plain() + skew
        if machine:
            other_machine(machine)
        if most_cells is not None:
            limited_batches(most_cells)
        Injector(root, log, at, what).install()
        try:
            return module.execute(cfg)
        except UserError as error:
            print(f"dlmexp: {error}")
            return 2

    return run
