"""Lengthscales by column: how much a trained model depends on each column of a table."""

import math

import numpy as np
from jaxtyping import Bool

from dlmexp.data.schema import Column, Schema

NO_LENGTHSCALES = np.zeros(0)
"""The lengthscales of a kernel without lengthscales."""


def column_lengthscales(
    schema: Schema, constant: Bool[np.ndarray, " D"], hyper: dict[str, np.ndarray]
) -> dict[str, float]:
    """Return the lengthscale of each column, in standard deviations of its training rows.

    The shorter the lengthscale of a category, the more its levels differ. A column that is constant
    in the training rows gets an infinite lengthscale: the model has learned nothing about it, and
    the hyperparameter still has its initial value. Columns without a lengthscale of their own are
    left out.

    Args:
        schema: The columns.
        constant: For each feature, whether it is the same in all training rows.
        hyper: The hyperparameters of the model.
    """
    numbers: list[Column] = []
    categories: list[Column] = []
    for column in schema.columns_of_features:
        columns_of_type = categories if column.has_indicators else numbers
        columns_of_type.append(column)
    number_scales = np.asarray(hyper.get("lengthscale", NO_LENGTHSCALES))
    category_scales = np.atleast_1d(hyper.get("category_lengthscale", NO_LENGTHSCALES))
    lengthscales: dict[str, float] = {}
    # With ARD the array has a lengthscale for each number. Without ARD it is a scalar. In models of
    # earlier versions it also has several lengthscales for each category.
    if number_scales.shape == (len(numbers),):
        # Features of numbers come first, so `constant` begins with them, and is longer.
        for column, scale, is_constant in zip(numbers, number_scales, constant, strict=False):
            lengthscales[column.name] = math.inf if is_constant else float(scale)
    if len(category_scales) == len(categories):
        for column, scale in zip(categories, category_scales, strict=True):
            is_constant = len(column.levels) < 2
            lengthscales[column.name] = math.inf if is_constant else float(scale)
    return lengthscales
