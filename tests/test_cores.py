"""The cores that a process may use, asked for in one place."""

import os

from dlmexp.cores import cores


def test_the_affinity_counts(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5}, raising=False)
    assert cores() == 2
