"""How much a trained model of a table depends on each of its columns."""

import math

import numpy as np
from jaxtyping import Bool

from dlmexp.data.schema import Schema


def column_lengthscales(
    schema: Schema, constant: Bool[np.ndarray, " D"], hyper: dict[str, np.ndarray]
) -> dict[str, float]:
    """Return the lengthscale of each column, in standard deviations of its training rows.

    That of a category says how far apart two different levels are. It is infinite for a column
    that is the same in all training rows: the model has learned nothing about it, and its own
    value is the initial one. Columns without a lengthscale of their own are left out.

    Args:
        schema: The columns.
        constant: The features that are the same in all training rows.
        hyper: The hyperparameters of the model.
    """
    of_numbers = np.atleast_1d(hyper.get("lengthscale", np.zeros(0)))
    of_categories = np.atleast_1d(hyper.get("category_lengthscale", np.zeros(0)))
    numbers = [column for column in schema.columns_of_features if not column.has_indicators]
    categories = [column for column in schema.columns_of_features if column.has_indicators]
    # Kernels without ARD have one lengthscale; dummies of old models have several per column.
    is_by_column = len(of_numbers) == len(numbers) and np.ndim(hyper.get("lengthscale", 0.0)) == 1
    lengthscales = {}
    if is_by_column:
        for position, column in enumerate(numbers):
            own = math.inf if constant[position] else float(of_numbers[position])
            lengthscales[column.name] = own
    if len(of_categories) == len(categories):
        for column, lengthscale in zip(categories, of_categories, strict=True):
            has_several = len(column.levels) > 1
            lengthscales[column.name] = float(lengthscale) if has_several else math.inf
    return lengthscales
