"""What users add: modules that register loaders, kernels, objectives, figures, ..., and folders of YAML files.

A module is named by `plugins=[module]` in the config of a run, by `dlmexp --plugins module COMMAND` or `DLMEXP_PLUGINS`
elsewhere, or by an entry point of its package (see `dlmexp.registry`). It is looked for in the current folder too. A
package may have a folder `conf` with YAML files for our config groups, which are then found like our own.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from dlmexp.errors import UserError
from dlmexp.paths import CONFIG_DIRS

PLUGINS = "DLMEXP_PLUGINS"  # module names with commas, for all commands and for jobs in other processes


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
    """While entered, a user's conf folder and plugins are in use, here and in processes that are started meanwhile."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise UserError(f"--config-dir {config_dir}: there is no such folder")
    names = list(dict.fromkeys([*_listed(PLUGINS, ","), *plugins]))
    import_plugins(names)
    folders = [*_listed(CONFIG_DIRS, os.pathsep), *([config_dir] if config_dir else []), *_conf_folders(names)]
    places = os.pathsep.join(dict.fromkeys(os.path.abspath(folder) for folder in folders))
    with environment(**{PLUGINS: ",".join(names), CONFIG_DIRS: places}):
        yield


def import_plugins(names: Sequence[str]) -> None:
    """Import modules, which registers what is in them; what is wrong with one is a sentence for the user."""
    if names and "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            import_module(name)
        except UserError:
            raise
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                where = "install its package, or start dlmexp in the folder it lies in"
                raise UserError(f"plugins=[{name}]: there is no module '{error.name}': {where}") from None
            raise UserError(f"plugins=[{name}]: it imports '{error.name}', which is not installed") from None
        except Exception as error:  # a stranger's module can raise anything
            raise UserError(f"plugins=[{name}] can't be imported: {type(error).__name__}: {error}") from error


def _listed(variable: str, separator: str) -> list[str]:
    return [word for word in os.environ.get(variable, "").split(separator) if word]


def _conf_folders(names: Sequence[str]) -> list[str]:
    """The folders `conf` of imported packages."""
    packages = [location for name in names for location in getattr(sys.modules[name], "__path__", ())]
    return [str(folder) for package in packages if (folder := Path(package) / "conf").is_dir()]
