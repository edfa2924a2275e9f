"""One schema for training and prediction: whatever table holds the same values is encoded to the
same bits."""

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.common.errors import UserError
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.raw_files import load
from dlmexp.data.schema import Column, Schema
from dlmexp.experiment.models.predict_file import open_rows

ROWS = 40
WORDS = st.lists(
    st.text("abX é,'\"", min_size=1).filter(lambda w: w.strip() == w),
    min_size=2,
    max_size=3,
    unique=True,
)


@st.composite
def frames(draw) -> tuple[pd.DataFrame, dict]:
    """A table of numbers, whole numbers, truth values, categories and dates, some of them missing,
    with a target that none of them gives away; and the options to read it with."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    missing = draw(st.sampled_from(["refuse", "mean", "level"]))
    make = {
        "number": lambda: rng.normal(size=ROWS) * 10.0 ** rng.integers(-4, 5),
        "whole": lambda: rng.integers(-5, 99, ROWS),
        "truth": lambda: rng.random(ROWS) < 0.5,
        "word": lambda: rng.choice(draw(WORDS), ROWS),
        "code": lambda: rng.choice([1, 7, 30], ROWS),
        "date": lambda: (
            pd.Timestamp("2020-02-27") + pd.to_timedelta(rng.integers(0, 900, ROWS), "D")
        ),
    }
    kinds = draw(st.lists(st.sampled_from(list(make)), min_size=1, max_size=5))
    columns = {f"{kind} {k}": pd.Series(make[kind]()) for k, kind in enumerate(kinds)}
    for name in columns:
        if missing != "refuse" and name.startswith(("number", "word", "date")):
            columns[name] = columns[name].where(rng.random(ROWS) > 0.2)
    categories = [name for name in columns if name.startswith("code")]
    frame = pd.DataFrame(columns).assign(y=rng.normal(size=ROWS).round(6))
    return frame, {"categories": categories, "missing": missing, "target": "y"}


def trained(frame: pd.DataFrame, options: dict, folder, suffix: str = ".parquet"):
    path = folder / f"train{suffix}"
    (frame.to_parquet if suffix == ".parquet" else frame.to_csv)(path, index=False)
    spec = DatasetConfig(
        "mine", "table", "regression", split="regression", options={**options, "path": str(path)}
    )
    return load(spec, folder)


@pytest.mark.slow
@given(made=frames(), chance=st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_training_and_prediction_encode_alike(made, chance, tmp_path_factory):
    """Columns permuted, others added, other types of the same values, in memory and in files; the
    schema saved and loaded."""
    frame, options = made
    folder = tmp_path_factory.mktemp("tables")
    data, text = trained(frame, options, folder), trained(frame, options, folder, ".csv")
    np.testing.assert_array_equal(text.X, data.X)
    assert text.schema.columns == data.schema.columns
    schema = msgspec.json.decode(msgspec.json.encode(data.schema), type=Schema)
    assert schema == data.schema
    names = [*frame.columns.drop("y"), "extra"]
    chance.shuffle(names)
    other = frame.assign(extra="x")[names]
    for name in names:
        if name.startswith(("whole", "truth")):
            other[name] = other[name].astype(
                chance.choice(["float64", "Int64" if "whole" in name else "boolean"])
            )
        elif name.startswith("word"):
            other[name] = other[name].astype(chance.choice(["category", "string", "object"]))
        elif name.startswith("date"):
            other[name] = (
                other[name].dt.strftime("%Y-%m-%d") if chance.random() < 0.5 else other[name]
            )
    for rows in (other, pa.Table.from_pandas(other, preserve_index=False)):
        np.testing.assert_array_equal(schema.encode(rows), data.X)
    other.to_csv(folder / "new.csv", index=False)
    other.to_parquet(folder / "new.parquet")
    for name in ("new.csv", "new.parquet"):
        pieces = [schema.encode(piece) for piece in open_rows(folder / name, schema)]
        np.testing.assert_array_equal(np.concatenate(pieces), data.X)


COLUMNS = (Column("age"), Column("sort", "category", ("a", "b", "c")), Column("day", "date"))
THREE = Schema("z", COLUMNS)
GOOD = {"age": [1.0, 2.0], "sort": ["a", "b"], "day": ["2020-01-01", "2020-01-02"]}


@pytest.mark.parametrize(("changed", "words"), [
    ({"age": [1.0, None]}, ["row 2", "'age'", "missing"]), ({"age": [1.0, np.inf]}, ["row 2", "'age'", "infinite"]),
    ({"age": ["1", "old"]}, ["row 2", "'age'", "'old'"]), ({"age": [1, 1j]}, ["row 1", "'age'"]),
    ({"sort": ["a", "q"]}, ["row 2", "'sort'", "'q'", "a, b, c"]), ({"sort": [None, "a"]}, ["row 1", "'sort'"]),
    ({"day": ["2020-01-01", "2020-02-30"]}, ["row 2", "'day'", "'2020-02-30'"]),
    ({"day": ["2020-01-01", "2020-01-01T10:00Z"]}, ["row 2", "'day'"]),
    ({"age": pd.to_datetime(["2020-01-01"] * 2)}, ["'age'", "dates", "numbers"]),
])  # fmt: skip
def test_what_cant_be_predicted_on_is_named(changed, words):
    with pytest.raises(UserError) as refused:
        THREE.encode(pd.DataFrame({**GOOD, **changed}), source="new.csv")
    assert all(word in str(refused.value) for word in ["new.csv", *words]), refused.value


def test_columns_are_found_by_name_and_arrays_by_order():
    frame = pd.DataFrame(GOOD)
    np.testing.assert_array_equal(THREE.encode(frame.to_numpy())[:, :3], [[1, 0, 0], [2, 1, 0]])
    written = frame.assign(age=[" 1", "2 "], day=["2020-01-01T02:00+02:00", "2020-01-02T00:00Z"])
    np.testing.assert_array_equal(THREE.encode(written), THREE.encode(frame))
    with pytest.raises(UserError, match=r"\(2, 2\).*age"):
        THREE.encode(np.ones((2, 2)))


def test_messages_count_rows_from_the_first_of_the_piece():
    with pytest.raises(UserError, match="row 12, column 'age'"):
        THREE.encode(pd.DataFrame({**GOOD, "age": [1.0, np.inf]}), first=11)


def test_column_that_is_there_twice_is_refused():
    frame = pd.DataFrame(GOOD)
    frame = pd.concat([frame, frame[["age"]]], axis=1)
    with pytest.raises(UserError, match="several columns are called age"):
        THREE.encode(frame, source="new.csv")


def test_missing_column_is_named_with_the_nearest():
    with pytest.raises(UserError, match=r"no column 'age', which the model needs: .*ages"):
        THREE.encode(pd.DataFrame(GOOD).rename(columns={"age": "ages"}))


def test_value_that_differs_in_type_from_the_first_is_named():
    """`true` is a number alone, but not among numbers."""
    with pytest.raises(UserError, match="row 2, column 'age': 'true' is not a number"):
        THREE.encode(pd.DataFrame({**GOOD, "age": ["2", "true"]}))


def test_missing_values_are_nan_in_all_features_of_a_category():
    schema = Schema("y", COLUMNS[:2], fill=True)
    X = schema.encode(pd.DataFrame({"age": [np.nan, 1.0], "sort": [None, "c"]}))
    np.testing.assert_array_equal(X, [[np.nan, np.nan, np.nan], [1, 0, 1]])


def test_missing_value_has_a_level_of_its_own():
    column = Column("sort", "category", ("a", "b", "(missing)"))
    X = Schema("y", (column,)).encode(pd.DataFrame({"sort": ["a", None, "b"]}))
    np.testing.assert_array_equal(X, [[0, 0], [0, 1], [1, 0]])


SORT = Column("sort", "category", ("a", "b"), encoding="indicators")
CITY = Column("city", "category", ("u", "v", "w"), encoding="indicators")
MIXED = Schema("y", (SORT, Column("age"), CITY), fill=True)
ROW = {"sort": ["b"], "age": [7.0], "city": ["v"]}


def test_indicators_of_categories_come_after_the_numbers():
    names = (
        "age",
        "sort=a",
        "sort=b",
        "sort=(other)",
        "city=u",
        "city=v",
        "city=w",
        "city=(other)",
    )
    assert MIXED.features == names
    assert MIXED.categories == (3, 4)
    np.testing.assert_array_equal(MIXED.encode(pd.DataFrame(ROW)), [[7, 0, 1, 0, 0, 1, 0, 0]])
    array = np.array([["b", 7.0, "v"]], dtype=object)
    np.testing.assert_array_equal(MIXED.encode(array), MIXED.encode(pd.DataFrame(ROW)))


@pytest.mark.parametrize(("sort", "unseen"), [("new", "base"), (None, "error")])
def test_unknown_and_missing_levels_have_the_last_indicator(sort, unseen):
    rows = pd.DataFrame({**ROW, "sort": pd.Series([sort], dtype="string")})
    X = MIXED.encode(rows, unseen=unseen)
    np.testing.assert_array_equal(X[0, 1:4], [0, 0, 1])


def test_level_that_training_did_not_have_is_refused_by_default():
    with pytest.raises(UserError, match="'new' is not a value"):
        MIXED.encode(pd.DataFrame({**ROW, "sort": ["new"]}))


@pytest.mark.parametrize(("missing", "fill"), [
    ("refuse", False), ("drop", False), ("mean", True), ("level", True)])  # fmt: skip
def test_missing_values_are_filled_where_the_setting_says_so(missing, fill):
    values = {"a": np.arange(3.0), "y": np.arange(3.0)}
    options = CsvConfig(target="y", missing=missing)
    schema, _ = Schema.fit(values, ["a"], "regression", options)
    assert schema.fill == fill
