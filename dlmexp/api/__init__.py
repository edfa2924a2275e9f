"""What Python programs and notebooks call: `run`, `results`, `plot`. Each is a thin layer over what a command does."""

import contextlib
import hashlib
import io
import os
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.api.folder import Results, TrainedModel
from dlmexp.atomic import within, write_atomically
from dlmexp.config import literal
from dlmexp.errors import UserError
from dlmexp.records.record import COMMAND, portable
from dlmexp.records.results import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Results", "TrainedModel", "plot", "results", "run"]

FAILED = 1  # exit code of a run


def run(
    dataset: "str | Sequence[str] | pd.DataFrame | tuple[Any, Any] | None" = None,
    method: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    task: str | None = None,
    name: str = "mine",
    results: str | os.PathLike[str] = "results",
    verbose: bool = True,
    **overrides: Any,
) -> "Results":
    """Train what is asked for, as the command `dlmexp run` does, and give the results.

    What is done already is not trained again. Cells that fail, and a budget that is spent, are warnings.

    Args:
        dataset: Names of datasets (`dlmexp data list`); or data in memory: a DataFrame with a column `target`, or
            arrays `(X, y)` of shapes [rows, features] and [rows]. Data in memory is written to the results folder as a
            table, so that the command line finds it too.
        method: Names of methods, such as `"elbo"` or `["beta_elbo", "joint_log_dlm"]`; the files in `conf/method`.
        target: The column to predict, for a DataFrame.
        task: `"regression"`, `"binary"` or `"count"`, for data in memory.
        name: What data in memory is called in the results.
        results: The folder that records and models are written to.
        verbose: Whether to print what the command prints; progress and a table of results.
        overrides: Every other setting of `dlmexp run`, by its name: `seeds=[0]`, `beta=[1, 0.1]`, `M=50`,
            `experiment="class-log"`. Nested settings are dictionaries,
            `training={"regression": {"max_iterations": 100}}`, or `**{"csv.missing": "mean"}`.

    Returns:
        All results in the folder, those of earlier runs as well.

    Raises:
        UserError: Something that was given is wrong; nothing is written then.
        KeyboardInterrupt: The run was interrupted. All is saved, and the same call goes on from there.

    Example:
        ```python
        import dlmexp

        found = dlmexp.run(frame, ["elbo", "joint_log_dlm"], target="price", task="regression", name="houses")
        found.selected
        ```
    """
    from dlmexp.paths import environment, extended
    from dlmexp.plan.compose import check_table_is_used, compose, plugins_in, with_default
    from dlmexp.plan.overrides import spelled_out
    from dlmexp.running.process import BUDGET_SPENT, STOPPED
    from dlmexp.running.run import execute

    settings: dict[str, Any] = {"results": os.fspath(results)}
    stored = contextlib.nullcontext()
    names = [dataset] if isinstance(dataset, str) else dataset if isinstance(dataset, list | tuple) else []
    if dataset is None or (len(names) and all(isinstance(each, str) for each in names)):
        if target is not None or task is not None:
            raise UserError("target= and task= describe data in memory: give dataset= a DataFrame or arrays with them")
        settings |= {} if dataset is None else {"dataset": dataset}
    else:
        stored, own = own_table(dataset, target, task, name, Path(results))
        settings |= {"dataset": "csv", "csv": own}
    settings |= {} if method is None else {"method": [method] if isinstance(method, str) else method}
    words = with_default(spelled_out(list(as_overrides(settings | overrides))))
    silence = contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO())
    with extended(plugins=plugins_in(words)), silence, stored:
        cfg = compose(words)
        check_table_is_used(words, [cfg])
        interrupted = signal.getsignal(signal.SIGINT)
        try:
            with environment(**{COMMAND: portable(["dlmexp", "run", *words])}):
                code = execute(cfg, words)
        finally:
            if signal.getsignal(signal.SIGINT) is not interrupted:  # a run that leaves is not interrupted again
                signal.signal(signal.SIGINT, interrupted)
    if code >= STOPPED:
        raise KeyboardInterrupt
    if code == BUDGET_SPENT:
        warnings.warn("the budget is spent: call run again with the same arguments to go on", stacklevel=2)
    elif code == FAILED:
        warnings.warn("some cells failed or have no record: see results(...).cells", stacklevel=2)
    return Results(load(Path(results)))


def results(folder: str | os.PathLike[str] = "results") -> "Results":
    """The results in a folder, as they are now: of `dlmexp.run`, of the command line, or downloaded.

    Args:
        folder: A results folder, or one with a pack of records (`dlmexp collect --pack`).

    Raises:
        UserError: There are no records in the folder.

    Example:
        ```python
        published = dlmexp.results("results/paper")
        published.selected.groupby(["dataset", "method"])["test_nll"].mean()
        ```
    """
    return Results(load(Path(folder)))


def plot(
    name: str,
    folder: str | os.PathLike[str] = "results",
    *,
    data_root: str | os.PathLike[str] | None = None,
    **by: Any,
) -> "Figure":
    """A figure of `dlmexp plot` as a matplotlib figure, for a notebook or to be changed before it is saved.

    Args:
        name: The name of a figure (`dlmexp plot --list`); `"predictions"` shows one trained model on its test rows.
        folder: A results folder.
        data_root: For `"predictions"`, the folder that the run read its data from, as in `dlmexp.run`.
        by: Values that the records drawn should have, such as `dataset="ringnorm"` or `seed=0`. For `"predictions"`
            they choose the model.

    Raises:
        UserError: There is no such figure, or no record with these values.

    Example:
        ```python
        figure = dlmexp.plot("class-log", "results/paper", dataset="ringnorm")
        figure.savefig("ringnorm.pdf")
        ```
    """
    from dlmexp.figures.choose import parse_by
    from dlmexp.figures.panels import PREDICTIONS
    from dlmexp.figures.plot import Request, draw

    given = [f"{key}={value}" for key, value in by.items()]
    records = load(Path(folder))
    if name != PREDICTIONS:
        return draw(records, name, Request(parse_by(given))).canvas
    from dlmexp.figures.predictions import render
    from dlmexp.models.diagnosis import diagnose
    from dlmexp.models.file import choose_models

    (chosen,) = choose_models(records, given, option="plot:")
    return render(diagnose(records, chosen, data_root))


@contextlib.contextmanager
def _stored(content: bytes, path: Path) -> Iterator[None]:
    """Data in memory as a file of the results folder. A mistake in what was asked for takes it away again."""
    made = [place for place in (path, *path.parents[:2]) if not place.exists()]
    if path in made:
        write_atomically(within(path.parents[1], path), content)
    try:
        yield
    except UserError:
        if path in made:
            within(path.parents[1], path).unlink(missing_ok=True)
        for folder in made[1:]:
            with contextlib.suppress(OSError):  # there is something else in it
                folder.rmdir()
        raise


def own_table(data: Any, target: str | None, task: str | None, name: str, results: Path) -> tuple[Any, dict[str, Any]]:
    """A context in which data in memory is a file in the results folder, and its settings."""
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
            raise UserError(f"X has a column '{target}', as the target is called: give that another name, target=")
        frame[target] = np.asarray(y)
    elif isinstance(data, pd.DataFrame):
        if target is None:
            raise UserError(f"target=None: name the column to predict, one of {', '.join(map(str, data.columns))}")
        frame = data.set_axis([str(column) for column in data.columns], axis=1)
    else:
        raise UserError(f"dataset is a {type(data).__name__}: give names, a DataFrame, or arrays (X, y)")
    if twice := frame.columns[frame.columns.duplicated()].tolist():
        raise UserError(f"several columns are called {', '.join(twice)}: give each a name of its own")
    try:
        content = frame.to_parquet(index=False)
    except (pa.ArrowException, TypeError) as error:
        why = "; ".join(map(str, error.args))
        raise UserError(f"no table can hold these columns: {why}; make each numbers, text or dates") from None
    path = results / "tables" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    return _stored(content, path), {"path": os.fspath(path), "target": target, "task": task, "name": name}


def as_overrides(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Settings as overrides of Hydra; dictionaries as dotted keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from as_overrides(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={literal(value)}"
