"""Predictions of one trained model, with as little work per row as possible."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.kernels import Hyper, Kernel
from dlmexp.core.gp.posterior import component_marginals, floored_variance, projection
from dlmexp.core.gp.precision import hyper_in_type_of, in_type_of
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.mixture import Mixture

ENTRIES_AT_ONCE = {"cpu": 500_000, "cuda": 50_000_000}
"""The most entries of an array [M, rows], by type of device; on a CPU, as many as its cache
holds."""


class MarginalPredictor:
    """The marginals of q(f) at new rows, computed by one product of M x M by M x rows.

    With `A = Luu^-1 Kuf`, `L L^T - I = Q diag(w) Q^T` and `P = Q^T Luu^-1`, the marginals are

        C = Q^T A = P Kuf,    mu_i = mean + (Q^T m) . C_i,    v_i = kff_i + w . C_i^2

    As Q is orthogonal, the rounding errors are not larger than in `gp.posterior`, which computes A.
    """

    def __init__(
        self,
        kernel: Kernel,
        hyper: Hyper,
        m: Float[Tensor, "1 M"],
        L: Float[Tensor, "1 M M"],
        jitter: Float[Tensor, "1"],
        row_dtype: torch.dtype = torch.float64,
    ):
        Z = hyper["Z"]
        Luu_inverse = factorise(kernel(Z, Z, hyper), jitter).L_inverse
        # L L^T - I = Q diag(w) Q^T
        S = L @ L.mT
        S.diagonal(dim1=-2, dim2=-1).sub_(1)
        w, Q = torch.linalg.eigh(S)  # [1, M], [1, M, M]
        QTm = (Q.mT @ m.unsqueeze(-1)).squeeze(-1)
        # The two functions below look at the type of the rows alone.
        no_rows = torch.empty(0, dtype=row_dtype)
        # The attribute m holds Q^T m, the mean in the coordinates of the eigenvectors.
        self.w, self.P, self.m = in_type_of(no_rows, w, Q.mT @ Luu_inverse, QTm)
        self.hyper = hyper_in_type_of(no_rows, hyper)
        self.kernel = kernel
        self.rows_at_once = max(1, ENTRIES_AT_ONCE[m.device.type] // Z.shape[1])

    @torch.no_grad()
    def marginals(
        self, X: Float[Tensor, "N D"]
    ) -> tuple[Float[Tensor, "1 N"], Float[Tensor, "1 N"]]:
        """Return mu and v of q(f) at the rows."""
        mu = self.m.new_empty(1, len(X))
        v = self.m.new_empty(1, len(X))
        for first in range(0, len(X), self.rows_at_once):
            piece = slice(first, first + self.rows_at_once)
            mu[:, piece], v[:, piece] = self.marginals_of_piece(X[piece])
        return mu, v

    @torch.no_grad()
    def marginals_of_piece(
        self, X: Float[Tensor, "n D"]
    ) -> tuple[Float[Tensor, "1 n"], Float[Tensor, "1 n"]]:
        """Return mu and v at rows that fit into memory together."""
        rows = X.to(self.m)[None]
        # C = P Kuf
        C = self.P @ self.kernel(self.hyper["Z"], rows, self.hyper)
        # mu = mean + (Q^T m) . C_i
        mu = self.hyper["mean"][:, None] + (self.m.unsqueeze(-2) @ C).squeeze(-2)
        # v = kff + w . C_i^2
        kff = self.kernel.diagonal(rows, self.hyper)
        v = kff + (self.w.unsqueeze(-2) @ C.square_()).squeeze(-2)
        return mu, floored_variance(v, kff)


class ComponentPredictor:
    """The marginals of the components of a mixture at new rows; Kuu is factorised only once."""

    def __init__(
        self,
        kernel: Kernel,
        hyper: Hyper,
        m: Float[Tensor, "1 K M"],
        L: Float[Tensor, "1 K M M"],
        jitter: Float[Tensor, "1"],
        row_dtype: torch.dtype = torch.float64,
    ):
        no_rows = torch.empty(1, 0, hyper["Z"].shape[-1], dtype=row_dtype, device=m.device)
        self.projection = projection(kernel, hyper, no_rows, jitter)
        self.hyper = self.projection.hyper
        self.mean = hyper["mean"]
        self.m = m
        self.L = L
        # Arrays are [K, M, rows] here, and m has K M entries.
        self.rows_at_once = max(1, ENTRIES_AT_ONCE[m.device.type] // m.numel())

    @torch.no_grad()
    def marginals(
        self, X: Float[Tensor, "N D"]
    ) -> tuple[Float[Tensor, "1 K N"], Float[Tensor, "1 K N"]]:
        """Return mu and v of every component at the rows."""
        means = []
        variances = []
        for piece in X.split(self.rows_at_once):
            mu, v = self.marginals_of_piece(piece)
            means.append(mu)
            variances.append(v)
        return torch.cat(means, -1), torch.cat(variances, -1)

    @torch.no_grad()
    def marginals_of_piece(
        self, X: Float[Tensor, "n D"]
    ) -> tuple[Float[Tensor, "1 K n"], Float[Tensor, "1 K n"]]:
        """Return mu and v of every component at rows that fit into memory together."""
        rows = X.to(self.projection.X)[None]
        projection_of_piece = self.projection._replace(X=rows)
        return component_marginals(projection_of_piece, self.mean, self.m, self.L)


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution of the targets at N new rows.

    Attributes:
        mean: The expected target: in regression the mean, of binary data the probability of class
            1, of counts the mean count (rate).
        variance: The variance of a new target; None for square loss, which predicts a mean only,
            and for likelihoods without `std`.
        lower: The lower end of the central 95 % interval of a new target; None for square loss, for
            binary data, and for likelihoods without `interval`.
        upper: The upper end of this interval.
        latent_mean: The mean of f; of a mixture, by component [K, N].
        latent_variance: The variance of f; of a mixture, by component [K, N].
    """

    mean: Float[np.ndarray, " N"]
    variance: Float[np.ndarray, " N"] | None
    lower: Float[np.ndarray, " N"] | None
    upper: Float[np.ndarray, " N"] | None
    latent_mean: Float[np.ndarray, "*K N"]
    latent_variance: Float[np.ndarray, "*K N"]


@torch.no_grad()
def prediction(
    likelihood: Likelihood | Mixture,
    mu: Float[Tensor, "1 *K N"],
    v: Float[Tensor, "1 *K N"],
    predicts_variance: bool = True,
) -> Prediction:
    """Return the predictive distribution of the targets from the marginals mu and v of f.

    Without `predicts_variance`, the prediction has no variance and no interval of the targets.
    """
    mean = likelihood.mean(mu, v)
    variance = None
    lower = None
    upper = None
    if predicts_variance:
        interval = likelihood.interval(mu, v)
        if interval is not None:
            lower, upper = interval
        std = likelihood.std(mu, v)
        if std is not None:
            variance = std.square()
        elif likelihood.task == "binary":
            variance = mean * (1 - mean)
    return Prediction(
        mean=_array(mean),
        variance=_array_or_none(variance),
        lower=_array_or_none(lower),
        upper=_array_or_none(upper),
        latent_mean=_array(mu),
        latent_variance=_array(v),
    )


def _array(values: Float[Tensor, "1 *K N"]) -> np.ndarray:
    """Return the values of the single model as an array."""
    return values[0].cpu().numpy()


def _array_or_none(values: Float[Tensor, "1 *K N"] | None) -> np.ndarray | None:
    """Return the values of the single model as an array, and None for None."""
    return None if values is None else _array(values)
