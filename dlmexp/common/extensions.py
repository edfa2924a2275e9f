"""Extensions by users: plugin modules, and folders of YAML files.

A plugin registers loaders, kernels, objectives, figures and so on. A user names it by
`plugins=[module]` in the config of a run, or by `dlmexp --plugins module COMMAND` or
`DLMEXP_PLUGINS` for all commands; a package names it by an entry point (see
`dlmexp.common.registry`). Plugins in the current folder are found, too. If a plugin is a package
with a folder `conf`, YAML files are searched there after our own.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from dlmexp.common.environment import environment, words_of
from dlmexp.common.errors import UserError
from dlmexp.common.paths import CONFIG_DIRS_VARIABLE

# The environment variable that names plugins, separated by commas, for all commands and for jobs in
# other processes.
PLUGINS_VARIABLE = "DLMEXP_PLUGINS"


@contextmanager
def use_extensions(config_dir: str | None = None, plugins: Sequence[str] = ()) -> Iterator[None]:
    """Use a conf folder and plugins in this context, and in processes that it starts.

    Raises:
        UserError: there is no such folder, or a plugin cannot be imported.
    """
    if config_dir is not None and not Path(config_dir).is_dir():
        raise UserError(f"--config-dir {config_dir}: there is no such folder")
    modules = list(dict.fromkeys([*words_of(PLUGINS_VARIABLE, ","), *plugins]))
    import_plugins(modules)
    folders = words_of(CONFIG_DIRS_VARIABLE, os.pathsep)
    if config_dir:
        folders.append(config_dir)
    folders += _conf_folders(modules)
    absolute_folders = dict.fromkeys(map(os.path.abspath, folders))
    variables = {
        PLUGINS_VARIABLE: ",".join(modules),
        CONFIG_DIRS_VARIABLE: os.pathsep.join(absolute_folders),
    }
    with environment(**variables):
        yield


def import_plugins(modules: Sequence[str]) -> None:
    """Import modules, which registers their contents.

    Raises:
        UserError: a module cannot be imported.
    """
    if modules:
        _search_current_folder()
    for module in modules:
        try:
            import_module(module)
        except UserError:
            raise
        except Exception as error:  # a plugin can raise anything
            advice = ""
            if isinstance(error, ModuleNotFoundError):
                advice = "; install it, or start dlmexp in the folder where it lies"
            raise UserError(
                f"plugins=[{module}] can't be imported: {type(error).__name__}: {error}{advice}"
            ) from error


def _search_current_folder() -> None:
    """Add the current folder to the folders that modules are imported from."""
    current = os.getcwd()
    if "" not in sys.path and current not in sys.path:
        sys.path.insert(0, current)


def _conf_folders(modules: Sequence[str]) -> list[str]:
    """Return the folders `conf` inside those of the imported modules that are packages."""
    folders = []
    for module in modules:
        for location in getattr(sys.modules[module], "__path__", ()):
            folder = Path(location, "conf")
            if folder.is_dir():
                folders.append(str(folder))
    return folders
