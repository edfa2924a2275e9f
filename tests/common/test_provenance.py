"""How a result came about."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from dlmexp import __version__
from dlmexp.common import provenance
from dlmexp.common.provenance import (
    MACHINE_ONLY,
    commit,
    portable_command,
    provenance_here,
    slurm_job_id,
    with_timestamp,
)
from tests.conftest import REPOSITORY


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    names = ("DLMEXP_COMMAND", "DLMEXP_COMMIT", "SLURM_JOB_ID")
    for name in (*names, "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)


def test_versions_device_and_command_are_noted(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/dlmexp", "run", "seeds=[0]", "device=cpu"])
    here = provenance_here("cuda:0")
    assert here.version == __version__
    assert (here.torch, here.numpy) == (version("torch"), version("numpy"))
    assert here.gpytorch == version("gpytorch")
    assert (here.device, here.command) == ("cuda:0", "dlmexp run 'seeds=[0]'")
    assert here.time is None


def test_job_of_a_multirun_notes_what_was_typed(monkeypatch):
    monkeypatch.setenv("DLMEXP_COMMAND", "dlmexp run -m 'seeds=[0],[1]'")
    assert provenance_here("cpu").command == "dlmexp run -m 'seeds=[0],[1]'"


def test_timestamp_is_utc_in_seconds(monkeypatch):
    monkeypatch.setattr(provenance.time, "gmtime", lambda: (2020, 12, 31, 23, 59, 59, 3, 366, 0))
    stamped = with_timestamp(provenance_here("cpu"))
    assert stamped.time == "2020-12-31T23:59:59Z"
    assert stamped.device == "cpu"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12"}, "12"),
        ({"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}, "12_3"),
        ({"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12"}, "14"),
    ],
)
def test_slurm_job_is_named_as_by_squeue(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert slurm_job_id() == expected


@pytest.mark.parametrize("name", [*MACHINE_ONLY, "hydra.launcher.partition"])
def test_settings_of_one_machine_are_left_out_of_a_portable_command(name):
    words = ["dlmexp", "run", "name=a b", f"{name}=x", f"+{name}=x"]
    assert portable_command(words) == "dlmexp run 'name=a b'"


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="an sdist has no history")
def test_commit_of_a_checkout_is_abbreviated_and_marked_if_files_were_changed():
    assert re.fullmatch(r"[0-9a-f]{12}\+?", commit() or "")


def test_commit_can_be_named_where_there_is_no_history(monkeypatch):
    monkeypatch.setenv("DLMEXP_COMMIT", "abc")
    assert commit() == "abc"


def test_installed_package_has_no_commit(tmp_path, monkeypatch):
    installed = tmp_path / "dlmexp" / "common" / "provenance.py"
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert commit() is None


def test_checkout_without_git_has_no_commit(monkeypatch):
    def no_git(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert commit() is None
