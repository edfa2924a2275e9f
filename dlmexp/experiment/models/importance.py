"""How much each column of a table matters to a trained model (docs/SPEC.md, section 7).

The values of one column are permuted among the rows, and all other columns are kept. The rise in
the mean loss over the rows is the importance of the column.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from dlmexp.common.errors import UserError
from dlmexp.data.schema import Schema
from dlmexp.experiment.models.predictor import Predictor
from dlmexp.experiment.models.relevance import column_lengthscales

REPEATS = 10
"""Number of permutations of every column."""
Z_95 = 1.96
"""Distance in standard errors from a mean to the ends of its 95 % interval."""
MAX_ROWS = 2000
"""The size of the sample that is used if there are more rows: its intervals are narrow enough."""

RowLosses = Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]]
"""Computes the loss of every row from features, for fixed targets."""


class Rows(NamedTuple):
    """Rows with known targets, before normalisation.

    Attributes:
        X: Features, as the schema encodes them.
        y: Targets, as the schema encodes them: logarithms if the model predicts these
            (`Schema.log`), 0 and 1 for binary data.
    """

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]


def importance(
    predictor: Predictor, rows: Rows, repeats: int = REPEATS, seed: int = 0
) -> pd.DataFrame:
    """Return the importance of every column, the most important column first.

    Args:
        predictor: Predicts by a model, or by a mixture of models.
        rows: Rows that no model was trained on.
        repeats: Number of permutations of every column.
        seed: Seed of the permutations.

    Returns:
        A row per column of the table, with five columns:

        - `column`: the name of the column.
        - `nll_increase`: by how much the NLL per row rises. For models that predict a mean only,
          there is `squared_error_increase` in its place, in squared units of the target.
        - `lower_95` and `upper_95`: the ends of a 95 % interval of the rise. The interval shows the
          variation between rows; the rise of a row is the mean over all permutations.
        - `lengthscale`: small if the function varies much with the column, infinite if the column
          was constant in training; NaN if the column has no lengthscale of its own, or if there are
          several models.

    Raises:
        UserError: There are fewer than two rows, or no permutation.
    """
    if repeats < 1 or len(rows.y) < 2:
        raise UserError("importance needs at least 2 rows and repeats=1 or more")
    random = np.random.default_rng(seed)
    sampled = random.permutation(len(rows.y))[:MAX_ROWS]
    X = rows.X[sampled]
    y = rows.y[sampled]

    def losses(X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        return row_losses(predictor, X, y)

    increase_column = "nll_increase" if predictor.has_distribution else "squared_error_increase"
    table_rows = []
    losses_before = losses(X)
    lengthscales = _lengthscales(predictor)
    for column, features in column_features(predictor.schema).items():
        increase = _mean_increase(losses, X, losses_before, features, repeats, random)
        mean = increase.mean()
        standard_error = increase.std(ddof=1) / np.sqrt(len(increase))
        half_width = Z_95 * standard_error
        table_row = {
            "column": column,
            increase_column: mean,
            "lower_95": mean - half_width,
            "upper_95": mean + half_width,
            "lengthscale": lengthscales.get(column, np.nan),
        }
        table_rows.append(table_row)
    table = pd.DataFrame(table_rows)
    ranked = table.sort_values(increase_column, ascending=False, kind="stable")
    return ranked.reset_index(drop=True)


def _mean_increase(
    losses: RowLosses,
    X: Float[np.ndarray, "N D"],
    losses_before: Float[np.ndarray, " N"],
    features: slice,
    repeats: int,
    random: np.random.Generator,
) -> Float[np.ndarray, " N"]:
    """Return the rise in the loss of each row when a column is permuted, a mean over permutations.

    Args:
        losses: Computes the loss of every row.
        X: The rows.
        losses_before: The losses of the rows before the permutation.
        features: The features of the column.
        repeats: Number of permutations, over which the mean is taken.
        random: Draws the permutations.
    """
    total = np.zeros(len(X))
    for _ in range(repeats):
        permuted = X.copy()
        # All features of the column move together.
        permuted[:, features] = X[random.permutation(len(X)), features]
        total += losses(permuted) - losses_before
    return total / repeats


def column_features(schema: Schema) -> dict[str, slice]:
    """Return the positions of the features of each column, by the name of the column."""
    features = {}
    start = 0
    for column in schema.columns_of_features:
        end = start + len(column.features)
        features[column.name] = slice(start, end)
        start = end
    return features


@torch.no_grad()
def row_losses(
    predictor: Predictor, X: Float[np.ndarray, "N D"], y: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    """Return the loss of every row.

    It is -log p(y) of normalised targets, where the density of a mixture of models is the mean of
    the densities of the models. For models that predict a mean only, the loss is the squared error
    in the units of the target.
    """
    if not predictor.has_distribution:
        # Predictions are in the units of the target; y may be its logarithm.
        targets = np.exp(y) if predictor.schema.log else y
        return (predictor.predict(X)["mean"] - targets) ** 2
    log_densities = []
    for member in predictor.members:
        # Tensors have a leading dimension for the cells of a batch, of size 1 here.
        mu, v = member.marginals(X)
        normalised = (y - member.model.y_mean) / member.model.y_std
        targets = torch.as_tensor(normalised).to(mu)[None]
        log_densities.append(-member.likelihood.log_loss(mu, v, targets))
    # log p(y) = log(1/K sum_k p_k(y))
    log_sum = torch.logsumexp(torch.stack(log_densities), 0)
    log_density = log_sum - np.log(len(log_densities))
    return -log_density[0].cpu().numpy()  # without the dimension of cells


def _lengthscales(predictor: Predictor) -> dict[str, float]:
    """Return lengthscales by column (`column_lengthscales`); empty if there are several models."""
    if len(predictor.members) > 1:
        return {}
    model = predictor.members[0].model
    return column_lengthscales(model.schema, model.normalisation.constant, model.hyper)
