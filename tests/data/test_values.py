"""Columns as numbers, text and dates."""

import numpy as np
import pandas as pd
import pytest

from dlmexp.common.errors import UserError
from dlmexp.data.values import (
    as_label,
    as_numbers,
    as_text,
    parse_dates,
    parse_numbers,
    plain_values,
    value_kind,
)
from tests.support.user_tables import (
    BINARY,
    ROWS,
    loaded,
    refused,
    written,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def test_dollars_and_thousands_in_the_target(path):
    for texts, numbers in ((["$1,200", "-$7", "€ 950"], [1200, -7, 950]), (["1,234.50", " 950.00 "], [1234.5, 950]),
                           (["1,000,000", "7"], [1e6, 7])):  # fmt: skip
        assert (
            loaded(written(path, ";", y=texts), sep=";").y.tolist()
            == np.resize(numbers, ROWS).tolist()
        )
    refused("csv.target=y", path=written(path, ";", y=["12 apples", "3"]), sep=";")
    refused(
        "csv.na=[unknown]", path=written(path, ";", y=["1,234.50", "950.00", "unknown"]), sep=";"
    )


def test_binary_targets_become_zero_and_one(path):
    for values, codes, labels in (("-1 1 1", [0, 1, 1], (-1, 1)), ("10 9 10", [1, 0, 1], (9, 10)),
                                  ("yes no yes", [1, 0, 1], ("no", "yes")), ("--5 5 --5", [0, 1, 0], ("--5", 5)),
                                  ("true false true", [1, 0, 1], ("False", "True"))):  # fmt: skip
        data = loaded(written(path, y=values.split()), **BINARY)
        assert data.y.tolist() == np.resize(codes, ROWS).tolist()
        assert data.schema.labels == labels


def texts(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


def test_numbers_are_written_in_full_and_injectively():
    numbers = np.array([0.0, -0.0, 0.1, 1e15, 1e15 + 1, 123456789012345.0, np.nan, 2.5e20])
    assert as_text(numbers).tolist() == [
        "0", "0", "0.1", "1000000000000000", "1000000000000001", "123456789012345", None,
        "250000000000000000000",
    ]  # fmt: skip


def test_dates_are_days_since_1970():
    dates = np.array(["1970-01-02T12:00", "NaT", "2020-01-01"], dtype="datetime64[us]")
    np.testing.assert_array_equal(as_numbers(dates), [1.5, np.nan, 18262])
    assert value_kind(dates) == "dates"


@pytest.mark.parametrize(("text", "label"), [
    ("0", 0), ("-7", -7), ("12", 12), ("007", "007"), ("-0", "-0"), ("1.0", "1.0"), ("+1", "+1"),
    ("9" * 18, int("9" * 18)), ("9" * 19, "9" * 19), ("", ""), ("\u0663", "\u0663"),
])  # fmt: skip
def test_only_whole_numbers_as_python_writes_them_are_numbers_as_labels(text, label):
    assert as_label(text) == label


def test_texts_are_parsed_as_numbers_or_truth_values():
    np.testing.assert_array_equal(parse_numbers(texts(" 1", "2.5 ", None)), [1, 2.5, np.nan])
    np.testing.assert_array_equal(parse_numbers(texts("true", "false")), [1, 0])
    assert parse_numbers(texts("1", "x")) is None


def test_times_with_an_offset_are_in_utc_and_formats_are_followed():
    (utc,) = parse_dates(texts("2020-01-01T02:00+02:00"))  # pyright: ignore[reportGeneralTypeIssues]
    assert utc == np.datetime64("2020-01-01")
    (day,) = parse_dates(texts("31.12.2020"), "%d.%m.%Y")  # pyright: ignore[reportGeneralTypeIssues]
    assert day == np.datetime64("2020-12-31")
    assert parse_dates(texts("12/31/2020"), "%d.%m.%Y") is None
    assert parse_dates(texts("31.12.2020")) is None


def test_columns_of_other_types_are_refused_by_name():
    lists = pd.Series([[1], [2]])
    with pytest.raises(UserError, match=r"t\.parquet: column 'a' holds list.*csv\.drop=\[a\]"):
        plain_values("a", lists, "t.parquet")


def test_values_without_a_common_type_become_text():
    assert plain_values("a", pd.Series([1, "x", None], dtype=object), "X").tolist() == [
        "1",
        "x",
        None,
    ]
