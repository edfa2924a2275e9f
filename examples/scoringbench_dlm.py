"""Direct loss minimization as a model of ScoringBench.

ScoringBench (https://github.com/jonaslandsgesell/ScoringBench) scores predictive distributions on
tabular data. A model of it is a `ProbabilisticWrapper` with `fit`, `predict` and
`predict_distribution`. Put this file beside the wrappers of a checkout of it, and name `DLMWrapper`
where its models are listed. It needs `pip install 'dlmexp[sklearn]'`, and follows the interface of
ScoringBench's commit 49f0d7a4.
"""

from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from scoringbench.univariate.wrappers.base import (  # pyright: ignore[reportMissingImports]
    DistributionPrediction,
    ProbabilisticWrapper,
)

from dlmexp.sklearn import DLMRegressor

LEVELS = np.arange(1, 200) / 200
"""Probabilities whose quantiles describe a distribution: 0.005, 0.01, ..., 0.995."""


class DLMWrapper(ProbabilisticWrapper):
    """A sparse Gaussian process trained by direct loss minimization.

    Beta is selected by folds of the training rows. ScoringBench fills missing values in before;
    columns of texts or categories have factors of the kernel of their own.

    Args:
        **options: Parameters of `dlmexp.sklearn.DLMRegressor`, such as `objective="elbo"`.
    """

    def __init__(self, **options: Any):
        self.options = options

    def fit(self, X: Any, y: Any) -> Self:
        """Select beta, and train on all rows."""
        self._set_train_range(y)
        self.model = DLMRegressor(**self.options).fit(X, y)
        if self.model.n_components_ > 1:
            raise ValueError(f"n_components={self.model.n_components_}: give 1 for a Gaussian")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the means [n]."""
        return self.model.predict(X)

    def predict_distribution(self, X: Any) -> DistributionPrediction:
        """Return the distributions of new observations, which are Gaussian, by their quantiles."""
        mean, std = self.model.predict(X, return_std=True)
        # q(level) = mean + std Phi^-1(level)
        quantiles = mean[:, None] + std[:, None] * ndtri(LEVELS)
        return DistributionPrediction.from_multi_quantile(
            quantiles, LEVELS, mean=mean, train_range=self._y_train_range
        )
