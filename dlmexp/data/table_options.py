"""What a user says about an own table (`csv.*`, or `options:` of a dataset with `loader: table`), checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dlmexp.data.arrangement import KINDS
from dlmexp.data.table_files import separator
from dlmexp.errors import UserError, nearest

MISSING = ("refuse", "drop", "mean")
ARRAYS = ("X", "y", "X_test", "y_test")


@dataclass(frozen=True)
class TableOptions:
    """Lists name columns. `arrays` says which arrays of an npz file are X, y, X_test and y_test."""

    target: str | None = None
    columns: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    sep: str | None = None
    na: list[str] = field(default_factory=list)
    missing: str = "refuse"
    test: str | None = None
    split: str = "random"
    by: str | None = None
    arrays: dict[str, str] = field(default_factory=dict)


OTHERS = ("path", "by_task", "checks")  # options that concern others


def table_options(given: Mapping[str, Any]) -> TableOptions:
    """The options of a dataset; UserError for one that does not exist or has a value it can't have."""
    known = {one.name: one for one in fields(TableOptions)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in OTHERS or value is None:
            continue
        if name not in known:
            raise UserError(f"a table has no option '{name}': {nearest(str(name), sorted(known))}")
        if name == "arrays":
            values[name] = _arrays(value)
        elif known[name].type == list[str]:
            values[name] = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
        elif isinstance(value, list | tuple | dict):
            raise UserError(f"csv.{name}={value}: give one value")
        else:
            values[name] = str(value)
    options = TableOptions(**values)
    for name, valid in (("missing", MISSING), ("split", KINDS)):
        if (value := getattr(options, name)) not in valid:
            raise UserError(f"csv.{name}={value}: give one of {', '.join(valid)}")
    if (options.split == "random") == (options.by is not None):
        what = f"csv.split={options.split}" if options.split != "random" else f"csv.by={options.by}"
        lacks = "csv.by=COLUMN" if options.split != "random" else "csv.split=time or csv.split=group"
        raise UserError(f"{what}: say {lacks} as well")
    if options.columns and options.drop:
        raise UserError("csv.columns and csv.drop: give the columns to take or those to leave out, not both")
    separator(options.sep)
    return options


def _arrays(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UserError(f"csv.arrays={value}: write it as 'csv.arrays={{X: NAME, y: NAME}}'")
    for name in value:
        if name not in ARRAYS:
            raise UserError(f"csv.arrays: '{name}' is not one of {', '.join(ARRAYS)}")
    found = {str(name): str(array) for name, array in value.items()}
    if found and not {"X", "y"} <= found.keys():
        raise UserError("csv.arrays: say which array is X and which is y")
    if ("X_test" in found) != ("y_test" in found):
        raise UserError("csv.arrays: X_test and y_test belong together")
    return found
