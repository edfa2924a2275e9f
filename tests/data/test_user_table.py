"""A user's own table: what can be said about it, and how its rows are divided."""

import numpy as np
import pandas as pd
import pytest

from dlmexp.common.errors import UserError
from dlmexp.common.literals import csv_setting
from dlmexp.data.config import DatasetConfig
from dlmexp.data.splits import prepare, split
from tests.support.user_tables import (
    BINARY,
    DATES,
    LABEL,
    ROWS,
    VALUES,
    lacking,
    loaded,
    refused,
    written,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def test_the_same_data_in_every_format(tmp_path, path):
    plain = loaded(written(path)).checksum
    for name, sep, word in (("t.tsv", "\t", None), ("t.tsv.gz", "\t", None), ("t.parquet", "", None),
                            ("u.csv", ";", "semicolon"), ("w.csv", " ", "space")):  # fmt: skip
        assert loaded(written(tmp_path / name, sep), sep=word).checksum == plain, name
    text = path.read_text()
    for other in (text.replace("\n", "\r\n"), "\ufeff" + text + "\n\n"):
        path.write_bytes(other.encode())
        assert loaded(path).checksum == plain


@pytest.mark.parametrize(("content", "word"), [
    ("größe,y\n1,2\n".encode("latin-1"), "UTF-8"),
    ("a,y\nü,2\nö,4\n".encode("latin-1"), "UTF-8"), (b"a;b;y\n1;2;3\n", "csv.sep=semicolon"),
    (b"a,y\n", "no rows"), (b"a,y\n1,2\n3\n", "Expected 2 columns, got 1"), (b"", "t.csv"),
    (b"a,a,y\n1,2,3\n", "called a"), (b"y\n1\n2\n", "no feature"), (b"0.5,1,2\n1,2,3\n", "'y': valid: 0.5, 1, 2"),
    (b"x" * 3 + b"," * 20_001 + b"\n", "20002 columns"),
])  # fmt: skip
def test_files_that_are_no_tables_are_refused(path, content, word):
    path.write_bytes(content)
    refused("t.csv", word, path=path)


def test_damaged_files_and_other_endings_are_refused(tmp_path):
    packed = written(tmp_path / "t.csv.gz")
    packed.write_bytes(packed.read_bytes()[:-40])
    refused("t.csv.gz", "damaged", path=packed)
    for name in ("t.parquet", "t.xlsx"):
        (tmp_path / name).write_bytes(b"PAR1 not really")
        refused(name, path=tmp_path / name)
    refused("none.csv", path=tmp_path / "none.csv")
    refused("csv.path=FILE", path="")
    refused("csv.test=none.csv", path=written(tmp_path / "t.csv"), test="none.csv")


@pytest.mark.parametrize(("options", "words"), [
    ({"drop": ["hose"]}, ["csv.drop", "'hose'", "house"]), ({"columns": ["c"]}, ["csv.columns", "'c'"]),
    ({"dropp": ["a"]}, ["'dropp'", "drop"]), ({"target": "z"}, ["csv.target=z"]), ({"target": None}, ["csv.target"]),
    ({"sep": ";;"}, ["csv.sep=;;"]), ({"missing": "zero"}, ["csv.missing=zero", "level"]),
    ({"split": "group"}, ["csv.by"]), ({"by": "house"}, ["csv.split"]), ({"log": "maybe"}, ["log"]),
    ({"split": "group", "by": "haus"}, ["'haus'", "house"]), ({"log": True}, ["csv.log", "row"]),
])  # fmt: skip
def test_mistakes_in_the_options_are_named(path, options, words):
    refused(*words, path=written(path), **options)


def test_columns_drop_and_categories(path):
    written(path, month=np.arange(1, 7), name=[f"n{k}" for k in range(7)])
    assert loaded(path, columns=["b", "a", "y", "day"], drop=["day"]).schema.features == ("b", "a")
    refused("'name'", "7 distinct", "csv.drop=[name]", "csv.categories=[name]", path=path)
    assert loaded(path, categories=["name"]).schema.categories == (8,)
    data = loaded(path, drop=["name"], categories=["month"])
    months = (*range(1, 7), "(other)")
    assert data.schema.features[-7:] == tuple(f"month={k}" for k in months)
    assert data.facts["left_out"] == ["column 'name'"]
    large = written(path, code=[10000001, 10000002, 2000000], y=[1000000, 1000001])
    data = loaded(large, **BINARY, categories=["code"])
    assert data.schema.features[-3:] == ("code=10000002", "code=2000000", "code=(other)")
    assert data.schema.labels == (1000000, 1000001)


def test_missing_values(path):
    gaps = {**lacking("a", 3, 7), "kind": ["" if k % 9 == 0 else "uv"[k % 2] for k in range(ROWS)]}
    refused(
        "row 1",
        "'kind'",
        "9 in all",
        "csv.missing=drop",
        "csv.missing=mean",
        path=written(path, **gaps),
    )
    dropped = loaded(path, missing="drop")
    assert len(dropped.y) == ROWS - 9
    assert "9 rows" in dropped.facts["left_out"][0]
    filled, level = loaded(path, missing="mean"), loaded(path, missing="level")
    assert np.isnan(filled.X[[3, 7], 0]).all()
    assert [np.isnan(data.X).any(axis=1).sum() for data in (filled, level)] == [2, 2]
    assert filled.X[:, -1].sum() == 7
    assert level.schema.columns[-1].levels == ("u", "v", "(missing)")
    assert level.X[0, -3:].tolist() == [0, 1, 0]
    no_target = written(path, **lacking("y", 5, word="NA"))
    refused("row 6", "'y'", "Remedy: csv.missing=drop", path=no_target, missing="mean")
    refused("row 1", "'b'", "60 in all", path=written(path, b=[""]))
    assert "'b' is the same" in loaded(path, missing="mean").facts["warnings"][0]


def test_the_mean_is_that_of_the_training_rows(path):
    """A missing value is 0 after normalisation: what it would be if the mean of the n training rows
    stood there."""
    data = loaded(written(path, **lacking("a", *range(0, ROWS, 4))), missing="mean")
    rows = split(ROWS, "regression", 1, None, data.arrangement).train[:20]
    known = VALUES["a"][[row for row in rows if row % 4]]
    column = np.where(np.arange(ROWS) % 4 == 0, known.mean(), VALUES["a"])
    prepared = prepare(data, DatasetConfig("m", "table", "regression", split="regression"), 1, 20)
    np.testing.assert_allclose(
        prepared.X_train[:, 0], (column[rows] - known.mean()) / known.std(), atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "file"), [("", "t.csv"), ("Unnamed: 0", "t.csv"), ("__index_level_0__", "t.parquet")]
)
def test_a_column_without_a_name_is_no_feature_unless_asked_for(tmp_path, name, file):
    path = written(tmp_path / file, **{name: VALUES["day"]})
    refused(csv_setting("drop", ["a", name]), path=path, drop=["a"])
    assert name not in loaded(path, drop=[name]).schema.features
    assert loaded(path, columns=["a", name]).schema.features == ("a", name)
    path = written(tmp_path / file, **{name: range(ROWS)})
    assert "numbers the rows" in loaded(path).facts["left_out"][0]
    assert name not in loaded(path, split="time", by=name).schema.features


def test_own_test_rows(tmp_path, path):
    written(path)
    other = tmp_path / "other.csv"
    pd.DataFrame({name: column[:25] + 0.5 for name, column in VALUES.items()}).to_csv(
        other, index=False
    )
    data = loaded(path, test=str(other))
    parts = split(len(data.y), "regression", 1, None, data.arrangement)
    assert parts.test.tolist() == list(range(ROWS, ROWS + 25))
    assert sorted([*parts.train, *parts.validation]) == list(range(ROWS))
    assert data.checksum != loaded(path).checksum
    other.write_text("a,b,day,y\n1,2,3,4\n")
    refused("csv.test", "'house'", path=path, test=str(other))
    assert len(loaded(path, test=str(other), drop=["house"]).y) == ROWS + 1
    other.write_text("a,b,house,day,y\nx,2,3,4,5\n")
    refused("'a' holds numbers", "text", path=path, test=str(other))


def test_division_by_time_and_by_groups(tmp_path, path):
    written(path, when=[DATES[k] for k in VALUES["day"]])
    for by in ("day", "when"):
        data = loaded(path, split="time", by=by)
        assert by not in data.schema.features
        parts = split(ROWS, "regression", 0, None, data.arrangement)
        days = [VALUES["day"][rows] for rows in (parts.train, parts.validation, parts.test)]
        assert days[0].max() < days[1].min() <= days[1].max() < days[2].min()
    house = np.sort(np.random.default_rng(1).integers(0, 15, ROWS))  # of different sizes
    data = loaded(written(path, house=house), split="group", by="house")
    for seed in range(10):
        parts = split(ROWS, "regression", seed, None, data.arrangement)
        houses = [set(house[rows]) for rows in (parts.train, parts.validation, parts.test)]
        assert sum(map(len, houses)) == len(set.union(*houses))
    two = loaded(written(path, house=[0, 1]), split="group", by="house")
    with pytest.raises(UserError, match="2 groups"):
        split(ROWS, "regression", 0, None, two.arrangement)
    refused("'x' is no time", path=written(path, house=["x"]), split="time", by="house")
    options = {"split": "time", "by": "day", "drop": ["house"]}
    reversed_days = written(tmp_path / "u.csv", day=VALUES["day"][::-1])
    assert loaded(reversed_days, **options).checksum != loaded(written(path), **options).checksum


def test_rows_left_out_of_both_files_are_told(tmp_path, path):
    written(path, **lacking("a", 3))
    other = written(tmp_path / "other.csv", **lacking("b", 1, 2))
    data = loaded(path, test=str(other), missing="drop")
    assert [text.split(" with")[0] for text in data.facts["left_out"]] == ["1 row", "2 rows"]


def test_checksum_depends_on_the_task(path):
    written(path, y=np.arange(ROWS) % 7)
    assert loaded(path).checksum != loaded(path, task="count").checksum


@pytest.mark.parametrize("address", ["https://example.org/t.csv", "s3://bucket/t.parquet"])
def test_addresses_are_named_and_refused(address):
    refused(f"csv.path={address}: that is an address", path=address)


def test_every_row_is_tested_in_one_fold(path):
    data = loaded(written(path), folds=7)
    tested = [split(ROWS, "regression", k, None, data.arrangement).test for k in range(7)]
    np.testing.assert_array_equal(np.sort(np.concatenate(tested)), np.arange(ROWS))
    assert {len(rows) for rows in tested} == {8, 9}


def test_no_group_is_in_two_parts_of_a_fold(path):
    data = loaded(written(path), folds=4, split="group", by="house")
    house = VALUES["house"]
    tested = []
    for k in range(4):
        parts = split(ROWS, "regression", k, None, data.arrangement)
        groups = [set(house[rows]) for rows in parts]
        assert sum(map(len, groups)) == len(set.union(*groups))
        tested.append(parts.test)
    np.testing.assert_array_equal(np.sort(np.concatenate(tested)), np.arange(ROWS))


@pytest.mark.parametrize(("options", "words"), [
    ({"folds": 1}, ["csv.folds"]), ({"folds": 70}, ["csv.folds=70", "60 rows"]),
    ({"folds": 13, "split": "group", "by": "house"}, ["12 groups"]),
    ({"folds": 3, "split": "time", "by": "day"}, ["csv.folds=3", "later"]),
    ({"folds": 3, "missing": "drop", "by": "day"}, ["csv.split"]),
])  # fmt: skip
def test_folds_that_cannot_be_are_refused(path, options, words):
    refused(*words, path=written(path), **options)


def test_positive_label_is_class_1(path):
    written(path, y=LABEL)
    usual = loaded(path, **BINARY)
    swapped = loaded(path, **BINARY, positive="no")
    assert (usual.schema.labels, swapped.schema.labels) == (("no", "yes"), ("yes", "no"))
    np.testing.assert_array_equal(swapped.y, 1 - usual.y)
    refused("csv.positive=maybe", "no and yes", path=path, **BINARY, positive="maybe")


DIVISIONS = {
    "random": {},
    "folds": {"folds": 5},
    "groups": {"split": "group", "by": "group"},
    "folds of groups": {"split": "group", "by": "group", "folds": 5},
    "time": {"split": "time", "by": "group"},
}


@pytest.mark.parametrize("division", DIVISIONS)
def test_parts_of_data_drawn_with_the_same_seed_are_random(path, division):
    # Rows in the order of raw words of default_rng(0) would be sorted by x, which are these words.
    x = np.random.default_rng(0).random(400)
    pd.DataFrame({"x": x, "group": np.arange(400), "y": x**2 + np.sin(np.arange(400))}).to_csv(
        path, index=False
    )
    data = loaded(path, **DIVISIONS[division])
    column = data.schema.features.index("x")
    parts = split(400, "regression", 0, None, data.arrangement)
    random_parts = {"train": parts.train, "validation": parts.validation, "test": parts.test}
    for name, rows in random_parts.items():
        # Six standard errors of a mean of uniform numbers.
        bound = 6 * np.sqrt(1 / 12 / len(rows))
        assert abs(data.X[rows, column].mean() - 0.5) < bound, name
    first_half = data.X[parts.train[: len(parts.train) // 2], column]
    assert abs(first_half.mean() - 0.5) < 6 * np.sqrt(1 / 12 / len(first_half))


def test_checksum_tells_another_order_of_rows(path, monkeypatch):
    # Records of an earlier version, which divided rows otherwise, must not be taken for new ones.
    written(path)
    now = loaded(path).checksum
    monkeypatch.setattr("dlmexp.data.user_table.OWN_ROWS", None)
    assert loaded(path).checksum != now


@pytest.mark.parametrize("division", [{}, {"split": "time", "by": "day"}])
def test_parts_have_the_shares_that_are_asked_for(path, division):
    data = loaded(written(path), test_size=0.5, validation_size=0.1, **division)
    parts = split(ROWS, "regression", 0, None, data.arrangement)
    sizes = [len(rows) for rows in parts]
    assert sizes == [ROWS - ROWS // 10 - ROWS // 2, ROWS // 10, ROWS // 2]
    assert len(np.unique(np.concatenate(parts))) == ROWS


def test_other_shares_are_another_division(path):
    written(path)
    checksums = {loaded(path, test_size=share).checksum for share in (None, 0.2, 0.3)}
    assert len(checksums) == 3


@pytest.mark.parametrize(("options", "words"), [
    ({"test_size": 0.95}, ["csv.test_size", "leave", "for training"]), ({"test_size": 1}, ["csv.test_size"]),
    ({"test_size": 0.2, "folds": 5}, ["csv.test_size=0.2", "csv.folds"]),
    ({"validation_size": 0.2, "folds": 5}, ["csv.validation_size=0.2", "csv.folds"]),
])  # fmt: skip
def test_shares_that_cannot_be_are_refused(path, options, words):
    written(path)
    with pytest.raises(UserError) as caught:
        split(ROWS, "regression", 0, None, loaded(path, **options).arrangement)
    assert all(word in str(caught.value) for word in words), caught.value
