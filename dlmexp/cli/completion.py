"""Shell completion: the words that can stand at the cursor.

A user waits for it at the prompt, so it imports no library that is slow to load.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from pkgutil import iter_modules
from typing import Any

from dlmexp.common import catalogue
from dlmexp.common.extensions import use_extensions

# Config groups of Hydra, with the last word in the names of plugins that add to them: an installed
# plugin `hydra_joblib_launcher` adds `joblib` to `hydra/launcher`.
PLUGIN_KINDS = {"hydra/launcher": "launcher", "hydra/sweeper": "sweeper"}


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
        return _overrides(prefix)
    from argcomplete.completers import FilesCompleter

    return FilesCompleter()(prefix)


def _overrides(word: str) -> Iterator[str]:
    """Yield the overrides that `word` can become.

    Keys are completed until the word has a `=`, values after it.
    """
    from dlmexp.experiment.plan.overrides import setting_types

    key, equals, value = word.partition("=")
    type_of = setting_types(typed_name=key)
    if not equals:
        yield from _keys(key, type_of)
        return
    # In a list such as `[elbo,j`, the last element is completed: `[elbo,` stays.
    element_start = max(value.rfind("["), value.rfind(",")) + 1
    unchanged = value[:element_start]
    for element in _values(key, type_of.get(key)):
        yield f"{key}={unchanged}{element}"


def _keys(word: str, settings: Iterable[str]) -> Iterator[str]:
    """Yield the keys with at most as many dots as the word.

    A section such as `beta` ends in a dot, because a setting in it follows. A setting ends in `=`.
    """
    from dlmexp.experiment.plan.overrides import GROUPS

    groups = [*GROUPS, *PLUGIN_KINDS]
    keys = list(dict.fromkeys([*groups, *settings]))
    for key in keys:
        if key.count(".") > word.count("."):
            continue
        has_settings = any(longer_key.startswith(f"{key}.") for longer_key in keys)
        is_section = has_settings and key not in groups
        yield f"{key}." if is_section else f"{key}="


def _values(key: str, setting_type: Any) -> Iterable[str]:
    """Return the values of a config group or a setting; empty if they can't be listed."""
    from dlmexp.common.limits import choices_of
    from dlmexp.experiment.plan.overrides import GROUPS

    if key in PLUGIN_KINDS:
        return [*catalogue.names(key), *_hydra_plugins(PLUGIN_KINDS[key])]
    if key in GROUPS:
        return catalogue.names(key)
    if setting_type is bool:
        return ("true", "false")
    return choices_of(setting_type)


def _hydra_plugins(kind: str) -> Iterator[str]:
    """Yield the names of installed plugins of Hydra without importing them.

    Args:
        kind: `launcher` or `sweeper`.
    """
    import hydra_plugins  # a namespace package: its folders are those of all installed plugins

    for module in iter_modules(hydra_plugins.__path__):
        match = re.fullmatch(f"hydra_(\\w+)_{kind}", module.name)
        # submitit is used through our files hydra/launcher/slurm*.yaml.
        if match and match[1] != "submitit":
            yield match[1]
