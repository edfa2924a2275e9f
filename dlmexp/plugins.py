"""Users' own modules: importing one registers its loaders, kernels, likelihoods, objectives, estimators, figures, claims.

A module is named by `plugins=[module]` in the config of a run, by `dlmexp --plugins module COMMAND` or `DLMEXP_PLUGINS`
elsewhere, or by an entry point of its package (see `dlmexp.registry`). It is looked for in the current folder too. A
package may have a folder `conf` with YAML files for our config groups, which are then found like our own.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from dlmexp.errors import UserError
from dlmexp.paths import conf_dirs

PLUGINS = "DLMEXP_PLUGINS"  # module names with commas; jobs in other processes get it too


def named_in_environment() -> list[str]:
    return [name for name in os.environ.get(PLUGINS, "").split(",") if name]


def import_plugins(names: Sequence[str]) -> None:
    """Import the modules; what is wrong with one is a sentence for the user."""
    if names and "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            import_module(name)
        except UserError:
            raise
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise UserError(
                    f"plugins=[{name}]: there is no module '{error.name}': install its package, or start dlmexp in the "
                    "folder it lies in"
                ) from None
            raise UserError(f"plugins=[{name}]: it imports '{error.name}', which is not installed") from None
        except Exception as error:  # a stranger's module can raise anything
            raise UserError(f"plugins=[{name}] can't be imported: {type(error).__name__}: {error}") from error


def conf_folders(names: Sequence[str]) -> list[Path]:
    """The folders `conf` of imported plugins, and of packages with an entry point of the group `dlmexp.conf`."""
    places = [location for name in names for location in getattr(sys.modules.get(name), "__path__", ())]
    found = [folder for place in places if (folder := Path(place) / "conf").is_dir()]
    for point in entry_points(group="dlmexp.conf"):
        spec = find_spec(point.value)
        found += [Path(place) for place in (spec.submodule_search_locations or () if spec else ())]
    return [folder for folder in dict.fromkeys(found) if folder not in conf_dirs()]
