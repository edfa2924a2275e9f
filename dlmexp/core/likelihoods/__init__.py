"""Likelihoods p(y|f) by name.

`regression` and `discrete` have the likelihoods, `log_concave` integrals over q without a closed
form, `calibration` scores of the whole predictive distribution. A new likelihood is a file that
registers it (`base` shows how), and its line among the imports here.
"""

from dlmexp.core.likelihoods.base import (
    LIKELIHOODS,
    Likelihood,
    Metric,
    misclassified,
    relative_error,
    squared_error,
)
from dlmexp.core.likelihoods.discrete import Logistic, Poisson, PoissonSoftplus, Probit
from dlmexp.core.likelihoods.log_concave import LogConcave
from dlmexp.core.likelihoods.regression import Gaussian, StudentT

__all__ = [
    "LIKELIHOODS",
    "Gaussian",
    "Likelihood",
    "LogConcave",
    "Logistic",
    "Metric",
    "Poisson",
    "PoissonSoftplus",
    "Probit",
    "StudentT",
    "misclassified",
    "relative_error",
    "squared_error",
]
