"""The airline preprocessing on synthetic flights that need every step of it."""

import bz2

import numpy as np
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.parsers.airline import FEATURES, manufacture_years
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError

HEADER = "Year,Month,DayofMonth,DayOfWeek,DepTime,ArrTime,TailNum,AirTime,ArrDelay,Distance,Cancelled,Diverted"
KEPT = ["2008,1,3,4,2003,2211,N712SW,116,-14,810,0,0", "2008,4,30,3,754,1002,N772SW,113,2,810,0,0"]
DROPPED = [
    "2008,5,1,4,754,1002,N772SW,113,2,810,0,0",  # May
    "2008,1,3,4,NA,NA,N712SW,NA,NA,810,1,0",  # cancelled
    "2008,1,3,4,2003,2211,N712SW,116,-14,810,1,0",  # cancelled, although complete
    "2008,1,3,4,2003,2211,N712SW,116,-14,810,0,1",  # diverted
    "2008,1,3,4,2003,NA,N712SW,116,-14,810,0,0",  # a gap
    "2008,1,3,4,2003,2211,N712SW,116,NA,810,0,0",  # no delay
    "2008,1,3,4,2003,2211,N000XX,116,-14,810,0,0",  # built in year 0000
    "2008,1,3,4,2003,2211,NNONE,116,-14,810,0,0",  # built in None
    "2008,1,3,4,2003,2211,NEMPTY,116,-14,810,0,0",  # no year
    "2008,1,3,4,2003,2211,NABSENT,116,-14,810,0,0",  # not in plane-data
    "2008,1,3,4,2003,2211,NA,116,-14,810,0,0",  # no tail number
]
PLANES = (
    "tailnum,type,issue_date,year\nN712SW,Corporation,01/01/1998,1998\nN772SW,Corporation,,2000\n"
    "N000XX,,,0000\nNNONE,,,None\nNEMPTY,,,\n"
)
EXPECTED = np.array([[1, 3, 4, 2003, 2211, 116, 810, 10], [4, 30, 3, 754, 1002, 113, 810, 8]], dtype=float)


def airline(*names: str) -> DatasetSpec:
    files = tuple(FileSpec(f"airline/{name}") for name in names)
    return DatasetSpec("airline", "airline", "binary", "airline", rows=2, features=8, files=files)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "airline").mkdir()
    (tmp_path / "airline" / "plane-data.csv").write_text(PLANES)
    return tmp_path / "airline"


@pytest.mark.parametrize("packed", [True, False])
def test_preprocessing_of_data_expo(folder, packed):
    text = "\n".join([HEADER, KEPT[0], *DROPPED, KEPT[1]]).encode()
    name = "2008.csv.bz2" if packed else "2008.csv"
    (folder / name).write_bytes(bz2.compress(text) if packed else text)
    dataset = load(airline(name, "plane-data.csv"), folder.parent)
    assert np.array_equal(dataset.X, EXPECTED)
    assert dataset.y.tolist() == [0.0, 1.0]
    assert dataset.facts["features"] == list(FEATURES)


def test_a_table_of_the_features_in_any_order(folder):
    columns = [*reversed(FEATURES), "Year", "ArrDelay"]
    lines = [",".join(columns)]
    for row, delay in zip(EXPECTED, (0, 0.5), strict=True):
        lines.append(",".join(str(v) for v in [*reversed(row.tolist()), 2008, delay]))
    (folder / "airline.csv").write_text("\n".join(lines))
    dataset = load(airline("airline.csv"), folder.parent)
    assert np.array_equal(dataset.X, EXPECTED)
    assert dataset.y.tolist() == [0.0, 1.0]  # a flight exactly on time is not late


def test_a_table_without_a_column_is_refused(folder):
    (folder / "airline.csv").write_text("Month,ArrDelay\n1,2\n")
    with pytest.raises(UserError, match=r"airline.csv is not a CSV with the columns .*DayofMonth"):
        load(airline("airline.csv"), folder.parent)


def test_a_missing_value_is_named(folder):
    (folder / "airline.csv").write_text(",".join([*FEATURES, "ArrDelay"]) + "\n1,2,3,4,5,6,7,8,9\n1,2,3,,5,6,7,8,-9\n")
    with pytest.raises(UserError, match="row 2, feature 4 is nan"):
        load(airline("airline.csv"), folder.parent)


def test_a_table_without_rows_is_refused(folder):
    (folder / "airline.csv").write_text(",".join([*FEATURES, "ArrDelay"]) + "\n")
    with pytest.raises(UserError, match="'rows' failed: expected 2, found none"):
        load(airline("airline.csv"), folder.parent)


def test_years_of_manufacture(folder):
    assert manufacture_years(folder / "plane-data.csv") == {"N712SW": 1998.0, "N772SW": 2000.0}
