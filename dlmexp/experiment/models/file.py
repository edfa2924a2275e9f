"""A trained cell as arrays, and as the bytes of one `.npz` file.

The file has q, hyperparameters, inducing inputs, normalisation and the names of columns. It is read
without pickle, which could run code that is hidden in the file. Its arrays are checked before use.
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import json_value, read_content, read_npz
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Normalisation
from dlmexp.experiment.plan.cell import Cell

FORMAT = 1
"""The version of the format, increased when models must be read differently."""
HEADER_ARRAY = "about"
"""The name of the array that contains the `Header` as JSON."""
HYPER_PREFIX = "hyper."
"""Prefix of the names of the arrays of hyperparameters."""


@dataclass(frozen=True)
class TrainedCell:
    """A trained cell with everything that predictions need.

    Attributes:
        cell: The cell.
        schema: The columns of the data.
        normalisation: The normalisation of the features.
        y_mean: The mean by which training targets were normalised.
        y_std: The standard deviation by which training targets were normalised.
        hyper: The inducing inputs Z [M, D], the prior mean [], and the hyperparameters of kernel
            and likelihood.
        m: The mean of q(w) = N(m, L L^T) in whitened coordinates (docs/SPEC.md, section 1). If q is
            a mixture of K Gaussians, m and L have a leading dimension K.
        L: The factor of the covariance of q(w).
        jitter: The number that is added to the diagonal of Kuu, relative to the diagonal's mean.
    """

    cell: Cell
    schema: Schema
    normalisation: Normalisation
    y_mean: float
    y_std: float
    hyper: dict[str, np.ndarray]
    m: Float[np.ndarray, "*K M"]
    L: Float[np.ndarray, "*K M M"]
    jitter: float

    @property
    def is_mixture(self) -> bool:
        """Return whether q is a mixture of several Gaussians."""
        return self.cell.components > 1


class Header(msgspec.Struct):
    """Everything in a model's file but the arrays."""

    format: int
    cell: Cell
    schema: Schema
    y_mean: float
    y_std: float


def encoded(model: TrainedCell) -> bytes:
    """Return a model as the bytes of a `.npz` file.

    L is replaced by the lower triangular square root of the same covariance, and only its lower
    triangle is written.
    """
    header = Header(FORMAT, model.cell, model.schema, model.y_mean, model.y_std)
    L = lower_triangular(model.L)
    rows, columns = np.tril_indices(model.cell.M)
    arrays = {
        HEADER_ARRAY: np.frombuffer(msgspec.json.encode(header), dtype=np.uint8),
        "m": model.m,
        "L": L[..., rows, columns],
        "jitter": np.float64(model.jitter),
        "X_mean": model.normalisation.mean,
        "X_std": model.normalisation.std,
        "X_constant": model.normalisation.constant,
    }
    for name, value in model.hyper.items():
        arrays[HYPER_PREFIX + name] = value
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def load_file(path: Path) -> TrainedCell:
    """Return the model in a file.

    Raises:
        UserError: the file cannot be read, or is not sound.
    """
    try:
        return decoded(read_content(path))
    except (Unreadable, OSError) as error:
        # The text of an error of the system repeats the path; its `strerror` is the reason alone.
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"'{path}' can't be used as a model: {reason}") from None


def decoded(content: bytes) -> TrainedCell:
    """Return the model of a file's bytes.

    Raises:
        Unreadable: the file is not sound; the message says why.
    """
    arrays = read_npz(content)
    if HEADER_ARRAY not in arrays:
        raise Unreadable(f"it is not a model: it has no array '{HEADER_ARRAY}'")
    header = json_value(arrays.pop(HEADER_ARRAY).tobytes(), Header)
    if header.format > FORMAT:
        newer = f"it has format {header.format}, from a newer dlmexp"
        raise Unreadable(f"{newer} (this one reads up to {FORMAT})")
    _check_arrays(header, arrays)
    M = header.cell.M
    lower_triangle = arrays["L"]
    rows, columns = np.tril_indices(M)
    L = np.zeros((*_leading_dimensions(header.cell), M, M), lower_triangle.dtype)
    L[..., rows, columns] = lower_triangle
    hyper = {}
    for name, value in arrays.items():
        if name.startswith(HYPER_PREFIX):
            hyper[name.removeprefix(HYPER_PREFIX)] = value
    return TrainedCell(
        cell=header.cell,
        schema=header.schema,
        normalisation=Normalisation(arrays["X_mean"], arrays["X_std"], arrays["X_constant"]),
        y_mean=header.y_mean,
        y_std=header.y_std,
        hyper=hyper,
        m=arrays["m"],
        L=L,
        jitter=float(arrays["jitter"]),
    )


def _check_arrays(header: Header, arrays: dict[str, np.ndarray]) -> None:
    """Check that arrays are complete, finite, and of the shapes that follow from cell and schema.

    Hyperparameters other than `Z` and `mean` may have any shape here: their shapes depend on kernel
    and likelihood, and are checked when the model is used (`predictor.checked_kernel`).

    Raises:
        Unreadable: an array is missing, unknown or not sound.
    """
    required = _required_shapes(header)
    for name in required:
        if name not in arrays:
            raise Unreadable(f"it has no array '{name}', which every model has")
    for name, array in arrays.items():
        if name in required:
            _check_array(name, array, required[name])
        elif name.startswith(HYPER_PREFIX):
            _check_array(name, array, array.shape)
        else:
            raise Unreadable(f"it has an array '{name}', which no model has")
    if not math.isfinite(header.y_mean) or not math.isfinite(header.y_std):
        raise Unreadable("the mean or the standard deviation of its targets is not finite")
    deviations = [*arrays["X_std"], header.y_std]
    if min(deviations) <= 0:
        raise Unreadable("a standard deviation in it is not positive")
    if arrays["jitter"] < 0:
        raise Unreadable("its jitter is negative")


def _required_shapes(header: Header) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that every model has, by name."""
    M = header.cell.M
    D = len(header.schema.features)
    leading = _leading_dimensions(header.cell)
    n_lower = M * (M + 1) // 2  # entries of a lower triangle
    return {
        "m": (*leading, M),
        "L": (*leading, n_lower),
        "jitter": (),
        HYPER_PREFIX + "Z": (M, D),
        HYPER_PREFIX + "mean": (),
        "X_mean": (D,),
        "X_std": (D,),
        "X_constant": (D,),
    }


def _leading_dimensions(cell: Cell) -> tuple[int, ...]:
    """Return the leading dimensions of m and L: (K,) for a mixture, () for a single Gaussian."""
    return (cell.components,) if cell.components > 1 else ()


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Check that an array has this shape, the type that belongs to its name, and finite values.

    `X_constant` is an array of booleans; all others are arrays of floating-point numbers.

    Raises:
        Unreadable: the array is not sound.
    """
    if name == "X_constant":
        dtype_kind = "b"
        content = "booleans"
    else:
        dtype_kind = "f"
        content = "floating-point numbers"
    if array.shape != shape or array.dtype.kind != dtype_kind:
        raise Unreadable(
            f"its array '{name}' is {array.dtype} of shape {array.shape}: "
            f"a model has {content} of shape {shape} there"
        )
    if not np.isfinite(array).all():
        raise Unreadable(f"its array '{name}' has values that are not finite")


def lower_triangular(L: Float[np.ndarray, "*K M M"]) -> Float[np.ndarray, "*K M M"]:
    """Return the lower triangular square root of L L^T, for every component.

    Some objectives train a square root L that is not triangular. With L^T = Q R, L L^T is R^T R, so
    R^T is a triangular square root. It remains one if columns change their sign: each column gets
    the sign for which its entry on the diagonal is not negative.
    """
    if not np.triu(L, 1).any():
        return L
    R: Any = np.linalg.qr(np.swapaxes(L, -1, -2), mode="r")
    diagonal = np.diagonal(R, axis1=-2, axis2=-1)
    signs = np.where(diagonal < 0, -1.0, 1.0)
    return np.swapaxes(R * signs[..., None], -1, -2)
