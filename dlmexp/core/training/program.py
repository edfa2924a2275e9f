"""What a batch of cells computes: its rows (all, or a minibatch that depends on seed and iteration
alone), its parameters, the objective of given ones, and the posterior that results."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.cholesky import FIRST_JITTER, factorise
from dlmexp.core.gp.kernels import Kernel, Parameter
from dlmexp.core.gp.precision import PARAMETERS, hyper_as_rows, row_mean
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.objectives import Objective

Tensors = dict[str, Tensor]

Q = ("m", "L")  # the names of q's own parameters; all others are hyperparameters


@dataclass
class BatchData:
    """Training, validation and test rows of the S repetitions in a batch, and which repetition each
    cell belongs to."""

    X: Float[Tensor, "S N D"]
    y: Float[Tensor, "S N"]
    parts: dict[str, tuple[Float[Tensor, "S T D"], Float[Tensor, "S T"]]]  # "validation" and "test"
    seed_of: list[int]  # each repetition
    repetition_of: list[int]  # each cell
    seeds: Int[Tensor, "S"] = field(init=False)  # the two on the device
    index: Int[Tensor, "B"] = field(init=False)

    def __post_init__(self) -> None:
        self.seeds, self.index = (
            torch.tensor(numbers, dtype=torch.int64, device=self.X.device)
            for numbers in (self.seed_of, self.repetition_of)
        )

    def inputs_by_cell(self) -> Float[Tensor, "B N D"]:
        """Training inputs of every cell. On a GPU they lie feature by feature, as the kernel
        matrices read them."""
        if not self.X.is_cuda:
            return self.X[self.index]
        return self.X.mT[self.index].contiguous().mT

    def used_by(self, cells: Sequence[int]) -> list[int]:
        """The repetitions that these cells belong to."""
        return sorted({self.repetition_of[cell] for cell in cells})

    def keep(self, cells: Sequence[int]) -> "BatchData":
        """The same for some of the cells; repetitions that no cell needs any more are dropped."""
        used = self.used_by(cells)
        of_cells = [used.index(self.repetition_of[cell]) for cell in cells]
        if len(used) == len(self.seed_of):
            return BatchData(self.X, self.y, self.parts, self.seed_of, of_cells)
        parts = {name: (X[used], y[used]) for name, (X, y) in self.parts.items()}
        return BatchData(
            self.X[used], self.y[used], parts, [self.seed_of[i] for i in used], of_cells
        )


def shuffled(
    seeds: Sequence[int], epoch: int, n: int, device: torch.device | str = "cpu"
) -> Int[Tensor, "S n"]:
    """The order of n rows in an epoch, one line per seed: that of the raw words of a bit generator
    which numpy promises for good. They are sorted on the device: on a CPU the sorting took longer
    than a GPU's steps."""
    words = np.stack(
        [np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(n) for seed in seeds]
    )
    signed = (words ^ np.uint64(1 << 63)).view(np.int64)  # in the same order
    return torch.from_numpy(signed).to(device).argsort(dim=-1, stable=True)


def unsoftplus(x: Tensor) -> Tensor:
    """The inverse of softplus."""
    return x + torch.log(-torch.expm1(-x))


def constrain(raw: Tensors, parameters: Mapping[str, Parameter]) -> Tensors:
    """Positive parameters through softplus, plus their floor; the rest as they are."""
    constrained = dict(raw)
    for name, parameter in parameters.items():
        if name in raw and parameter.positive:
            value = softplus(raw[name])
            constrained[name] = value + parameter.floor if parameter.floor else value
    return constrained


def unconstrain(constrained: Tensors, parameters: Mapping[str, Parameter]) -> Tensors:
    """The inverse of `constrain`, for hyperparameters taken from another fit."""
    positive = {
        name: each.floor
        for name, each in parameters.items()
        if each.positive and name in constrained
    }
    return constrained | {
        name: unsoftplus(constrained[name] - floor) for name, floor in positive.items()
    }


def initial_q(hyper: Tensors, kernel: Kernel, whitened: bool) -> Tensors:
    """q at the prior: m = 0 and L = I in whitened coordinates, L = chol(Kuu) in unwhitened ones."""
    Z = hyper["Z"]
    if whitened:
        L = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device).repeat(Z.shape[0], 1, 1)
    else:
        L = factorise(kernel(Z, Z, hyper), Z.new_full((len(Z),), FIRST_JITTER)).L
    return {"m": Z.new_zeros(Z.shape[:2]), "L": L}


class Value(NamedTuple):
    """Per cell: the objective divided by n, whether Kuu factorised, and the share of accepted
    proposals, if any."""

    objective: Float[Tensor, "B"]
    ok: Bool[Tensor, "B"]
    acceptance: Float[Tensor, "B"] | None = None


class Posterior(NamedTuple):
    """What predictions need: hyperparameters, and q in whitened coordinates."""

    hyper: Tensors
    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    jitter: Float[Tensor, "B"]

    def cells(self) -> "list[Posterior]":
        """Each cell's posterior as a batch of one, on the CPU."""
        hyper = {name: value.cpu().split(1) for name, value in self.hyper.items()}
        q = zip(*(tensor.cpu().split(1) for tensor in self[1:]), strict=True)
        return [
            Posterior({name: value[i] for name, value in hyper.items()}, *rest)
            for i, rest in enumerate(q)
        ]


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
    initial: Mapping[str, float] = field(
        default_factory=dict
    )  # initial values other than the parameters' own
    inducing: str = "first"  # the training rows that the inducing inputs start from: first | last
    afresh: bool = False  # minibatches are drawn anew at every step, not epoch by epoch
    noise_floor: float | None = (
        None  # which the noise variance stays above; None: it may fall towards 0
    )

    def parameters(self, D: int) -> dict[str, Parameter]:
        """The learned hyperparameters on D features, beside the inducing inputs."""
        mean = {"mean": Parameter(0.0)} if self.learns_mean else {}
        parameters = {**self.kernel.parameters(D, self.ard), **self.likelihood.parameters, **mean}
        if self.noise_floor is not None:
            parameters["noise"] = replace(parameters["noise"], floor=self.noise_floor)
        return parameters


@dataclass
class Program(ABC):
    """B cells: their data, their betas, and how their objective is computed."""

    model: Model
    split: BatchData
    beta: Float[Tensor, "B"]

    def __post_init__(self) -> None:
        self.n = self.split.X.shape[1]
        self.parameters = self.model.parameters(self.split.X.shape[-1])
        self._epoch, self._order, self._rows = -1, self.split.index[:0], None

    @property
    def entries(self) -> int:
        """Number of entries of the largest arrays in a step: [B, M, rows + M]."""
        return len(self.beta) * self.model.M * ((self.model.minibatch or self.n) + self.model.M)

    @property
    def capturable(self) -> bool:
        """Whether a step does the same operations whatever the values, so that a CUDA graph can
        capture it."""
        return self.model.kernel.capturable and self.model.estimator.capturable(
            self.model.likelihood
        )

    @abstractmethod
    def initial(self) -> Tensors:
        """What Adam moves, at its initial values."""

    @abstractmethod
    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> Value:
        """The objective on the rows of this step, differentiable in `values`."""

    @abstractmethod
    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Hyperparameters and q for predictions."""

    def initial_hyperparameters(self) -> Tensors:
        """Inducing inputs at the first or last M rows, the rest as kernel, likelihood and
        `Model.initial` say; all of them unconstrained."""
        M, initial = self.model.M, self.model.initial
        Z = (self.split.X[:, -M:] if self.model.inducing == "last" else self.split.X[:, :M])[
            self.split.index
        ]
        Z = Z.to(PARAMETERS)
        values = {
            name: each.start(Z, len(Z), initial.get(name)) for name, each in self.parameters.items()
        }
        return unconstrain({"Z": Z} | values, self.parameters)

    def q(self, values: Tensors) -> tuple[Tensor, Tensor]:
        """m and L as parameterised; what lies above the diagonal of L does not count."""
        return values["m"], values["L"].tril()

    def hyperparameters(self, values: Tensors) -> Tensors:
        """Constrained, one per cell."""
        hyper = constrain({n: value for n, value in values.items() if n not in Q}, self.parameters)
        hyper.setdefault("mean", torch.zeros_like(self.beta))
        return hyper

    def keep(self, cells: Sequence[int]) -> Self:
        """The same for some of the cells."""
        return replace(self, split=self.split.keep(cells), beta=self.beta[list(cells)])

    def minibatch(self, iteration: int) -> Int[Tensor, "S b"]:
        """Row numbers of this iteration, one line per repetition: consecutive ones of the epoch's
        order (what is left over at its end is not used). `Model.afresh`: every step has an order of
        its own, as in a draw without replacement."""
        size = self.model.minibatch or self.n
        epoch, step = (iteration, 0) if self.model.afresh else divmod(iteration, self.n // size)
        if epoch != self._epoch:
            self._epoch, self._order = (
                epoch,
                shuffled(self.split.seed_of, epoch, self.n, self.split.X.device),
            )
        return self._order[:, step * size : (step + 1) * size]

    def load_minibatch(self, iteration: int) -> None:
        """Choose the rows of this iteration, for `objective` to read (all of them: nothing to
        do)."""
        if self.model.minibatch is None:
            return
        rows = self.minibatch(iteration)
        if self._rows is None:
            self._rows = rows.clone()
        else:  # where a captured graph reads them
            self._rows.copy_(rows)

    def rows(self) -> tuple[Float[Tensor, "S b D"], Float[Tensor, "S b"]]:
        """Inputs and targets of this step, by repetition."""
        if self.model.minibatch is None:
            return self.split.X, self.split.y
        assert self._rows is not None, "load_minibatch comes before"
        lines = torch.arange(len(self._rows), device=self._rows.device)[:, None]
        return self.split.X[lines, self._rows], self.split.y[lines, self._rows]

    def value(
        self,
        hyper: Tensors,
        mu: Tensor,
        v: Tensor,
        y: Tensor,
        q: tuple[Tensor, Tensor],
        ok: Tensor,
        iteration: Tensor,
    ) -> Value:
        """`mean_i loss_i + beta / n * regulariser`: on a minibatch an unbiased estimate of the
        whole."""
        objective, likelihood = (
            self.model.objective,
            self.model.likelihood.from_hyper(hyper_as_rows(mu, hyper)),
        )
        draws = Draws(self.split.seeds, self.split.index, iteration, self.split.X.dtype)
        loss, acceptance = objective.losses(likelihood, self.model.estimator, mu, v, y, draws)
        total = row_mean(loss) + self.beta * objective.penalty(*q) / self.n
        return Value(total, ok, acceptance)
