"""What Python programs give to `run`, as the command line has it: data in memory as a table, settings as overrides."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.atomic import within, write_atomically
from dlmexp.data.options import in_quotes
from dlmexp.errors import UserError

PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./-]*[A-Za-z_]|[A-Za-z_]")  # what Hydra reads as text and not as a number


def names_datasets(dataset: Any) -> bool:
    return isinstance(dataset, list | tuple) and len(dataset) > 0 and all(isinstance(one, str) for one in dataset)


@dataclass
class Table:
    """Data in memory as a file in the results folder, which is there once the context is entered. A mistake in what was
    asked for takes it away again."""

    content: bytes
    path: Path
    settings: dict[str, Any]

    def __enter__(self) -> None:
        self._found = [folder for folder in (self.path, *self.path.parents[:2]) if folder.exists()]
        if self.path not in self._found:
            write_atomically(within(self.path.parents[1], self.path), self.content)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, UserError) and self.path not in self._found:
            within(self.path.parents[1], self.path).unlink(missing_ok=True)
            for folder in self.path.parents[:2]:
                if folder not in self._found and not any(folder.iterdir()):
                    folder.rmdir()


def own_table(data: Any, target: str | None, task: str | None, name: str, results: Path) -> Table:
    """The file that a run reads data in memory from, and the settings that say so."""
    if task is None:
        raise UserError("data in memory needs task='regression', 'binary' or 'count'")
    if isinstance(data, tuple) and len(data) == 2:
        X, y = (part if isinstance(part, pd.DataFrame | pd.Series) else np.asarray(part) for part in data)
        if len(np.shape(X)) != 2 or len(np.shape(y)) != 1 or len(X) != len(y):
            raise UserError(f"(X, y) have shapes {np.shape(X)} and {np.shape(y)}: give X [rows, features] and y [rows]")
        target = target or (str(y.name) if isinstance(y, pd.Series) and y.name is not None else "y")
        frame = X.copy() if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
        frame.columns = [f"x{k + 1}" if isinstance(c, int) else str(c) for k, c in enumerate(frame.columns)]
        if target in frame.columns:
            raise UserError(
                f"X has a column '{target}', as the target is called: give the target another name, target="
            )
        frame[target] = np.asarray(y)
    elif isinstance(data, pd.DataFrame):
        if target is None:
            raise UserError(f"target=None: name the column to predict, one of {', '.join(map(str, data.columns))}")
        frame = data.set_axis([str(column) for column in data.columns], axis=1)
    else:
        raise UserError(f"dataset is a {type(data).__name__}: give names, a DataFrame, or arrays (X, y)")
    _check_columns(frame)
    content = frame.to_parquet(index=False)
    path = results / "tables" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    own = {"path": os.fspath(path), "target": target, "task": task, "name": name}
    return Table(content, path, {"dataset": "csv", "csv": own})


def _check_columns(frame: pd.DataFrame) -> None:
    """UserError for columns that a table can't hold."""
    import pyarrow as pa

    if twice := sorted({name for name in frame.columns if list(frame.columns).count(name) > 1}):
        raise UserError(f"several columns are called {', '.join(twice)}: give each a name of its own")
    for name in frame.columns:
        try:
            pa.array(frame[name], from_pandas=True)
        except (pa.ArrowException, TypeError):
            raise UserError(
                f"column '{name}' ({frame[name].dtype}) holds values of several types, or of one that no table has: "
                "make them all numbers, text or dates"
            ) from None


def overrides(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings as overrides of Hydra; dictionaries as dotted keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from overrides(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={literal(value)}"


def literal(value: Any) -> str:
    """A value as Hydra reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if PLAIN.fullmatch(text) and text.lower() not in ("true", "false", "null", "nan", "inf"):
            return text
        return in_quotes(text)
    if isinstance(value, list | tuple | set | range | np.ndarray):
        return f"[{','.join(literal(one) for one in value)}]"
    raise UserError(f"{value!r}: a setting is a number, a text, true or false, or a list of those")
