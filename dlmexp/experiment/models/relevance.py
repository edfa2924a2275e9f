"""How much a trained model of a table depends on each of its columns."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from dlmexp.data.schema import Column, Schema

NONE = np.zeros(0)
"""The lengthscales of a kernel that has none."""


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
    columns = schema.columns_of_features
    numbers = [column for column in columns if not column.has_indicators]
    categories = [column for column in columns if column.has_indicators]
    of_numbers = np.asarray(hyper.get("lengthscale", NONE))
    of_categories = np.atleast_1d(hyper.get("category_lengthscale", NONE))
    lengthscales = {}
    # Kernels without ARD have one lengthscale [], dummies of old models several per column.
    if of_numbers.shape == (len(numbers),):
        constant_numbers = constant[: len(numbers)]
        values = np.where(constant_numbers, math.inf, of_numbers)
        lengthscales |= _by_name(numbers, values)
    if len(of_categories) == len(categories):
        is_constant = [len(column.levels) < 2 for column in categories]
        values = np.where(is_constant, math.inf, of_categories)
        lengthscales |= _by_name(categories, values)
    return lengthscales


def _by_name(columns: Sequence[Column], values: Float[np.ndarray, " columns"]) -> dict[str, float]:
    names = [column.name for column in columns]
    return dict(zip(names, values.tolist(), strict=True))
