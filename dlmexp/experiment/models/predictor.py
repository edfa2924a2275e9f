"""Predictions of a trained model, or of the mixture of several, in the units and labels of the
user's own data; on the rows of a file, which are read, predicted and written in pieces of bounded
memory."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float
from pyarrow import parquet
from torch import Tensor

from dlmexp.common.atomic import replacing
from dlmexp.common.console import raw_stream
from dlmexp.common.errors import UserError
from dlmexp.common.reading.tables import stream_table
from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.kernels import Kernel, kernel_named
from dlmexp.core.gp.posterior import positive
from dlmexp.core.gp.precision import PARAMETERS, as_rows, hyper_as_rows
from dlmexp.core.likelihoods import LIKELIHOODS, Likelihood
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.schema import Schema
from dlmexp.experiment.models.file import TrainedCell

ENTRIES_AT_ONCE = {
    "cpu": 500_000,
    "cuda": 50_000_000,
}  # of the [M, rows] arrays: what a CPU's cache holds
BISECTIONS = 60  # of an interval in float64
USUAL = 0.95  # share of new observations in the interval

Columns = dict[str, np.ndarray]


def checked_kernel(model: TrainedCell) -> Kernel:
    """The kernel of a model; UserError if there is no such kernel or likelihood, or they have other
    parameters."""
    cell, D = model.cell, len(model.schema.features)
    kernel = kernel_named(cell.kernel)
    for name, parameter in {
        **kernel.parameters(D, cell.ard),
        **LIKELIHOODS[cell.likelihood].parameters,
    }.items():
        if name not in model.hyper or model.hyper[name].shape != parameter.shape:
            both = f"its kernel '{cell.kernel}' and likelihood '{cell.likelihood}' ('{name}')"
            raise UserError(
                f"the model of cell {cell.key} does not fit {both}, which have changed: train it again"
            )
    return kernel


class Member:
    """One trained model with its tensors on a device, ready for rows at one product of M x M by M x
    rows.

    With `A = Luu^-1 Kuf` and `L L^T - I = Q diag(w) Q^T`, `C = Q^T A = (Q^T Luu^-1) Kuf` gives `mu
    = mean + (Q^T m) . C_i` and `v = kff + w . C_i^2`. Q is orthogonal, so this is as good as going
    through A (`gp.posterior`)."""

    def __init__(self, model: TrainedCell, device: str = "cpu"):
        self.model = model
        cell, self.kernel = model.cell, checked_kernel(model)

        def tensor(array: np.ndarray | float) -> Tensor:
            return torch.tensor(np.asarray(array)[None], dtype=PARAMETERS, device=device)

        hyper = {name: tensor(value) for name, value in model.hyper.items()}
        m, L, Z = tensor(model.m), tensor(model.L), hyper["Z"]
        Luu_inv = factorise(self.kernel(Z, Z, hyper), tensor(model.jitter)).inverse
        S = L @ L.mT
        S.diagonal(dim1=-2, dim2=-1).sub_(1)
        weights, Q = torch.linalg.eigh(S)  # [1, M], [1, M, M]
        rows = torch.empty(0, dtype=getattr(torch, cell.dtype))
        self.weights, self.P, self.m = as_rows(
            rows, weights, Q.mT @ Luu_inv, (Q.mT @ m.unsqueeze(-1)).squeeze(-1)
        )
        self.hyper = hyper_as_rows(rows, hyper)
        self.likelihood: Likelihood = LIKELIHOODS[cell.likelihood].from_hyper(self.hyper)
        self.rows_at_once = max(1, ENTRIES_AT_ONCE[m.device.type] // cell.M)

    @torch.no_grad()
    def marginals(
        self, X: Float[np.ndarray, "N D"]
    ) -> tuple[Float[Tensor, "1 N"], Float[Tensor, "1 N"]]:
        """mu, v of q(f) at rows before normalisation."""
        mu, v = self.m.new_empty(1, len(X)), self.m.new_empty(1, len(X))
        for first in range(0, len(X), self.rows_at_once):
            piece = slice(first, first + self.rows_at_once)
            normalised = self.model.normalisation.apply(np.array(X[piece], dtype=np.float64))
            rows = torch.from_numpy(normalised).to(self.m)[None]
            C = self.P @ self.kernel(self.hyper["Z"], rows, self.hyper)
            mu[:, piece] = self.hyper["mean"][:, None] + (self.m.unsqueeze(-2) @ C).squeeze(-2)
            kff = self.kernel.diagonal(rows, self.hyper)
            v[:, piece] = positive(
                kff + (self.weights.unsqueeze(-2) @ C.square_()).squeeze(-2), kff
            )
        return mu, v

    def own_units(self, y: Tensor) -> Tensor:
        """Targets, or predictions of them, before normalisation."""
        return y * self.model.y_std + self.model.y_mean


class Predictor:
    """One model, or several of the same columns as a mixture with equal weights."""

    def __init__(self, models: Sequence[TrainedCell], device: str = "cpu"):
        self.members = [Member(model, device) for model in models]
        self.schema = models[0].schema
        self.task = models[0].cell.task
        other = next((model for model in models if model.schema != self.schema), None)
        if other is not None:
            both = f"the models of cells {models[0].cell.key} and {other.cell.key}"
            raise UserError(
                f"{both} make no mixture: their tables have other columns or labels; train them on one"
            )

    @cached_property
    def has_distribution(self) -> bool:
        """Square-loss methods predict a mean and nothing else."""
        return all(
            OBJECTIVES[member.model.cell.objective].predicts_variance for member in self.members
        )

    @torch.no_grad()
    def predict(self, X: Float[np.ndarray, "N D"], level: float = USUAL) -> Columns:
        """For every row [N]: `mean`, `std` and the ends `lower_95` and `upper_95` of the central
        interval that holds `level` of new observations (regression, counts); `label` and a
        probability for each label (binary)."""
        marginals = [member.marginals(X) for member in self.members]
        means = [
            member.likelihood.mean(*at) for member, at in zip(self.members, marginals, strict=True)
        ]
        if self.schema.labels is not None:
            zero, one = self.schema.labels
            second = torch.stack(means).mean(0)[0].cpu().numpy()
            label = np.where(
                second > 0.5, np.array(one, dtype=object), np.array(zero, dtype=object)
            )
            if not isinstance(zero, str):
                label = label.astype(type(zero) if type(zero) is type(one) else float)
            return {"label": label, f"probability_{zero}": 1 - second, f"probability_{one}": second}
        moments = [
            self._moments(*each) for each in zip(self.members, marginals, means, strict=True)
        ]
        mean = torch.stack([own for own, _ in moments]).mean(0)
        values = {"mean": mean}
        if self.has_distribution:
            # Of the mixture: the mean of the variances plus the variance of the means.
            squares = [
                std.square() + (own - mean).square() for own, std in moments if std is not None
            ]
            if len(squares) == len(moments):
                values["std"] = torch.stack(squares).mean(0).sqrt()
            ends = self._interval(marginals, level)
            values |= {name: end.exp() if self.schema.log else end for name, end in ends.items()}
        columns = {name: value[0].cpu().numpy() for name, value in values.items()}
        if self.task == "count":
            columns |= {
                name: ends.astype(np.int64)
                for name, ends in columns.items()
                if name not in ("mean", "std")
            }
        return columns

    def _moments(
        self, member: Member, marginal: tuple[Tensor, Tensor], mean: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Mean and standard deviation of a new observation in own units; of a model of logarithms
        those of a log-normal variable or, where the noise is not Gaussian or not known, the median
        and nothing."""
        own, std = (
            member.own_units(mean),
            member.likelihood.std(*marginal) if self.has_distribution else None,
        )
        std = None if std is None else std * member.model.y_std
        if not self.schema.log:
            return own, std
        if std is None or member.model.cell.likelihood != "gaussian":
            return own.exp(), None
        return (own + std.square() / 2).exp(), (
            own + std.square() / 2
        ).exp() * std.square().expm1().sqrt()

    def _interval(self, marginals: list[tuple[Tensor, Tensor]], level: float) -> dict[str, Tensor]:
        ends = [
            member.likelihood.interval(mu, v)
            for member, (mu, v) in zip(self.members, marginals, strict=True)
        ]
        if any(pair is None for pair in ends):
            return {}
        names = [f"{end}_{100 * level:g}" for end in ("lower", "upper")]
        own = [
            map(member.own_units, pair)
            for member, pair in zip(self.members, ends, strict=True)
            if pair is not None
        ]
        lower, upper = (torch.stack(side) for side in zip(*own, strict=True))
        if len(ends) == 1 and level == USUAL:
            return dict(zip(names, (lower[0], upper[0]), strict=True))

        def cdf(y: Tensor) -> Tensor:
            total = torch.zeros_like(y)
            for member, (mu, v) in zip(self.members, marginals, strict=True):
                total += member.likelihood.cdf(
                    mu, v, (y - member.model.y_mean) / member.model.y_std
                )
            return total / len(self.members)

        # A quantile of a mixture lies between those of its members; those of a wider interval lie
        # further out.
        whole, shares = self.task == "count", ((1 - level) / 2, (1 + level) / 2)
        high, low = upper.amax(0), torch.zeros_like(upper[0]) if whole else lower.amin(0)
        step = (high - low).clamp(min=1 if whole else 1e-9)
        while level > USUAL and bool(
            ((cdf(high) < shares[1]) | (cdf(low) >= shares[0]) & (not whole)).any()
        ):
            low, high, step = low if whole else low - step, high + step, 2 * step
        return {n: quantile(cdf, p, low, high, whole) for n, p in zip(names, shares, strict=True)}


def errors_in_own_units(columns: Columns, targets: Float[np.ndarray, " N"]) -> dict[str, float]:
    """RMSE, MAE, R2 (where targets differ) and the share of rows in their 95 % interval (where
    there is one), of predictions (`Predictor.predict`) and targets in the same units."""
    error, spread = targets - columns["mean"], float(targets.var())
    errors = {"rmse": float(np.sqrt(np.mean(error**2))), "mae": float(np.abs(error).mean())}
    errors |= {"r2": 1 - errors["rmse"] ** 2 / spread} if spread > 0 else {}
    if "lower_95" in columns:
        errors["coverage_95"] = float(
            np.mean((columns["lower_95"] <= targets) & (targets <= columns["upper_95"]))
        )
    return errors


def quantile(
    cdf: Callable[[Tensor], Tensor], share: float, low: Tensor, high: Tensor, whole: bool
) -> Tensor:
    """The least y in [low, high] with cdf(y) >= share, of whole numbers or to rounding, by
    bisection in every row."""
    low = low - 1 if whole else low
    for _ in range(BISECTIONS):
        if whole and not bool((high - low > 1).any()):
            break
        middle = ((low + high) / 2).floor() if whole else (low + high) / 2
        enough = cdf(middle) >= share
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def predict_file(predictor: Predictor, path: Path, out: str, level: float) -> tuple[int, Counter]:
    """Predict on the rows of a file and write its own columns and those of the predictions to
    `out`: CSV, or Parquet by its suffix; `-`: CSV on standard output. The file appears when all is
    written, and not at all after an error. Returns the number of rows, and by column that of
    missing values which the model fills."""
    schema, gaps, rows, writer = predictor.schema, Counter(), 0, None
    text: Any = sys.stdout if sys.stdout.isatty() else raw_stream(sys.stdout)
    with ExitStack() as stack:
        temporary = None if out == "-" else stack.enter_context(replacing(Path(out)))
        if temporary and not out.endswith(".parquet"):
            text = stack.enter_context(open(temporary, "w", encoding="utf-8", newline=""))
        for piece in open_rows(path, schema):
            predictions = predictor.predict(schema.encode(piece, rows + 1, str(path)), level)
            for column in schema.columns:
                values = piece.column(column.name)
                is_gap = pc.is_null(values, nan_is_null=True)  # pyright: ignore[reportAttributeAccessIssue]
                gap_count = pc.sum(is_gap).as_py()  # pyright: ignore[reportAttributeAccessIssue]
                gaps[column.name] += gap_count or 0
            own = dict(zip(piece.schema.names, piece.columns, strict=True))
            if both := sorted(own.keys() & predictions.keys()):
                raise UserError(f"{path} has a column '{both[0]}', as predictions have: rename it")
            table = pa.table({**own, **predictions})
            if out.endswith(".parquet"):
                writer = writer or stack.enter_context(
                    parquet.ParquetWriter(temporary, table.schema)
                )
                writer.write_table(table)
            else:  # only what needs quotes has them
                frame = table.to_pandas(types_mapper=pd.ArrowDtype)
                text.write(frame.to_csv(index=False, header=not rows, lineterminator="\n"))
            rows += table.num_rows
        if not rows:
            raise UserError(f"{path} has columns but no rows")
    return rows, gaps


def open_rows(path: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in pieces, with all of its columns."""
    names, pieces = stream_table(path, schema.sep, schema.na)
    schema.check_columns(names, str(path))
    return pieces
