"""Likelihoods p(y|f) by name. A new one is a file here and a line in the registry."""

from dlmexp.gp.likelihoods.base import Bounds, Likelihood
from dlmexp.gp.likelihoods.gaussian import Gaussian
from dlmexp.gp.likelihoods.log_concave import LogConcave
from dlmexp.gp.likelihoods.logistic import Logistic
from dlmexp.gp.likelihoods.poisson import Poisson
from dlmexp.gp.likelihoods.poisson_softplus import PoissonSoftplus
from dlmexp.gp.likelihoods.probit import Probit
from dlmexp.gp.likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Gaussian, Probit, Poisson, PoissonSoftplus, Logistic, StudentT)
}

__all__ = [
    "LIKELIHOODS",
    "Bounds",
    "Gaussian",
    "Likelihood",
    "LogConcave",
    "Logistic",
    "Poisson",
    "PoissonSoftplus",
    "Probit",
    "StudentT",
]
