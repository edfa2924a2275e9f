"""Columns of tables as NumPy arrays of three kinds: numbers, text and dates."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from dlmexp.common.errors import UserError
from dlmexp.common.literals import csv_setting
from dlmexp.data.written import PLAIN, Decimal, parse_written

ValueKind = Literal["text", "numbers", "dates"]
Label = int | str
Values = Mapping[str, np.ndarray]
"""Columns by name, each an array [rows].

Numbers have the dtype float64 (missing: NaN), text object (missing: None), and dates datetime64
(missing: NaT)."""

LARGEST_EXACT = 1e15
"""Floats have 15 exact digits, so all whole numbers below this one are exact."""


def value_kind(values: np.ndarray) -> ValueKind:
    """Return the kind of a column."""
    if values.dtype.kind == "O":
        return "text"
    if values.dtype.kind == "M":
        return "dates"
    return "numbers"


def as_numbers(values: np.ndarray) -> Float[np.ndarray, " rows"]:
    """Return dates as days since 1970-01-01, missing dates as NaN; return numbers unchanged."""
    if value_kind(values) == "dates":
        return (values - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    return values


def as_text(values: np.ndarray) -> np.ndarray:
    """Return values as people write them, None where missing; different values get other texts."""
    kind = value_kind(values)
    if kind == "text":
        return values
    to_text = _number_as_text if values.dtype.kind == "f" else str
    texts = np.array(list(map(to_text, values)), dtype=object)
    texts[pd.isna(values)] = None
    return texts


def _number_as_text(value: float) -> str:
    """Return a number with up to 15 significant digits; a huge one with all of its digits."""
    if abs(value) < LARGEST_EXACT:
        return f"{value + 0.0:.15g}"  # adding 0 turns -0 into 0
    return f"{value:.0f}"


def as_label(text: str) -> Label:
    """Return a label as an integer if it is written like one, else as text."""
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text, re.ASCII) else text


def plain_values(
    name: str, column: pa.Array | pa.ChunkedArray | pd.Series, source: str
) -> np.ndarray:
    """Return a column of an Arrow table or a DataFrame as an array of numbers, text or dates.

    Args:
        name: The name of the column, for messages.
        column: The column.
        source: What the table is called in messages.

    Raises:
        UserError: the column holds something else, such as lists.
    """
    array = _from_pandas(column) if isinstance(column, pd.Series) else column
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if types.is_time(kind):
        # pyarrow reads 08:00 in a CSV as a time of day, but not in every kind of file. Return it as
        # text, which the schema parses in the same way for all files.
        array = array.cast(pa.string())
        kind = array.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.asarray(array).astype(object)
    has_dates = types.is_date(kind) or types.is_timestamp(kind)
    target_type = pa.timestamp("us") if has_dates else pa.float64()
    # A safe cast would refuse integers beyond 2^53, which may be rounded here.
    with suppress(pa.ArrowException):
        converted = np.asarray(array.cast(target_type, safe=False))
        return converted.astype(target_type.to_pandas_dtype())
    advice = f"{csv_setting('drop', [name])} leaves it out"
    raise UserError(f"{source}: column '{name}' holds {kind}: {advice}")


def _from_pandas(column: pd.Series) -> pa.Array | pa.ChunkedArray:
    """Return a column of a DataFrame as an Arrow array."""
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError):
        # The values have no common type. As text, a message can name the value that differs.
        return pa.array(column.astype("string"), from_pandas=True)


def without_markers(values: np.ndarray, na: Sequence[str]) -> np.ndarray:
    """Return a column of numbers with NaN in place of markers of missing values.

    Args:
        values: The column. A column of text or dates is returned unchanged.
        na: The markers as texts; markers that are not numbers have no effect here.
    """
    if value_kind(values) != "numbers" or not na:
        return values
    numbers_in_na = [text for text in na if PLAIN.fullmatch(text)]
    is_marker = np.isin(values, list(map(float, numbers_in_na)))
    return np.where(is_marker, np.nan, values) if is_marker.any() else values


def parse_numbers(
    texts: np.ndarray, decimal: Decimal = "point"
) -> Float[np.ndarray, " rows"] | None:
    """Return texts as numbers; None if a text is neither a number nor a truth value.

    `true` and `false` become 1 and 0, if all texts are truth values.
    Numbers may have separators of thousands, percent signs and currencies (see
    `dlmexp.data.written`).
    """
    if decimal == "comma":  # Arrow's numbers have a decimal point
        column = _cast_texts(texts, pa.bool_())
    else:
        column = _cast_texts(texts, pa.float64(), pa.bool_())
    if column is not None:
        return np.asarray(column.cast(pa.float64()))
    return parse_written(texts, decimal)


def parse_dates(texts: np.ndarray, date_format: str | None = None) -> np.ndarray | None:
    """Return texts as dates, or None if a text is not a date.

    Args:
        texts: The texts, None where missing.
        date_format: How dates are written, in the notation of `strptime`. None: as 2020-12-31, also
            with a time; times with an offset are converted to UTC.
    """
    if date_format is not None:
        with suppress(ValueError):
            dates = pd.to_datetime(pd.Series(texts), format=date_format)
            return dates.to_numpy().astype("datetime64[us]")
        return None
    column = _cast_texts(texts, pa.timestamp("us"), pa.timestamp("us", "UTC"))
    return None if column is None else np.asarray(column).astype("datetime64[us]")


def _cast_texts(texts: np.ndarray, *types: pa.DataType) -> pa.Array | None:
    """Return texts as the first of these types that fits all of them; None if no type does."""
    trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    first_text = trimmed.drop_null()[:1]
    for arrow_type in types:
        with suppress(pa.ArrowInvalid):
            first_text.cast(arrow_type)  # fails at once, where a long column would fail slowly
            return trimmed.cast(arrow_type)
    return None
