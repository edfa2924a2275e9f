"""Fixtures shared by all tests, and the check of type hints."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.hints import calls, check_hints

os.environ.pop("COLUMNS", None)  # of the terminal in which pytest-xdist was started: tables would be as narrow

if not os.environ.get("NOHINTS"):
    check_hints()  # before anything of dlmexp is imported

settings.register_profile("dlmexp", deadline=None)  # a busy machine is no error
settings.load_profile("dlmexp")

pytest_plugins = ["tests.support.processes"]

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real raw files: `DLMEXP_DATA`, or `../shared/data` beside the checkout; skips where neither is there."""
    for candidate in (os.environ.get("DLMEXP_DATA"), REPOSITORY.parent / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate).resolve()
    pytest.skip("no real data files: set DLMEXP_DATA to a folder that holds them")


@pytest.fixture(autouse=True)
def hints_are_checked_again() -> None:
    calls.clear()
