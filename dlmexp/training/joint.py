"""Hyperparameters, inducing inputs and q all learned together."""

from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.gp.posterior import marginals, projection, to_whitened
from dlmexp.training.parameters import Tensors, initial_q, unwhitened_factor
from dlmexp.training.program import Posterior, Program, Value


class Joint(Program):
    """Every cell has its own kernel matrices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._whole = None if self.minibatched else (self.split.X[self.split.index], self.split.y[self.split.index])

    def initial(self) -> Tensors:
        hyper = self.initial_hyperparameters()
        return hyper | initial_q(hyper, self.model.kernel, self.model.whitened)

    def objective(self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]) -> Value:
        hyper, (m, L) = self.meaning(values)
        X, y = self._whole or (part[self.split.index] for part in self.rows())
        p = projection(self.model.kernel, hyper["Z"], X, hyper["lengthscale"], hyper["outputscale"], jitter)
        if not self.model.whitened:
            m, L = to_whitened(m, L, p.Kuu)
        mu, v = marginals(p, hyper["mean"], m, L)
        return self.value(hyper, mu, v, y, (m, L), p.ok, iteration)

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        hyper, (m, L) = self.meaning(values)
        if not self.model.whitened:
            m, L = to_whitened(m, L, unwhitened_factor(hyper, self.model.kernel, jitter))
        return Posterior(hyper, m, L, jitter)
