"""q in closed form: only hyperparameters and inducing inputs are learned, on all rows at once."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.gp.collapsed import Closed
from dlmexp.training.parameters import Tensors
from dlmexp.training.program import Posterior, Program, Value

ENTRIES_AT_ONCE = {"cpu": 16_000_000, "cuda": 1_000_000_000}  # of [B, M, rows]: beyond it, rows come in pieces


class Collapsed(Program):
    """Every cell has its own kernel matrices; the objective is its minimum over q."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._X, self._y = self.split.inputs_by_cell(), self.split.y[self.split.index]
        entries = ENTRIES_AT_ONCE[self.beta.device.type]
        self._rows_at_once = max(1, entries // (len(self.beta) * self.model.M))

    def initial(self) -> Tensors:
        return self.initial_hyperparameters()

    def objective(self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]) -> Value:
        closed = self._closed(self.hyperparameters(values), jitter)
        return Value(closed.loss / self.n, closed.ok, torch.zeros_like(self.beta))

    @torch.no_grad()
    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        hyper = self.hyperparameters(values)
        closed = self._closed(hyper, jitter)
        return Posterior(hyper, closed.m, closed.L, jitter)

    def _closed(self, hyper: Tensors, jitter: Tensor) -> Closed:
        collapsed = self.model.objective.collapsed
        assert collapsed is not None
        return collapsed(self.model.kernel, hyper, self._X, self._y, self.beta, jitter, self._rows_at_once)
