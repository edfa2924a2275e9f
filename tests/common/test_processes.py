"""A function mapped over items by several processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from dlmexp.common.atomic import is_running
from dlmexp.common.errors import UserError
from dlmexp.common.processes import map_in_processes


@pytest.mark.parametrize("cores", [1, 2])
def test_values_come_in_the_order_of_items_and_errors_are_raised(monkeypatch, cores):
    monkeypatch.setattr("dlmexp.common.processes.available_cores", lambda: cores)
    here = os.getpid()

    def make(number: int) -> tuple[int, bool]:
        if number == 4:
            raise UserError("four")
        return number**2, os.getpid() == here

    made = map_in_processes(make, range(5))
    assert [next(made) for _ in range(4)] == [(number**2, cores == 1) for number in range(4)]
    with pytest.raises(UserError, match="four"):
        next(made)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    code = f"""
import os, pathlib, time
from dlmexp.common import processes
processes.available_cores = lambda: 2
def work(item):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(600)
list(processes.map_in_processes(work, [0, 1]))
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    parent.kill()
    parent.wait()
    until(lambda: not any(is_running(worker) for worker in workers))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
