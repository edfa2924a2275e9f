"""What is learned: everything (`Joint`), q with the rest held (`Fixed`), or everything but q, which
has a closed form (`Collapsed`). And where nothing is: `solve`, and how gradients of estimators
compare with the true one, which the `bias` figure shows (docs/SPEC.md, section 8)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.estimators import BMC, Estimator, Exact
from dlmexp.core.gp.cholesky import FIRST_JITTER, Factor, escalate, factorise
from dlmexp.core.gp.collapsed import Closed, Problem, moments
from dlmexp.core.gp.posterior import marginals, projection, shared_marginals, to_whitened
from dlmexp.core.gp.rbf_posterior import applies_to, rbf_marginals
from dlmexp.core.gp.workspace import Workspace
from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.program import (
    Posterior,
    Program,
    Tensors,
    Value,
    constrain,
    initial_q,
    unconstrain,
)
from dlmexp.core.training.step import captured
from dlmexp.core.training.train import Finished

ENTRIES_AT_ONCE = {
    "cpu": 16_000_000,
    "cuda": 1_000_000_000,
}  # of [B, M, rows]: beyond it, rows come in pieces
DRAWS = 100  # of gradients, and for the true one:
TRUTH_SAMPLES = 10_000
TRUTH_ITERATION = 1_000_000  # draws that no other gradient shares


class Joint(Program):
    """Every cell has its own kernel matrices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._memory = Workspace()
        self._whole = (
            None
            if self.model.minibatch
            else (self.split.inputs_by_cell(), self.split.y[self.split.index])
        )

    def initial(self) -> Tensors:
        values = self.initial_hyperparameters()
        return values | initial_q(
            self.hyperparameters(values), self.model.kernel, self.model.whitened
        )

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> Value:
        hyper, (m, L) = self.hyperparameters(values), self.q(values)
        X, y = self._whole or (part[self.split.index] for part in self.rows())
        if self.model.whitened and applies_to(self.model.kernel, X):
            mu, v, ok = rbf_marginals(hyper, X, jitter, m, L, self._memory)
            return self.value(hyper, mu, v, y, (m, L), ok, iteration)
        p = projection(self.model.kernel, hyper, X, jitter)
        if not self.model.whitened:
            m, L = to_whitened(m, L, p.Kuu)
        mu, v = marginals(p, hyper["mean"], m, L)
        return self.value(hyper, mu, v, y, (m, L), p.ok, iteration)

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        hyper, (m, L) = self.hyperparameters(values), self.q(values)
        if not self.model.whitened:
            m, L = to_whitened(
                m, L, factorise(self.model.kernel(hyper["Z"], hyper["Z"], hyper), jitter)
            )
        return Posterior(hyper, m, L, jitter)


@dataclass
class Fixed(Program):
    """All cells of a repetition share one A: it is computed once (or once per minibatch), not once
    per cell."""

    hyper: Tensors  # constrained, one line per repetition

    def __post_init__(self) -> None:
        super().__post_init__()
        Z = self.hyper["Z"]
        K = self.model.kernel(Z, Z, self.hyper)
        self.jitter, _ = escalate(K, Z.new_full((len(Z),), FIRST_JITTER))
        self._Kuu = factorise(K, self.jitter)
        self._counts = [self.split.repetition_of.count(i) for i in range(len(Z))]
        self._whole = None if self.model.minibatch else self._shared(self.split.X)

    def initial(self) -> Tensors:
        # There and back: what a joint fit that starts from these values computes, to the last bit.
        hyper = constrain(unconstrain(self.hyperparameters({}), self.parameters), self.parameters)
        return initial_q(hyper, self.model.kernel, self.model.whitened)

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> Value:
        index, (m, L) = self.split.index, self._whitened(values)
        X, y = self.rows()
        A, kff = self._whole or self._shared(X)
        mu, v = shared_marginals(A, kff, self.hyper["mean"], m, L, self._counts)
        return self.value(
            self.hyperparameters(values), mu, v, y[index], (m, L), self._Kuu.ok[index], iteration
        )

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        return Posterior(
            self.hyperparameters(values), *self._whitened(values), self.jitter[self.split.index]
        )

    def hyperparameters(self, values: Tensors) -> Tensors:
        return {name: value[self.split.index] for name, value in self.hyper.items()}

    def keep(self, cells: Sequence[int]) -> "Fixed":
        used = self.split.used_by(cells)
        hyper = {name: value[used] for name, value in self.hyper.items()}
        return Fixed(self.model, self.split.keep(cells), self.beta[list(cells)], hyper)

    def _whitened(self, values: Tensors) -> tuple[Tensor, Tensor]:
        m, L = self.q(values)
        if self.model.whitened:
            return m, L
        return to_whitened(m, L, Factor(*(part[self.split.index] for part in self._Kuu)))

    def _shared(
        self, X: Float[Tensor, "S b D"]
    ) -> tuple[Float[Tensor, "S M b"], Float[Tensor, "S b"]]:
        p = projection(self.model.kernel, self.hyper, X, self.jitter)
        return p.A, p.kff


def _rows_at_once(lines: int, program: Program) -> int:
    return max(1, ENTRIES_AT_ONCE[program.beta.device.type] // (lines * program.model.M))


class Collapsed(Program):
    """Every cell has its own kernel matrices; the objective is its minimum over q."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._X, self._y = self.split.inputs_by_cell(), self.split.y[self.split.index]
        self._rows_at_once = _rows_at_once(len(self.beta), self)

    def initial(self) -> Tensors:
        return self.initial_hyperparameters()

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> Value:
        closed = self.closed(self.hyperparameters(values), jitter)
        return Value(closed.loss / self.n, closed.ok)

    @torch.no_grad()
    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        hyper = self.hyperparameters(values)
        closed = self.closed(hyper, jitter)
        return Posterior(hyper, closed.m, closed.L, jitter)

    def closed(self, hyper: Tensors, jitter: Float[Tensor, "B"]) -> Closed:
        """The objective at its minimum over q, and that q."""
        objective = self.model.objective
        assert objective.collapsed is not None
        problem = Problem(self.model.kernel, hyper, self._X, self._y, jitter, self._rows_at_once)
        closed = objective.collapsed(problem, self.beta)
        objective.check_shape("the loss of collapsed", closed.loss, self.beta.shape)
        return closed


@torch.no_grad()
def solve(program: Fixed, batches_at_once: Callable[[], int] = lambda: 1) -> Iterator[Finished]:
    """Every cell's solution (`Objective.path`, or `Objective.collapsed` where there is no path) and
    metrics."""
    began = perf_counter()
    m, L, loss = _solution(program)
    posterior = program.posterior({"m": m, "L": L}, program.beta)
    evaluation, posteriors = evaluate(program, posterior).read(), posterior.cells()
    at_once = batches_at_once()
    seconds = (perf_counter() - began) / (at_once * len(program.beta))
    for i, (metrics, reliability) in enumerate(evaluation):
        yield Finished(
            cell=i,
            stopped="closed form",
            iterations=0,
            seconds=seconds,
            alone=at_once == 1,
            objective=np.array([float(loss[i] / program.n)]),
            metrics=metrics,
            reliability=reliability,
            posterior=posteriors[i],
        )


def _solution(program: Fixed) -> tuple[Tensor, Tensor, Tensor]:
    """m, L and the objective of every cell."""
    model, split, index = program.model, program.split, program.split.index
    if model.objective.path is None:
        collapsed = Collapsed(model, split, program.beta)
        closed = collapsed.closed(program.hyperparameters({}), program.jitter[index])
        return closed.m, closed.L, closed.loss
    rows = _rows_at_once(len(split.X), program)  # one solution per repetition serves all betas
    s = moments(Problem(model.kernel, program.hyper, split.X, split.y, program.jitter, rows))
    betas, which = torch.unique(program.beta, return_inverse=True)
    means, losses = model.objective.path(s, betas)
    return means[index, which], torch.zeros_like(s.AA)[index], losses[index, which]


def gradient_statistics(
    program: Program,
) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]] | None]:
    """For each cell, straight after initialisation: 100 gradients g in the mean parameters against
    the true G, taken from 10 000 bMC samples as the paper does, and from quadrature beside it
    (suffix `_quadrature`). Yields None where a GPU has been given work and the results are not
    there yet."""
    pool = torch.cuda.graph_pool_handle() if program.beta.is_cuda else None
    for i in range(len(program.beta)):
        cell = program.keep([i])
        gradient = _gradient(cell, cell.model.estimator, pool)
        g = torch.stack([gradient(draw) for draw in range(DRAWS)])
        sampled, exact = (
            _gradient(cell, BMC(TRUTH_SAMPLES))(TRUTH_ITERATION),
            _gradient(cell, Exact())(0),
        )
        if g.is_cuda:
            yield None  # `gradient` is held: its graph may still be replayed
        result: dict[str, Any] = {"draws": DRAWS}
        arrays: dict[str, np.ndarray] = {}
        for suffix, G in {"": sampled, "_quadrature": exact}.items():
            size = G.square().sum()
            result[f"norm2_G{suffix}"] = float(size)
            result[f"bias{suffix}"] = float((g.mean(0) - G).square().sum())
            arrays[f"condition_i{suffix}"] = ((g @ G) / size).cpu().numpy()
            arrays[f"condition_ii{suffix}"] = g.square().sum(-1).cpu().numpy()
            arrays[f"error{suffix}"] = (g - G).square().sum(-1).cpu().numpy()
        yield result, arrays


def _gradient(
    cell: Program, estimator: Estimator, pool: Any = None
) -> Callable[[int], Float[Tensor, "M"]]:
    """The objective's gradient in m for one cell, with the numbers of an iteration; with a `pool`,
    by a captured graph where that can be."""
    program = replace(cell, model=replace(cell.model, estimator=estimator))
    values = {name: value.detach().requires_grad_() for name, value in program.initial().items()}
    jitter = torch.full_like(program.beta, FIRST_JITTER)
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)

    def gradient() -> Tensor:
        objective = program.objective(values, jitter, iteration).objective
        return torch.autograd.grad(objective.sum(), values["m"])[0][0]

    if pool is not None and program.capturable:
        gradient = captured(gradient, jitter.device, pool)

    def with_draws(draw: int) -> Tensor:
        iteration.fill_(draw)
        return gradient().clone()

    return with_draws
