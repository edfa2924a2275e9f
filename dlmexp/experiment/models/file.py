"""A trained cell as arrays, and as the bytes of one `.npz` file: q, hyperparameters, inducing
inputs, normalisation, names of columns. Read without pickle, and checked before use. Which models
of a results folder are meant: by their fields, and by the best validation NLL."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
from jaxtyping import Float

from dlmexp.common.console import counted
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import content, json_value, read_npz
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Normalisation
from dlmexp.experiment.plan.cell import FIELDS, FIRST_OPTIONS, SHARED, Cell
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import check_values, named, parse_terms
from dlmexp.experiment.records.store import MODEL

FORMAT = 1
ABOUT, HYPER = "about", "hyper."
# What can be asked for: the fields of a cell, and what else is known of its record.
ASKED_FOR = (
    "key",
    "method",
    "protocol",
    *(name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options"),
)
ALIKE = [
    name for name in SHARED if name != "options"
]  # what models of one mixture share, with their options
SHOWN = 8
TRAIN = (
    "give the command of that run with results= a new folder (keep=all for models at every beta)"
)


@dataclass(frozen=True)
class TrainedCell:
    """What predictions of one cell need. q(w) = N(m, L L^T) in whitened coordinates (docs/SPEC.md,
    section 1), on features that `normalisation` was applied to; targets are `y_mean + y_std * y` of
    what it predicts."""

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
    """The bytes of a `.npz` file. Of L, which is made triangular if it is not, only the lower
    triangle is written."""
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
        raise UserError(
            f"'{path}' can't be used as a model: {getattr(why, 'strerror', why)}"
        ) from None


def decoded(content: bytes) -> TrainedCell:
    """The model of a file's bytes; `Unreadable` says what is wrong with one that is not sound."""
    arrays = read_npz(content)
    if ABOUT not in arrays:
        raise Unreadable("it is not a model: it does not say what it is about")
    about = json_value(arrays.pop(ABOUT).tobytes(), About)
    if about.format > FORMAT:
        raise Unreadable(
            f"it has format {about.format}, from a newer dlmexp (this one reads up to {FORMAT})"
        )
    hyper = {
        name.removeprefix(HYPER): value for name, value in arrays.items() if name.startswith(HYPER)
    }
    _check(about, arrays)
    M = about.cell.M
    L = np.zeros((M, M), arrays["L"].dtype)
    L[np.tril_indices(M)] = arrays["L"]
    normalisation = Normalisation(arrays["X_mean"], arrays["X_std"], arrays["X_constant"])
    return TrainedCell(
        cell=about.cell, schema=about.schema, normalisation=normalisation, y_mean=about.y_mean, y_std=about.y_std,
        hyper=hyper, m=arrays["m"], L=L, jitter=float(arrays["jitter"]),
    )  # fmt: skip


def _check(about: About, arrays: dict[str, np.ndarray]) -> None:
    """Every array there, of the shape that cell and schema ask for, and finite. (Kernel and
    likelihood check theirs when predictions are made.)"""
    M, D = about.cell.M, len(about.schema.features)
    shapes = {name: value.shape for name, value in arrays.items() if name.startswith(HYPER)}
    shapes |= {
        "m": (M,),
        "L": (M * (M + 1) // 2,),
        "jitter": (),
        HYPER + "Z": (M, D),
        HYPER + "mean": (),
    }
    shapes |= dict.fromkeys(("X_mean", "X_std", "X_constant"), (D,))
    for name in (*shapes, *arrays):
        value, kind = arrays.get(name, np.array("")), "b" if name == "X_constant" else "f"
        if (
            value.shape != shapes.get(name)
            or value.dtype.kind != kind
            or not np.isfinite(value).all()
        ):
            raise Unreadable(
                f"its array '{name}' is not that of a model: {shapes.get(name)} finite numbers"
            )
    if not (arrays["X_std"] > 0).all() or not about.y_std > 0 or not arrays["jitter"] >= 0:
        raise Unreadable("a standard deviation or the jitter in it is not positive")


def lower_triangular(L: Float[np.ndarray, "M M"]) -> Float[np.ndarray, "M M"]:
    """The lower triangular square root of L L^T: L itself, or, where an objective gave another
    root, by QR."""
    if not np.triu(L, 1).any():
        return L
    R: Any = np.linalg.qr(L.T, mode="r")
    return (R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]).T


class Chosen(NamedTuple):
    """A model, its row in `results.candidates`, and in words: its key, what was trained on what,
    why it was chosen."""

    row: Any
    model: TrainedCell
    words: str


def choose_models(
    results: ResultsFolder, where: Sequence[str], every_seed: bool = False, option: str = "--where"
) -> list[Chosen]:
    """The model with the best validation NLL among those that match all terms; with `every_seed`,
    the best one of every seed that was trained in the same way. `option` is how the user has given
    the terms."""
    folder, wanted = results.root, parse_terms(option, where, ASKED_FOR)
    rows = results.candidates
    with_model = (
        rows["key"].isin(results.keys_with_models())
        & (rows["status"] == "done")
        & ("model" in rows)
    )
    if not with_model.any():
        raise UserError(f"there are no models in '{folder}': {TRAIN}")
    matching = rows
    for name, texts in wanted.items():
        if name == "key":
            matching = matching[matching["key"].str.startswith(tuple(texts))]
        else:
            check_values(option, name, texts, matching[name].unique())
            matching = matching[named(matching[name], texts)]
        if matching.empty:
            raise UserError(f"{option} {name}={','.join(texts)}: no record has this value")
    matching = matching.drop_duplicates("key")
    kept = matching[with_model[matching.index]]
    if kept.empty:
        without = f"which {counted(len(matching), 'record')} without a model would"
        raise UserError(f"no model in '{folder}' matches {' '.join(where)}, {without}: {TRAIN}")
    datasets = sorted(kept["dataset"].unique())
    if len(datasets) > 1:
        raise UserError(
            f"'{folder}' has models of several datasets: choose with {option} dataset={'|'.join(datasets)}"
        )
    best = _best(kept, option)
    if every_seed:
        if {"seed", "key"} & wanted.keys():
            raise UserError(
                f"{option} {' '.join(where)}: the models of all seeds are meant; leave seed= and key= out"
            )
        names = [name for name in (*ALIKE, *FIRST_OPTIONS) if name in kept]
        alike = kept.merge(best[names], on=names)
        best = pd.concat([_best(of_seed, option) for _, of_seed in alike.groupby("seed")])
    chosen = []
    for row in best.itertuples():
        model = load_model(results, row)
        methods = "|".join(sorted(rows.loc[rows["key"] == row.key, "method"].unique()))
        chosen.append(
            Chosen(row, model, f"{row.key} ({model.cell.describe()}, {methods}; {row.why})")
        )
    return chosen


def load_model(results: ResultsFolder, row: Any) -> TrainedCell:
    """The model of a row of `results.candidates`; UserError for a file that is not sound."""
    try:
        model = decoded(results.beside(row.dataset, row.key, MODEL, row.model))
        if model.cell.key != row.key:
            raise Unreadable("it is that of another cell")
    except Unreadable as why:
        path = results.path(row.dataset, row.key, MODEL, row.model)
        raise UserError(f"'{path}' can't be used: {why}; {TRAIN}") from None
    return model


def _best(rows: pd.DataFrame, option: str) -> pd.DataFrame:
    """By validation NLL in own units: on the normalised scale, sizes and seeds have units of their
    own. MSE where there is no NLL (square loss); the only one where there are no validation rows.
    Its column `why` says so in words."""
    unit = rows["y_std"].fillna(1.0)
    for metric, in_own_units in (
        ("nll", lambda v: v + np.log(unit)),
        ("mse", lambda v: v * unit**2),
    ):
        name = f"validation_{metric}"
        scores = in_own_units(rows[name]) if name in rows else pd.Series(np.nan, index=rows.index)
        finite = rows.assign(score=scores)[np.isfinite(scores)].sort_values(["score", "key"])
        if len(finite):
            units = " of targets before scaling" if (unit != 1).any() else ""
            count = f"the best of {len(finite)}" if len(finite) > 1 else "the only model"
            why = f"{count}, validation {metric.upper()} {finite['score'].iloc[0]:.4f}{units}"
            return finite[:1].assign(why=why)
    if len(rows) == 1:
        return rows.assign(why="the only model")
    advice = f"name one with {option} key=KEY, of {', '.join(rows['key'][:SHOWN])}"
    raise UserError(f"none of {len(rows)} models has validation rows to choose by: {advice}")
