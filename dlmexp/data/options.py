"""What a user says about an own table (`csv.*`, or `options:` of a dataset with `loader: table`), checked; and settings
as an error advises them: words that a shell and `dlmexp run` take as they are."""

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from dlmexp.errors import UserError, nearest

OTHERS = ("path", "by_task", "checks")  # options that concern others
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}
HINTS = {
    "missing": "refuse, drop, mean or level",
    "split": "random, time or group",
    "log": "true or false",
    "levels": "a number of levels, 2 or more",
}  # what values of these options may be; others are text or lists of text
PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[a-z_][\w.-]*", re.ASCII | re.IGNORECASE)


class TableOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists name columns. `levels` is how many distinct values a category may have (None: a tenth of the rows, at most
    100)."""

    target: str | None = None
    columns: list[str] = []
    drop: list[str] = []
    categories: list[str] = []
    date_format: str | None = None
    sep: str | None = None
    na: list[str] = []
    missing: Literal["refuse", "drop", "mean", "level"] = "refuse"
    levels: Annotated[int, msgspec.Meta(ge=2)] | None = None
    log: bool = False
    test: str | None = None
    split: Literal["random", "time", "group"] = "random"
    by: str | None = None


def table_options(given: Mapping[str, Any]) -> TableOptions:
    """The options of a dataset; UserError for one that does not exist or has a value it can't have."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in OTHERS or value is None:
            continue
        if name not in (known := TableOptions.__struct_fields__):
            raise UserError(f"a table has no option '{name}': {nearest(str(name), list(known))}")
        if isinstance(getattr(TableOptions(), name), list):
            value = [str(word) for word in value] if isinstance(value, list | tuple) else [str(value)]
        elif name not in HINTS and isinstance(value, int | float):
            value = str(value)
        try:
            msgspec.convert({name: value}, TableOptions)
        except msgspec.ValidationError:
            raise UserError(f"csv.{name}={value}: give {HINTS.get(name, 'one value')}") from None
        values[name] = value
    options = msgspec.convert(values, TableOptions)
    if (options.split == "random") == (options.by is not None):
        typed = f"csv.by={options.by}" if options.by else f"csv.split={options.split}"
        raise UserError(f"{typed}: csv.split=time or group and csv.by=COLUMN go together")
    if options.columns and options.drop:
        raise UserError("csv.columns and csv.drop: give the columns to take or those to leave out, not both")
    separator(options.sep)
    return options


def separator(given: str | None, suffix: str = ".csv") -> str:
    """One character, from what the user typed (itself, or its name) or from the ending of the file."""
    found = SEPARATORS.get(given, given) if given is not None else "\t" if suffix.startswith(".tsv") else ","
    if len(found) != 1 or not found.isascii() or found in '\r\n"':
        raise UserError(f"csv.sep={given}: give one character, or one of {', '.join(SEPARATORS)}")
    return found


def setting(name: str, *values: str) -> str:
    """`csv.drop=[age]`; in quotes where a name needs them: `"csv.drop=['age, in years']"`. Of an option with one value
    that one, without brackets."""
    single = not isinstance(getattr(TableOptions(), name), list)
    plain = all(map(PLAIN.fullmatch, values))
    listed = ",".join(values if plain else map(in_quotes, values))
    text = f"csv.{name}={listed}" if single else f"csv.{name}=[{listed}]"
    return text if plain else f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)


def in_quotes(value: str) -> str:
    """Text in the quotes of an override, in which backslashes count only before a quote."""
    escaped = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"'{escaped}'"
