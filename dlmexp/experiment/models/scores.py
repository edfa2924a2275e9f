"""Scores of predictions: of labels, of counts, and errors in the units of the target."""

import numpy as np
from jaxtyping import Float

from dlmexp.experiment.models.importance import Rows, row_losses
from dlmexp.experiment.models.predictor import Columns, Predictor, errors_in_target_units

Scores = dict[str, float]


def auc(probability: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    """Return the area under the ROC curve; NaN if all rows are of one class.

    It is the share, among all pairs of a row of class 1 and a row of class 0, of those in which the
    row of class 1 has the higher probability. Pairs with equal probabilities count half.
    """
    n_positive = float(y.sum())
    n_negative = len(y) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    # `codes` are the positions of the rows' probabilities among the distinct probabilities, which
    # are sorted; `counts` are the numbers of rows with each of these.
    _, codes, counts = np.unique(probability, return_inverse=True, return_counts=True)
    # Mann-Whitney: the AUC follows from the sum of the ranks of class 1. Ranks count from 1, and
    # rows of equal probability have the mean of their ranks.
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    ranks = mean_ranks[codes]
    rank_sum = ranks[y == 1].sum()
    # The least rank sum: all rows of class 1 have lower probabilities than those of class 0.
    smallest_rank_sum = n_positive * (n_positive + 1) / 2
    return float((rank_sum - smallest_rank_sum) / (n_positive * n_negative))


def label_scores(
    probability: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], threshold: float = 0.5
) -> Scores:
    """Return how well probabilities of class 1 predict labels y, which are 0 and 1.

    Returns:
        The share of class 1 (`base_rate`), the AUC, the Brier score, and the entries of the
        confusion matrix. A probability above the threshold is a prediction of class 1.
    """
    is_predicted_positive = probability > threshold
    is_positive = y == 1
    squared_errors = (probability - y) ** 2
    return {
        "base_rate": float(is_positive.mean()),
        "auc": auc(probability, y),
        "brier": float(squared_errors.mean()),
        "true_positives": int(np.count_nonzero(is_predicted_positive & is_positive)),
        "false_positives": int(np.count_nonzero(is_predicted_positive & ~is_positive)),
        "false_negatives": int(np.count_nonzero(~is_predicted_positive & is_positive)),
        "true_negatives": int(np.count_nonzero(~is_predicted_positive & ~is_positive)),
    }


def count_scores(
    mean: Float[np.ndarray, " N"], std: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]
) -> Scores:
    """Return how well a distribution of counts predicts counts y.

    Returns:
        The mean Poisson `deviance` of the predicted means, and the `dispersion`: the mean of the
        squared error divided by the predicted variance. The dispersion is 1 if counts vary as
        predicted, and larger if they vary more.
    """
    # The deviance of a row is 2 (y log(y / mean) - (y - mean)), where 0 log 0 = 0.
    log_y = np.log(np.where(y > 0, y, 1.0))
    y_log_ratio = np.where(y > 0, y * (log_y - np.log(mean)), 0.0)
    deviance = 2 * (y_log_ratio - (y - mean))
    standardised = (y - mean) / std
    return {
        "deviance": float(deviance.mean()),
        "dispersion": float(np.mean(standardised**2)),
    }


def prediction_scores(
    columns: Columns, targets: Float[np.ndarray, " N"], predictor: Predictor, threshold: float = 0.5
) -> Scores:
    """Return the scores of predictions, in the units of the target.

    Args:
        columns: The predictions (`Predictor.predict`).
        targets: The targets, 0 and 1 for labels.
        predictor: The predictor.
        threshold: The probability of class 1 above which class 1 is predicted.
    """
    labels = predictor.schema.labels
    if labels is not None:
        return label_scores(columns[f"probability_{labels[1]}"], targets, threshold)
    scores = errors_in_target_units(columns, targets)
    if predictor.task == "count" and "std" in columns:
        scores |= count_scores(columns["mean"], columns["std"], targets)
    return scores


def scores_on(predictor: Predictor, rows: Rows, threshold: float = 0.5) -> Scores:
    """Return the scores on rows with known targets, and the NLL per row of unnormalised targets."""
    targets = np.exp(rows.y) if predictor.schema.log else rows.y
    scores = prediction_scores(predictor.predict(rows.X), targets, predictor, threshold)
    if not predictor.has_distribution:
        return scores
    # -log p(y) = -log p(normalised y) + log y_std. Models of a mixture may differ in y_std: then
    # take the mean of log y_std.
    log_scale = np.mean([np.log(member.model.y_std) for member in predictor.members])
    losses = row_losses(predictor, rows.X, rows.y)
    return {"nll": float(losses.mean() + log_scale), **scores}
