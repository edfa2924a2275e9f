"""The model that all cells of a batch share, and the loss that trains it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dlmexp.core.estimators import Estimator, Exact
from dlmexp.core.gp.kernels import Kernel, Parameter, kernel_named
from dlmexp.core.likelihoods import LIKELIHOODS, Likelihood
from dlmexp.core.objectives import Objective


def default_inducing_count(n: int) -> int:
    """Return a tenth of the n training rows, but at least 20, at most 200, and at most n."""
    return min(max(n // 10, 20), 200, n)


@dataclass(frozen=True)
class AutoM:
    """Rule to choose M: the smallest M beyond which a larger one gains little (`automatic`).

    Attributes:
        tolerance: What a larger M may gain at most, in nats per row.
        most: The largest M. It is taken if no smaller M is within the tolerance.
    """

    tolerance: float = 0.1
    most: int = 200


@dataclass(init=False)
class Model:
    """A sparse Gaussian process: prior, likelihood, and how q is parameterised.

    Example:
        ```python
        from dlmexp import Model

        Model("matern52", "poisson", M=50, ard=True)
        ```

    Args:
        kernel: A kernel of `KERNELS`, its name ("rbf", "matern32", "matern52"), or the dotted
            path of a GPyTorch kernel class.
        likelihood: A class of `LIKELIHOODS` or its name: "gaussian", "student_t", "probit",
            "logistic", "poisson" or "poisson_softplus".
        M: Number of inducing inputs; None: a tenth of the training rows, but 20 to 200; "auto" or
            an `AutoM`: the smallest M beyond which a larger one gains little, for Gaussian noise.
        learns_mean: Whether the prior mean is a learned constant; otherwise it is 0. None: it is
            learned for binary targets alone.
        ard: Whether there is one lengthscale per feature; otherwise all features share one.
        whitened: Whether q is parameterised in whitened coordinates, `u = Luu w` with
            q(w) = N(m, L L^T); otherwise q(u) = N(m, L L^T).
        initial: Initial values of hyperparameters, in place of those of kernel and likelihood; for
            the lengthscale also "sqrt" (of the number of features) or "median" (distance between
            training rows).
        inducing: Where the inducing inputs start: at the "first" or "last" M training rows, at the
            centres of "kmeans", or at the rows of largest residual variance ("greedy").
        noise_floor: Lower bound of the noise variance; None: it may fall towards 0.
        components: Number of Gaussians that q is a mixture of; 1: q is a Gaussian.
        pilot: Number of evaluations of a short fit of the ELBO by L-BFGS, at whose end training
            starts, for Gaussian noise; 0: it starts at the initial values and the prior.
    """

    kernel: Kernel
    likelihood: type[Likelihood]
    M: "int | str | AutoM | None"
    learns_mean: bool
    ard: bool
    whitened: bool
    initial: Mapping[str, float | str]
    inducing: str
    noise_floor: float | None
    components: int
    pilot: int = 0

    def __init__(  # noqa: PLR0913 - a keyword for every property of the model
        self,
        kernel: Kernel | str = "rbf",
        likelihood: type[Likelihood] | str = "gaussian",
        M: "int | str | AutoM | None" = None,
        learns_mean: bool | None = None,
        ard: bool = False,
        whitened: bool = True,
        initial: Mapping[str, float | str] | None = None,
        inducing: str = "first",
        noise_floor: float | None = None,
        components: int = 1,
        pilot: int = 0,
    ):
        if isinstance(kernel, str):
            kernel = kernel_named(kernel, may_import=True)
        if isinstance(likelihood, str):
            likelihood = LIKELIHOODS[likelihood]
        if learns_mean is None:
            learns_mean = likelihood.task == "binary"
        self.kernel = kernel
        self.likelihood = likelihood
        self.M = M
        self.learns_mean = learns_mean
        self.ard = ard
        self.whitened = whitened
        self.initial = dict(initial or {})
        self.inducing = inducing
        self.noise_floor = noise_floor
        self.components = components
        self.pilot = pilot

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to pickle the model: its kernel and likelihood are pickled as names."""
        values = {**vars(self), "kernel": self.kernel.name, "likelihood": self.likelihood.name}
        return restored_model, (values,)

    def inducing_count(self, n: int) -> int:
        """Return M, or its default for n training rows."""
        if self.M is None:
            return default_inducing_count(n)
        if isinstance(self.M, str | AutoM):
            raise TypeError("M is not chosen yet: call automatic.with_number_of_inducing_inputs")
        return self.M

    def parameters(self, D: int) -> dict[str, Parameter]:
        """Return the learned hyperparameters on D features, without the inducing inputs."""
        parameters = {**self.kernel.parameters(D, self.ard), **self.likelihood.parameters}
        if self.learns_mean:
            parameters["mean"] = Parameter(0.0)
        if self.noise_floor is not None:
            parameters["noise"] = replace(parameters["noise"], floor=self.noise_floor)
        return parameters


def restored_model(values: dict[str, Any]) -> Model:
    """Return a model from its pickled values.

    The module of a GPyTorch kernel must have been imported before: for safety, a pickle never makes
    Python import a module.
    """
    return Model(**{**values, "kernel": kernel_named(values["kernel"])})


@dataclass(frozen=True)
class Loss:
    """The objective of training, and the estimator of its terms `-log E_q p(y|f)`."""

    objective: Objective
    estimator: Estimator = field(default_factory=Exact)
