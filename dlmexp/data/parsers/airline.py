"""airline: flights of January to April 2008, late or not, from a CSV of the features or from Data Expo 2009."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlmexp.data.archives import open_raw
from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError

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
    blocks = [_arrays(block, [*FEATURES, "ArrDelay"]) for block in tables(path, [*FEATURES, "ArrDelay"])]
    return labelled(blocks)


def data_expo(path: Path, planes: Path, year: int, months: int) -> Parsed:
    """The published recipe: no cancelled or diverted flight, aeroplanes joined by TailNum, those built in year 0 or
    None dropped, plane_age = year - built, months up to `months`, rows with gaps dropped."""
    built = built_years(planes)
    raw = [name for name in FEATURES if name != "plane_age"]
    kept = []
    for block in tables(path, [*raw, "ArrDelay", "Cancelled", "Diverted", "TailNum"], text=["TailNum"]):
        values = _arrays(block, [*raw, "ArrDelay"])
        values = np.insert(values, len(raw), year - looked_up(block["TailNum"], built), axis=1)
        flown = (_arrays(block, ["Cancelled", "Diverted"]) == 0.0).all(axis=1)
        kept.append(values[flown & (values[:, 0] <= months) & ~np.isnan(values).any(axis=1)])
    return labelled(kept)


def built_years(planes: Path) -> dict[str, float]:
    """Year of manufacture by tail number, for the aeroplanes that have one."""
    built: dict[str, float] = {}
    for block in tables(planes, ["tailnum", "year"], text=["tailnum", "year"]):
        for tail, text in zip(block["tailnum"].to_pylist(), block["year"].to_pylist(), strict=True):
            if tail and text and text.isdigit() and int(text) > 0:
                built[tail] = float(text)
    return built


def looked_up(tails: "pa.Array", built: Mapping[str, float]) -> np.ndarray:
    """Year of manufacture for each row, NaN where unknown; each distinct tail number is looked up once."""
    encoded = tails.dictionary_encode()
    years = [built.get(tail, np.nan) for tail in encoded.dictionary.to_pylist()]
    return np.array([*years, np.nan])[encoded.indices.fill_null(len(years)).to_numpy(zero_copy_only=False)]


def labelled(blocks: list[np.ndarray]) -> Parsed:
    """Blocks of [rows, 8 features + ArrDelay] -> the features and whether the flight arrived late."""
    table = np.concatenate([np.empty((0, len(FEATURES) + 1)), *blocks])
    return Parsed(table[:, :-1], (table[:, -1] > 0.0).astype(np.float64), FACTS)


def tables(
    path: Path, columns: list[str], text: list[str] | None = None, member: str | None = None
) -> Iterator["pa.RecordBatch"]:
    """A large CSV with a header, block by block, only the columns asked for: numbers, and `text` ones as strings."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() if name in (text or []) else pa.float64() for name in columns}
    with open_raw(path, member) as stream:
        try:
            yield from csv.open_csv(
                stream,
                read_options=csv.ReadOptions(block_size=1 << 24),
                convert_options=csv.ConvertOptions(
                    column_types=types, include_columns=columns, strings_can_be_null=True
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise UserError(f"{path} is not a CSV with the columns {', '.join(columns)}: {error}") from error


def _arrays(block: "pa.RecordBatch", columns: list[str]) -> np.ndarray:
    return np.column_stack([block[name].to_numpy(zero_copy_only=False) for name in columns])
