"""Settings as a user types them: values as words that `dlmexp run` accepts."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from dlmexp.common.errors import UserError

# Text that Hydra reads as text, without quotes.
PLAIN = re.compile(
    r"(?!(?:null|true|false|nan|inf)\Z)\.{0,2}[a-z_/][\w./-]*", re.ASCII | re.IGNORECASE
)
EXPANDED_BY_SHELLS = set('"$`\\!')  # within double quotes


def setting(name: str, value: str | Sequence[str]) -> str:
    """Return an option of a user's table as a shell takes it.

    For instance `csv.drop=[age]`, or `"csv.drop=['age, in years']"`.
    """
    text = f"csv.{name}={literal(value)}"
    words = [value] if isinstance(value, str) else value
    if all(PLAIN.fullmatch(word) for word in words):
        return text
    if EXPANDED_BY_SHELLS.isdisjoint(text):
        return f'"{text}"'
    return shlex.quote(text)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and the values of nested settings."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from flat(inner, f"{name}.{key}" if name else key)


def literal(value: Any) -> str:
    """Return a value as `dlmexp run` accepts it: `null`, `true`, `0.01`, `[0.1,elbo]`.

    Text is in quotes where it needs them.

    Raises:
        UserError: settings have no values of this type.
    """
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    if isinstance(value, list | tuple | set | range):
        return f"[{','.join(literal(element) for element in value)}]"
    if isinstance(value, Mapping):
        pairs = [f"{key}:{literal(element)}" for key, element in value.items()]
        return f"{{{','.join(pairs)}}}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return text if PLAIN.fullmatch(text) else in_quotes(text)
    raise UserError(f"{value!r}: a setting is a number, a text, true or false, or a list of those")


def in_quotes(value: str) -> str:
    """Return text in the quotes of an override."""
    # It takes a while to load, and few texts need it.
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(value, Quote.single).with_quotes()


READ_OTHERS = ("plot", "claims", "collect", "rank", "anchors", "report")
"""The commands that have the option `--with`."""


def with_results_option(
    command: str, results: str | os.PathLike[str], others: Sequence[str | os.PathLike[str]] = ()
) -> str:
    """Return a `dlmexp` command with options for the results folder and the others that it reads.

    The default folder `results` is not named. A command that takes no results folder is unchanged.
    """
    words = command.split()
    if words[:1] != ["dlmexp"] or len(words) < 2 or words[1] == "data":
        return command
    options: list[str] = []
    folder = Path(results).as_posix()
    if folder != "results":
        options += [f"results={folder}"] if "run" in words else ["--results", folder]
    if not set(READ_OTHERS).isdisjoint(words):
        for other in others:
            options += ["--with", Path(other).as_posix()]
    return f"{command} {shlex.join(options)}" if options else command
