"""Only q is learned; hyperparameters and inducing inputs are held."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.cholesky import FIRST_JITTER, Factor, factorise, sufficient_jitter
from dlmexp.core.gp.posterior import (
    Marginals,
    floored_variance,
    projection,
    shared_marginals,
    to_whitened,
)
from dlmexp.core.training.parameters import Tensors, constrain, initial_q, unconstrain
from dlmexp.core.training.program import ObjectiveValue, Posterior, Program


@dataclass
class Fixed(Program):
    """Cells that learn q alone.

    All cells of a split share `A = Luu^-1 Kuf`. It is computed once per split, or with minibatches
    once per split and step.

    Attributes:
        hyper: The constrained hyperparameters that are held, with a leading dimension of S splits.
        jitter: The jitter with which Kuu of each split can be factorised [S].
    """

    hyper: Tensors

    def __post_init__(self) -> None:
        super().__post_init__()
        Z = self.hyper["Z"]
        Kuu = self.model.kernel(Z, Z, self.hyper)
        self.jitter, _ = sufficient_jitter(Kuu, Z.new_full((len(Z),), FIRST_JITTER))
        self._Kuu = factorise(Kuu, self.jitter)
        self._cells_per_split = [self.data.split_of.count(i) for i in range(len(Z))]
        self._projection_of_all_rows = None
        if self.minibatches is None:
            self._projection_of_all_rows = self._shared_projection(self.data.X)

    def initial(self) -> Tensors:
        """Return q at the prior."""
        # A joint fit holds its hyperparameters unconstrained: it starts at these values after
        # `unconstrain` and `constrain`, which change them by rounding. With the same change here,
        # both fits start from the same q, to the last bit.
        raw = unconstrain(self.hyperparameters({}), self.parameters)
        hyper = constrain(raw, self.parameters)
        return initial_q(hyper, self.model.kernel, self.model.whitened)

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> ObjectiveValue:
        """Return the objective on the rows of this step, differentiable in `values`."""
        split_index = self.data.split_index
        m, L = self._whitened_q(values)
        X, y = self.rows()
        A, kff = self._projection_of_all_rows or self._shared_projection(X)
        mu, v = shared_marginals(A, kff, self.hyper["mean"], m, L, self._cells_per_split)
        q_f = Marginals(mu, v)
        if self.loss.objective.uses_residual:
            residual = floored_variance(kff - A.square().sum(-2), kff)
            q_f = q_f._replace(prior_variance=kff[split_index], residual=residual[split_index])
        hyper = self.hyperparameters(values)
        return self.regularised_mean(
            hyper, q_f, y[split_index], q=(m, L), ok=self._Kuu.ok[split_index], iteration=iteration
        )

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Return the hyperparameters that are held, and q in whitened coordinates.

        The argument `jitter` is not used: the jitter of each split is known from the start.
        """
        m, L = self._whitened_q(values)
        return Posterior(self.hyperparameters(values), m, L, self.jitter[self.data.split_index])

    def hyperparameters(self, values: Tensors) -> Tensors:
        """Return the hyperparameters of every cell, which are those held for its split.

        Hyperparameters of the objective that are not in `hyper` stay at their initial values.
        """
        hyper = {name: value[self.data.split_index] for name, value in self.hyper.items()}
        objective = self.loss.objective
        objective_parameters = {**objective.row_parameters, **objective.collapsed_parameters}
        for name, parameter in objective_parameters.items():
            if name not in hyper:
                hyper[name] = parameter.start(self.beta, len(self.beta))
        return hyper

    def keep(self, cells: Sequence[int]) -> "Fixed":
        """Return the program of these cells alone."""
        splits = self.data.splits_of(cells)
        hyper = {name: value[splits] for name, value in self.hyper.items()}
        return replace(self, data=self.data.keep(cells), beta=self.beta[list(cells)], hyper=hyper)

    def _whitened_q(self, values: Tensors) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
        """Return m and L of every cell in whitened coordinates."""
        m, L = self.q(values)
        if self.model.whitened:
            return m, L
        factors_by_cell = [tensor[self.data.split_index] for tensor in self._Kuu]
        return to_whitened(m, L, Factor(*factors_by_cell))

    def _shared_projection(
        self, X: Float[Tensor, "S b D"]
    ) -> tuple[Float[Tensor, "S M b"], Float[Tensor, "S b"]]:
        """Return `A = Luu^-1 Kuf` and the diagonal of Kff at the rows X of every split."""
        p = projection(self.model.kernel, self.hyper, X, self.jitter)
        return p.A, p.kff
