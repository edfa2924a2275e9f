"""`dlmexp test`: sound parts pass, and each kind of mistake is named."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from dlmexp import plugin_checks
from dlmexp.core.estimators import BMC, ESTIMATORS, Estimator
from dlmexp.core.gp.kernels import KERNELS, Stationary
from dlmexp.core.likelihoods import LIKELIHOODS, Likelihood
from dlmexp.plugin_checks import check_estimator, check_kernel, check_likelihood


def outcomes(checks):
    """What came of checks by the last words of their names."""
    return {check.subject.split(": ")[1]: (check.outcome, check.message) for check in checks}


class Linear(Stationary):
    """A function of x alone: not symmetric."""

    def __call__(self, X1, X2, hyper):
        return (X1.sum(-1)[..., None] * hyper["outputscale"][:, None, None]).expand(
            *X1.shape[:-1], X2.shape[-2]
        )


class Sum(Stationary):
    """Symmetric, but with negative eigenvalues."""

    def __call__(self, X1, X2, hyper):
        scale = hyper["outputscale"][:, None, None] / hyper["lengthscale"][:, :1, None]
        return scale * (1 - torch.cdist(X1, X2))


def test_kernels_of_the_package_pass():
    for name in ("rbf", "matern52"):
        found = outcomes(check_kernel(name))
        assert {outcome for outcome, _ in found.values()} == {"ok"}, found


@pytest.mark.parametrize(
    ("kernel", "problem"), [(Linear("x"), "not symmetric"), (Sum("x"), "negative eigenvalue")]
)
def test_matrix_that_is_no_kernel_is_named(monkeypatch, kernel, problem):
    monkeypatch.setitem(KERNELS._items, "x", kernel)
    outcome, words = outcomes(check_kernel("x"))["matrices"]
    assert outcome == "failed"
    assert problem in words


@pytest.mark.parametrize("name", ["gaussian", "student_t", "probit", "poisson"])
def test_likelihoods_of_the_package_pass(name):
    found = outcomes(check_likelihood(name))
    assert {outcome for outcome, _ in found.values()} == {"ok"}, found


@dataclass(frozen=True)
class Halved(Likelihood):
    """Probabilities of 1/2 and 1/4."""

    task = "binary"

    def log_prob(self, f, y):
        return torch.where(y > 0.5, 0.5 + 0 * f, 0.25 + 0 * f).log()


def test_probabilities_that_do_not_add_up_are_named(monkeypatch):
    monkeypatch.setitem(LIKELIHOODS._items, "halved", Halved)
    outcome, words = outcomes(check_likelihood("halved"))["probabilities"]
    assert (outcome, words) == ("failed", "the probabilities of all y add up to 1 - 0.25")


@dataclass(frozen=True)
class Detached(Estimator):
    """An estimator without a gradient."""

    samples: int

    def __call__(self, likelihood, mu, v, y, draws):
        return BMC(self.samples)(likelihood, mu, v, y, draws).detach()


@dataclass(frozen=True)
class Summed(Estimator):
    """An estimator that forgets the rows."""

    samples: int

    def __call__(self, likelihood, mu, v, y, draws):
        return BMC(self.samples)(likelihood, mu, v, y, draws).sum(-1)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Detached, "its value has no gradient: is something detached?"),
        (Summed, "the loss has the shape [2], not (2, 60)"),
    ],
)
def test_mistake_in_an_estimator_is_named(monkeypatch, kind, problem):
    monkeypatch.setitem(ESTIMATORS._items, "mine", kind)
    monkeypatch.setattr(plugin_checks, "_default_options", lambda _: {"samples": 3})
    outcome, words = outcomes(check_estimator("mine"))["probit"]
    assert (outcome, words) == ("failed", problem)


def test_exception_is_named_with_its_line(monkeypatch):
    def broken(*_, **__):
        raise ValueError("no such thing")

    monkeypatch.setitem(KERNELS._items, "x", SimpleNamespace(parameters=broken))
    outcome, words = outcomes(check_kernel("x"))["matrices"]
    assert outcome == "failed"
    assert words.startswith("ValueError: no such thing (test_plugin_checks.py, line ")
