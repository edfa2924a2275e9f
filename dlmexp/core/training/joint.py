"""Everything is learned: hyperparameters, inducing inputs and q."""

from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.posterior import (
    Marginals,
    marginals,
    marginals_with_residual,
    projection,
    to_whitened,
)
from dlmexp.core.gp.rbf_posterior import can_use_rbf_marginals, rbf_marginals
from dlmexp.core.gp.workspace import Workspace
from dlmexp.core.training.parameters import Tensors, initial_q
from dlmexp.core.training.pilot import initial_values_from_pilots
from dlmexp.core.training.program import ObjectiveValue, Posterior, Program


class Joint(Program):
    """Cells that learn everything, so that every cell has kernel matrices of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._workspace = Workspace()
        # Inputs and targets of every cell, where every step sees all rows.
        self._all_rows = None
        if self.minibatches is None:
            self._all_rows = (self.data.inputs_by_cell(), self.data.y[self.data.split_index])

    def initial(self) -> Tensors:
        """Return the initial hyperparameters and q: q at the prior, or both from a pilot fit."""
        values = self.initial_hyperparameters()
        hyper = self.hyperparameters(values)
        values |= initial_q(hyper, self.model.kernel, self.model.whitened)
        return initial_values_from_pilots(self, values) if self.model.pilot else values

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> ObjectiveValue:
        """Return the objective on the rows of this step, differentiable in `values`."""
        hyper = self.hyperparameters(values)
        m, L = self.q(values)
        X, y = self._all_rows or self._minibatch_by_cell()
        uses_residual = self.loss.objective.uses_residual
        # 1. The fast way: with the RBF kernel on a CPU.
        has_fast_marginals = can_use_rbf_marginals(self.model.kernel, X) and not uses_residual
        if self.model.whitened and has_fast_marginals:
            mu, v, ok = rbf_marginals(hyper, X, jitter, m, L, self._workspace)
            q_f = Marginals(mu, v)
            return self.regularised_mean(hyper, q_f, y, q=(m, L), ok=ok, iteration=iteration)
        # 2. The general way.
        p = projection(self.model.kernel, hyper, X, jitter)
        if not self.model.whitened:
            m, L = to_whitened(m, L, p.Kuu)
        if uses_residual:
            q_f = marginals_with_residual(p, hyper["mean"], m, L)
        else:
            q_f = Marginals(*marginals(p, hyper["mean"], m, L))
        return self.regularised_mean(hyper, q_f, y, q=(m, L), ok=p.ok, iteration=iteration)

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Return hyperparameters and q in whitened coordinates."""
        hyper = self.hyperparameters(values)
        m, L = self.q(values)
        if not self.model.whitened:
            Kuu = factorise(self.model.kernel(hyper["Z"], hyper["Z"], hyper), jitter)
            m, L = to_whitened(m, L, Kuu)
        return Posterior(hyper, m, L, jitter)

    def _minibatch_by_cell(self) -> tuple[Float[Tensor, "B b D"], Float[Tensor, "B b"]]:
        """Return inputs and targets of this step, for every cell."""
        X, y = self.rows()
        return X[self.data.split_index], y[self.data.split_index]
