"""Rows to predict on are read as rows to train on are: the same file gives the same features, whatever its format."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.models.tables import features, frame_features, open_rows
from dlmexp.reading import streams

ROWS = 60


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=ROWS),
            "sort": rng.choice(["x", "y, with comma", "é"], ROWS),
            "house": rng.integers(1, 4, ROWS),
            "flag": rng.choice([True, False], ROWS),
            "day": pd.date_range("2020-01-01", periods=ROWS).strftime("%Y-%m-%d"),
            "label": rng.choice(["no", "yes"], ROWS),
            "y": rng.normal(size=ROWS),
        }
    )


WAYS = {
    "csv": {},
    "columns in another order": {"columns": ["flag", "sort", "a"]},
    "categories of numbers, dates": {"categories": ["house"], "dates": ["day"], "drop": ["label"]},
    "a separator": {"sep": "semicolon", "drop": ["day"]},
}


def _load(path, **options):
    options = {"path": str(path), "target": "y", **options}
    return load(DatasetSpec("mine", "table", "regression", "regression", options=options), "data")


def _read(path, schema):
    found, row = [], 1
    for piece in open_rows(Path(path), schema)[1]:
        found.append(features(schema, piece, row, str(path)))
        row += piece.num_rows
    return np.concatenate(found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet", ".feather"])
def test_as_in_training(frame, tmp_path, monkeypatch, way, suffix):
    options = {"drop": ["day"], **WAYS[way]}
    if "columns" in options or "dates" in options:
        options = {name: value for name, value in options.items() if name != "drop" or "dates" in options}
    if "sep" in options and suffix in (".parquet", ".feather", ".tsv"):
        pytest.skip("a separator of text files")
    path = tmp_path / f"t{suffix}"
    typed = frame.assign(day=pd.to_datetime(frame["day"]))
    if suffix == ".parquet":
        typed.to_parquet(path)
    elif suffix == ".feather":
        typed.to_feather(path)
    else:
        text = frame.to_csv(index=False, sep=";" if "sep" in options else "\t" if suffix == ".tsv" else ",")
        path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    dataset = _load(path, **options)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 600)
    monkeypatch.setattr(streams, "BLOCK_ROWS", 11)
    np.testing.assert_array_equal(_read(path, dataset.schema), dataset.X)
    np.testing.assert_array_equal(frame_features(dataset.schema, typed), dataset.X)


def test_missing_values_are_filled_where_training_filled_them(frame, tmp_path):
    frame = frame.drop(columns="day").astype({"house": object})
    frame.loc[3, "a"] = np.nan
    frame.loc[5, "sort"] = None
    frame.loc[7, "house"] = "unknown"
    frame.to_csv(tmp_path / "t.csv", index=False)
    dataset = _load(tmp_path / "t.csv", missing="mean", na=["unknown"])
    assert np.isnan(dataset.X).sum() == 4
    np.testing.assert_array_equal(_read(tmp_path / "t.csv", dataset.schema), dataset.X)


def test_arrays(frame):
    from tests.support.models import MIXED

    array = np.array([[1.0, "b", 3.0], [2.0, "a", 4.0]], dtype=object)
    expected = [[1.0, 1.0, 0.0, 3.0], [2.0, 0.0, 0.0, 4.0]]
    np.testing.assert_array_equal(frame_features(MIXED, array), expected)
    with pytest.raises(UserError, match=r"shape \(2, 2\)"):
        frame_features(MIXED, array[:, :2])
    with pytest.raises(UserError, match="row 1, column 'sort': 'q'"):
        frame_features(MIXED, np.array([[1.0, "q", 3.0]], dtype=object))
    with pytest.raises(UserError, match="X has no column 'age'"):
        frame_features(MIXED, pd.DataFrame({"rooms": [1], "sort": ["a"]}))


@pytest.mark.parametrize("after", ["", " 12:30", "T12:30:05.25", "T00:00Z", "T10:00:00+02:00"])
def test_times_of_day_and_offsets_as_in_training(frame, tmp_path, after):
    path = tmp_path / "mine.csv"
    frame[["a", "y"]].assign(day=frame["day"] + after).to_csv(path, index=False)
    data = _load(path, dates=["day"])
    np.testing.assert_array_equal(_read(path, data.schema), data.X)


@pytest.mark.parametrize(
    "days",
    [("2020-01-01", "2020-02-30"), ("2020-01-01T10:00Z", "2020-01-01T10:00"), ("2020-01-01", "2020-01-01T10:00Z")],
)
def test_a_date_that_is_none_after_one_that_is(frame, tmp_path, days):
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    schema = _load(path, dates=["day"], columns=["a", "day"]).schema
    pd.DataFrame({"a": [1.0, 2.0], "day": days}).to_csv(path, index=False)
    with pytest.raises(UserError, match=f"row 2, column 'day': '{days[1]}' is not a date"):
        _read(path, schema)


def test_values_of_several_types_in_memory():
    from tests.support.models import MIXED

    good = pd.DataFrame({"rooms": [1.0, 2.0], "sort": ["a", "b"], "age": [3.0, 4.0]})
    for odd, text in (([1, "old"], "row 2, column 'age': 'old' is not a number"), ([1j, 2j], "row 1, .* '1j' is not")):
        for X in (good.assign(age=odd), good.assign(age=pd.Series(odd, dtype=object)).to_numpy()):
            with pytest.raises(UserError, match=text):
                frame_features(MIXED, X)
    with pytest.raises(UserError, match="row 2, column 'sort': the value is missing"):
        frame_features(MIXED, good.assign(sort=["a", np.nan]).astype(object).to_numpy())
    sparse = good.assign(age=pd.arrays.SparseArray([3.0, 4.0]))
    np.testing.assert_array_equal(frame_features(MIXED, sparse), frame_features(MIXED, good))
