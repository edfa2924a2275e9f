"""Where things lie: the configuration that travels with the package, the data root, and what users
add: folders of YAML files, and modules that register loaders, kernels, objectives, figures, ...

A module is named by `plugins=[module]` in the config of a run, by `dlmexp --plugins module COMMAND`
or `DLMEXP_PLUGINS` elsewhere, or by an entry point of its package (see `dlmexp.common.registry`).
It is looked for in the current folder too. A package may have a folder `conf` with YAML files for
our config groups, which are then found like our own."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlmexp.common.errors import UserError

PLUGINS = (
    "DLMEXP_PLUGINS"  # module names with commas, for all commands and for jobs in other processes
)
# users' own `conf` folders, for all commands and for jobs in other processes
CONFIG_DIRS = "DLMEXP_CONFIG_DIRS"


@cache
def conf_dir() -> Path:
    """The folder of YAML groups: inside the installed package, or `conf/` beside it in a
    checkout."""
    package = Path(__file__).resolve().parents[1]
    packed = package / "conf"
    return packed if packed.is_dir() else package.parent / "conf"


def conf_dirs() -> list[Path]:
    """Our folder of YAML groups, then those that `DLMEXP_CONFIG_DIRS` names, then those of
    installed packages with an entry point of the group `dlmexp.conf`."""
    return list(
        dict.fromkeys(
            [conf_dir(), *map(Path, _listed(CONFIG_DIRS, os.pathsep)), *_installed_conf_dirs()]
        )
    )


def _listed(variable: str, separator: str) -> list[str]:
    return [word for word in os.environ.get(variable, "").split(separator) if word]


@cache
def _installed_conf_dirs() -> list[Path]:
    specs = [find_spec(point.value) for point in entry_points(group="dlmexp.conf")]
    return [
        Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()
    ]


def data_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder with one sub-folder per dataset: what the user named, else `DLMEXP_DATA`, else
    `./data`."""
    return Path(given or os.environ.get("DLMEXP_DATA") or "data")


def in_folder(command: str, results: str | os.PathLike[str]) -> str:
    """A command of ours with the results folder added; unchanged for `results`, and for commands
    that take none."""
    words, folder = command.split(), Path(results).as_posix()
    if words[:1] != ["dlmexp"] or folder == "results" or len(words) == 1 or words[1] == "data":
        return command
    return f"{command} {shlex.join([f'results={folder}'] if 'run' in words else ['--results', folder])}"


def cores() -> int:
    """As many as this process may use, which `taskset` and SLURM set; all of the machine where
    nothing does."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(make: Callable[[Any], Any], things: Sequence[Any]) -> Iterator[Any]:
    """What `make` gives for each thing, in their order; on Linux by a process for each core, which
    knows all that this one does."""
    count = min(cores(), len(things)) if sys.platform == "linux" else 1
    if count < 2:
        yield from map(make, things)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(count, get_context("fork"), _begin, (make, things)) as pool:
        yield from pool.map(_make, range(len(things)))


_work: list[Any] = []  # of a forked process, which inherits it: it need not be pickled


def _begin(*work: Any) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the first process, which waits for this one
    _work[:] = work


def _make(index: int) -> Any:
    make, things = _work
    return make(things[index])


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for this process and those that it starts; restored on exit."""
    before = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def extended(config_dir: str | None = None, plugins: Sequence[str] = ()) -> Iterator[None]:
    """While entered, a user's conf folder and plugins are in use, here and in processes that are
    started meanwhile."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise UserError(f"--config-dir {config_dir}: there is no such folder")
    names = list(dict.fromkeys([*_listed(PLUGINS, ","), *plugins]))
    import_plugins(names)
    packages = [
        Path(place) for name in names for place in getattr(sys.modules[name], "__path__", ())
    ]
    own = [package / "conf" for package in packages if (package / "conf").is_dir()]
    folders = [*_listed(CONFIG_DIRS, os.pathsep), *([config_dir] if config_dir else []), *own]
    places = os.pathsep.join(dict.fromkeys(os.path.abspath(folder) for folder in folders))
    with environment(**{PLUGINS: ",".join(names), CONFIG_DIRS: places}):
        yield


def import_plugins(names: Sequence[str]) -> None:
    """Import modules, which registers what is in them; what is wrong with one is a sentence for the
    user."""
    if names and "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            import_module(name)
        except UserError:
            raise
        except Exception as error:  # a stranger's module can raise anything
            absent = isinstance(error, ModuleNotFoundError)
            advice = "; install it, or start dlmexp in the folder where it lies" if absent else ""
            raise UserError(
                f"plugins=[{name}] can't be imported: {type(error).__name__}: {error}{advice}"
            ) from error
