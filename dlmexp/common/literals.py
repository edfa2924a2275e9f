"""Settings as a user types them: values as words that `dlmexp run` takes as they are."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from dlmexp.common.errors import UserError

PLAIN = re.compile(
    r"(?!(?:null|true|false|nan|inf)\Z)\.{0,2}[a-z_/][\w./-]*", re.ASCII | re.IGNORECASE
)
"""Text that Hydra reads as text."""


def setting(name: str, value: str | Sequence[str]) -> str:
    """An option of a user's table as a shell takes it: `csv.drop=[age]`, `"csv.drop=['age, in
    years']"`."""
    text = f"csv.{name}={literal(value)}"
    if all(map(PLAIN.fullmatch, [value] if isinstance(value, str) else value)):
        return text
    return f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted names and values of settings, down to single ones."""
    value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value


def literal(value: Any) -> str:
    """A value as `dlmexp run` takes it: `null`, `true`, `0.01`, `[0.1,elbo]`, text in quotes where
    it needs them."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of numpy
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return text if PLAIN.fullmatch(text) else in_quotes(text)
    if isinstance(value, list | tuple | set | range):
        return f"[{','.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{literal(each)}' for key, each in value.items())}}}"
    raise UserError(f"{value!r}: a setting is a number, a text, true or false, or a list of those")


def in_quotes(value: str) -> str:
    """Text in the quotes of an override."""
    # which takes a while to load, and few texts need
    from hydra.core.override_parser.types import (
        Quote,
        QuotedString,
    )

    return QuotedString(value, Quote.single).with_quotes()


def with_results_option(command: str, results: str | os.PathLike[str]) -> str:
    """Return a command of ours with the results folder added.

    It is unchanged for the default folder `results`, and if it takes no results folder.
    """
    words = command.split()
    folder = Path(results).as_posix()
    takes_results = words[:1] == ["dlmexp"] and len(words) > 1 and words[1] != "data"
    if not takes_results or folder == "results":
        return command
    option = [f"results={folder}"] if "run" in words else ["--results", folder]
    return f"{command} {shlex.join(option)}"
