"""Fixtures shared by all tests, and the check of type hints while tests run, wherever they say the
shape of a tensor or an array."""

import inspect
import os
import re
from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from io import StringIO
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype
from hypothesis import settings
from omegaconf import OmegaConf

from tests.support.real_data import MISSING, real_data

os.environ.pop(
    "COLUMNS", None
)  # of the terminal in which pytest-xdist was started: tables would be as narrow

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ["core", "data", "mlls"]  # where hints have shapes
SHAPED = re.compile(r"\b(Float|Int|Bool)\[")
# of a function are checked in each test: what a training step calls, it calls a thousand times
# alike
CALLS = 5

calls: Counter[Callable[..., Any]] = Counter()  # in the present test
checked = beartype(
    conf=BeartypeConf(is_pep484_tower=True)
)  # an int may be given where a hint says float
_jaxtyped = jaxtyping.jaxtyped


def _where_shaped(*, typechecker: Any) -> Callable[[Any], Any]:
    def decorate(plain: Any) -> Any:
        if inspect.isfunction(plain) and not SHAPED.search(str(plain.__annotations__)):
            return plain
        always = _jaxtyped(plain, typechecker=typechecker)
        if not inspect.isfunction(plain):
            return always

        @wraps(plain)
        def at_first(*arguments: Any, **options: Any) -> Any:
            calls[plain] += 1
            return (always if calls[plain] <= CALLS else plain)(*arguments, **options)

        return at_first

    return decorate


if not os.environ.get("NOHINTS"):  # before anything of dlmexp is imported
    # Every function with shapes and every class of these packages that is imported from now on is
    # checked in use. A check takes some 40 us: with all calls of all functions, training would take
    # twice as long.
    jaxtyping.jaxtyped = _where_shaped  # which the hook puts on all functions
    jaxtyping.install_import_hook(
        [f"dlmexp.{package}" for package in PACKAGES], f"{__name__}.checked"
    )

_load = OmegaConf.load


@cache
def _parsed(text: str) -> Any:
    """What a text in YAML says; Hydra reads the same files for each of thousands of configs."""
    return OmegaConf.to_container(_load(StringIO(text)))


def _load_once(file_: Any) -> Any:
    if not hasattr(file_, "read"):
        return _load(file_)
    try:
        return OmegaConf.create(_parsed(file_.read()))
    except Exception:
        file_.seek(0)  # the message names the file
        return _load(file_)


OmegaConf.load = staticmethod(_load_once)

settings.register_profile("dlmexp", deadline=None)  # a busy machine is no error
settings.load_profile("dlmexp")

pytest_plugins = ["tests.support.processes"]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real raw files: `DLMEXP_DATA`, or `../shared/data` beside the checkout; skips where
    neither is there."""
    folder = real_data()
    if folder is None:
        pytest.skip(MISSING)
    return folder


@pytest.fixture(autouse=True)
def hints_are_checked_again() -> None:
    calls.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what reads the published results where they are not, as in an sdist."""
    if (REPOSITORY / "results" / "paper" / "records-paper.parquet").exists():
        return
    skip = pytest.mark.skip(reason="the published results are not in this copy of the repository")
    for item in items:
        if "published" in item.keywords:
            item.add_marker(skip)
