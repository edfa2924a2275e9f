"""What Python programs and notebooks call: `run`, `results`, `plot`. Each is a thin layer over what a command does."""

import contextlib
import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dlmexp.errors import UserError
from dlmexp.records.files import write_atomically
from dlmexp.records.provenance import COMMAND, portable
from dlmexp.records.results import Results as Records
from dlmexp.records.results import load
from dlmexp.records.table import selected_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlmexp.models.predictor import Predictor
    from dlmexp.plan.cell import Cell

Arrays = tuple[Any, Any]
PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./-]*[A-Za-z_]|[A-Za-z_]")  # what Hydra reads as text and not as a number
PREDICTIONS = "predictions"
FAILED, BUDGET_SPENT, STOPPED = 1, 3, 128


def run(
    dataset: "str | Sequence[str] | pd.DataFrame | Arrays | None" = None,
    method: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    task: str | None = None,
    name: str = "mine",
    results: str | os.PathLike[str] = "results",
    verbose: bool = True,
    **overrides: Any,
) -> "Results":
    """Train what a config asks for, as `dlmexp run` does, and return the results folder.

    dataset: names of datasets; or data in memory: a DataFrame with the column `target`, or arrays (X, y). Data in
    memory needs a `task` (regression, binary or count) and is called `name`; it is written to the results folder as a
    table, so that the command line finds it too.
    method: names of methods (`conf/method`).
    overrides: every other setting of `dlmexp run`, by name: `seeds=[0]`, `beta="list"`, `experiment="class-log"`;
    nested ones as dictionaries, `training={"regression": {"max_iterations": 100}}`, or `**{"csv.missing": "mean"}`.
    verbose: False prints nothing.

    What is done already is not trained again. A mistake raises `dlmexp.errors.UserError` before anything is written;
    cells that fail are a warning.
    """
    from dlmexp.plan.compose import check_table_is_used, compose, plugins_in, with_default
    from dlmexp.plan.shorthand import spelled_out
    from dlmexp.plugins import extended
    from dlmexp.running.run import execute

    settings: dict[str, Any] = {"results": os.fspath(results)}
    table: Table | None = None
    if dataset is None or isinstance(dataset, str) or _names(dataset):
        if target is not None or task is not None:
            raise UserError("target= and task= describe data in memory: give dataset= a DataFrame or arrays with them")
        settings |= {} if dataset is None else {"dataset": dataset}
    else:
        table = _own_table(dataset, target, task, name, Path(results))
        settings |= table.settings
    settings |= {} if method is None else {"method": [method] if isinstance(method, str) else method}
    words = with_default(spelled_out(list(_words(settings | overrides))))
    silence = contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO())
    with extended(plugins=plugins_in(words)), silence, table or contextlib.nullcontext():
        cfg = compose(words)
        check_table_is_used(words, [cfg])
        before, os.environ[COMMAND] = os.environ.get(COMMAND), portable(["dlmexp", "run", *words])
        try:
            code = execute(cfg, words)
        finally:
            os.environ.pop(COMMAND)
            if before is not None:
                os.environ[COMMAND] = before
    if code >= STOPPED:
        raise KeyboardInterrupt
    if code == BUDGET_SPENT:
        warnings.warn("the budget is spent: call run again with the same arguments to go on", stacklevel=2)
    elif code == FAILED:
        warnings.warn("some cells failed or have no record: see results(...).cells", stacklevel=2)
    return Results(load(Path(results)))


def results(folder: str | os.PathLike[str] = "results") -> "Results":
    """The results in a folder, as they are now."""
    return Results(load(Path(folder)))


def plot(name: str, folder: str | os.PathLike[str] = "results", **by: Any) -> "Figure":
    """A figure of `dlmexp plot` as a matplotlib figure. `by` restricts the records by fields of their cells, as
    `--by` does: `plot("class-log", "results", dataset="ringnorm")`; for "predictions" it chooses the model."""
    from dlmexp.figures import style
    from dlmexp.figures.compose import render
    from dlmexp.figures.plot import Request, measured
    from dlmexp.figures.variants import parse_by

    given = [f"{key}={value}" for key, value in by.items()]
    if name == PREDICTIONS:
        from dlmexp.figures.predictions import render as render_predictions
        from dlmexp.models.choose import chosen
        from dlmexp.models.diagnosis import diagnose

        records = load(Path(folder))
        (record,) = chosen(records, given, option="plot:")
        found = diagnose(records, record)
        with style.use():
            return render_predictions(found)
    terms = parse_by(given)
    drawn = next(iter(measured([load(Path(folder))], [name], Request(by=terms))))
    with style.use():
        return render(drawn)


class Results:
    """A results folder: tables of cells, learning curves, trained models."""

    def __init__(self, records: Records):
        self._records = records

    @property
    def folder(self) -> Path:
        return self._records.store.root

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Every record, one row each: the fields of its cell, metrics as `test_nll`, `validation_nll`, ..., and
        `model`, whether its trained model is there."""
        frame = self._records.frame.copy()
        records = self._records.records
        frame["model"] = [self._records.store.has_model(records[key]) for key in frame["key"]]
        return frame

    @cached_property
    def selected(self) -> pd.DataFrame:
        """One row per method, dataset, size and seed: the cell at the beta that validation selects."""
        return selected_table(self._records.choices, self.cells)

    def curves(self, key: str) -> pd.DataFrame:
        """The course of training of one cell by iteration: `objective`, and `test_...` metrics where the run asked for
        them (`evaluate=`)."""
        record = self._record(key)
        arrays = self._records.arrays(record)
        objective = arrays.get("objective", np.zeros(0))
        frame = pd.DataFrame({"objective": objective}, index=pd.RangeIndex(1, len(objective) + 1, name="iteration"))
        if "evaluated_at" in arrays:
            tests = {name: values for name, values in arrays.items() if name.startswith("test_")}
            at = pd.Index(arrays["evaluated_at"], name="iteration")
            frame = frame.join(pd.DataFrame(tests, index=at), how="outer")
        return frame

    def model(self, key: str | None = None, *, seeds: str | None = None, **where: Any) -> "TrainedModel":
        """A trained model: by the (start of the) key of its cell, or the one with the best validation NLL among those
        with the given fields: `model(method="joint_log_dlm", n=500)`. `seeds="all"`: the mixture of those of all
        seeds."""
        from dlmexp.models.choose import chosen, load_model

        if seeds not in (None, "all"):
            raise UserError(f"seeds={seeds}: give 'all', or choose one with seed=")
        terms = [f"{name}={value}" for name, value in {**({"key": key} if key else {}), **where}.items()]
        records = chosen(self._records, terms, seeds == "all", "model:")
        return TrainedModel([load_model(self._records, record) for record in records])

    def _record(self, key: str) -> Any:
        found = [one for name, one in self._records.records.items() if name.startswith(key)]
        if len(found) != 1:
            raise UserError(
                f"{len(found)} cells in '{self.folder}' have a key that begins with '{key}': give all of it"
            )
        return found[0]

    def __repr__(self) -> str:
        done = sum(record.done for record in self._records.records.values())
        return f"Results('{self.folder}': {done} cells done, {len(self._records.records) - done} failed)"


class TrainedModel:
    """A trained model, or a mixture of several, that predicts in the units and labels of its data."""

    def __init__(self, models: Sequence[Any]):
        self._models = list(models)

    @property
    def cells(self) -> "list[Cell]":
        """What was trained, one cell for each model of the mixture."""
        return [model.cell for model in self._models]

    @property
    def features(self) -> list[str]:
        """The names of its columns, in the order of arrays."""
        return [column.name for column in self._models[0].schema.columns]

    @cached_property
    def _predictor(self) -> "Predictor":
        from dlmexp.models.predictor import Predictor

        return Predictor(self._models)

    def predict(self, X: Any) -> pd.DataFrame:
        """One row for each row of X, a DataFrame with the columns of training (in any order, others are ignored) or an
        array with them in order. Columns: mean, std, lower_95, upper_95 (regression); label, probability_... (binary);
        mean, lower_95, upper_95 (counts)."""
        from dlmexp.models.tables import frame_features

        rows = frame_features(self._models[0].schema, X)
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(self._predictor.predict(rows), index=index)

    def to_gpytorch(self) -> tuple[Any, Any]:
        """A GPyTorch `ApproximateGP` and its likelihood, on normalised features and targets (`dlmexp export` writes
        the numbers that normalise)."""
        from dlmexp.models.export import to_gpytorch

        exported = to_gpytorch(self._one())
        return exported.model, exported.likelihood

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the model for GPyTorch, as `dlmexp export` does; returns the Python file beside it."""
        from dlmexp.models.export import export

        return export(self._one(), Path(path))

    def _one(self) -> Any:
        if len(self._models) > 1:
            raise UserError("a mixture is not one GPyTorch model: choose a seed")
        return self._models[0]

    def __repr__(self) -> str:
        return f"TrainedModel({'; '.join(cell.describe() for cell in self.cells)})"


def _names(dataset: Any) -> bool:
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
            write_atomically(self.path, self.content)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, UserError) and self.path not in self._found:
            self.path.unlink(missing_ok=True)
            for folder in self.path.parents[:2]:
                if folder not in self._found and not any(folder.iterdir()):
                    folder.rmdir()


def _own_table(data: Any, target: str | None, task: str | None, name: str, results: Path) -> Table:
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
        frame[target] = np.asarray(y)
    elif isinstance(data, pd.DataFrame):
        if target is None:
            raise UserError(f"target=None: name the column to predict, one of {', '.join(map(str, data.columns))}")
        frame = data.set_axis([str(column) for column in data.columns], axis=1)
    else:
        raise UserError(f"dataset is a {type(data).__name__}: give names, a DataFrame, or arrays (X, y)")
    content = frame.to_parquet(index=False)
    path = results / "tables" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    own = {"path": os.fspath(path), "target": target, "task": task, "name": name}
    return Table(content, path, {"dataset": "csv", "csv": own})


def _words(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings as overrides of Hydra; dictionaries as dotted keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _words(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_literal(value)}"


def _literal(value: Any) -> str:
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
        # Backslashes are themselves, except before a quote.
        return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text) + "'"
    if isinstance(value, list | tuple | set | range | np.ndarray):
        return f"[{','.join(_literal(one) for one in value)}]"
    raise UserError(f"{value!r}: a setting is a number, a text, true or false, or a list of those")
