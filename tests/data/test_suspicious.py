"""Marks of missing values, outliers and sums that are the target."""

import numpy as np
import pytest

from dlmexp.data.suspicious import find_outliers, missing_marker, summands
from tests.support.user_tables import ROWS, VALUES, Y, loaded, written


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def changed(name: str, value: float, *rows: int) -> dict[str, np.ndarray]:
    values = np.array(VALUES[name], dtype=float)
    values[list(rows)] = value
    return {name: values}


@pytest.mark.parametrize(("value", "others", "is_marker"), [
    (-999, (0.0, 100.0), True), (-999, (-2000.0, 2000.0), False), (-99, (-50.0, 50.0), False),
    (99999, (1.0, 90.0), True), (99, (1.0, 98.0), False), (-9, (0.0, 500.0), True),
])  # fmt: skip
def test_markers_of_missing_values_lie_apart(value, others, is_marker):
    values = np.append(np.linspace(*others, 50), [value, value, value])  # pyright: ignore[reportCallIssue]
    marker = missing_marker(values)
    assert (marker is not None) == is_marker
    if marker is not None:
        assert (marker.value, marker.count) == (value, 3)


@pytest.mark.parametrize(
    ("value", "is_far"), [(15, False), (25, True), (1e30, True), (1e300, True)]
)
def test_outlier_does_not_hide_itself(value, is_far):
    """With one wild value among 100, the plain standard deviation never makes it 20 away."""
    values = np.random.default_rng(0).normal(size=100)
    values[7] = value
    odd = find_outliers(values)
    assert (odd is not None) == is_far
    if odd is not None:
        assert (odd.row, odd.count, odd.values) == (7, 1, (value,))


def test_rare_codes_and_long_tails_are_no_outliers():
    rare = np.zeros(1000)
    rare[:3] = 1
    assert find_outliers(rare) is None
    assert find_outliers(np.random.default_rng(0).exponential(size=1000)) is None


def test_summands_are_found_among_other_columns():
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=100) for name in "abc"}
    weights = summands(columns, 2 * columns["a"] + columns["c"] + 5)
    assert weights == pytest.approx({"a": 2, "c": 1})
    assert not summands(columns, columns["a"] + columns["c"] + 0.01 * rng.normal(size=100))
    assert not summands(columns, 2 * columns["a"])


@pytest.mark.parametrize(("column", "value", "rows", "words"), [
    ("a", -999, range(33), ["'a' is -999 in 33 rows", "csv.na=['-999']", "csv.missing=mean"]),
    ("b", 1e30, [4], ["'b' is 1e+30 in row 5", "csv.na=['1e+30']", "csv.missing=mean"]),
    ("y", 1e12, [8], ["'y' is 1e+12 in row 9", "csv.na=['1000000000000']", "csv.missing=drop"]),
])  # fmt: skip
def test_wild_values_are_warned_of_with_the_setting_that_mends_them(
    path, column, value, rows, words
):
    written(path, **changed(column, value, *rows))
    (warning,) = loaded(path).facts["warnings"]
    assert all(word in warning for word in words), warning
    missing = "drop" if column == "y" else "mean"
    marker = words[1].removeprefix("csv.na=['").removesuffix("']")
    mended = loaded(path, na=[marker], missing=missing)
    assert not mended.facts["warnings"]
    assert len(mended.y) == (ROWS - len(rows) if column == "y" else ROWS)


def test_numbers_that_mark_missing_values_do_so_in_every_format_and_in_new_rows(tmp_path):
    table = written(tmp_path / "t.parquet", **changed("a", -999, 3))
    data = loaded(table, na=["-999"], missing="mean")
    assert np.isnan(data.X[3, 0])
    new = {column.name: np.array([1.0, -999.0]) for column in data.schema.columns}
    assert np.isnan(data.schema.encode(new)[1]).all()


def test_columns_that_add_up_to_the_target_are_warned_of(path):
    casual = np.arange(ROWS) % 7 + 0.5 * Y
    (warning,) = loaded(written(path, casual=casual, rest=Y - casual)).facts["warnings"]
    assert "'y' is 'casual' + 'rest'" in warning
    assert "csv.drop=[casual,rest]" in warning


def test_column_that_numbers_rows_of_which_some_are_left_out_is_warned_of(path):
    kept = np.delete(np.arange(1, ROWS + 10), np.arange(5, 50, 5))
    (warning,) = loaded(written(path, id=kept)).facts["warnings"]
    assert "'id' numbers the rows" in warning
    years = np.arange(1960, 1960 + ROWS)
    assert not loaded(written(path, year=years)).facts["warnings"]
