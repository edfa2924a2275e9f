"""A trained cell as arrays, and as the bytes of one `.npz` file: q, hyperparameters, inducing inputs, normalisation,
names of columns. Read without pickle, and checked before use."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.data.schema import Schema
from dlmexp.data.splits import Normalisation
from dlmexp.errors import Unreadable, UserError
from dlmexp.plan.cell import Cell
from dlmexp.reading.arrays import unpack_arrays
from dlmexp.reading.files import content, typed_json

FORMAT = 1
ABOUT, HYPER = "about", "hyper."


@dataclass(frozen=True)
class TrainedCell:
    """What predictions of one cell need. q(w) = N(m, L L^T) in whitened coordinates (docs/SPEC.md, section 1), on
    features that `normalisation` was applied to; targets are `y_mean + y_std * y` of what it predicts."""

    cell: Cell
    schema: Schema
    normalisation: Normalisation
    y_mean: float
    y_std: float
    hyper: dict[str, np.ndarray]  # Z [M, D], mean [], and what kernel and likelihood declare
    m: Float[np.ndarray, " M"]
    L: Float[np.ndarray, "M M"]
    jitter: float


class About(msgspec.Struct):
    """The part of a model that is not arrays."""

    format: int
    cell: Cell
    schema: Schema
    y_mean: float
    y_std: float


def encoded(model: TrainedCell) -> bytes:
    """The bytes of a `.npz` file. Of L, which is made triangular if it is not, only the lower triangle is written."""
    about = About(FORMAT, model.cell, model.schema, model.y_mean, model.y_std)
    L = lower_triangular(model.L)
    arrays = {
        ABOUT: np.frombuffer(msgspec.json.encode(about), dtype=np.uint8),
        "m": model.m,
        "L": L[np.tril_indices(len(L))],
        "jitter": np.float64(model.jitter),
        "X_mean": model.normalisation.mean,
        "X_std": model.normalisation.std,
        "X_constant": model.normalisation.constant,
        **{HYPER + name: value for name, value in model.hyper.items()},
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def load_file(path: Path) -> TrainedCell:
    """The model in a file, which holds all that predictions need, the schema of tables included."""
    try:
        return decoded(content(path))
    except (Unreadable, OSError) as why:
        raise UserError(f"'{path}' can't be used as a model: {getattr(why, 'strerror', why)}") from None


def decoded(content: bytes) -> TrainedCell:
    """The model of a file's bytes; `Unreadable` says what is wrong with one that is not sound."""
    arrays = unpack_arrays(content)
    if ABOUT not in arrays:
        raise Unreadable("it is not a model: it does not say what it is about")
    about = typed_json(arrays.pop(ABOUT).tobytes(), About)
    if about.format > FORMAT:
        raise Unreadable(f"it has format {about.format}, from a newer dlmexp (this one reads up to {FORMAT})")
    hyper = {name.removeprefix(HYPER): value for name, value in arrays.items() if name.startswith(HYPER)}
    _check(about, arrays)
    M = about.cell.M
    L = np.zeros((M, M), arrays["L"].dtype)
    L[np.tril_indices(M)] = arrays["L"]
    normalisation = Normalisation(arrays["X_mean"], arrays["X_std"], arrays["X_constant"])
    return TrainedCell(
        about.cell, about.schema, normalisation, about.y_mean, about.y_std, hyper, arrays["m"], L,
        float(arrays["jitter"]),
    )  # fmt: skip


def _check(about: About, arrays: dict[str, np.ndarray]) -> None:
    """Every array there, of the shape that cell and schema ask for, and finite. (Kernel and likelihood check theirs
    when predictions are made.)"""
    M, D = about.cell.M, len(about.schema.features)
    shapes = {"m": (M,), "L": (M * (M + 1) // 2,), "jitter": (), HYPER + "Z": (M, D), HYPER + "mean": ()}
    shapes |= dict.fromkeys(("X_mean", "X_std", "X_constant"), (D,))
    for name, shape in shapes.items():
        if name not in arrays:
            raise Unreadable(f"it has no array '{name}'")
        if arrays[name].shape != shape:
            raise Unreadable(f"its array '{name}' has shape {arrays[name].shape}, not {shape}")
    for name, value in arrays.items():
        if name not in shapes and not name.startswith(HYPER):
            raise Unreadable(f"it has an array '{name}' that no model has")
        if value.dtype.kind != ("b" if name == "X_constant" else "f"):
            raise Unreadable(f"its array '{name}' has type {value.dtype}")
        if not np.isfinite(value).all():
            raise Unreadable(f"its array '{name}' is not finite")
    if not (arrays["X_std"] > 0).all() or not about.y_std > 0 or not arrays["jitter"] >= 0:
        raise Unreadable("a standard deviation or the jitter in it is not positive")


def lower_triangular(L: Float[np.ndarray, "M M"]) -> Float[np.ndarray, "M M"]:
    """The lower triangular square root of L L^T: L itself, or, where an objective gave another root, by QR."""
    if not np.triu(L, 1).any():
        return L
    R: Any = np.linalg.qr(L.T, mode="r")
    return (R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]).T
