"""Shell completion of all commands, their options, and the settings of `dlmexp run`. Loads nothing slow."""

import argparse
import os
from collections.abc import Iterable, Iterator
from typing import Any

from dlmexp.errors import UserError

BASH = """\
_dlmexp() { COMPREPLY=( $(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" "$1" -sc query 2>/dev/null) ); }
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _dlmexp dlmexp
"""
SCRIPTS = {
    "install=bash": BASH,
    "install=zsh": f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{BASH}",
    "install=fish": "complete -c dlmexp -a '(COMP_LINE=(commandline -cp) dlmexp -sc query 2>/dev/null)'\n",
}


def answer(arguments: list[str]) -> int:
    """`install=bash` prints what a shell evaluates to get completions, `query` prints those of $COMP_LINE."""
    what, line = " ".join(arguments), os.environ.get("COMP_LINE")
    if what in SCRIPTS:
        print(SCRIPTS[what], end="")
    elif what == "query" and line is not None:
        print("\n".join(completions(line[: int(os.environ.get("COMP_POINT") or len(line))])))
    else:
        raise UserError(f"can't read '-sc {what}': give -sc {' | '.join(SCRIPTS)}")
    return 0


def completions(line: str) -> list[str]:
    """What the last word of a line can become: a command, an option, a name, or a setting with its value."""
    from dlmexp.cli import parser

    words = line.split()
    last = words.pop() if words and not line[-1].isspace() else ""
    node, before = parser(), ""
    for word in words[1:]:
        commands: Any = next((a.choices for a in node._actions if isinstance(a, argparse._SubParsersAction)), {})
        node, before = commands.get(word, node), word
    if node.prog == "dlmexp run":
        return list(_settings(last))
    for action in node._actions:
        if before in action.option_strings and action.nargs != 0:
            return _starting(last, _values(node, action))
    options = [name for action in node._actions for name in action.option_strings]
    named = [value for action in node._actions if not action.option_strings for value in _values(node, action)]
    return _starting(last, options if last.startswith("-") else named or options)


def _values(node: argparse.ArgumentParser, action: argparse.Action) -> Iterable[str]:
    """The values of an argument that are known: its choices, or names of figures, datasets and protocols."""
    from dlmexp import catalogue

    if action.choices is not None:
        return map(str, action.choices)
    if node.prog == "dlmexp plot" and action.dest == "ids":
        from dlmexp.figures.panels import FIGURES, PREDICTIONS

        return [*FIGURES.names(), PREDICTIONS]
    if action.dest == "protocol":
        return catalogue.names("protocol")
    return catalogue.names("dataset") if node.prog.startswith("dlmexp data ") and action.dest == "names" else []


def _settings(last: str) -> Iterator[str]:
    """Keys that start with `last`; behind `key=`, the names of a group or the choices of a setting."""
    from dlmexp import catalogue
    from dlmexp.plan.overrides import groups, settings

    key, equals, value = last.partition("=")
    fields = settings(key)
    if not equals:
        dotted = "." in key
        for name in _starting(key, dict.fromkeys([*groups(), *fields])):
            if dotted or "." not in name:
                inner = name not in groups() and any(other.startswith(f"{name}.") for other in fields)
                yield f"{name}{'.' if inner else '='}"
        return
    start = max(value.rfind("["), value.rfind(",")) + 1  # of the last name in a list
    choices = fields[key].metadata.get("choices", ()) if key in fields else ()
    if key in fields and fields[key].type is bool:
        choices = ("true", "false")
    for name in _starting(value[start:], catalogue.names(key) if key in groups() else choices):
        yield f"{key}={value[:start]}{name}"


def _starting(word: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(word)]
