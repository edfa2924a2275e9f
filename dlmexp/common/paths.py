"""Folders of configuration and of data.

Users and plugins may have folders `conf` with YAML files for our config groups, which are then
found like our own files (see `dlmexp.common.extensions`).
"""

import os
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from dlmexp.common.environment import words_of

# The environment variable that names users' own `conf` folders, for all commands and for jobs in
# other processes.
CONFIG_DIRS_VARIABLE = "DLMEXP_CONFIG_DIRS"


@cache
def conf_dir() -> Path:
    """Return our folder of YAML groups: in the installed package, or `conf/` of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


def conf_dirs() -> list[Path]:
    """Return all folders of YAML groups, in the order in which they are searched.

    First ours, then those that `DLMEXP_CONFIG_DIRS` names, then those of installed packages with an
    entry point of the group `dlmexp.conf`.
    """
    named = [Path(folder) for folder in words_of(CONFIG_DIRS_VARIABLE, os.pathsep)]
    folders = [conf_dir(), *named, *_installed_conf_dirs()]
    return list(dict.fromkeys(folders))


@cache
def _installed_conf_dirs() -> list[Path]:
    folders: list[Path] = []
    for entry_point in entry_points(group="dlmexp.conf"):
        spec = find_spec(entry_point.value)
        if spec is not None:
            locations = spec.submodule_search_locations or ()
            folders += map(Path, locations)
    return folders


def data_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that has one folder per dataset.

    Args:
        folder: The folder that the user typed. None: the one that the environment variable
            `DLMEXP_DATA` names, else `./data`.
    """
    return Path(folder or os.environ.get("DLMEXP_DATA") or "data")
