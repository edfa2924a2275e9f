"""A user's DataFrames and arrays, stored as files of tables that the command line can read, too."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.common.atomic import path_inside, write_atomically
from dlmexp.common.errors import UserError

MEMORY_FOLDER = "tables"
"""The folder of these files, inside the results folder."""
MEMORY_TABLE = re.compile(r"(.+)-[0-9a-f]{16}\.parquet")
"""The name of such a file: the name of the table, and the first digits of its checksum."""


@dataclass(frozen=True)
class MemoryTable:
    """A table in memory, and the file for it.

    Attributes:
        content: The bytes of a Parquet file.
        path: The file to write.
        target: The column to predict.
        task: `"regression"`, `"binary"` or `"count"`.
        name: What the table is called in the results.
    """

    content: bytes
    path: Path
    target: str
    task: str
    name: str

    @property
    def settings(self) -> dict[str, str]:
        """The options `csv.*` of `dlmexp run` for this table."""
        return {
            "path": os.fspath(self.path),
            "target": self.target,
            "task": self.task,
            "name": self.name,
        }

    @contextmanager
    def stored(self) -> Iterator[None]:
        """Write the table, and remove it again if this context ends with a `UserError`."""
        folders = self.path.parents[:2]  # `tables` and the results folder
        new_folders = [folder for folder in folders if not folder.exists()]
        is_new = not self.path.exists()
        if is_new:
            write_atomically(self._path_inside(), self.content)
        try:
            yield
        except UserError:
            if is_new:
                self._path_inside().unlink(missing_ok=True)
            for folder in new_folders:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()
            raise

    def _path_inside(self) -> Path:
        """Return the path; raise `OSError` if a link leads out of the results folder."""
        return path_inside(self.path.parents[1], self.path)


def memory_table(
    data: Any, target: str | None, task: str | None, name: str, results: Path
) -> MemoryTable:
    """Return a DataFrame, or arrays (X, y), as a table of a results folder.

    Args:
        data: A DataFrame with a column `target`, or (X, y) of shapes [rows, features] and [rows].
        target: The column to predict. For arrays, the name of the column for y; None: the name of a
            Series y, else `y`.
        task: `"regression"`, `"binary"` or `"count"`.
        name: What the table is called in the results.
        results: The results folder.

    Raises:
        UserError: The data are not a table, or an argument is missing.
    """
    if task is None:
        raise UserError("data in memory needs task='regression', 'binary' or 'count'")
    if isinstance(data, tuple) and len(data) == 2:
        frame, target = _frame_of_arrays(*data, target)
    elif isinstance(data, pd.DataFrame):
        if target is None:
            columns = ", ".join(map(str, data.columns))
            raise UserError(f"target=None: name the column to predict, one of {columns}")
        frame = data.set_axis(list(map(str, data.columns)), axis=1)
    else:
        raise UserError(
            f"dataset is a {type(data).__name__}: give names, a DataFrame, or arrays (X, y)"
        )
    content = _parquet(frame)
    checksum = hashlib.sha256(content).hexdigest()[:16]
    path = results / MEMORY_FOLDER / f"{name}-{checksum}.parquet"
    return MemoryTable(content=content, path=path, target=target, task=task, name=name)


def _frame_of_arrays(X: Any, y: Any, target: str | None) -> tuple[pd.DataFrame, str]:
    """Return X and y as one table, and the name of the column y."""
    if not isinstance(X, pd.DataFrame | pd.Series):
        X = np.asarray(X)
    y = _as_vector(y)
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y):
        raise UserError(
            f"(X, y) have shapes {X.shape} and {y.shape}: "
            "give X [rows, features] and y [rows] or [rows, 1]"
        )
    target = target or _target_name(y)
    frame = X.copy() if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    names = []
    for position, column in enumerate(frame.columns, start=1):
        names.append(_column_name(column, position))
    frame.columns = names
    if target in frame.columns:
        raise UserError(
            f"X has a column '{target}', which is also the name of y: give y another one by target="
        )
    frame[target] = np.asarray(y)
    return frame, target


def _as_vector(y: Any) -> Any:
    """Return targets [rows, 1] as [rows]; return targets of any other shape unchanged."""
    if not isinstance(y, pd.DataFrame | pd.Series):
        y = np.asarray(y)
    if y.ndim != 2 or y.shape[1] != 1:
        return y
    return y.iloc[:, 0] if isinstance(y, pd.DataFrame) else y[:, 0]


def _target_name(y: Any) -> str:
    if isinstance(y, pd.Series) and y.name is not None:
        return str(y.name)
    return "y"


def _column_name(column: Any, position: int) -> str:
    """Return the name of a column; columns with numbers in place of names get `x1`, `x2`, ..."""
    return f"x{position}" if isinstance(column, int) else str(column)


def _parquet(frame: pd.DataFrame) -> bytes:
    try:
        return frame.to_parquet(index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = "; ".join(map(str, error.args))
        raise UserError(
            f"a table can't hold these columns: {reason}; give columns of numbers, text or dates"
        ) from None
