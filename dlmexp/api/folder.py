"""A results folder and its trained models, as Python programs see them."""

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.records.results import ResultsFolder
from dlmexp.records.table import OWN_UNITS, TEST, as_text, rows_for

if TYPE_CHECKING:
    from dlmexp.models.predictor import Predictor
    from dlmexp.plan.cell import Cell

SELECTED = ["dataset", "n", "M", "seed", "method", "estimator", "samples", "parameterisation", "beta"]


class Results:
    """A results folder: tables of cells, learning curves, trained models. `dlmexp.run` and `dlmexp.results` give it."""

    def __init__(self, records: ResultsFolder):
        self._records = records

    @property
    def folder(self) -> Path:
        """Where the records lie."""
        return self._records.root

    @cached_property
    def table(self) -> pd.DataFrame:
        """The tidy table: one row per dataset, n, seed, method, estimator, q, setting, role and the metric that selects
        beta (`selected_by`). Group by `role` and `selected_by` too, or take `selected`."""
        return as_text(self._records.table)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Every cell, one row each: its fields, metrics as `test_nll`, `validation_nll`, ..., and `model`, whether its
        trained model is there."""
        frame = as_text(self._records.candidates).drop_duplicates("key").reset_index(drop=True)
        return frame.assign(model=frame["key"].isin(self._records.store.keys_with_models()))

    @cached_property
    def selected(self) -> pd.DataFrame:
        """One row per method, dataset, size and seed: the fit at the beta that validation selects, by NLL (by MSE for
        square-loss methods). Of users' own tables with errors in their units: `rmse`, `mae`, `r2`, and `coverage_95`,
        the share of test rows in their 95 % interval. All other columns of these rows are in `table`, by `key`."""
        table = self.table
        rows = rows_for(table[(table["role"] == "fit") & (table["status"] == "done")], "nll").reset_index(drop=True)
        own = [name for name in OWN_UNITS if "test_rmse" in rows and rows["test_rmse"].notna().any()]
        tests = [name for name in (*own, *TEST) if rows[name].notna().any()]
        names = [*SELECTED, *tests, "validation_nll", "protocol", "changes", "key"]
        return rows[[name for name in names if name in rows]]

    def curves(self, key: str) -> pd.DataFrame:
        """How the cell was trained whose key is `key`, or alone begins with it: a table with one row per iteration and
        a column `objective`; where the run asked for metrics (`evaluate=`), columns such as `test_nll` too."""
        arrays = self._records.arrays(self._key(key))
        objective = arrays.get("objective", np.zeros(0))
        frame = pd.DataFrame({"objective": objective}, index=pd.RangeIndex(1, len(objective) + 1, name="iteration"))
        if "evaluated_at" in arrays:
            tests = {name: values for name, values in arrays.items() if name.startswith("test_")}
            at = pd.Index(arrays["evaluated_at"], name="iteration")
            frame = frame.join(pd.DataFrame(tests, index=at), how="outer")
        return frame

    def model(self, key: str | None = None, *, seeds: str | None = None, **where: Any) -> "TrainedModel":
        """A trained model: the one with the best validation NLL, in the units of the data, of those that are asked for.

        Args:
            key: The key of a cell, or the start of it; then it is the model of that cell.
            seeds: `"all"`: the mixture, with equal weights, of the models of all seeds that were trained in this way.
            where: Fields that the model should have: `method="joint_log_dlm"`, `dataset="houses"`, `n=500`, `seed=0`,
                `beta=1`, or any other field of a cell.

        Raises:
            UserError: There is no such model, or there are such models of several datasets.

        Example:
            ```python
            model = found.model(method="joint_log_dlm")
            mixture = found.model(method="joint_log_dlm", seeds="all")
            ```
        """
        from dlmexp.models.file import choose_models
        from dlmexp.models.predictor import Predictor

        if seeds not in (None, "all"):
            raise UserError(f"seeds={seeds}: give 'all', or choose one with seed=")
        terms = [f"{name}={value}" for name, value in {**({"key": key} if key else {}), **where}.items()]
        chosen = choose_models(self._records, terms, seeds == "all", "model:")
        return TrainedModel(Predictor([each.model for each in chosen]))

    def _key(self, start: str) -> str:
        keys = self.cells["key"]
        matching = keys[keys.str.startswith(start)]
        if len(matching) != 1:
            raise UserError(f"'{start}' begins the keys of {len(matching)} cells in '{self.folder}': give all of it")
        return str(matching.iloc[0])

    def __repr__(self) -> str:
        done = int((self.cells["status"] == "done").sum())
        return f"Results('{self.folder}': {counted(done, 'cell')} done, {len(self.cells) - done} failed)"


class TrainedModel:
    """A trained model, or a mixture of several, that predicts in the units and labels of its data (`Results.model`)."""

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
            X: A DataFrame with the columns of training, in any order (others are ignored); or an array with these
                columns in the order of `features`.

        Returns:
            A table with one row for each row of X. Regression: `mean`, `std`, and the ends of the central 95 % interval
            of a new observation, `lower_95` and `upper_95`. Binary data: `label`, and `probability_...` for each of the
            two labels. Counts: `mean`, `lower_95`, `upper_95`. Square-loss methods have a `mean` only.

        Raises:
            UserError: A column is missing, or a value is missing, not finite, or a category that training has not seen;
                the sentence names row and column.
        """
        rows = self._predictor.schema.encode(X)
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(self._predictor.predict(rows), index=index)

    def to_gpytorch(self) -> tuple[Any, Any]:
        """The model for GPyTorch, on normalised features and targets (`export` writes the numbers that normalise): an
        `ApproximateGP` and its likelihood, both in evaluation mode. UserError for a mixture, and for a likelihood that
        GPyTorch has not.

        Example:
            ```python
            gp, likelihood = model.to_gpytorch()
            likelihood(gp(x)).mean
            ```
        """
        from dlmexp.models.export import to_gpytorch

        exported = to_gpytorch(self._single())
        return exported.model, exported.likelihood

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the model, as `dlmexp export` does: to a `.npz` file for `dlmexp predict --model`; or, for GPyTorch, to
        a `.pt` file with the Python file beside it, whose path is returned and which loads it without dlmexp. UserError
        for a mixture, a likelihood that GPyTorch has not, or a file that can't be written."""
        from dlmexp.models.export import export

        return export(self._single(), Path(path))

    def _single(self) -> Any:
        if len(self._predictor.members) > 1:
            raise UserError("a mixture is not one GPyTorch model: choose a seed")
        return self._predictor.members[0].model

    def __repr__(self) -> str:
        return f"TrainedModel({'; '.join(cell.describe() for cell in self.cells)})"
