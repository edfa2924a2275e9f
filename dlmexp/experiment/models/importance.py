"""How much each column of a table matters to a trained model (docs/SPEC.md, section 7).

The values of a column are permuted among the rows, all else kept: what the loss on these rows gains
is what the model loses without the column.
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
"""Permutations of every column."""
STANDARD_ERRORS = 1.96
"""From the mean to the ends of a 95 % interval."""
MAX_ROWS = 2000
"""More rows than that are sampled: the intervals are narrow enough then."""

RowLosses = Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, " N"]]


class Rows(NamedTuple):
    """Rows with known targets, before normalisation.

    Attributes:
        X: Features, as the schema encodes them.
        y: Targets as the model is trained on, 0 and 1 for binary data.
    """

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]


def importance(
    predictor: Predictor, rows: Rows, repeats: int = REPEATS, seed: int = 0
) -> pd.DataFrame:
    """Return the importance of every column, the most important first.

    Args:
        predictor: The model, or a mixture of models.
        rows: Rows that no model was trained on.
        repeats: Permutations of every column.
        seed: Of the permutations.

    Returns:
        A row per column: by how much the NLL per row grows (the squared error in units of the
        target, for models that predict a mean only), the ends of a 95 % interval, and the
        lengthscale, which is small where the function varies much with the column, infinite for a
        column that was constant in training. The interval is over rows, each with its mean over
        the permutations.

    Raises:
        UserError: there are fewer than two rows, or no permutation.
    """
    if repeats < 1 or len(rows.y) < 2:
        raise UserError("importance needs at least 2 rows and repeats=1 or more")
    random = np.random.default_rng(seed)
    sampled = random.permutation(len(rows.y))[:MAX_ROWS]
    X = rows.X[sampled]
    y = rows.y[sampled]

    def losses(X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        return row_losses(predictor, X, y)

    increase = "nll_increase" if predictor.has_distribution else "squared_error_increase"
    table = []
    base = losses(X)
    lengthscales = _lengthscales(predictor)
    for column, features in column_features(predictor.schema).items():
        gain = _mean_gain(losses, X, base, features, repeats, random)
        mean = gain.mean()
        standard_error = gain.std(ddof=1) / np.sqrt(len(gain))
        half_width = STANDARD_ERRORS * standard_error
        row = {
            "column": column,
            increase: mean,
            "lower_95": mean - half_width,
            "upper_95": mean + half_width,
            "lengthscale": lengthscales.get(column, np.nan),
        }
        table.append(row)
    frame = pd.DataFrame(table).sort_values(increase, ascending=False, kind="stable")
    return frame.reset_index(drop=True)


def _mean_gain(
    losses: RowLosses,
    X: Float[np.ndarray, "N D"],
    base: Float[np.ndarray, " N"],
    features: slice,
    repeats: int,
    random: np.random.Generator,
) -> Float[np.ndarray, " N"]:
    """Return by how much the loss of each row grows if a column is permuted."""
    total = np.zeros(len(X))
    for _ in range(repeats):
        changed = X.copy()
        changed[:, features] = X[random.permutation(len(X)), features]
        total += losses(changed) - base
    return total / repeats


def column_features(schema: Schema) -> dict[str, slice]:
    """Return which features a column has become, by its name."""
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
    """Return the loss of every row: -log p(y) of normalised targets, or the squared error.

    The density of a mixture of models is the mean of theirs.
    """
    if not predictor.has_distribution:
        targets = np.exp(y) if predictor.schema.log else y
        return (predictor.predict(X)["mean"] - targets) ** 2
    log_densities = []
    for member in predictor.members:
        mu, v = member.marginals(X)
        normalised = (y - member.model.y_mean) / member.model.y_std
        targets = torch.as_tensor(normalised).to(mu)[None]
        log_densities.append(-member.likelihood.log_loss(mu, v, targets))
    # log p(y) = log(1/K sum_k p_k(y))
    log_sum = torch.logsumexp(torch.stack(log_densities), 0)
    log_density = log_sum - np.log(len(log_densities))
    return -log_density[0].cpu().numpy()


def _lengthscales(predictor: Predictor) -> dict[str, float]:
    """Return the lengthscale of every column; none of a mixture of several models."""
    if len(predictor.members) > 1:
        return {}
    model = predictor.members[0].model
    return column_lengthscales(model.schema, model.normalisation.constant, model.hyper)
