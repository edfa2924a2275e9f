"""Estimators in the style of scikit-learn (`pip install dlmexp[sklearn]`): sparse Gaussian processes trained by direct
loss minimisation, or by the ELBO, with beta selected on a share of the training rows. All betas train as one batch.

    from dlmexp import DLMRegressor

    model = DLMRegressor(n_inducing=100).fit(X, y)
    mean, std = model.predict(X_new, return_std=True)
"""

from typing import Any, Self

import numpy as np

try:
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import validate_data
except ImportError as error:
    raise ImportError("these estimators need scikit-learn 1.6 or later: pip install 'dlmexp[sklearn]'") from error

from dlmexp.api.estimator import SparseGP


class DLMRegressor(RegressorMixin, SparseGP):
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

    def fit(self, X: Any, y: Any) -> Self:
        """Train, and select beta.

        Args:
            X: Rows [n, features], numbers.
            y: Targets [n], numbers.

        Returns:
            The estimator itself.

        Raises:
            ValueError: A parameter or the data can't be used, or training failed at every beta.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        return self._fit(X, np.asarray(y, dtype=np.float64))

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
        found = self._predicted(X)
        if not return_std:
            return found["mean"]
        if "std" not in found:
            raise ValueError("square loss predicts a mean only: there is no standard deviation")
        return found["mean"], found["std"]

    def predict_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ends, lower [n] and upper [n], of the central 95 % interval of a new observation at every row.

        Args:
            X: Rows [n, features].

        Raises:
            ValueError: The objective is square loss, which has no intervals.
        """
        found = self._predicted(X)
        if "lower_95" not in found:
            raise ValueError("square loss predicts a mean only: there is no interval")
        return found["lower_95"], found["upper_95"]


class DLMCountRegressor(RegressorMixin, SparseGP):
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

    def fit(self, X: Any, y: Any) -> Self:
        """Train, and select beta.

        Args:
            X: Rows [n, features], numbers.
            y: Counts [n], not negative.

        Returns:
            The estimator itself.

        Raises:
            ValueError: A parameter or the data can't be used, or training failed at every beta.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        if (y < 0).any():
            raise ValueError(f"y has negative values (such as {y.min():g}): counts are 0, 1, 2, ...")
        return self._fit(X, y)

    def predict(self, X: Any) -> np.ndarray:
        """The mean count [n] at every row.

        Args:
            X: Rows [n, features].
        """
        return self._predicted(X)["mean"]

    def predict_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ends, lower [n] and upper [n], of the central 95 % interval of a new count at every row, both included.

        Args:
            X: Rows [n, features].
        """
        found = self._predicted(X)
        return found["lower_95"], found["upper_95"]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2, the share of the Poisson deviance that is explained (scikit-learn's `d2_tweedie_score`, power 1).

        Args:
            X: Rows [n, features].
            y: Their counts [n].
            sample_weight: Weights of the rows [n].
        """
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

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

    def fit(self, X: Any, y: Any) -> Self:
        """Train, and select beta.

        Args:
            X: Rows [n, features], numbers.
            y: Labels [n] of two classes, numbers or texts.

        Returns:
            The estimator itself.

        Raises:
            ValueError: There are not two classes, a parameter or the data can't be used, or training failed at every
                beta.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            kind = type_of_target(y, input_name="y", raise_unknown=True)
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        if len(self.classes_) == 1:
            raise ValueError(f"y has one class only ({self.classes_[0]}): a classifier needs two")
        return self._fit(X, codes.astype(np.float64))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities [n, 2] of both classes, in the order of `classes_`, at every row.

        Args:
            X: Rows [n, features].
        """
        found = self._predicted(X)
        return np.column_stack([found["probability_0"], found["probability_1"]])

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class [n] at every row.

        Args:
            X: Rows [n, features].
        """
        best = self.predict_proba(X).argmax(1)  # checks that there is a model
        return self.classes_[best]

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
