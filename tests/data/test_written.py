"""Numbers, dates and times as people write them."""

import numpy as np
import pytest

from dlmexp.data.written import (
    date_formats,
    has_doubtful_decimal,
    parse_times,
    parse_written,
    sure_decimal,
)
from tests.support.user_tables import ROWS, VALUES, loaded, refused, written


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def texts(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


@pytest.mark.parametrize(("decimal", "written_numbers", "numbers"), [
    ("point", ["$1,234.50", None, "-$7", "€ 950"], [1234.5, np.nan, -7, 950]),
    ("point", ["1,234,567", "5", " .5 ", "1e3"], [1234567, 5, 0.5, 1000]),
    ("point", ["12 %", "7.5%"], [12, 7.5]),
    ("comma", ["1.234,50", "-0,5", "3", ",5"], [1234.5, -0.5, 3, 0.5]),
    ("comma", ["1 234,5", "1\u202f234", "1'234"], [1234.5, 1234, 1234]),
])  # fmt: skip
def test_numbers_are_read_as_they_are_written(decimal, written_numbers, numbers):
    np.testing.assert_array_equal(parse_written(texts(*written_numbers), decimal), numbers)


@pytest.mark.parametrize(("decimal", "word"), [
    ("point", "1,23"), ("point", "1.2.3"), ("comma", "1.5"), ("comma", "12,5,0"), ("point", "12 apples"),
    ("point", "0,054"), ("point", ""),
])  # fmt: skip
def test_text_that_is_no_number_in_that_way_of_writing_is_not_parsed(decimal, word):
    assert parse_written(texts("7", word), decimal) is None


@pytest.mark.parametrize(("values", "decimal", "doubtful"), [
    (["1,5", "2"], "comma", False), (["1,234.5", "2"], "point", False), (["1,234", "950"], None, True),
    (["1.234", "950"], None, True), (["7", "8"], None, False), (["u", "v"], None, False),
    (["0,054", "1"], "comma", False), (["1,2", "3,4,5", "x", "y", "z"], None, False),
])  # fmt: skip
def test_decimals_are_known_where_only_one_reading_is_possible(values, decimal, doubtful):
    assert sure_decimal(texts(*values)) == decimal
    assert has_doubtful_decimal(texts(*values)) == doubtful


def test_times_of_day_are_hours():
    np.testing.assert_allclose(  # pyright: ignore[reportCallIssue]
        parse_times(texts("08:30", "0:00:36", None)),  # pyright: ignore[reportArgumentType]
        [8.5, 0.01, np.nan],
    )
    assert parse_times(texts("24:00", "08:30")) is None


@pytest.mark.parametrize(("dates", "formats"), [
    (["31/01/2013", "01/02/2013"], ["%d/%m/%Y"]), (["01/31/2013"], ["%m/%d/%Y"]),
    (["01/02/2013", "03/04/2013"], ["%d/%m/%Y", "%m/%d/%Y"]), (["31.01.2013 08:00"], ["%d.%m.%Y %H:%M"]),
    (["31/01/2013", "01/31/2013"], []), (["2013/01/31"], ["%Y/%m/%d"]), (["1-2", "x"], []),
])  # fmt: skip
def test_dates_are_known_where_the_day_can_be_no_month(dates, formats):
    assert date_formats(texts(*dates)) == formats


WHOLE = {"a": [3, 1, 4, 2], "b": [5, 7, 6], "y": [1, 2, 3, 5, 8]}
"""Columns without decimals, which say nothing of how decimals are written."""


def comma(values: np.ndarray) -> list[str]:
    return [str(value).replace(".", ",") for value in values]


def test_table_with_decimal_commas_has_the_values_of_the_one_with_points(tmp_path, path):
    plain = loaded(written(tmp_path / "u.csv", ";"), sep="semicolon")
    columns = {name: comma(VALUES[name]) for name in ("a", "b", "y")}
    data = loaded(written(path, ";", **columns), sep="semicolon")
    np.testing.assert_array_equal(data.X, plain.X)
    np.testing.assert_array_equal(data.y, plain.y)
    assert data.schema.decimal == "comma"


def test_points_between_thousands_are_no_decimals_in_a_table_with_decimal_commas(path):
    written(path, ";", **{**WHOLE, "a": ["1.234", "2.345"], "b": comma(VALUES["b"])})
    assert loaded(path, sep="semicolon").X[:2, 0].tolist() == [1234, 2345]


def test_new_rows_are_read_as_the_training_rows_were(path):
    new = {"a": ["1.234,5", "0,5"], "t": ["08:00", "17:30"], "d": ["31/01/2013", "01/02/2013"]}
    schema = loaded(written(path, ";", **{**WHOLE, **new}), sep=";").schema
    row = {name: np.array([1.0]) for name in ("b", "house", "day")}
    row |= {"a": texts("2.000,25"), "t": texts("9:15"), "d": texts("02/01/2013")}
    features = dict(zip(schema.features, schema.encode(row)[0], strict=True))
    assert features["a"] == 2000.25
    assert features["t"] == 9.25
    assert features["d"] == 15707  # the second of January


def test_what_can_be_read_in_two_ways_is_asked_for(path):
    written(path, ";", **{**WHOLE, "a": ["1,234", "950"]})
    message = str(refused("'1,234'", "csv.decimal=point", "csv.decimal=comma", path=path, sep=";"))
    assert "csv.drop" not in message
    for decimal, value in (("point", 1234), ("comma", 1.234)):
        assert loaded(path, sep=";", decimal=decimal).X[0, 0] == value
    days = [f"{1 + k % 12:02d}/{1 + k % 7:02d}/2013" for k in range(ROWS)]
    message = str(refused("where is the day", "%d/%m/%Y", "%m/%d/%Y", path=written(path, d=days)))
    assert "csv.drop" not in message


def test_remedy_is_for_the_other_problems_if_one_has_no_setting(path):
    names = [f"n{k}" for k in range(ROWS)]
    written(path, ";", **{**WHOLE, "a": ["1,234", "950"]}, name=names)
    message = str(
        refused("2 problems", "Remedy for the others: csv.drop=[name]", path=path, sep=";")
    )
    assert "Remedy: " not in message
