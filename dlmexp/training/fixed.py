"""Hyperparameters and inducing inputs fixed at those of another fit; only q is learned."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.gp.cholesky import FIRST_JITTER, Factor, escalate
from dlmexp.gp.posterior import projection, shared_marginals, to_whitened
from dlmexp.training.parameters import Tensors, constrain, initial_q, unconstrain
from dlmexp.training.program import Posterior, Program, Value


@dataclass
class Fixed(Program):
    """All cells of a repetition share one A: it is computed once (or once per minibatch), not once per cell."""

    hyper: Tensors  # constrained, one line per repetition

    def __post_init__(self) -> None:
        super().__post_init__()
        Z = self.hyper["Z"]
        self.jitter, self._ok = escalate(self.model.kernel(Z, Z, self.hyper), Z.new_full((len(Z),), FIRST_JITTER))
        self._counts = [self.split.repetition_of.count(i) for i in range(len(Z))]
        self._Kuu = self._projected(self.split.X[:, :0]).Kuu
        self._whole = None if self.minibatched else self._shared(self.split.X)

    def initial(self) -> Tensors:
        # There and back: what a joint fit that starts from these values computes, to the last bit.
        hyper = constrain(unconstrain(self._per_cell(), self.positive), self.positive)
        return initial_q(hyper, self.model.kernel, self.model.whitened)

    def objective(self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]) -> Value:
        index, (m, L) = self.split.index, self._whitened(values)
        X, y = self.rows()
        A, kff = self._whole or self._shared(X)
        mu, v = shared_marginals(A, kff, self.hyper["mean"], m, L, self._counts)
        return self.value(self._per_cell(), mu, v, y[index], (m, L), self._ok[index], iteration)

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        return Posterior(self._per_cell(), *self._whitened(values), self.jitter[self.split.index])

    def hyperparameters(self, values: Tensors) -> Tensors:
        return self._per_cell()

    def keep(self, cells: Sequence[int]) -> "Fixed":
        used = self.split.used_by(cells)
        hyper = {name: value[used] for name, value in self.hyper.items()}
        return Fixed(self.model, self.split.keep(cells), self.beta[list(cells)], hyper)

    def _per_cell(self) -> Tensors:
        return {name: value[self.split.index] for name, value in self.hyper.items()}

    def _whitened(self, values: Tensors) -> tuple[Tensor, Tensor]:
        q = constrain(values, self.positive)
        if self.model.whitened:
            return q["m"], q["L"]
        index = self.split.index
        return to_whitened(q["m"], q["L"], Factor(*(part[index] for part in self._Kuu)))

    def _projected(self, X: Float[Tensor, "S b D"]):
        return projection(self.model.kernel, self.hyper, X, self.jitter)

    def _shared(self, X: Float[Tensor, "S b D"]) -> tuple[Float[Tensor, "S M b"], Float[Tensor, "S b"]]:
        p = self._projected(X)
        return p.A, p.kff
