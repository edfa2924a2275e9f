"""Hyperparameters, inducing inputs and q all learned together."""

from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.gp.cholesky import factorise
from dlmexp.gp.posterior import marginals, projection, to_whitened
from dlmexp.gp.products import Workspace
from dlmexp.gp.rbf_posterior import fits, rbf_marginals
from dlmexp.training.parameters import Tensors, initial_q
from dlmexp.training.program import Posterior, Program, Value


class Joint(Program):
    """Every cell has its own kernel matrices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._memory = Workspace()
        self._whole = None if self.minibatched else (self.split.inputs_by_cell(), self.split.y[self.split.index])

    def initial(self) -> Tensors:
        values = self.initial_hyperparameters()
        return values | initial_q(self.hyperparameters(values), self.model.kernel, self.model.whitened)

    def objective(self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]) -> Value:
        hyper, (m, L) = self.constrained(values)
        X, y = self._whole or (part[self.split.index] for part in self.rows())
        if self.model.whitened and fits(self.model.kernel, X):
            mu, v, ok = rbf_marginals(hyper, X, jitter, m, L, self._memory)
            return self.value(hyper, mu, v, y, (m, L), ok, iteration)
        p = projection(self.model.kernel, hyper, X, jitter)
        if not self.model.whitened:
            m, L = to_whitened(m, L, p.Kuu)
        mu, v = marginals(p, hyper["mean"], m, L)
        return self.value(hyper, mu, v, y, (m, L), p.ok, iteration)

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        hyper, (m, L) = self.constrained(values)
        if not self.model.whitened:
            m, L = to_whitened(m, L, factorise(self.model.kernel(hyper["Z"], hyper["Z"], hyper), jitter))
        return Posterior(hyper, m, L, jitter)
