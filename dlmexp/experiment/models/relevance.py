"""Lengthscales by column: how much a trained model depends on each column of a table."""

import math

import numpy as np
from jaxtyping import Bool

from dlmexp.data.schema import Column, Schema

NONE = np.zeros(0)
"""The lengthscales of a kernel that has none."""


def column_lengthscales(
    schema: Schema, constant: Bool[np.ndarray, " D"], hyper: dict[str, np.ndarray]
) -> dict[str, float]:
    """Return the lengthscale of each column, in standard deviations of its training rows.

    The shorter the lengthscale of a category, the more its levels differ. The lengthscale is
    infinite for a column that is constant in the training rows: the model has learned nothing about
    it, and its hyperparameter is still at the initial value. Columns without a lengthscale of their
    own are left out.

    Args:
        schema: The columns.
        constant: The features that are the same in all training rows.
        hyper: The hyperparameters of the model.
    """
    numbers: list[Column] = []
    categories: list[Column] = []
    for column in schema.columns_of_features:
        columns_of_type = categories if column.has_indicators else numbers
        columns_of_type.append(column)
    number_scales = np.asarray(hyper.get("lengthscale", NONE))
    category_scales = np.atleast_1d(hyper.get("category_lengthscale", NONE))
    lengthscales: dict[str, float] = {}
    # With ARD there is a lengthscale per number, without it a scalar for all. Models of earlier
    # versions have several lengthscales for each category, too, in the same array.
    if number_scales.shape == (len(numbers),):
        for column, scale, is_constant in zip(numbers, number_scales, constant, strict=False):
            lengthscales[column.name] = math.inf if is_constant else float(scale)
    if len(category_scales) == len(categories):
        for column, scale in zip(categories, category_scales, strict=True):
            is_constant = len(column.levels) < 2
            lengthscales[column.name] = math.inf if is_constant else float(scale)
    return lengthscales
