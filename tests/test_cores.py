"""The cores that a process may use, asked for in one place."""

import os
from pathlib import Path

import dlmexp
from dlmexp.cores import cores


def test_the_affinity_counts(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5}, raising=False)
    assert cores() == 2


def test_nobody_counts_the_cores_of_the_whole_machine():
    package = Path(dlmexp.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "cpu_count" in path.read_text()] == ["cores.py"]
