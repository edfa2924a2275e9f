"""What a user says about an own table (`csv.*`, or `options:` of a dataset with `loader: table`), checked; and settings
as an error advises them: words that a shell and `dlmexp run` take as they are."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec

from dlmexp.config import CsvConfig
from dlmexp.errors import UserError, nearest

OTHERS = ("by_task", "checks")  # options that concern others
PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)\.{0,2}[a-z_/][\w./-]*", re.ASCII | re.IGNORECASE)
"""Text that Hydra reads as text."""


class TableProblems(UserError):
    """All that is wrong with a user's table, and the settings that do away with it: values by option."""

    def __init__(self, file: str, options: CsvConfig):
        self.file, self.options = file, options
        self.problems: list[str] = []
        self.remedies: dict[str, list[str]] = {}

    def add(self, problem: str, **remedies: Sequence[str]) -> None:
        """Note a problem. Its remedies are added to what is given already, where that is a list."""
        self.problems.append(problem)
        for option, values in remedies.items():
            given = getattr(self.options, option)
            before = self.remedies.get(option, given if isinstance(given, list) else [])
            self.remedies[option] = list(dict.fromkeys([*before, *values]))

    def with_command(self, typed: Sequence[str]) -> str:
        """What is wrong, and the whole command that was `typed`, corrected."""
        listed = [f"{self.file}: {len(self.problems)} problems:", *self.problems]
        said = "\n- ".join(listed) if len(self.problems) > 1 else f"{self.file}: {self.problems[0]}"
        if not self.remedies:
            return said
        kept = [word for word in typed if word.partition("=")[0].removeprefix("csv.") not in self.remedies]
        remedies = (setting(option, *values) for option, values in self.remedies.items())
        return f"{said}\nAll of it: {' '.join([*map(shlex.quote, kept), *remedies])}"

    def __str__(self) -> str:
        return self.with_command(())


def table_options(given: Mapping[str, Any]) -> CsvConfig:
    """The options of a dataset; UserError for one that does not exist or has a value it can't have."""
    values = {name: value for name, value in given.items() if name not in OTHERS and value is not None}
    known = {field.name: field.metadata.get("choices", ()) for field in fields(CsvConfig)}
    if odd := [name for name in values if name not in known]:
        raise UserError(f"a table has no option '{odd[0]}': {nearest(odd[0], list(known))}")
    if odd := [name for name, value in values.items() if known[name] and value not in known[name]]:
        raise UserError(f"csv.{odd[0]}={values[odd[0]]}: give one of {', '.join(known[odd[0]])}")
    try:
        options = msgspec.convert(values, CsvConfig)
    except msgspec.ValidationError as error:
        raise UserError(f"csv.*: {error}") from None
    if (options.split == "random") == (options.by is not None):
        typed = f"csv.by={options.by}" if options.by else f"csv.split={options.split}"
        raise UserError(f"{typed}: csv.split=time or group and csv.by=COLUMN go together")
    if options.columns and options.drop:
        raise UserError("csv.columns and csv.drop: give the columns to take or those to leave out, not both")
    return options


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
