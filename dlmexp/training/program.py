"""What a batch of cells computes: its parameters, the objective of given ones, and the posterior that results."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.estimators import Draws, Estimator
from dlmexp.gp.cholesky import FIRST_JITTER, factorise
from dlmexp.gp.kernels import Kernel, Parameter
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.precision import PARAMETERS, hyper_as_rows, row_mean
from dlmexp.objectives import Objective
from dlmexp.training.rows import Minibatches, Split

Tensors = dict[str, Tensor]

NO_FLOORS: Mapping[str, float] = {}
Q = ("m", "L")  # the names of q's own parameters; all others are hyperparameters


def unsoftplus(x: Tensor) -> Tensor:
    """The inverse of softplus."""
    return x + torch.log(-torch.expm1(-x))


def constrain(raw: Tensors, positive: Collection[str], floors: Mapping[str, float] = NO_FLOORS) -> Tensors:
    """Positive parameters through softplus, plus their floor; q's factor as a lower triangle; the rest as they are."""
    constrained = {name: softplus(value) if name in positive else value for name, value in raw.items()}
    constrained |= {name: constrained[name] + floor for name, floor in floors.items() if name in constrained}
    if "L" in constrained:
        constrained["L"] = constrained["L"].tril()
    return constrained


def unconstrain(constrained: Tensors, positive: Collection[str], floors: Mapping[str, float] = NO_FLOORS) -> Tensors:
    """The inverse of `constrain`, for hyperparameters taken from another fit."""
    above = constrained | {name: constrained[name] - floor for name, floor in floors.items() if name in constrained}
    return {name: unsoftplus(value) if name in positive else value for name, value in above.items()}


def floors_of(parameters: Mapping[str, Parameter]) -> dict[str, float]:
    """The floors of those parameters that have one."""
    return {name: each.floor for name, each in parameters.items() if each.floor > 0}


def initial_hyperparameters(
    Z: Float[Tensor, "B M D"], parameters: Mapping[str, Parameter], initial: Mapping[str, float]
) -> Tensors:
    """Inducing inputs at Z, every parameter at its own initial value or at that in `initial`; unconstrained."""
    values = {name: each.start(Z, len(Z), initial.get(name)) for name, each in parameters.items()}
    positive = {name for name, each in parameters.items() if each.positive}
    return unconstrain({"Z": Z} | values, positive, floors_of(parameters))


def initial_q(hyper: Tensors, kernel: Kernel, whitened: bool) -> Tensors:
    """q at the prior: m = 0 and L = I in whitened coordinates, L = chol(Kuu) in unwhitened ones."""
    Z = hyper["Z"]
    if whitened:
        L = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device).repeat(Z.shape[0], 1, 1)
    else:
        L = factorise(kernel(Z, Z, hyper), Z.new_full((len(Z),), FIRST_JITTER)).L
    return {"m": Z.new_zeros(Z.shape[:2]), "L": L}


class Value(NamedTuple):
    """Per cell: the objective divided by n, whether Kuu factorised, and the share of accepted proposals, if any."""

    objective: Float[Tensor, "B"]
    ok: Bool[Tensor, "B"]
    acceptance: Float[Tensor, "B"] | None = None


class Posterior(NamedTuple):
    """What predictions need: hyperparameters, and q in whitened coordinates."""

    hyper: Tensors
    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    jitter: Float[Tensor, "B"]

    def cell(self, i: int) -> "Posterior":
        """The posterior of cell i, as a batch of one."""
        cell = slice(i, i + 1)
        hyper = {name: value[cell] for name, value in self.hyper.items()}
        return Posterior(hyper, self.m[cell], self.L[cell], self.jitter[cell])

    def cpu(self) -> "Posterior":
        hyper = {name: value.cpu() for name, value in self.hyper.items()}
        return Posterior(hyper, self.m.cpu(), self.L.cpu(), self.jitter.cpu())


@dataclass
class Model:
    """What all cells of a batch share."""

    kernel: Kernel
    likelihood: type[Likelihood]
    learns_mean: bool
    ard: bool
    whitened: bool
    M: int
    objective: Objective
    estimator: Estimator
    minibatch: int | None
    initial: Mapping[str, float] = field(default_factory=dict)  # initial values other than the parameters' own
    inducing: str = "first"  # the training rows that the inducing inputs start from: first | last
    afresh: bool = False  # minibatches are drawn anew at every step, not epoch by epoch
    noise_floor: float | None = None  # which the noise variance stays above; None: it may fall towards 0

    def parameters(self, D: int) -> dict[str, Parameter]:
        """The learned hyperparameters on D features, beside the inducing inputs."""
        mean = {"mean": Parameter(0.0)} if self.learns_mean else {}
        found = {**self.kernel.parameters(D, self.ard), **self.likelihood.parameters, **mean}
        if self.noise_floor is not None:
            found["noise"] = replace(found["noise"], floor=self.noise_floor)
        return found


@dataclass
class Program(ABC):
    """B cells: their data, their betas, and how their objective is computed."""

    model: Model
    split: Split
    beta: Float[Tensor, "B"]

    def __post_init__(self) -> None:
        self.n, size = self.split.X.shape[1], self.model.minibatch
        self.parameters = self.model.parameters(self.split.X.shape[-1])
        self.positive = {name for name, parameter in self.parameters.items() if parameter.positive}
        self.floors = floors_of(self.parameters)
        self._minibatches = Minibatches(self.split, size, self.model.afresh) if size else None
        self._rows: Tensor | None = None

    @property
    def minibatched(self) -> bool:
        return self.model.minibatch is not None

    @property
    def entries(self) -> int:
        """Of the largest arrays in a step: [B, M, rows]."""
        return len(self.beta) * self.model.M * (self.model.minibatch or self.n)

    @property
    def capturable(self) -> bool:
        """Whether a step does the same operations whatever the values, so that a CUDA graph can capture it."""
        return self.model.kernel.capturable and self.model.estimator.capturable(self.model.likelihood)

    @abstractmethod
    def initial(self) -> Tensors:
        """What Adam moves, at its initial values."""

    @abstractmethod
    def objective(self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]) -> Value:
        """The objective on the rows of this step, differentiable in `values`."""

    @abstractmethod
    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Hyperparameters and q for predictions."""

    def initial_hyperparameters(self) -> Tensors:
        """Inducing inputs at the first or last M rows, the rest as kernel, likelihood and `Model.initial` say."""
        M = self.model.M
        Z = (self.split.X[:, -M:] if self.model.inducing == "last" else self.split.X[:, :M])[self.split.index]
        return initial_hyperparameters(Z.to(PARAMETERS), self.parameters, self.model.initial)

    def constrained(self, values: Tensors) -> tuple[Tensors, tuple[Tensor, Tensor]]:
        """Hyperparameters and q (as parameterised) of the values that Adam moves."""
        q = constrain({name: values[name] for name in Q}, self.positive)
        return self.hyperparameters(values), (q["m"], q["L"])

    def hyperparameters(self, values: Tensors) -> Tensors:
        """Constrained, one per cell."""
        hyper = {name: value for name, value in values.items() if name not in Q}
        found = constrain(hyper, self.positive, self.floors)
        found.setdefault("mean", torch.zeros_like(self.beta))
        return found

    def keep(self, cells: Sequence[int]) -> Self:
        """The same for some of the cells."""
        return replace(self, split=self.split.keep(cells), beta=self.beta[list(cells)])

    def load_minibatch(self, iteration: int) -> None:
        """Choose the rows of this iteration, for `objective` to read (all of them: nothing to do)."""
        if self._minibatches is None:
            return
        rows = self._minibatches.rows(iteration)
        if self._rows is None:
            self._rows = rows.clone()
        else:  # where a captured graph reads them
            self._rows.copy_(rows)

    def rows(self) -> tuple[Float[Tensor, "S b D"], Float[Tensor, "S b"]]:
        """Inputs and targets of this step, by repetition."""
        if self._minibatches is None:
            return self.split.X, self.split.y
        assert self._rows is not None, "load_minibatch comes before"
        lines = torch.arange(len(self._rows), device=self._rows.device)[:, None]
        return self.split.X[lines, self._rows], self.split.y[lines, self._rows]

    def draws(self, iteration: Int[Tensor, ""]) -> Draws:
        return Draws(self.split.seeds, self.split.index, iteration, self.split.X.dtype)

    def value(
        self, hyper: Tensors, mu: Tensor, v: Tensor, y: Tensor, q: tuple[Tensor, Tensor], ok: Tensor, iteration: Tensor
    ) -> Value:
        """`mean_i loss_i + beta / n * regulariser`: on a minibatch an unbiased estimate of the whole."""
        objective, likelihood = self.model.objective, self.model.likelihood.from_hyper(hyper_as_rows(mu, hyper))
        loss, acceptance = objective.losses(likelihood, self.model.estimator, mu, v, y, self.draws(iteration))
        total = row_mean(loss) + self.beta * objective.penalty(*q) / self.n
        return Value(total, ok, acceptance)
