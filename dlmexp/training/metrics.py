"""How good the predictions of a batch of cells are, on validation or test rows (docs/SPEC.md, section 7)."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.predict import predict
from dlmexp.training.program import Posterior, Program

Metrics = dict[str, float]

ENTRIES_AT_ONCE = 8_000_000  # of the [B, M, rows] arrays that predictions need: 64 MB each in float64


@torch.no_grad()
def evaluate(program: Program, posterior: Posterior, part: str) -> list[Metrics]:
    """Mean metrics of every cell on one part of its split."""
    X, y = program.split.parts[part]
    index = program.split.index
    hyper, m, L, jitter = posterior
    likelihood = program.model.likelihood.from_hyper(hyper)
    B, M = m.shape
    at_once = max(1, ENTRIES_AT_ONCE // (B * M))
    sums: dict[str, Tensor] = {}
    for first in range(0, X.shape[1], at_once):
        rows = slice(first, first + at_once)
        mu, v = predict(program.model.kernel, hyper, m, L, jitter, X[:, rows][index])
        for name, value in rowwise(program, likelihood, mu, v, y[:, rows][index]).items():
            sums[name] = sums.get(name, torch.zeros_like(jitter)) + value.sum(-1)
    means = {name: (total / X.shape[1]).tolist() for name, total in sums.items()}
    return [{name: values[i] for name, values in means.items()} for i in range(B)]


def rowwise(
    program: Program,
    likelihood: Likelihood,
    mu: Float[Tensor, "B N"],
    v: Float[Tensor, "B N"],
    y: Float[Tensor, "B N"],
) -> dict[str, Float[Tensor, "B N"]]:
    """The metrics that the likelihood states, and the NLL where the objective predicts a variance."""
    found = {"nll": likelihood.log_loss(mu, v, y)} if program.model.objective.predicts_variance else {}
    return found | {name: metric(likelihood, mu, v, y) for name, metric in likelihood.metrics.items()}
