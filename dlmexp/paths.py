"""Where things lie: the configuration that travels with the package, users' own, the data root."""

import os
import shlex
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

CONFIG_DIRS = "DLMEXP_CONFIG_DIRS"  # users' own `conf` folders, for all commands and for jobs in other processes


@cache
def conf_dir() -> Path:
    """The folder of YAML groups: inside the installed package, or `conf/` beside it in a checkout."""
    package = Path(__file__).resolve().parent
    packed = package / "conf"
    return packed if packed.is_dir() else package.parent / "conf"


def conf_dirs() -> list[Path]:
    """Our folder of YAML groups, then those that `DLMEXP_CONFIG_DIRS` names, then those of installed packages with an
    entry point of the group `dlmexp.conf`."""
    own = [Path(folder) for folder in os.environ.get(CONFIG_DIRS, "").split(os.pathsep) if folder]
    return list(dict.fromkeys([conf_dir(), *own, *_installed_conf_dirs()]))


@cache
def _installed_conf_dirs() -> list[Path]:
    specs = [find_spec(point.value) for point in entry_points(group="dlmexp.conf")]
    return [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]


def data_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder with one sub-folder per dataset: what the user named, else `DLMEXP_DATA`, else `./data`."""
    return Path(given or os.environ.get("DLMEXP_DATA") or "data")


def in_folder(command: str, results: str | os.PathLike[str]) -> str:
    """A command of ours with the results folder added; unchanged for `results`, and for commands that take none."""
    words, folder = command.split(), Path(results).as_posix()
    if words[:1] != ["dlmexp"] or folder == "results" or len(words) == 1 or words[1] == "data":
        return command
    return f"{command} {shlex.join([f'results={folder}'] if 'run' in words else ['--results', folder])}"
