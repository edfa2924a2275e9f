"""Settings as an error advises them: words that a shell and `dlmexp run` take as they are."""

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from dlmexp.config import CsvConfig
from dlmexp.errors import UserError

PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)\.{0,2}[a-z_/][\w./-]*", re.ASCII | re.IGNORECASE)
"""Text that Hydra reads as text."""


def setting(name: str, *values: str) -> str:
    """`csv.drop=[age]`; in quotes where a name needs them: `"csv.drop=['age, in years']"`. Of an option with one value
    that one, without brackets."""
    listed = ",".join(map(literal, values))
    text = f"csv.{name}=[{listed}]" if isinstance(getattr(CsvConfig(), name), list) else f"csv.{name}={listed}"
    if all(map(PLAIN.fullmatch, values)):
        return text
    return f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)


def literal(value: Any) -> str:
    """A value as `dlmexp run` takes it: `null`, `true`, `0.01`, `[0.1,elbo]`, text in quotes where it needs them."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of numpy
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return text if PLAIN.fullmatch(text) else in_quotes(text)
    if isinstance(value, list | tuple | set | range):
        return f"[{','.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{literal(each)}' for key, each in value.items())}}}"
    if isinstance(value, int):
        return str(value)
    raise UserError(f"{value!r}: a setting is a number, a text, true or false, or a list of those")


def in_quotes(value: str) -> str:
    """Text in the quotes of an override, in which backslashes count only before a quote."""
    escaped = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"'{escaped}'"
