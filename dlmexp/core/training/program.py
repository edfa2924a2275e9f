"""A batch of cells as a mathematical program: its objective and its posterior."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.core.estimators import Draws
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.posterior import Marginals
from dlmexp.core.gp.precision import hyper_in_type_of, row_mean
from dlmexp.core.training.data import BatchData, Minibatches, RowSampler
from dlmexp.core.training.initial import initial_values
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.parameters import Q_NAMES, Tensors, constrain, unconstrain
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State


class ObjectiveValue(NamedTuple):
    """The objective of every cell, and whether and how it could be computed.

    Attributes:
        per_row: The objective divided by the number of training rows.
        ok: Whether Kuu could be factorised; if not, `per_row` means nothing.
        acceptance: The share of proposals that the rejection sampler accepted; None if the
            estimator has no such sampler.
    """

    per_row: Float[Tensor, "B"]
    ok: Bool[Tensor, "B"]
    acceptance: Float[Tensor, "B"] | None = None


class Posterior(NamedTuple):
    """What predictions need: constrained hyperparameters and q.

    q(w) = N(m, L L^T) in whitened coordinates, u = Luu w. If q is a mixture of K Gaussians, m is
    [B, K, M] and L is [B, K, M, M].
    """

    hyper: Tensors
    m: Float[Tensor, "B *K M"]
    L: Float[Tensor, "B *K M M"]
    jitter: Float[Tensor, "B"]

    def keep(self, cells: Sequence[int]) -> "Posterior":
        """Return the posterior of these cells alone."""
        indices = list(cells)
        hyper = {name: value[indices] for name, value in self.hyper.items()}
        return Posterior(hyper, self.m[indices], self.L[indices], self.jitter[indices])

    def cells(self) -> "list[Posterior]":
        """Return the posterior of each cell as a batch of one, on the CPU."""
        hyper = {name: value.cpu().split(1) for name, value in self.hyper.items()}
        m = self.m.cpu().split(1)
        L = self.L.cpu().split(1)
        jitter = self.jitter.cpu().split(1)
        posteriors = []
        for i in range(len(self.m)):
            hyper_of_cell = {name: values[i] for name, values in hyper.items()}
            posteriors.append(Posterior(hyper_of_cell, m[i], L[i], jitter[i]))
        return posteriors


@dataclass
class Program(ABC):
    """B cells: their data, their betas, and how their objective is computed.

    A cell is a model under training: one split of the data with one beta.

    Attributes:
        model: Kernel, likelihood and parameterisation, the same for all cells.
        loss: Objective and estimator, the same for all cells.
        data: The rows of the splits that the cells belong to.
        beta: The weight of the penalty in the objective of each cell.
        minibatches: How many training rows a step sees, and which; None: every step sees all rows.
        n: The number of training rows.
        M: The number of inducing inputs.
        parameters: The learned hyperparameters by name, without Z.
    """

    model: Model
    loss: Loss
    data: BatchData
    beta: Float[Tensor, "B"]
    minibatches: Minibatches | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.n = self.data.X.shape[1]
        self.M = self.model.inducing_count(self.n)
        model_parameters = self.model.parameters(self.data.X.shape[-1])
        self.parameters = {**model_parameters, **self.objective_parameters}
        self._sampler = None
        if self.minibatches is not None:
            self._sampler = RowSampler(self.data, self.minibatches)

    @property
    def objective_parameters(self) -> Mapping[str, Parameter]:
        """Return the hyperparameters that belong to the objective, not to the model."""
        return self.loss.objective.row_parameters

    @property
    def entries(self) -> int:
        """Return the number of entries of the largest arrays of a step, [B, M, rows + M]."""
        rows = self.minibatches.size if self.minibatches else self.n
        return len(self.beta) * self.M * (rows + self.M)

    @property
    def capturable(self) -> bool:
        """Return whether a CUDA graph can capture a step.

        A graph repeats the same operations, so they must not depend on the values of tensors.
        """
        estimator = self.loss.estimator
        return self.model.kernel.capturable and estimator.capturable(self.model.likelihood)

    @abstractmethod
    def initial(self) -> Tensors:
        """Return the initial values of the unconstrained parameters that Adam moves."""

    @abstractmethod
    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> ObjectiveValue:
        """Return the objective on the rows of this step, differentiable in `values`."""

    @abstractmethod
    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Return hyperparameters and q for predictions."""

    def resume(self, iteration: int, settings: Settings) -> None:  # noqa: B027 - optional
        """Set what depends on the number of past iterations; for most programs that is nothing."""

    def split_gaussian(self, state: State) -> None:
        """Split the Gaussian that a mixture starts from into components (`Settings.split_at`)."""
        raise TypeError("q is not a mixture, so Settings.split_at must be None")

    def initial_hyperparameters(self) -> Tensors:
        """Return the initial hyperparameters of every cell, unconstrained.

        Inducing inputs are chosen by `Model.inducing`. The other hyperparameters have the values of
        `Model.initial`, or the defaults of kernel and likelihood.
        """
        by_split = initial_values(self.model, self.parameters, self.M, self.data)
        values = {name: value[self.data.split_index] for name, value in by_split.items()}
        return unconstrain(values, self.parameters)

    def q(self, values: Tensors) -> tuple[Float[Tensor, "B *K M"], Float[Tensor, "B *K M M"]]:
        """Return m and L from the parameters, in the model's coordinates (whitened or not).

        The parameter L is a full matrix; its entries above the diagonal have no effect.
        """
        return values["m"], values["L"].tril()

    def hyperparameters(self, values: Tensors) -> Tensors:
        """Return the constrained hyperparameters of every cell."""
        raw = {name: value for name, value in values.items() if name not in Q_NAMES}
        hyper = constrain(raw, self.parameters)
        # The prior mean is 0 unless it is learned.
        hyper.setdefault("mean", torch.zeros_like(self.beta))
        return hyper

    def keep(self, cells: Sequence[int]) -> Self:
        """Return the program of these cells alone."""
        return replace(self, data=self.data.keep(cells), beta=self.beta[list(cells)])

    def row_numbers(self, iteration: int) -> Int[Tensor, "S b"]:
        """Return the numbers of the rows that this iteration sees, one line per split."""
        assert self._sampler is not None, "there are no minibatches"
        return self._sampler.row_numbers(iteration)

    def load_minibatch(self, iteration: int) -> None:
        """Choose the minibatch of this iteration, if there are minibatches; `rows` returns it."""
        if self._sampler is not None:
            self._sampler.load(iteration)

    def rows(self) -> tuple[Float[Tensor, "S b D"], Float[Tensor, "S b"]]:
        """Return inputs and targets of this step, for every split."""
        if self._sampler is None:
            return self.data.X, self.data.y
        return self._sampler.rows()

    def regularised_mean(
        self,
        hyper: Tensors,
        marginals: Marginals,
        y: Float[Tensor, "B b"],
        q: tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]],
        ok: Bool[Tensor, "B"],
        iteration: Int[Tensor, ""],
    ) -> ObjectiveValue:
        """Return `mean_i row_loss_i + beta / n * penalty(m, L) + beta * parameter_cost(hyper)`.

        On a minibatch it is an unbiased estimate of the value on all rows.

        Args:
            hyper: Constrained hyperparameters.
            marginals: q(f_i) at the rows of this step.
            y: The targets of these rows.
            q: The parameters m and L of q.
            ok: Which cells' Kuu was factorised.
            iteration: The number of the iteration, which fixes the random draws of the estimator.
        """
        objective = self.loss.objective
        row_hyper = hyper_in_type_of(marginals.mean, hyper)
        likelihood = self.model.likelihood.from_hyper(row_hyper)
        if objective.row_parameters:
            parameters = {}
            for name in objective.row_parameters:
                parameters[name] = row_hyper[name][:, None]
            marginals = marginals._replace(parameters=parameters)
        draws = Draws(self.data.seeds, self.data.split_index, iteration, self.data.X.dtype)
        assert objective.row_loss is not None
        result = objective.row_loss(likelihood, self.loss.estimator, marginals, y, draws)
        row_loss, acceptance = objective.checked_losses(result, y.shape)
        total = row_mean(row_loss) + self.beta * objective.penalty(*q) / self.n
        if objective.parameter_cost is not None:
            total = total + self.beta * objective.parameter_cost(hyper)
        return ObjectiveValue(total, ok, acceptance)
