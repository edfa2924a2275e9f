"""Runs one sweep many times, each in a forked process in which an operation on the results folder goes wrong.

`python -m tests.support.fault_server WORDS...` composes the sweep once. For every line on standard input (a `Fault` as
JSON, with the results folder) it forks, runs, and answers with a line: exit code, operations counted, what was said.
"""

import builtins
import errno
import io
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from typing import Any

OPERATIONS = ("mkdir", "replace", "rename", "unlink", "utime")  # of `os`, that take a path


class Injector:
    """Counts what a process does to the files under `root`; at operation number `at` it is killed, or gets an error."""

    def __init__(self, root: str, at: int, what: str, log: int):
        self.root, self.at, self.what, self.log, self.count = os.path.realpath(root), at, what, log, 0

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


def child(cfg: Any, order: dict, said: int, log: int) -> int:
    from dlmexp.plan.compose import compose
    from dlmexp.running.run import execute

    for descriptor in (1, 2):
        os.dup2(said, descriptor)
    if order.get("clock"):
        jumping_clock()
    if order.get("skew"):
        plain = time.time
        time.time = lambda: plain() + order["skew"]
    if order.get("machine"):
        other_machine(order["machine"])
    if "most_cells" in order:
        limited_batches(order["most_cells"])
    sys.argv = ["dlmexp", "run"]
    injector = Injector(order["root"], order.get("at", 0), order.get("what", "kill"), log)
    injector.install()
    try:
        return execute(replace(compose(order["words"]) if "words" in order else cfg, results=order["root"]))
    except BaseException as error:
        from dlmexp.errors import UserError

        if isinstance(error, UserError):
            print(f"dlmexp: {error}")
            return 2
        traceback.print_exc(file=sys.stdout)
        return 70
    finally:
        sys.stdout.flush()


def serve(words: list[str]) -> None:
    import dlmexp.running.engine
    import dlmexp.running.leases
    import dlmexp.running.progress
    import dlmexp.running.run
    from dlmexp.plan.compose import compose

    # The closing table takes most of the time of so small a run, and touches no file.
    dlmexp.running.run.summary = lambda *_: 0
    cfg = compose(words)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as log:
            pid = os.fork()
            if not pid:
                code = 70
                try:
                    code = child(cfg, order, said.fileno(), log.fileno())
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            texts = []
            for file in (said, log):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        print(json.dumps({"code": code, "said": texts[0], "operations": texts[1].split("\n")[:-1]}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1:])
