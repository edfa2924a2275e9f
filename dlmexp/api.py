"""The interface for Python programs and notebooks.

`run`, `claims` and `plot` do what the commands of the same names do. `results` opens a results
folder as `Results`. A `TrainedModel` is one of its models, or a mixture of several.
"""

import contextlib
import io
import os
import re
import signal
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pandas as pd

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.literals import dotted_settings, literal
from dlmexp.common.provenance import COMMAND_VARIABLE, portable_command
from dlmexp.common.reading.tables import SUFFIXES
from dlmexp.experiment.records.columns import SHOWN_TEST_METRICS, USER_TABLE_METRICS
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import parse_terms
from dlmexp.experiment.records.table import as_text, rows_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlmexp.data.in_memory import MemoryTable
    from dlmexp.experiment.models.choice import ChosenModel
    from dlmexp.experiment.models.file import TrainedCell
    from dlmexp.experiment.models.importance import Rows
    from dlmexp.experiment.models.predictor import Predictor
    from dlmexp.experiment.plan.cell import CandidateGroup, Cell

__all__ = ["Results", "TrainedModel", "claims", "plot", "results", "run"]

SOME_CELLS_FAILED = 1  # exit code of a run
# The first columns of `Results.selected`.
SELECTED_COLUMNS = [
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
VERDICT_COLUMNS = [
    "number",
    "claim",
    "where",
    "protocol",
    "verdict",
    "words",
    "supported",
    "contradicted",
    "no_difference",
    "unclear",
    "data",
    "stand_ins",
    "not_available",
    "repetitions",
    "missing",
    "commands",
]


def run(
    dataset: "str | os.PathLike[str] | Sequence[str] | pd.DataFrame | tuple | None" = None,
    method: str | Sequence[str] | None = None,
    *,
    target: str | None = None,
    task: str | None = None,
    name: str | None = None,
    results: str | os.PathLike[str] = "results",
    verbose: bool = True,
    **overrides: Any,
) -> "Results":
    """Train models as the command `dlmexp run` does, and return the results.

    Cells that are done already are not trained again. A warning says that cells have failed, or
    that the budget is spent.

    Args:
        dataset: Names of datasets (`dlmexp data list`); or the path of a table, such as
            `"houses.csv"`; or data in memory: a DataFrame with a column `target`, or arrays
            `(X, y)` of shapes [rows, features] and [rows] or [rows, 1]. Data in memory is written
            to the results folder as a table, so that the command line finds it too.
        method: Names of methods, such as `"elbo"` or `["beta_elbo", "joint_log_dlm"]`; the files in
            `conf/method`.
        target: The column to predict, for a DataFrame or a table.
        task: `"regression"`, `"binary"` or `"count"`, for data in memory or a table.
        name: The name of the data in the results. By default it is `mine` for data in memory, and
            the name of its file for a table.
        results: The folder that records and models are written to.
        verbose: Whether to print what the command prints: progress, and a table of results.
        overrides: Every other setting of `dlmexp run`, by its name: `seeds=[0]`, `beta=[1, 0.1]`,
            `M=50`, `experiment="class-log"`. Nested settings are dictionaries,
            `training={"regression": {"max_iterations": 100}}`, `csv={"missing": "mean"}`.

    Returns:
        The results of the cells of this call; `dlmexp.results` returns all results in a folder.

    Raises:
        UserError: An argument is wrong; nothing is written then.
        KeyboardInterrupt: The run was interrupted. Everything is saved, and the same call goes on.

    Example:
        ```python
        import dlmexp

        methods = ["elbo", "joint_log_dlm"]
        results = dlmexp.run(frame, methods, target="price", task="regression", name="houses")
        results.selected
        ```
    """
    from dlmexp.experiment.plan.compose import with_default_experiment
    from dlmexp.experiment.plan.overrides import expand_shorthand

    settings: dict[str, Any] = {"results": os.fspath(results)}
    memory_data = None
    if _is_table_file(dataset):
        settings |= _settings_of_file(dataset, target, task, name)
    elif _is_named(dataset):
        if target is not None or task is not None:
            raise UserError(
                "target= and task= describe data in memory or a table: "
                "give dataset= a DataFrame, arrays or the path of a file with them"
            )
        if dataset is not None:
            settings["dataset"] = dataset
    else:
        from dlmexp.data.in_memory import memory_table

        memory_data = memory_table(dataset, target, task, name or "mine", Path(results))
        settings |= {"dataset": "csv", "csv": memory_data.settings}
    if method is not None:
        settings["method"] = [method] if isinstance(method, str) else method
    # With dotted names, `csv={"missing": "mean"}` is added to the other settings of `csv`, and does
    # not replace them.
    values_by_name = dict(dotted_settings(settings)) | dict(dotted_settings(overrides))
    words = [f"{name}={literal(value)}" for name, value in values_by_name.items()]
    words = with_default_experiment(expand_shorthand(words))
    exit_code, groups = _execute(words, memory_data, verbose)
    _warn_of_outcome(exit_code)
    return Results(ResultsFolder(Path(results), shown_groups=groups))


def _settings_of_file(
    path: str | os.PathLike[str], target: str | None, task: str | None, name: str | None
) -> dict[str, Any]:
    """Return the settings of a run on a user's table in a file."""
    csv = {"path": os.fspath(path)}
    if target is not None:
        csv["target"] = target
    if task is not None:
        csv["task"] = task
    csv["name"] = name or _name_of_file(path)
    return {"dataset": "csv", "csv": csv}


def _is_table_file(dataset: Any) -> "TypeGuard[str | os.PathLike[str]]":
    """Return whether a dataset is the path of a table."""
    if isinstance(dataset, os.PathLike):
        return True
    return isinstance(dataset, str) and dataset.lower().endswith(SUFFIXES)


def _name_of_file(dataset: Any) -> str:
    """Return the name of a file without its ending, as a name for results."""
    stem, _, _ = Path(dataset).name.partition(".")
    return re.sub(r"[^A-Za-z0-9_-]", "_", stem) or "mine"


def _is_named(dataset: Any) -> bool:
    """Return whether `dataset` names datasets, or leaves them to the experiment (None).

    Otherwise it is data in memory.
    """
    if dataset is None or isinstance(dataset, str):
        return True
    if not isinstance(dataset, list | tuple) or not dataset:
        return False
    return all(isinstance(name, str) for name in dataset)


def _execute(
    words: Sequence[str], memory_data: "MemoryTable | None", verbose: bool
) -> "tuple[int, list[CandidateGroup]]":
    """Run one job in this process.

    Args:
        words: The overrides in Hydra's grammar.
        memory_data: Data in memory, to be written to the results folder; None if there are none.
        verbose: Whether to print what the command prints.

    Returns:
        The exit code of the command, and the groups of candidates that the job requests.
    """
    from dlmexp.common.environment import environment
    from dlmexp.common.extensions import use_extensions
    from dlmexp.experiment.plan.compose import check_table_is_used, compose, plugins_in
    from dlmexp.experiment.running.run import execute_sweep
    from dlmexp.experiment.running.sweep import prepare_sweep

    silence = contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO())
    stored = memory_data.stored() if memory_data else contextlib.nullcontext()
    with use_extensions(plugins=plugins_in(words)), silence, stored:
        cfg = compose(words)
        check_table_is_used(words, [cfg])
        command = portable_command(["dlmexp", "run", *words])
        with _ctrl_c_restored(), environment(**{COMMAND_VARIABLE: command}):
            sweep = prepare_sweep(cfg)
            return execute_sweep(sweep, words), sweep.candidates


@contextlib.contextmanager
def _ctrl_c_restored() -> Iterator[None]:
    """Restore the handler of Ctrl-C afterwards: a run that is interrupted twice leaves its own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)


def _warn_of_outcome(exit_code: int) -> None:
    """Raise KeyboardInterrupt, or warn, if a run did not finish all cells."""
    from dlmexp.experiment.running.process import BUDGET_SPENT, STOPPED

    if exit_code >= STOPPED:
        raise KeyboardInterrupt
    warning = ""
    if exit_code == BUDGET_SPENT:
        warning = "the budget is spent: call run again with the same arguments to go on"
    if exit_code == SOME_CELLS_FAILED:
        warning = "some cells failed or have no record: see results(...).cells"
    if warning:
        warnings.warn(warning, stacklevel=3)


def results(folder: str | os.PathLike[str] = "results") -> "Results":
    """Return the results in a folder, whether Python or a command made or downloaded them.

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
    """Return the verdicts on the paper's claims, judged on the records of a folder.

    Args:
        folder: A results folder.
        protocol: Judge only the records of this protocol, such as `"paper"`; None: those of each
            protocol in the folder.

    Returns:
        One row per claim and protocol, with these columns:

        - `number`, `claim`, `where` (in the paper), `protocol`.
        - `verdict`, and `words`: the verdict with the number of tests.
        - `supported`, `contradicted`, `no_difference`, `unclear`: the number of tests with this
          outcome.
        - `data`: the datasets that were run; `stand_ins`: which of them stand in for others;
          `not_available`: the datasets of the paper that were not run.
        - `repetitions`.
        - `missing`: the commands that would compute missing records; `commands`: the commands that
          made the records.

    Raises:
        UserError: There are no records in the folder, or none of this protocol.

    Example:
        ```python
        verdicts = dlmexp.claims("results/paper")
        verdicts[verdicts["verdict"] == "reproduced"]["claim"]
        ```
    """
    from dlmexp.presentation.claims.judge import judge

    judged = judge(ResultsFolder(folder), protocol=protocol).as_frame()
    # Each `column` of verdicts is a protocol, since no changed setting is judged here.
    return judged.rename(columns={"column": "protocol"})[VERDICT_COLUMNS]


def plot(
    name: str,
    folder: str | os.PathLike[str] = "results",
    *,
    data_root: str | os.PathLike[str] | None = None,
    **by: Any,
) -> "Figure":
    """Return a figure of `dlmexp plot`, to be shown in a notebook, or changed and saved.

    A notebook shows it as a picture if it is the last value of a cell.

    Args:
        name: The name of a figure (`dlmexp plot --list`); `"predictions"` shows one trained model
            on its test rows, `"importance"` how much each of its columns matters.
        folder: A results folder.
        data_root: For `"predictions"` and `"importance"`, the folder that the run read its data
            from, as in `dlmexp.run`.
        by: Values that choose the records, such as `dataset="ringnorm"` or `seed=0`. For
            `"predictions"` and `"importance"` they choose the model.

    Raises:
        UserError: There is no such figure, or no record with these values.

    Example:
        ```python
        figure = dlmexp.plot("class-log", "results/paper", dataset="ringnorm")
        figure.savefig("ringnorm.pdf")
        ```
    """
    from dlmexp.presentation.figures import importance, predictions
    from dlmexp.presentation.figures.choose import FILTER_COLUMNS
    from dlmexp.presentation.figures.panels import IMPORTANCE, PREDICTIONS
    from dlmexp.presentation.figures.plot import Request, draw

    terms = [f"{key}={value}" for key, value in by.items()]
    records = ResultsFolder(Path(folder))
    if name not in (PREDICTIONS, IMPORTANCE):
        request = Request(parse_terms("--by", terms, FILTER_COLUMNS))
        return _with_png_for_notebooks(draw(records, name, request).picture)
    from dlmexp.experiment.models.choice import choose_models
    from dlmexp.experiment.models.diagnosis import diagnose

    (chosen,) = choose_models(records, terms, option="plot:")
    render = predictions.render if name == PREDICTIONS else importance.render
    return _with_png_for_notebooks(render(diagnose(records, chosen, data_root)))


def _with_png_for_notebooks(figure: "Figure") -> "Figure":
    """Return the figure with the method `_repr_png_`, which notebooks call for a picture."""

    def png() -> bytes:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()

    figure._repr_png_ = png  # pyright: ignore[reportAttributeAccessIssue]
    return figure


class Results:
    """A results folder: tables of cells, learning curves, trained models.

    `dlmexp.run` and `dlmexp.results` return it.
    """

    def __init__(self, records: ResultsFolder):
        self._records = records

    @property
    def folder(self) -> Path:
        """The folder of the records."""
        return self._records.root

    @cached_property
    def table(self) -> pd.DataFrame:
        """The tidy table.

        It has one row per dataset, n, seed, method, estimator, q, setting, role and metric that
        selects beta (`selected_by`). Before you average rows, group them by `role` and
        `selected_by` too; or take `selected`, which has one role and one metric.
        """
        return as_text(self._records.table)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """All cells, one row each.

        The columns are the fields of a cell, metrics such as `test_nll` and `validation_nll`, and
        `model`: whether the folder has its trained model.
        """
        frame = as_text(self._records.candidates).drop_duplicates("key").reset_index(drop=True)
        has_model = frame["key"].isin(self._records.store.model_files())
        return frame.assign(model=has_model)

    @cached_property
    def selected(self) -> pd.DataFrame:
        """One row per method, dataset, size and seed: the fit at the selected beta.

        Validation NLL selects beta (MSE for square-loss methods). Results on users' own tables also
        have metrics in the units of the target: `rmse`, `mae`, `r2`, and `coverage_95`, the share
        of test rows in their 95 % interval. All other columns of these rows are in `table`, by
        `key`.
        """
        is_finished_fit = (self.table["role"] == "fit") & (self.table["status"] == "done")
        rows = rows_for(self.table[is_finished_fit], "nll").reset_index(drop=True)
        has_user_tables = "test_rmse" in rows and rows["test_rmse"].notna().any()
        metrics = list(SHOWN_TEST_METRICS)
        if has_user_tables:
            metrics = [*USER_TABLE_METRICS, *SHOWN_TEST_METRICS]
        metrics_with_values = [name for name in metrics if rows[name].notna().any()]
        last_columns = ["validation_nll", "protocol", "changes", "key"]
        columns = [*SELECTED_COLUMNS, *metrics_with_values, *last_columns]
        return rows[[name for name in columns if name in rows]]

    def curves(self, key: str) -> pd.DataFrame:
        """Return the learning curves of a cell.

        Args:
            key: The key of the cell, or its beginning.

        Returns:
            One row per iteration. The column `objective` is always there; columns such as
            `test_nll` are there if the run computed test metrics during training (`evaluate=`).
        """
        arrays = self._records.arrays(self._key(key))
        objective = arrays.get("objective", np.zeros(0))
        iterations = pd.RangeIndex(1, len(objective) + 1, name="iteration")
        frame = pd.DataFrame({"objective": objective}, index=iterations)
        if "evaluated_at" not in arrays:
            return frame
        metrics = {name: values for name, values in arrays.items() if name.startswith("test_")}
        evaluated_at = pd.Index(arrays["evaluated_at"], name="iteration")
        return frame.join(pd.DataFrame(metrics, index=evaluated_at), how="outer")

    def model(
        self, key: str | None = None, *, seeds: str | None = None, **where: Any
    ) -> "TrainedModel":
        """Return the trained model with the best validation NLL, in the units of the data.

        Args:
            key: The key of a cell, or its beginning: the model of this cell is returned.
            seeds: `"all"`: return a mixture with equal weights. It consists of the best model of
                each seed, among those with the settings of the best model of all.
            where: Values of fields that the model should have: `method="joint_log_dlm"`,
                `dataset="houses"`, `n=500`, `seed=0`, `beta=1`, or any other field of a cell.

        Raises:
            UserError: There is no such model, or there are such models of several datasets.

        Example:
            ```python
            model = results.model(method="joint_log_dlm")
            mixture = results.model(method="joint_log_dlm", seeds="all")
            ```
        """
        from dlmexp.experiment.models.choice import choose_models
        from dlmexp.experiment.models.predictor import Predictor

        if seeds not in (None, "all"):
            raise UserError(f"seeds={seeds}: give 'all', or choose one with seed=")
        fields = {"key": key, **where} if key else where
        terms = [f"{name}={value}" for name, value in fields.items()]
        chosen = choose_models(self._records, terms, every_seed=seeds == "all", option="model:")
        predictor = Predictor([choice.model for choice in chosen])
        return TrainedModel(predictor, self._records, chosen)

    def _key(self, start: str) -> str:
        """Return the only key that begins in this way."""
        keys = self.cells["key"]
        matching = keys[keys.str.startswith(start)]
        if len(matching) != 1:
            raise UserError(
                f"'{start}' begins the keys of {len(matching)} cells in '{self.folder}': "
                "give the whole key"
            )
        return str(matching.iloc[0])

    def __repr__(self) -> str:
        done = int((self.cells["status"] == "done").sum())
        failed = len(self.cells) - done
        return f"Results('{self.folder}': {counted(done, 'cell')} done, {failed} failed)"


class TrainedModel:
    """A trained model, or a mixture of several; `Results.model` returns it.

    It predicts in the units and labels of its data.
    """

    def __init__(
        self,
        predictor: "Predictor",
        records: ResultsFolder | None = None,
        chosen: "Sequence[ChosenModel]" = (),
    ):
        self._predictor = predictor
        self._records = records
        self._chosen = chosen

    @property
    def cells(self) -> "list[Cell]":
        """The trained cells: one for each model of the mixture."""
        return [member.model.cell for member in self._predictor.members]

    @property
    def features(self) -> list[str]:
        """The names of the columns of X, in the order that arrays must have."""
        return [column.name for column in self._predictor.schema.columns]

    def predict(
        self, X: Any, level: float = 0.95, *, unseen: str = "error", fill: bool = False
    ) -> pd.DataFrame:
        """Return predictions on new rows.

        Args:
            X: A DataFrame with the columns of training, in any order (others are ignored); or an
                array with these columns in the order of `features`.
            level: The probability of the interval.
            unseen: For a level of a category that training did not have: `"error"` raises, and
                `"base"` predicts from the other columns.
            fill: Whether missing values are filled even if training had none: a number by its mean,
                a category by a level that training did not have.

        Returns:
            A table with one row for each row of X. Regression: `mean`, `std`, and the ends of the
            central interval of a new observation, `lower_95` and `upper_95`. Binary data: `label`,
            and `probability_...` for each of the two labels. Counts: `mean`, `lower_95`,
            `upper_95`. Square-loss methods have a `mean` only.

        Raises:
            UserError: A column is missing. Or a value is missing, not finite, or a level that
                training did not have; the message names its row and column.
        """
        return self._predicted(X, unseen, fill, level=level)

    def quantiles(
        self, X: Any, shares: Sequence[float], *, unseen: str = "error", fill: bool = False
    ) -> pd.DataFrame:
        """Return quantiles of a new observation at every row.

        Args:
            X: As for `predict`.
            shares: Probabilities, such as `[0.1, 0.5, 0.9]`.
            unseen: As for `predict`.
            fill: As for `predict`.

        Returns:
            A column for each probability; the probability is also the name of the column.
        """
        frame = self._predicted(X, unseen, fill, quantiles=tuple(shares))
        columns = [f"quantile_{share:g}" for share in shares]
        return frame[columns].set_axis(list(shares), axis=1)

    def above(
        self, X: Any, number: float, *, unseen: str = "error", fill: bool = False
    ) -> pd.Series:
        """Return the probability that a new observation is more than a number, at every row."""
        frame = self._predicted(X, unseen, fill, above=(number,))
        return frame[f"above_{number:g}"]

    def sample(
        self, X: Any, n: int = 100, seed: int = 0, *, unseen: str = "error", fill: bool = False
    ) -> pd.DataFrame:
        """Return n independent draws of a new observation at every row, a column each.

        Draws at different rows are independent too.
        """
        frame = self._predicted(X, unseen, fill, seed, samples=n)
        columns = [f"sample_{number}" for number in range(1, n + 1)]
        return frame[columns].set_axis(range(n), axis=1)

    def _predicted(
        self, X: Any, unseen: str, fill: bool, seed: int = 0, **outputs: Any
    ) -> pd.DataFrame:
        """Return columns of predictions with the index of X, if X is a DataFrame.

        Args:
            X: The rows.
            unseen: As for `predict`.
            fill: As for `predict`.
            seed: The seed of samples.
            **outputs: The fields of `Outputs`.
        """
        from dlmexp.experiment.models.predictor import Outputs

        if unseen not in ("error", "base"):
            raise UserError(f"unseen={unseen}: give 'error' or 'base'")
        encoded = self._predictor.schema.encode_rows(X, "X", unseen, fill)
        if encoded.problems:
            row, problem = next(iter(encoded.problems.items()))
            raise UserError(f"X: row {row + 1}, {problem}")
        index = X.index if isinstance(X, pd.DataFrame) else None
        random = np.random.default_rng(seed)
        columns = self._predictor.predict(encoded.X, outputs=Outputs(**outputs), random=random)
        return pd.DataFrame(columns, index=index)

    def importance(
        self, X: Any = None, y: Any = None, *, repeats: int = 10, seed: int = 0
    ) -> pd.DataFrame:
        """Return the permutation importance of each column, the most important first.

        The importance of a column is the rise in the loss when its values are permuted among the
        rows. Columns that carry the same information share their importance.

        Args:
            X: Rows as for `predict`, on which the model was not trained; None: its own test rows.
            y: The targets, or labels, of these rows.
            repeats: The number of permutations of every column.
            seed: The seed of the permutations.

        Returns:
            A row per column of X, with

            - the rise in the NLL per row (`nll_increase`; for square-loss methods
              `squared_error_increase`),
            - the ends of its 95 % interval over the rows (`lower_95`, `upper_95`),
            - the lengthscale of the column, in units of the column's standard deviation.

        Raises:
            UserError: There are no test rows, or these can't be read again.
        """
        from dlmexp.experiment.models.importance import importance

        return importance(self._predictor, self._rows_with_targets(X, y), repeats, seed)

    def scores(self, X: Any = None, y: Any = None, *, threshold: float = 0.5) -> dict[str, float]:
        """Return scores of the predictions on rows with known targets.

        Args:
            X: Rows as for `predict`, on which the model was not trained; None: its own test rows.
            y: The targets, or labels, of these rows.
            threshold: The probability of class 1 above which class 1 is predicted.

        Returns:
            `nll` for all targets. For numbers and counts also `rmse`, `mae`, `r2` and
            `coverage_95`, in the units of the target. For counts also the mean Poisson `deviance`
            and the `dispersion`: the mean ratio of squared error and predicted variance (1 if
            counts vary as predicted). For labels also `base_rate`, `auc`, `brier`, and the four
            numbers of the confusion matrix.

        Raises:
            UserError: There are no test rows, or these can't be read again.
        """
        from dlmexp.experiment.models.scores import scores_on

        return scores_on(self._predictor, self._rows_with_targets(X, y), threshold)

    def _rows_with_targets(self, X: Any, y: Any) -> "Rows":
        """Return encoded rows with targets: X and y or, if both are None, the model's test rows."""
        from dlmexp.experiment.models.diagnosis import known_test_rows
        from dlmexp.experiment.models.importance import Rows

        if (X is None) != (y is None):
            raise UserError("give both X and y, or neither for the model's own test rows")
        if X is None:
            if self._records is None or len(self._chosen) != 1:
                raise UserError("models of several seeds have different test rows: give X and y")
            return known_test_rows(self._records, self._chosen[0])
        schema = self._predictor.schema
        targets = np.asarray(y)
        if schema.labels is not None:
            # The schema has labels as Python texts: 1 is '1'.
            targets = targets.astype(str).astype(object)
        features = schema.encode(X, first=1)
        return Rows(features, schema.encode_target(targets).astype(float))

    def to_gpytorch(self) -> tuple[Any, Any]:
        """Return an `ApproximateGP` and its likelihood, both in evaluation mode.

        They take normalised features and predict normalised targets; `export` writes the means and
        standard deviations for this. If q is a mixture, predictions have a leading dimension of
        components, all of equal weight.

        Raises:
            UserError: There are models of several seeds, or GPyTorch lacks the likelihood.

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
        """Write the model, as `dlmexp export` does.

        Args:
            path: A `.npz` file for `dlmexp predict --model`; or a `.pt` file for GPyTorch, next to
                which a Python file is written that loads it without dlmexp.

        Returns:
            The `.npz` file, or the Python file.

        Raises:
            UserError: There are models of several seeds, GPyTorch lacks the likelihood, or the file
                cannot be written.
        """
        from dlmexp.experiment.models.export import export

        return export(self._single(), Path(path))

    def _single(self) -> "TrainedCell":
        """Return the only model; raise UserError for a mixture of several."""
        if len(self._predictor.members) > 1:
            raise UserError("models of several seeds are not one model: choose a seed")
        return self._predictor.members[0].model

    def __repr__(self) -> str:
        return f"TrainedModel({'; '.join(cell.describe() for cell in self.cells)})"
