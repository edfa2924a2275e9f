"""Shell completion: the words that can stand at the cursor. No slow library is imported for it."""

import argparse
import re
from collections.abc import Iterable, Iterator
from pkgutil import iter_modules
from typing import Any

from dlmexp.common import catalogue
from dlmexp.common.extensions import use_extensions

# Config groups of Hydra, with the last word in the names of packages that add to them: an installed
# `hydra_joblib_launcher` adds `joblib` to `hydra/launcher`.
HYDRA_GROUPS = {"hydra/launcher": "launcher", "hydra/sweeper": "sweeper"}


def complete_word(parser: argparse.ArgumentParser) -> None:
    """Print the completions that a shell asks for, and exit."""
    import argcomplete

    with use_extensions():
        argcomplete.autocomplete(parser, default_completer=known_values)  # pyright: ignore[reportArgumentType]


def known_values(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Return the values of an argument that has no `choices`.

    argcomplete calls this.

    Args:
        prefix: The word at the cursor.
        action: The argument; `action.dest` is the name of its attribute in the parsed arguments.
    """
    if action.dest in ("dataset", "protocol"):
        return catalogue.names(action.dest)
    if action.dest == "ids":
        from dlmexp.presentation.figures.panels import (
            FIGURES,
            LEADERBOARD_FIGURES,
            MODEL_FIGURES,
            VERDICTS_FIGURE,
        )

        return [*FIGURES.names(), *LEADERBOARD_FIGURES, *MODEL_FIGURES, VERDICTS_FIGURE]
    if action.dest == "overrides":
        return _settings(prefix)
    from argcomplete.completers import FilesCompleter

    return FilesCompleter()(prefix)


def _settings(word: str) -> Iterator[str]:
    """Yield the overrides that `word` can become: a key while it has no `=`, then its values."""
    from dlmexp.experiment.plan.overrides import settings

    key, equals, value = word.partition("=")
    type_of = settings(near=key)
    if not equals:
        yield from _keys(key, type_of)
        return
    # In a list such as `[elbo,j`, the last element is completed.
    element_start = max(value.rfind("["), value.rfind(",")) + 1
    elements_before = value[:element_start]
    for name in _values(key, type_of.get(key)):
        yield f"{key}={elements_before}{name}"


def _keys(word: str, settings: Iterable[str]) -> Iterator[str]:
    """Yield the keys with at most as many dots as the word.

    A section such as `beta` ends in a dot, because its parts follow. A setting ends in `=`.
    """
    from dlmexp.experiment.plan.overrides import GROUPS

    groups = [*GROUPS, *HYDRA_GROUPS]
    names = list(dict.fromkeys([*groups, *settings]))
    for name in names:
        if name.count(".") > word.count("."):
            continue
        has_parts = any(other.startswith(f"{name}.") for other in names)
        is_section = has_parts and name not in groups
        yield f"{name}." if is_section else f"{name}="


def _values(key: str, setting_type: Any) -> Iterable[str]:
    """Return the values of a config group or a setting; empty if they can't be listed."""
    from dlmexp.common.limits import choices_of
    from dlmexp.experiment.plan.overrides import GROUPS

    if key in HYDRA_GROUPS:
        return [*catalogue.names(key), *_hydra_plugins(HYDRA_GROUPS[key])]
    if key in GROUPS:
        return catalogue.names(key)
    if setting_type is bool:
        return ("true", "false")
    return choices_of(setting_type)


def _hydra_plugins(kind: str) -> Iterator[str]:
    """Yield the names of installed plugins of Hydra, launchers or sweepers; none is imported."""
    import hydra_plugins  # a namespace package: its folders are those of all installed plugins

    for module in iter_modules(hydra_plugins.__path__):
        match = re.fullmatch(f"hydra_(\\w+)_{kind}", module.name)
        # Our files hydra/launcher/slurm*.yaml stand for submitit.
        if match and match[1] != "submitit":
            yield match[1]
