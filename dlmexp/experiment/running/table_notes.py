"""The notes of a run about a user's own table: how it was read, and what looks wrong in it."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

import pandas as pd

from dlmexp.common.console import counted
from dlmexp.core.folds import HOLDOUT, LOO
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.schema import OTHER_LEVEL
from dlmexp.data.splits import Arrangement, split, with_validation_in_pool
from dlmexp.experiment.plan.cell import Cell

MAX_NAMED_COLUMNS = 12


def table_notes(spec: DatasetConfig, data: Dataset, cells: Sequence[Cell]) -> list[str]:
    """Return lines about a user's own table and the cells on it.

    The lines describe its rows and features, the target and the division of the rows. Further lines
    list gaps, columns that are left out, and warnings.
    """
    schema = data.schema
    fits = [cell for cell in cells if cell.fold is None]
    sizes = _distinct(map(attrgetter("n"), fits))
    inducing_counts = _distinct(map(attrgetter("M"), fits))
    rows = f"{counted(len(data.y), 'row')} of {data.facts['file']}"
    columns = f"{counted(len(schema.columns), 'column')} of features"
    target = f"log({schema.target})" if schema.log else schema.target
    return [
        f"{data.name}: {rows}, {columns}: {_column_names(data)}",
        f"  target {target}: {_target_values(data)}",
        f"  {_division(spec, data)}; n = {sizes}; M = {inducing_counts}{_validation(fits)}",
        *_notes_about_values(data),
    ]


def _notes_about_values(data: Dataset) -> list[str]:
    """Return lines about gaps, decimal commas, columns that are left out, and warnings."""
    lines: list[str] = []
    rows_with_gaps = int(pd.isna(data.X).any(axis=1).sum())
    if rows_with_gaps:
        rows = counted(rows_with_gaps, "row")
        lines.append(f"  {rows} with missing numbers, which get the mean of the training rows")
    rows_without_a_category = _rows_without_a_category(data)
    if rows_without_a_category:
        rows = counted(rows_without_a_category, "row")
        lines.append(f"  {rows} with a missing category, which count as a level of its own")
    if data.schema.decimal == "comma":
        lines.append("  numbers have a decimal comma (csv.decimal=point reads them otherwise)")
    left_out = data.facts["left_out"]
    if left_out:
        lines.append(f"  left out: {', '.join(left_out)}")
    lines += [f"  warning: {warning}" for warning in data.facts["warnings"]]
    return lines


def _validation(fits: Sequence[Cell]) -> str:
    """Return the end of a line about the cross-validation that selects; '' if there is none."""
    labels = {HOLDOUT: "a tenth of the rows", LOO: "leaving one row out"}
    settings = {cell.cv for cell in fits if cell.cv is not None}
    if not settings:
        return ""
    methods = [labels.get(cv, f"{cv} folds") for cv in sorted(settings)]
    return f"; selected by {' and '.join(methods)}"


def _rows_without_a_category(data: Dataset) -> int:
    """Return how many rows have a gap in a column of categories.

    A gap is encoded as the level `OTHER_LEVEL`. So is a category that the schema does not know, but
    the schema knows all categories of the table that it was made from.
    """
    ending = f"={OTHER_LEVEL}"
    features = enumerate(data.schema.features)
    columns = [column for column, name in features if name.endswith(ending)]
    has_other_level = data.X[:, columns].any(axis=1)
    return int(has_other_level.sum())


def _distinct(numbers: Iterable[int]) -> str:
    """Return the distinct numbers, sorted, as text."""
    return ", ".join(map(str, sorted(set(numbers))))


def _column_names(data: Dataset) -> str:
    """Return the names and encodings of the first columns, and how many more there are."""
    columns = data.schema.columns
    names: list[str] = []
    for column in columns[:MAX_NAMED_COLUMNS]:
        name = repr(column.name) if "," in column.name else column.name
        names.append(f"{name} ({column.description})")
    if len(columns) > MAX_NAMED_COLUMNS:
        names.append(f"{len(columns) - MAX_NAMED_COLUMNS} more")
    return ", ".join(names)


def _target_values(data: Dataset) -> str:
    """Return the classes and their sizes, or the range and the mean of the target."""
    if data.task == "binary":
        negative, positive = data.schema.labels or (0, 1)
        positives = int(data.y.sum())
        negatives = len(data.y) - positives
        return (
            f"class 1 is '{positive}' ({positives} rows), "
            f"class 0 is '{negative}' ({negatives} rows)"
        )
    y = data.y
    return f"{y.min():g} to {y.max():g}, mean {y.mean():.4g}"


def _division(spec: DatasetConfig, data: Dataset) -> str:
    """Return how the rows are divided into training, validation and test rows."""
    n_rows = len(data.y)
    rows = split(n_rows, spec.split, seed=0, test_cap=None, arrangement=data.arrangement)
    if spec.validation == "pool":
        rows = with_validation_in_pool(rows)
    n_train = len(rows.train)
    n_validation = len(rows.validation)
    n_test = len(rows.test[: spec.test_cap])
    parts = [f"{n_train} rows for training"]
    if spec.validation != "pool":
        parts.append(f"{n_validation} for validation")
    parts.append(f"{n_test} for testing")
    division = f"divided {_basis_of_division(data.arrangement)}: {', '.join(parts)}"
    unused = n_rows - n_train - n_validation - n_test
    if not unused:
        return division
    is_grouped = data.arrangement.by is not None and data.arrangement.kind != "time"
    reason = " (their group would be in two parts)" if is_grouped else ""
    return f"{division}, {counted(unused, 'row')} not used{reason}"


def _basis_of_division(arrangement: Arrangement) -> str:
    """Return how rows are assigned to the parts: at random, by a column, or as published."""
    if arrangement.published is not None:
        splits = counted(len(arrangement.published), "split")
        return f"as in {arrangement.column} ({splits})"
    if arrangement.by is None:
        return "at random"
    return f"by {arrangement.kind} ({arrangement.column})"
