"""Real processes of `dlmexp`, started in a moment: a server that has loaded torch once forks one
for each command. A fork is a process like any other to a signal, to the file system and to whoever
looks for its id.

And the fixtures of tests that run a sweep: a tiny one on drawn data, and what its records must be.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.experiment.records.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(REPOSITORY)}
LOADED = [
    "pandas",
    "dlmexp.experiment.cluster.multirun",
    "dlmexp.experiment.running.progress",
    "tests.support.faults",
]
TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "dataset.ringnorm_drawn.M=6", "sizes=[20]",
    "seeds=[0,1]", "beta=list", "beta.values=[10,1,0.1]", "device=cpu", "training.binary.max_iterations=40",
]  # fmt: skip
# An ELBO fit, and a DLM fit that starts from it: two batches, with a checkpoint after every
# iteration.
SWEEP = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3", "sizes=[10]",
    "seeds=[0]", "method=[elbo,fixed_log_dlm]", "beta=list", "beta.values=[1]", "device=cpu",
    "training.binary.max_iterations=2", "checkpoint_seconds=1e-9",
]  # fmt: skip


def run(
    folder: Path,
    words: list[str],
    log: Path,
    errors: Path,
    fault: dict[str, Any],
    environment: dict[str, str],
):
    """The command, in a process of its own: with its output in files, and signals as in a
    terminal."""
    for descriptor, path in ((1, log), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(folder)
    os.environ.clear()  # the server's has lines and columns, which GNU readline put there
    os.environ.update(environment)
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # `nohup` ignores it, and a shell in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["dlmexp", *words]
    code: Any = 70
    try:
        from dlmexp.cli import main
        from tests.support.faults import faulty_run

        code = faulty_run(words[1:], **fault) if fault else main(words)
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


class Launcher:
    """Starts processes, and ends those that a failed test left behind."""

    def __init__(self):
        self._context, self._started = get_context("forkserver"), []
        self._context.set_forkserver_preload(LOADED)
        with mock.patch.dict(os.environ, SETTINGS):
            forkserver.ensure_running()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.join()

    def start(
        self,
        folder: Path,
        *words: str,
        log: str | Path = "log",
        errors: str = "",
        fault: dict[str, Any] | None = None,
        **environment: str,
    ) -> "Process":
        """Its output goes to the file `log`, and to the file `errors` if there is one. A `fault`
        has the arguments of `faulty_run`."""
        log, errors_log = folder / log, folder / (errors or log)
        environment = {**os.environ, **SETTINGS, **environment}
        process = self._context.Process(
            target=run, args=(folder, words, log, errors_log, fault, environment)
        )
        process.start()
        self._started.append(process)
        return Process(process, log)

    def run(self, folder: Path, *words: str, **how) -> tuple[int, str]:
        """Exit code, and all that was said."""
        process = self.start(folder, *words, **how)
        return process.wait(), process.said


class Process:
    def __init__(self, process: Any, log: Path):
        self.pid: int = process.pid
        self._process, self._log = process, log

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code; minus the signal's number where one killed it."""
        self._process.join()
        return self._process.exitcode

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.wait() in (-signal.SIGKILL, 0)

    def until(self, true: Callable[[], Any], seconds: float = 60.0) -> None:
        """Wait for something this process brings about."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"waited in vain; it said:\n{self.said}"
            time.sleep(0.01)


@pytest.fixture
def tiny() -> list[str]:
    """Arguments of a sweep of 18 cells in 3 batches (or 6 with `batch_cells=3`), done in a
    moment."""
    return list(TINY)


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    started = Launcher()
    yield started
    started.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that ends with exit code 2, one sentence in which all these words are, and
    nothing written."""

    def check(typed: list[str], *words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        assert main(typed) == 2
        *notes, said = capsys.readouterr().err.splitlines()
        assert said.startswith("dlmexp: ")
        assert all(note.startswith("model ") for note in notes)
        assert all(word in said for word in words), said
        assert len(said) < 1500
        assert sorted(tmp_path.rglob("*")) == before
        return said

    return check


def comparable(results: Path) -> dict[str, tuple]:
    """By key, what a record must share with that of an undisturbed run: everything but times and
    machines."""
    store, found = Store(results), {}
    for record in store.own_records():
        assert record.key not in found
        result = replace(record.result, seconds=None, alone=None)
        arrays = {name: array.tobytes() for name, array in store.arrays(record.key).items()}
        found[record.key] = (record.status, record.cell, result, arrays)
    return found


@pytest.fixture(scope="module")
def undisturbed(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[list[str]], Path]:
    """`undisturbed(arguments)`: the results folder of one process that was left alone."""

    @cache
    def run(*arguments: str) -> Path:
        folder = tmp_path_factory.mktemp("undisturbed")
        code, said = launcher.run(folder, "run", *arguments)
        assert code == 0, said
        return folder / "results"

    return lambda arguments: run(*arguments)
