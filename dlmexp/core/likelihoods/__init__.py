"""Likelihoods p(y|f) by name.

`regression` and `discrete` have the likelihoods. Integrals over q without a closed form are in
`log_concave` and, for likelihoods that have only a `log_prob`, in `integration`. `calibration` has
scores of the whole predictive distribution, and `mixture` has predictions where q is a mixture of
Gaussians. A new likelihood needs a file that registers it (`base` shows how) and one line among the
imports below.
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
