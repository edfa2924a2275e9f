"""The control of `gain`: how much of a bad score is the noise variance alone.

`dlm_elbo_q` combines the ELBO's q with the hyperparameters of DLM, also with its tiny noise
variance. Here that noise is fitted again, with q kept or fitted too; kernel and inducing inputs
stay those of DLM.

    dlmexp run experiment=gain-reg 'parts=[]' 'method=[ppgpr]' 'beta.values=[1]' \\
        "sizes=['20%']" keep=all results=FOLDER
    python -m scripts.noise_control FOLDER > results/more/noise_control.csv
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from dlmexp import reference
from dlmexp.common.paths import data_root
from dlmexp.data.dataset import read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import Prepared, prepare
from dlmexp.experiment.models.file import TrainedCell, load_file

NOISES = (math.log(1e-10), math.log(10.0))
"""Limits of the logarithm of the noise variance."""


class Rows(NamedTuple):
    """Rows under a model: targets minus the prior mean, and what their marginals need."""

    A: Tensor  # [M, N], Luu^-1 Kuf
    residual: Tensor  # [N], r_i = Kff_ii - Qff_ii
    y: Tensor  # [N]

    @classmethod
    def of(cls, X: Tensor, y: Tensor, h: reference.Hyperparameters) -> "Rows":
        """Project rows X [N, D] on the inducing inputs of a model."""
        A = reference.projection(X, h)
        return cls(A, h["outputscale"] - A.square().sum(0), y - h["mean"])

    def log_losses(self, m: Tensor, L: Tensor, noise: float) -> Tensor:
        """Return -log N(y_i; mu_i, v_i + noise) per row [N]."""
        # mu_i = A_i . m,  v_i = r_i + |L^T A_i|^2
        mu = self.A.T @ m
        v = self.residual + (L.T @ self.A).square().sum(0)
        return reference.log_loss("gaussian", mu, v, self.y, torch.tensor(noise))


def elbo_q(rows: Rows, noise: float) -> tuple[Tensor, Tensor]:
    """Return m [M] and L [M, M] of the ELBO's best q."""
    h = {"noise": torch.tensor(noise), "outputscale": torch.tensor(0.0)}
    return reference.optimal_q("elbo", rows.A, rows.y, h, beta=1.0)


def noise_by_log_loss(rows: Rows, m: Tensor, L: Tensor) -> float:
    """Return the noise with the least log loss of a q on its training rows."""

    def mean_loss(log_noise: float) -> float:
        return rows.log_losses(m, L, math.exp(log_noise)).mean().item()

    return _least(mean_loss)


def noise_by_elbo(rows: Rows) -> float:
    """Return the noise with the greatest ELBO, where q is the best one for each noise."""
    # With the eigenvalues s_j of A A^T and c = U^T A y, the ELBO for noise t is
    # -1/2 [ sum_j log(s_j + t) + (n - M) log t + (y.y - sum_j c_j^2 / (s_j + t)) / t
    #        + n log(2 pi) + sum_i r_i / t ]
    s, U = torch.linalg.eigh(rows.A @ rows.A.T)
    s = s.clamp_min(0)
    c = U.T @ (rows.A @ rows.y)
    n = len(rows.y)
    yy = rows.y.square().sum()

    def negative_elbo(log_noise: float) -> float:
        t = math.exp(log_noise)
        log_det = (s + t).log().sum() + (n - len(s)) * log_noise
        misfit = (yy - (c.square() / (s + t)).sum() + rows.residual.sum()) / t
        return 0.5 * (log_det + misfit + n * math.log(2 * math.pi)).item()

    return _least(negative_elbo)


def _least(function: Any) -> float:
    """Return the noise at which a function of its logarithm is least."""
    grid = np.linspace(*NOISES, 200)
    best = grid[np.argmin([function(log_noise) for log_noise in grid])]
    step = grid[1] - grid[0]
    found = minimize_scalar(function, bounds=(best - step, best + step), method="bounded")
    return math.exp(found.x)


def controls(model: TrainedCell, rows: Prepared) -> Iterator[dict[str, Any]]:
    """Yield the scores of the ELBO's q on DLM's kernel, with every choice of the noise."""
    h = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in model.hyper.items()}
    train = Rows.of(*_tensors(rows.X_train, rows.y_train), h)
    test = Rows.of(*_tensors(rows.X_test, rows.y_test), h)
    dlm_noise = h["noise"].item()
    elbo_noise = noise_by_elbo(train)
    q_of_dlm_noise = elbo_q(train, dlm_noise)
    fits = {
        "noise of DLM": (q_of_dlm_noise, dlm_noise),
        "noise fitted by log loss": (q_of_dlm_noise, noise_by_log_loss(train, *q_of_dlm_noise)),
        "noise and q fitted by ELBO": (elbo_q(train, elbo_noise), elbo_noise),
    }
    for name, ((m, L), noise) in fits.items():
        yield {
            "dataset": model.cell.dataset,
            "n": model.cell.n,
            "seed": model.cell.seed,
            "control": name,
            "noise": noise,
            "test_nll": test.log_losses(m, L, noise).mean().item(),
            "test_mse": (test.A.T @ m - test.y).square().mean().item(),
        }


def _tensors(X: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.as_tensor(X, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)


def main() -> None:
    """Write the controls of all trained models of a results folder as CSV."""
    (folder,) = sys.argv[1:]
    lines: list[dict[str, Any]] = []
    for path in sorted(Path(folder).glob("records/*/*.model.npz")):
        model = load_file(path)
        if model.cell.objective != "log_dlm":
            continue
        spec = replace(read_spec(model.cell.dataset))
        rows = prepare(load(spec, data_root()), spec, model.cell.seed, model.cell.n)
        lines.extend(controls(model, rows))
    table = pd.DataFrame(lines).sort_values(["dataset", "control", "seed"])
    table.to_csv(sys.stdout, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
