"""Real processes of `dlmexp`, started in a moment: a server that has loaded torch once forks one for each command.

A fork is a process like any other to a signal, to the file system and to whoever looks for its id.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def serve() -> None:
    """Forks a process for each line on standard input, and answers with its id; or waits for one, and answers with its
    exit code."""
    import dlmexp.cluster.multirun
    import dlmexp.running.engine
    import dlmexp.running.progress  # noqa: F401
    from dlmexp.cli import main
    from tests.support.faults import faulty_run

    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
            continue
        words = order["words"]
        command = faulty_run(words[1:], **order["fault"]) if order["fault"] else partial(main, words)
        pid = os.fork()
        if not pid:
            _run(command, order)
        print(pid, flush=True)


def _run(command: Callable[[], int], order: dict[str, Any]) -> None:
    for descriptor, log in ((1, "log"), (2, "errors")):
        os.dup2(os.open(order[log], os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it, and a shell in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
    sys.argv = ["dlmexp", *order["words"]]
    code: Any = 70
    try:
        code = command()
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


class Launcher:
    """The server, and what it is asked for."""

    def __init__(self):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(REPOSITORY)}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.launcher"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPOSITORY,
        )  # fmt: skip
        assert self._answer() == "ready"

    def close(self) -> None:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def start(
        self,
        folder: Path,
        *words: str,
        log: str | Path = "log",
        errors: str = "",
        largest_file: int = 0,
        fault: dict[str, Any] | None = None,
        **environment: str,
    ) -> "Process":
        """Its output goes to the file `log`, and to the file `errors` if there is one. A `fault` has the arguments of
        `faulty_run`."""
        order: dict[str, Any] = {"folder": str(folder), "words": words, "log": str(folder / log), "fault": fault}
        order["largest_file"] = largest_file
        order["errors"] = str(folder / (errors or log))
        pid = int(self._ask(order | {"environment": environment}))
        assert pid > 1
        return Process(self, pid, folder / log)

    def run(self, folder: Path, *words: str, **how) -> tuple[int, str]:
        """Exit code, and all that was said."""
        process = self.start(folder, *words, **how)
        return process.wait(), process.said

    def _ask(self, order: dict) -> str:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._server.stdout
        return self._server.stdout.readline().strip()


class Process:
    def __init__(self, launcher: Launcher, pid: int, log: Path):
        self.pid, self._launcher, self._log = pid, launcher, log
        self._code: int | None = None

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code; minus the signal's number where one killed it."""
        if self._code is None:
            self._code = int(self._launcher._ask({"wait": self.pid}))
        return self._code

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.wait() in (-signal.SIGKILL, 0)

    def until(self, true, seconds: float = 60.0) -> None:
        """Wait for something this process brings about."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"waited in vain; it said:\n{self.said}"
            time.sleep(0.01)


if __name__ == "__main__":
    serve()
