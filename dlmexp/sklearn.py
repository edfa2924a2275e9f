"""Estimators in the style of scikit-learn (`pip install dlmexp[sklearn]`): sparse Gaussian processes trained by direct
loss minimisation, or by the ELBO, with beta selected on a share of the training rows. All betas train as one batch.

    from dlmexp import DLMRegressor

    model = DLMRegressor(n_inducing=100).fit(X, y)
    mean, std = model.predict(X_new, return_std=True)
"""

from typing import Any

import numpy as np

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
except ImportError as error:
    raise ImportError("these estimators need scikit-learn 1.6 or later: pip install 'dlmexp[sklearn]'") from error

from dlmexp.api.estimator import SparseGP


class WithIntervals(RegressorMixin, SparseGP):
    """What the two regressors share."""

    def predict_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ends, lower [n] and upper [n], of the central 95 % interval of a new observation at every row; counts
        include both.

        Args:
            X: Rows [n, features].

        Raises:
            ValueError: The objective is square loss, which has no intervals.
        """
        lower, upper = self._columns(X, "lower_95", "upper_95")
        return lower, upper


class DLMRegressor(WithIntervals):
    """Regression with Gaussian noise by a sparse Gaussian process.

    Example:
        ```python
        from dlmexp import DLMRegressor

        model = DLMRegressor(n_inducing=100).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)
        ```
    """

    task = "regression"
    likelihood_name = "gaussian"
    prior_mean = "zero"  # of normalised targets

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict in the units of the training targets.

        Args:
            X: Rows [n, features].
            return_std: Whether to return standard deviations as well.

        Returns:
            The means [n]; with `return_std` a pair, the means and the standard deviations of a new observation.

        Raises:
            ValueError: Standard deviations of square loss were asked for, which has none.
        """
        mean, *std = self._columns(X, "mean", *(["std"] if return_std else []))
        return (mean, *std) if return_std else mean


class DLMCountRegressor(WithIntervals):
    """Counts: y ~ Poisson(exp(f)) with a sparse Gaussian process f.

    Example:
        ```python
        from dlmexp import DLMCountRegressor

        model = DLMCountRegressor(n_inducing=100).fit(X, counts)
        lower, upper = model.predict_interval(X_new)
        ```
    """

    task = "count"
    likelihood_name = "poisson"

    def predict(self, X: Any) -> np.ndarray:
        """The mean count [n] at every row.

        Args:
            X: Rows [n, features].
        """
        return self._columns(X, "mean")[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2, the share of the Poisson deviance that is explained (scikit-learn's `d2_tweedie_score`, power 1).

        Args:
            X: Rows [n, features].
            y: Their counts [n].
            sample_weight: Weights of the rows [n].
        """
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _targets(self, y: np.ndarray) -> np.ndarray:
        if (y < 0).any():
            raise ValueError(f"y has negative values (such as {y.min():g}): counts are 0, 1, 2, ...")
        return super()._targets(y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class DLMClassifier(ClassifierMixin, SparseGP):
    """Two classes by a sparse Gaussian process with the probit link.

    Example:
        ```python
        from dlmexp import DLMClassifier

        model = DLMClassifier(n_inducing=100).fit(X, labels)
        model.predict_proba(X_new)[:, 1]
        ```
    """

    task = "binary"
    likelihood_name = "probit"

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities [n, 2] of both classes, in the order of `classes_`, at every row.

        Args:
            X: Rows [n, features].
        """
        (second,) = self._columns(X, "probability_1")
        return np.column_stack([1 - second, second])

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class [n] at every row.

        Args:
            X: Rows [n, features].
        """
        best = self.predict_proba(X).argmax(1)  # checks that there is a model
        return self.classes_[best]

    def _targets(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            kind = type_of_target(y, input_name="y", raise_unknown=True)
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        if len(self.classes_) == 1:
            raise ValueError(f"y has one class only ({self.classes_[0]}): a classifier needs two")
        return codes.astype(np.float64)

    def _divided(self, y: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """The same share of each class for validation; every class keeps a row to train on."""
        order = random.permutation(len(y))
        validation = []
        for value in (0.0, 1.0):
            rows = order[y[order] == value]
            validation.append(rows[: min(round(self.validation_fraction * len(rows)), len(rows) - 1)])
        chosen = np.concatenate(validation)
        if not len(chosen):  # few rows: one of the larger class
            larger = order[y[order] == float(y.mean() > 0.5)]
            chosen = larger[: 1 if len(larger) > 1 else 0]
        return order[~np.isin(order, chosen)], chosen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
