"""What Python programs and notebooks call: `run`, `results`, `plot`, each a thin layer over a
command; a results folder and its trained models, as they see them."""

import contextlib
import hashlib
import io
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.common.atomic import within, write_atomically
from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.literals import flat, literal
from dlmexp.common.provenance import COMMAND, portable
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import parse_terms
from dlmexp.experiment.records.table import OWN_UNITS, TEST, as_text, rows_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlmexp.experiment.models.predictor import Predictor
    from dlmexp.experiment.plan.cell import Cell

__all__ = ["Results", "TrainedModel", "claims", "plot", "results", "run"]

FAILED = 1  # exit code of a run
SELECTED = [
    "dataset",
    "n",
    "M",
    "seed",
    "method",
    "estimator",
    "samples",
    "parameterisation",
    "beta",
]


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

    What is done already is not trained again. Cells that fail, and a budget that is spent, are
    warnings.

    Args:
        dataset: Names of datasets (`dlmexp data list`); or data in memory: a DataFrame with a
            column `target`, or arrays `(X, y)` of shapes [rows, features] and [rows]. Data in
            memory is written to the results folder as a table, so that the command line finds it
            too.
        method: Names of methods, such as `"elbo"` or `["beta_elbo", "joint_log_dlm"]`; the files in
            `conf/method`.
        target: The column to predict, for a DataFrame.
        task: `"regression"`, `"binary"` or `"count"`, for data in memory.
        name: What data in memory is called in the results.
        results: The folder that records and models are written to.
        verbose: Whether to print what the command prints; progress and a table of results.
        overrides: Every other setting of `dlmexp run`, by its name: `seeds=[0]`, `beta=[1, 0.1]`,
            `M=50`, `experiment="class-log"`. Nested settings are dictionaries,
            `training={"regression": {"max_iterations": 100}}`, or `**{"csv.missing": "mean"}`.

    Returns:
        All results in the folder, those of earlier runs as well.

    Raises:
        UserError: Something that was given is wrong; nothing is written then.
        KeyboardInterrupt: The run was interrupted. All is saved, and the same call goes on from
            there.

    Example:
        ```python
        import dlmexp

        found = dlmexp.run(frame, ["elbo", "joint_log_dlm"], target="price", task="regression", name="houses")
        found.selected
        ```
    """
    from dlmexp.common.environment import environment
    from dlmexp.common.extensions import extended
    from dlmexp.experiment.plan.compose import (
        check_table_is_used,
        compose,
        plugins_in,
        with_default,
    )
    from dlmexp.experiment.plan.overrides import spelled_out
    from dlmexp.experiment.running.process import BUDGET_SPENT, STOPPED
    from dlmexp.experiment.running.run import execute

    settings: dict[str, Any] = {"results": os.fspath(results)}
    stored = contextlib.nullcontext()
    names = (
        [dataset]
        if isinstance(dataset, str)
        else dataset
        if isinstance(dataset, list | tuple)
        else []
    )
    if dataset is None or (len(names) and all(isinstance(each, str) for each in names)):
        if target is not None or task is not None:
            raise UserError(
                "target= and task= describe data in memory: give dataset= a DataFrame or arrays with them"
            )
        settings |= {} if dataset is None else {"dataset": dataset}
    else:
        stored, own = own_table(dataset, target, task, name, Path(results))
        settings |= {"dataset": "csv", "csv": own}
    settings |= (
        {} if method is None else {"method": [method] if isinstance(method, str) else method}
    )
    words = with_default(
        spelled_out([f"{key}={literal(value)}" for key, value in flat(settings | overrides)])
    )
    silence = contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO())
    with extended(plugins=plugins_in(words)), silence, stored:
        cfg = compose(words)
        check_table_is_used(words, [cfg])
        interrupted = signal.getsignal(signal.SIGINT)
        try:
            with environment(**{COMMAND: portable(["dlmexp", "run", *words])}):
                code = execute(cfg, words)
        finally:
            if (
                signal.getsignal(signal.SIGINT) is not interrupted
            ):  # a run that leaves is not interrupted again
                signal.signal(signal.SIGINT, interrupted)
    if code >= STOPPED:
        raise KeyboardInterrupt
    if code == BUDGET_SPENT:
        warnings.warn(
            "the budget is spent: call run again with the same arguments to go on", stacklevel=2
        )
    elif code == FAILED:
        warnings.warn("some cells failed or have no record: see results(...).cells", stacklevel=2)
    return Results(ResultsFolder(Path(results)))


def results(folder: str | os.PathLike[str] = "results") -> "Results":
    """The results in a folder, as they are now: of `dlmexp.run`, of the command line, or
    downloaded.

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
    return Results(ResultsFolder(Path(folder)))


def claims(folder: str = "results", protocol: str | None = None) -> pd.DataFrame:
    """The paper's 22 claims, judged on the records of a folder.

    Args:
        folder: A results folder.
        protocol: Judge the records of this protocol alone, such as `"paper"`; otherwise of all that
            were run.

    Returns:
        One row per claim and protocol, with `number`, `claim`, `where` (in the paper), `protocol`,
        `verdict`, `words` (the verdict with stand-ins and the number of datasets), `basis` (on
        whose data), `data`, `repetitions`, `missing` (commands that would compute what is not
        there) and `commands` (those that made the records).

    Raises:
        UserError: There are no records in the folder, or none of this protocol.

    Example:
        ```python
        verdicts = dlmexp.claims("results/paper")
        verdicts[verdicts["verdict"] == "holds"]["claim"]
        ```
    """
    from dlmexp.presentation.claims.judge import judge

    columns = [
        "number",
        "claim",
        "where",
        "protocol",
        "verdict",
        "words",
        "basis",
        "data",
        "repetitions",
        "missing",
        "commands",
    ]
    judged = judge(ResultsFolder(folder), protocol=protocol).as_frame()
    return judged.rename(columns={"column": "protocol"})[columns]


def plot(
    name: str,
    folder: str | os.PathLike[str] = "results",
    *,
    data_root: str | os.PathLike[str] | None = None,
    **by: Any,
) -> "Figure":
    """A figure of `dlmexp plot` as a matplotlib figure, for a notebook or to be changed before it
    is saved.

    Args:
        name: The name of a figure (`dlmexp plot --list`); `"predictions"` shows one trained model
            on its test rows.
        folder: A results folder.
        data_root: For `"predictions"`, the folder that the run read its data from, as in
            `dlmexp.run`.
        by: Values that the records drawn should have, such as `dataset="ringnorm"` or `seed=0`. For
            `"predictions"` they choose the model.

    Raises:
        UserError: There is no such figure, or no record with these values.

    Example:
        ```python
        figure = dlmexp.plot("class-log", "results/paper", dataset="ringnorm")
        figure.savefig("ringnorm.pdf")
        ```
    """
    from dlmexp.presentation.figures.choose import BY
    from dlmexp.presentation.figures.panels import PREDICTIONS
    from dlmexp.presentation.figures.plot import Request, draw

    given = [f"{key}={value}" for key, value in by.items()]
    records = ResultsFolder(Path(folder))
    if name != PREDICTIONS:
        return draw(records, name, Request(parse_terms("--by", given, BY))).canvas
    from dlmexp.experiment.models.choice import choose_models
    from dlmexp.experiment.models.diagnosis import diagnose
    from dlmexp.presentation.figures.predictions import render

    (chosen,) = choose_models(records, given, option="plot:")
    return render(diagnose(records, chosen, data_root))


class Results:
    """A results folder: tables of cells, learning curves, trained models. `dlmexp.run` and
    `dlmexp.results` give it."""

    def __init__(self, records: ResultsFolder):
        self._records = records

    @property
    def folder(self) -> Path:
        """Where the records lie."""
        return self._records.root

    @cached_property
    def table(self) -> pd.DataFrame:
        """The tidy table: one row per dataset, n, seed, method, estimator, q, setting, role and the
        metric that selects beta (`selected_by`). Group by `role` and `selected_by` too, or take
        `selected`."""
        return as_text(self._records.table)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Every cell, one row each: its fields, metrics as `test_nll`, `validation_nll`, ..., and
        `model`, whether its trained model is there."""
        frame = as_text(self._records.candidates).drop_duplicates("key").reset_index(drop=True)
        return frame.assign(model=frame["key"].isin(self._records.keys_with_models()))

    @cached_property
    def selected(self) -> pd.DataFrame:
        """One row per method, dataset, size and seed: the fit at the beta that validation selects,
        by NLL (by MSE for square-loss methods). Of users' own tables with errors in their units:
        `rmse`, `mae`, `r2`, and `coverage_95`, the share of test rows in their 95 % interval. All
        other columns of these rows are in `table`, by `key`."""
        table = self.table
        rows = rows_for(
            table[(table["role"] == "fit") & (table["status"] == "done")], "nll"
        ).reset_index(drop=True)
        own = [
            name for name in OWN_UNITS if "test_rmse" in rows and rows["test_rmse"].notna().any()
        ]
        tests = [name for name in (*own, *TEST) if rows[name].notna().any()]
        names = [*SELECTED, *tests, "validation_nll", "protocol", "changes", "key"]
        return rows[[name for name in names if name in rows]]

    def curves(self, key: str) -> pd.DataFrame:
        """How the cell was trained whose key is `key`, or alone begins with it: a table with one
        row per iteration and a column `objective`; where the run asked for metrics (`evaluate=`),
        columns such as `test_nll` too."""
        arrays = self._records.arrays(self._key(key))
        objective = arrays.get("objective", np.zeros(0))
        frame = pd.DataFrame(
            {"objective": objective}, index=pd.RangeIndex(1, len(objective) + 1, name="iteration")
        )
        if "evaluated_at" in arrays:
            tests = {name: values for name, values in arrays.items() if name.startswith("test_")}
            at = pd.Index(arrays["evaluated_at"], name="iteration")
            frame = frame.join(pd.DataFrame(tests, index=at), how="outer")
        return frame

    def model(
        self, key: str | None = None, *, seeds: str | None = None, **where: Any
    ) -> "TrainedModel":
        """A trained model: the one with the best validation NLL, in the units of the data, of those
        that are asked for.

        Args:
            key: The key of a cell, or the start of it; then it is the model of that cell.
            seeds: `"all"`: the mixture, with equal weights, of the models of all seeds that were
                trained in this way.
            where: Fields that the model should have: `method="joint_log_dlm"`, `dataset="houses"`,
                `n=500`, `seed=0`, `beta=1`, or any other field of a cell.

        Raises:
            UserError: There is no such model, or there are such models of several datasets.

        Example:
            ```python
            model = found.model(method="joint_log_dlm")
            mixture = found.model(method="joint_log_dlm", seeds="all")
            ```
        """
        from dlmexp.experiment.models.choice import choose_models
        from dlmexp.experiment.models.predictor import Predictor

        if seeds not in (None, "all"):
            raise UserError(f"seeds={seeds}: give 'all', or choose one with seed=")
        terms = [
            f"{name}={value}" for name, value in {**({"key": key} if key else {}), **where}.items()
        ]
        chosen = choose_models(self._records, terms, seeds == "all", "model:")
        return TrainedModel(Predictor([each.model for each in chosen]))

    def _key(self, start: str) -> str:
        keys = self.cells["key"]
        matching = keys[keys.str.startswith(start)]
        if len(matching) != 1:
            raise UserError(
                f"'{start}' begins the keys of {len(matching)} cells in '{self.folder}': give all of it"
            )
        return str(matching.iloc[0])

    def __repr__(self) -> str:
        done = int((self.cells["status"] == "done").sum())
        return f"Results('{self.folder}': {counted(done, 'cell')} done, {len(self.cells) - done} failed)"


class TrainedModel:
    """A trained model, or a mixture of several, that predicts in the units and labels of its data
    (`Results.model`)."""

    def __init__(self, predictor: "Predictor"):
        self._predictor = predictor

    @property
    def cells(self) -> "list[Cell]":
        """What was trained, one cell for each model of the mixture."""
        return [member.model.cell for member in self._predictor.members]

    @property
    def features(self) -> list[str]:
        """The names of its columns, in the order of arrays."""
        return [column.name for column in self._predictor.schema.columns]

    def predict(self, X: Any) -> pd.DataFrame:
        """Predictions on new rows.

        Args:
            X: A DataFrame with the columns of training, in any order (others are ignored); or an
                array with these columns in the order of `features`.

        Returns:
            A table with one row for each row of X. Regression: `mean`, `std`, and the ends of the
            central 95 % interval of a new observation, `lower_95` and `upper_95`. Binary data:
            `label`, and `probability_...` for each of the two labels. Counts: `mean`, `lower_95`,
            `upper_95`. Square-loss methods have a `mean` only.

        Raises:
            UserError: A column is missing, or a value is missing, not finite, or a category that
                training has not seen; the sentence names row and column."""
        rows = self._predictor.schema.encode(X)
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(self._predictor.predict(rows), index=index)

    def to_gpytorch(self) -> tuple[Any, Any]:
        """The model for GPyTorch, on normalised features and targets (`export` writes the numbers
        that normalise): an `ApproximateGP` and its likelihood, both in evaluation mode. UserError
        for a mixture, and for a likelihood that GPyTorch has not.

        Example:
            ```python
            gp, likelihood = model.to_gpytorch()
            likelihood(gp(x)).mean
            ```
        """
        from dlmexp.experiment.models.export import to_gpytorch

        exported = to_gpytorch(self._single())
        return exported.model, exported.likelihood

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the model, as `dlmexp export` does: to a `.npz` file for `dlmexp predict --model`;
        or, for GPyTorch, to a `.pt` file with the Python file beside it, whose path is returned and
        which loads it without dlmexp. UserError for a mixture, a likelihood that GPyTorch has not,
        or a file that can't be written."""
        from dlmexp.experiment.models.export import export

        return export(self._single(), Path(path))

    def _single(self) -> Any:
        if len(self._predictor.members) > 1:
            raise UserError("a mixture is not one GPyTorch model: choose a seed")
        return self._predictor.members[0].model

    def __repr__(self) -> str:
        return f"TrainedModel({'; '.join(cell.describe() for cell in self.cells)})"


@contextlib.contextmanager
def _stored(content: bytes, path: Path) -> Iterator[None]:
    """Data in memory as a file of the results folder. A mistake in what was asked for takes it away
    again."""
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


def own_table(
    data: Any, target: str | None, task: str | None, name: str, results: Path
) -> tuple[Any, dict[str, Any]]:
    """A context in which data in memory is a file in the results folder, and its settings."""
    if task is None:
        raise UserError("data in memory needs task='regression', 'binary' or 'count'")
    if isinstance(data, tuple) and len(data) == 2:
        X, y = (
            part if isinstance(part, pd.DataFrame | pd.Series) else np.asarray(part)
            for part in data
        )
        if len(np.shape(X)) != 2 or len(np.shape(y)) != 1 or len(X) != len(y):
            raise UserError(
                f"(X, y) have shapes {np.shape(X)} and {np.shape(y)}: give X [rows, features] and y [rows]"
            )
        target = target or (str(y.name) if isinstance(y, pd.Series) and y.name is not None else "y")
        frame = X.copy() if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
        frame.columns = [
            f"x{k + 1}" if isinstance(c, int) else str(c) for k, c in enumerate(frame.columns)
        ]
        if target in frame.columns:
            raise UserError(
                f"X has a column '{target}', as the target is called: give that another name, target="
            )
        frame[target] = np.asarray(y)
    elif isinstance(data, pd.DataFrame):
        if target is None:
            raise UserError(
                f"target=None: name the column to predict, one of {', '.join(map(str, data.columns))}"
            )
        frame = data.set_axis([str(column) for column in data.columns], axis=1)
    else:
        raise UserError(
            f"dataset is a {type(data).__name__}: give names, a DataFrame, or arrays (X, y)"
        )
    try:
        content = frame.to_parquet(index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        why = "; ".join(map(str, error.args))
        raise UserError(
            f"no table can hold these columns: {why}; make each numbers, text or dates"
        ) from None
    path = results / "tables" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    return _stored(content, path), {
        "path": os.fspath(path),
        "target": target,
        "task": task,
        "name": name,
    }
