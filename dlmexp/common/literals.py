"""Settings and commands as text that a user can type."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from dlmexp.common.errors import UserError

# Text that Hydra reads as text without quotes around it: a word or a path, which may begin with one
# dot or two, as in `../data`.
PLAIN = re.compile(
    r"(?!(?:null|true|false|nan|inf)\Z)\.{0,2}[a-z_/][\w./-]*", re.ASCII | re.IGNORECASE
)
SPECIAL_IN_DOUBLE_QUOTES = set('"$`\\!')  # a shell does not take these literally in double quotes


def csv_setting(name: str, value: str | Sequence[str]) -> str:
    """Return a setting of a user's table as it is typed in a shell, in quotes if it needs them.

    For instance `csv.drop=[age]`, or `"csv.drop=['age, in years']"`.

    Args:
        name: The name of the setting without `csv.`.
        value: The value of the setting.
    """
    text = f"csv.{name}={literal(value)}"
    words = [value] if isinstance(value, str) else value
    if all(PLAIN.fullmatch(word) for word in words):
        return text
    if SPECIAL_IN_DOUBLE_QUOTES.isdisjoint(text):
        return f'"{text}"'
    return shlex.quote(text)


def dotted_settings(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and the values of nested settings.

    Args:
        value: A dataclass or a mapping of settings, or the value of one setting.
        name: The dotted name of `value`; empty for all settings together.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from dotted_settings(inner, f"{name}.{key}" if name else key)


def literal(value: Any) -> str:
    """Return a value as `dlmexp run` accepts it: `null`, `true`, `0.01`, `[0.1,elbo]`.

    Text has quotes where it needs them.

    Raises:
        UserError: no setting has a value of this type.
    """
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    if isinstance(value, list | tuple | set | range):
        elements = ",".join(map(literal, value))
        return f"[{elements}]"
    if isinstance(value, Mapping):
        pairs = ",".join(f"{key}:{literal(element)}" for key, element in value.items())
        return "{" + pairs + "}"
    return _scalar_literal(value)


def _scalar_literal(value: Any) -> str:
    if value is None or isinstance(value, int):  # also True and False
        return json.dumps(value)
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return text if PLAIN.fullmatch(text) else in_quotes(text)
    raise UserError(f"{value!r}: a setting is a number, a text, true or false, or a list of those")


def in_quotes(value: str) -> str:
    """Return text in single quotes, escaped as the overrides of Hydra require it."""
    # Hydra takes a while to import, and few texts need quotes.
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(value, Quote.single).with_quotes()


COMMANDS_WITH_FURTHER_RESULTS = ("plot", "claims", "collect", "rank", "anchors", "report")
"""The commands that have the option `--with`, which names further results folders."""
COMMANDS_WITHOUT_RESULTS = ("data",)
"""The commands that read no results folder, and so have no option to name one."""


def with_results_option(
    command: str, results: str | os.PathLike[str], further: Sequence[str | os.PathLike[str]] = ()
) -> str:
    """Return a command of dlmexp, with the options that name its results folders.

    Args:
        command: The command without these options. A command that reads no results stays as it is.
        results: The results folder; the default, `results`, needs no option.
        further: Further results folders, for commands with the option `--with`.
    """
    words = command.split()
    if len(words) < 2 or words[0] != "dlmexp" or words[1] in COMMANDS_WITHOUT_RESULTS:
        return command
    options = _results_options(words, Path(results).as_posix())
    # Any word may be the name of the command: options such as `--plugins NAME` may precede it.
    if not set(COMMANDS_WITH_FURTHER_RESULTS).isdisjoint(words):
        for folder in further:
            options += ["--with", Path(folder).as_posix()]
    return f"{command} {shlex.join(options)}" if options else command


def _results_options(words: Sequence[str], folder: str) -> list[str]:
    """Return the words to add to a command so that it uses a results folder."""
    if folder == "results":
        return []
    if "run" in words:  # its options are settings of Hydra
        return [f"results={folder}"]
    return ["--results", folder]
