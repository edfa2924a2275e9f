"""airline: late arrival of US flights, January to April 2008, from a CSV of the features or from Data Expo 2009."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.reading.tables import csv_chunks

if TYPE_CHECKING:
    import pyarrow as pa

FEATURES = ("Month", "DayofMonth", "DayOfWeek", "DepTime", "ArrTime", "AirTime", "Distance", "plane_age")
FACTS = {"features": list(FEATURES)}


@parser("airline")
def airline(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """A CSV with the eight features and ArrDelay, or `2008.csv[.bz2]` joined with `plane-data.csv`."""
    by_name = {Path(name).name: path for name, path in files.items()}
    if planes := by_name.pop("plane-data.csv", None):
        (path,) = by_name.values()
        return data_expo(path, planes, year=2008, months=4)
    (path,) = by_name.values()
    columns = [*FEATURES, "ArrDelay"]
    return with_late_labels([_to_array(chunk, columns) for chunk in csv_chunks(path, columns)])


def data_expo(path: Path, planes: Path, year: int, months: int) -> Parsed:
    """The published preprocessing: drops cancelled and diverted flights, joins the planes by TailNum, drops those with
    year of manufacture 0 or None, plane_age = year - year of manufacture, keeps months 1 to `months`, drops rows with
    missing values."""
    built = manufacture_years(planes)
    raw = [name for name in FEATURES if name != "plane_age"]
    kept = []
    for chunk in csv_chunks(path, [*raw, "ArrDelay", "Cancelled", "Diverted", "TailNum"], text=["TailNum"]):
        values = _to_array(chunk, [*raw, "ArrDelay"])
        values = np.insert(values, len(raw), year - years_by_row(chunk["TailNum"], built), axis=1)
        flown = (_to_array(chunk, ["Cancelled", "Diverted"]) == 0.0).all(axis=1)
        kept.append(values[flown & (values[:, 0] <= months) & ~np.isnan(values).any(axis=1)])
    return with_late_labels(kept)


def manufacture_years(planes: Path) -> dict[str, float]:
    """Year of manufacture by tail number, for the planes that have one."""
    built: dict[str, float] = {}
    for chunk in csv_chunks(planes, ["tailnum", "year"], text=["tailnum", "year"]):
        for tail, text in zip(chunk["tailnum"].to_pylist(), chunk["year"].to_pylist(), strict=True):
            if tail and text and text.isascii() and text.isdigit() and float(text) > 0:
                built[tail] = float(text)
    return built


def years_by_row(tails: "pa.Array", built: Mapping[str, float]) -> np.ndarray:
    """Year of manufacture of the plane of each row, NaN where unknown."""
    encoded = tails.dictionary_encode()
    years = [built.get(tail, np.nan) for tail in encoded.dictionary.to_pylist()]
    return np.array([*years, np.nan])[encoded.indices.fill_null(len(years)).to_numpy(zero_copy_only=False)]


def with_late_labels(chunks: list[np.ndarray]) -> Parsed:
    """X and y from chunks of [rows, 8 features + ArrDelay]: y is 1 if the flight arrived late (ArrDelay > 0)."""
    table = np.concatenate([np.empty((0, len(FEATURES) + 1)), *chunks])
    return Parsed(table[:, :-1], (table[:, -1] > 0.0).astype(np.float64), FACTS)


def _to_array(chunk: "pa.RecordBatch", columns: list[str]) -> np.ndarray:
    return np.column_stack([chunk[name].to_numpy(zero_copy_only=False) for name in columns])
