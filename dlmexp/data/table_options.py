"""What a user says about an own table (`csv.*`, or `options:` of a dataset with `loader: table`), checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dlmexp.data.arrangement import KINDS
from dlmexp.errors import UserError, nearest

CHOICES = {"missing": ("refuse", "drop", "mean", "level"), "split": KINDS}
ARRAYS = ("X", "y", "X_test", "y_test")
OTHERS = ("path", "by_task", "checks")  # options that concern others
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}


@dataclass(frozen=True)
class TableOptions:
    """Lists name columns. `arrays` says which arrays of an npz file are X, y, X_test and y_test; `levels` is how many
    distinct values a category may have (None: a tenth of the rows, at most 100)."""

    target: str | None = None
    columns: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    date_format: str | None = None
    sep: str | None = None
    na: list[str] = field(default_factory=list)
    missing: str = "refuse"
    levels: int | None = None
    log: bool = False
    test: str | None = None
    split: str = "random"
    by: str | None = None
    arrays: dict[str, str] = field(default_factory=dict)


def table_options(given: Mapping[str, Any]) -> TableOptions:
    """The options of a dataset; UserError for one that does not exist or has a value it can't have."""
    known = {one.name: one.type for one in fields(TableOptions)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in OTHERS or value is None:
            continue
        if name not in known:
            raise UserError(f"a table has no option '{name}': {nearest(str(name), sorted(known))}")
        values[name] = _converted(str(name), value, known[name])
    options = TableOptions(**values)
    if (options.split == "random") == (options.by is not None):
        what = f"csv.split={options.split}" if options.split != "random" else f"csv.by={options.by}"
        lacks = "csv.by=COLUMN" if options.split != "random" else "csv.split=time or csv.split=group"
        raise UserError(f"{what}: say {lacks} as well")
    if options.columns and options.drop:
        raise UserError("csv.columns and csv.drop: give the columns to take or those to leave out, not both")
    separator(options.sep)
    return options


def separator(given: str | None, suffix: str = ".csv") -> str:
    """One character, from what the user typed (itself, or its name) or from the ending of the file."""
    if given is None:
        return "\t" if suffix.startswith(".tsv") else ","
    found = SEPARATORS.get(given, given)
    if len(found) != 1 or not found.isascii() or found in '\r\n"':
        raise UserError(f"csv.sep={given}: give one character, or one of {', '.join(SEPARATORS)}")
    return found


def _converted(name: str, value: Any, kind: Any) -> Any:
    if name == "arrays":
        return _arrays(value)
    if kind == list[str]:
        return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
    if isinstance(value, list | tuple | dict):
        raise UserError(f"csv.{name}={value}: give one value")
    if name in CHOICES and value not in CHOICES[name]:
        raise UserError(f"csv.{name}={value}: give one of {', '.join(CHOICES[name])}")
    if name == "log" and not isinstance(value, bool):
        raise UserError(f"csv.log={value}: give true or false")
    if name == "levels" and not (isinstance(value, int) and value > 1):
        raise UserError(f"csv.levels={value}: give a number of levels, 2 or more")
    return value if name in ("log", "levels") else str(value)


def _arrays(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UserError(f"csv.arrays={value}: write it as 'csv.arrays={{X: NAME, y: NAME}}'")
    for name in value:
        if name not in ARRAYS:
            raise UserError(f"csv.arrays: '{name}' is not one of {', '.join(ARRAYS)}")
    if value and not {"X", "y"} <= value.keys():
        raise UserError("csv.arrays: say which array is X and which is y")
    if ("X_test" in value) != ("y_test" in value):
        raise UserError("csv.arrays: X_test and y_test belong together")
    return {str(name): str(array) for name, array in value.items()}
