"""Hyperparameters and inducing inputs are learned; the best q for them has a closed form."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.collapsed import Closed, Problem
from dlmexp.core.gp.inducing import PILOT_ROWS
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.objectives.objective import RowOrder
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import ObjectiveValue, Posterior, Program

ENTRIES_AT_ONCE = {"cpu": 16_000_000, "cuda": 1_000_000_000}
"""The most entries of an array [B, M, rows], by device. Where an array of all rows would have more,
sums over rows are computed piece by piece."""


def rows_at_once(program: Program, B: int) -> int:
    """Return the number of rows whose arrays [B, M, rows] are in memory at the same time."""
    entries = ENTRIES_AT_ONCE[program.beta.device.type]
    return max(1, entries // (B * program.M))


class Collapsed(Program):
    """Cells whose objective is its minimum over q.

    Every cell has its own kernel matrices.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._X = self.data.inputs_by_cell()
        self._y = self.data.y[self.data.split_index]
        if self.loss.objective.row_order is not None:
            self._arrange_rows(self.loss.objective.row_order)
        self._rows_at_once = rows_at_once(self, len(self.beta))

    def _arrange_rows(self, row_order: RowOrder) -> None:
        """Bring the rows of every cell into the order that the objective needs."""
        order_of_split = torch.stack([row_order(X) for X in self.data.X])
        order = order_of_split[self.data.split_index]
        self._X = self._X.take_along_dim(order[..., None], dim=1)
        self._y = self._y.take_along_dim(order, dim=1)

    @property
    def objective_parameters(self) -> Mapping[str, Parameter]:
        """Return the hyperparameters that belong to the objective, not to the model."""
        return self.loss.objective.collapsed_parameters

    def initial(self) -> Tensors:
        """Return the initial hyperparameters.

        With more than `PILOT_ROWS` rows they may come from a pilot fit to some of the rows
        (`Model.pilot`). As the pilot moves the inducing inputs, there is none where they have to
        stay at the training rows.
        """
        # Not at the top, as `pilot` imports this module.
        from dlmexp.core.training.pilot import initial_values_from_pilots

        values = self.initial_hyperparameters()
        moves_inducing = not self.loss.objective.all_rows_inducing
        if self.model.pilot and moves_inducing and self.n > PILOT_ROWS:
            return initial_values_from_pilots(self, values)
        return values

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> ObjectiveValue:
        """Return the minimum of the objective over q, differentiable in `values`."""
        closed = self.closed(self.hyperparameters(values), jitter)
        return ObjectiveValue(closed.loss / self.n, closed.ok)

    @torch.no_grad()
    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Return hyperparameters, and the q at which the objective is least."""
        hyper = self.hyperparameters(values)
        closed = self.closed(hyper, jitter)
        return Posterior(hyper, closed.m, closed.L, jitter)

    def problem(self, hyper: Tensors, jitter: Float[Tensor, "B"]) -> Problem:
        """Return rows and hyperparameters of the cells in the form that closed forms take."""
        return Problem(
            kernel=self.model.kernel,
            hyper=hyper,
            X=self._X,
            y=self._y,
            jitter=jitter,
            rows_at_once=self._rows_at_once,
        )

    def closed(self, hyper: Tensors, jitter: Float[Tensor, "B"]) -> Closed:
        """Return the minimum of the objective over q, and the q that attains it."""
        objective = self.loss.objective
        # Only objectives with `collapsed` are trained by this program.
        assert objective.collapsed is not None
        closed = objective.collapsed(self.problem(hyper, jitter), self.beta)
        objective.check_shape("the loss of collapsed", closed.loss, self.beta.shape)
        return closed
