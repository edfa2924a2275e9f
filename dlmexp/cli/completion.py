"""Shell completion: how the word at the cursor can go on. Nothing slow is loaded for it."""

import argparse
import re
from collections.abc import Iterable, Iterator
from pkgutil import iter_modules
from typing import Any

from dlmexp.common import catalogue
from dlmexp.common.extensions import extended

# Groups of Hydra that a run reads, and how the packages of their plugins end.
OF_HYDRA = {"hydra/launcher": "launcher", "hydra/sweeper": "sweeper"}


def complete_word(parser: argparse.ArgumentParser) -> None:
    """Print the completions that a shell asks for, and exit."""
    import argcomplete

    with extended():
        argcomplete.autocomplete(parser, default_completer=known_values)  # pyright: ignore[reportArgumentType]


def known_values(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Return the values of an argument that has no `choices`, by the name it is stored under."""
    if action.dest in ("dataset", "protocol"):
        return catalogue.names(action.dest)
    if action.dest == "ids":
        from dlmexp.presentation.figures.panels import FIGURES, OF_BOARDS, OF_MODELS, VERDICTS

        return [*FIGURES.names(), *OF_BOARDS, *OF_MODELS, VERDICTS]
    if action.dest == "overrides":
        return _settings(prefix)
    from argcomplete.completers import FilesCompleter

    return FilesCompleter()(prefix)


def _settings(word: str) -> Iterator[str]:
    """Yield what an override that begins with `word` can be: a key, or a key with a value."""
    from dlmexp.experiment.plan.overrides import GROUPS, settings

    key, equals, value = word.partition("=")
    kinds = settings(key)
    if not equals:
        yield from _keys(key, [*GROUPS, *OF_HYDRA, *kinds], (*GROUPS, *OF_HYDRA))
        return
    if key in OF_HYDRA:
        values = [*catalogue.names(key), *_plugins_of_hydra(OF_HYDRA[key])]
    else:
        values = catalogue.names(key) if key in GROUPS else _values(kinds.get(key))
    last_name = max(value.rfind("["), value.rfind(",")) + 1  # of a list
    for name in values:
        yield f"{key}={value[:last_name]}{name}"


def _plugins_of_hydra(kind: str) -> Iterator[str]:
    """Yield the names of installed plugins: `joblib` for the package `hydra_joblib_launcher`."""
    import hydra_plugins  # its folders are those of all plugins; none is imported

    for module in iter_modules(hydra_plugins.__path__):
        match = re.fullmatch(f"hydra_(\\w+)_{kind}", module.name)
        if match and match[1] != "submitit":  # ours, under the names of our files
            yield match[1]


def _keys(word: str, names: Iterable[str], groups: Iterable[str]) -> Iterator[str]:
    """Yield the names as deep as the word: `beta.` has parts, `beta.first=` has a value."""
    names = list(dict.fromkeys(names))
    for name in names:
        if name.count(".") > word.count("."):
            continue
        has_parts = any(other.startswith(f"{name}.") for other in names)
        yield f"{name}." if has_parts and name not in groups else f"{name}="


def _values(kind: Any) -> Iterable[str]:
    """Return the values of a setting of this type, if they are few."""
    from dlmexp.common.limits import choices_of

    return ("true", "false") if kind is bool else choices_of(kind)
