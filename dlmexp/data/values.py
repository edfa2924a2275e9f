"""Columns of tables as NumPy arrays of three kinds: numbers, text and dates."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from dlmexp.common.errors import UserError
from dlmexp.common.literals import setting

ValueKind = Literal["text", "numbers", "dates"]
Label = int | str
Values = Mapping[str, np.ndarray]
"""Columns by name, [rows] each.

Numbers are float64 (missing: NaN), text is object (missing: None), dates are datetime64 (missing:
NaT)."""

SYMBOL = "[$€£¥]"
MONEY = re.compile(
    # a sign before or after the symbol, digits with or without commas between thousands, cents
    rf"[-+]?{SYMBOL}? ?[-+]?(\d+|[1-9]\d{{0,2}}(,\d{{3}})+)(\.\d+)? ?{SYMBOL}?",
    re.ASCII,
)
SURELY_MONEY = re.compile(r"[$€£¥.]|,\d{3},")
"""What tells an amount of money from "1,234", which may have a decimal comma."""
LARGEST_EXACT = 1e15
"""Whole numbers below it have at most 15 digits."""


def value_kind(values: np.ndarray) -> ValueKind:
    """Return the kind of a column."""
    if values.dtype.kind == "O":
        return "text"
    if values.dtype.kind == "M":
        return "dates"
    return "numbers"


def as_numbers(values: np.ndarray) -> Float[np.ndarray, " rows"]:
    """Return dates as days since 1970-01-01, missing ones as NaN; numbers stay as they are."""
    if value_kind(values) == "dates":
        return (values - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    return values


def as_text(values: np.ndarray) -> np.ndarray:
    """Return values as people write them, None where missing. The mapping is injective."""
    kind = value_kind(values)
    if kind == "text":
        return values
    write = _number_as_text if values.dtype.kind == "f" else str
    texts = np.array([write(value) for value in values], dtype=object)
    texts[pd.isna(values)] = None
    return texts


def _number_as_text(value: float) -> str:
    """Return a number with up to 15 significant digits; larger whole numbers in full."""
    if abs(value) < LARGEST_EXACT:
        return f"{value + 0.0:.15g}"  # adding 0 turns -0 into 0
    return f"{value:.0f}"


def as_label(text: str) -> Label:
    """Return a label as a whole number where it is one."""
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text, re.ASCII) else text


def plain_values(
    name: str, column: pa.Array | pa.ChunkedArray | pd.Series, source: str
) -> np.ndarray:
    """Return a column of an Arrow table or a DataFrame as `Values` has it.

    Raises:
        UserError: the column holds something else, such as lists. The message names `source`.
    """
    array = _from_pandas(column) if isinstance(column, pd.Series) else column
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.asarray(array).astype(object)
    has_dates = types.is_date(kind) or types.is_timestamp(kind)
    plain = pa.timestamp("us") if has_dates else pa.float64()
    # A safe cast would refuse integers beyond 2^53; it is fine to round them.
    with suppress(pa.ArrowException):
        return np.asarray(array.cast(plain, safe=False)).astype(plain.to_pandas_dtype())
    advice = f"{setting('drop', [name])} leaves it out"
    raise UserError(f"{source}: column '{name}' holds {kind}: {advice}")


def _from_pandas(column: pd.Series) -> pa.Array | pa.ChunkedArray:
    """Return a column of a DataFrame as an Arrow array."""
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError):
        # The values have no common type. As text, the odd value can be named later.
        return pa.array(column.astype("string"), from_pandas=True)


def parse_money(texts: np.ndarray) -> np.ndarray:
    """Return amounts such as '$1,234.50' as numbers, missing ones as NaN.

    If a text is not an amount, or all may be numbers with decimal commas, return the texts.
    """
    amounts = [text.strip() for text in texts if text is not None]
    all_fit = all(MONEY.fullmatch(amount) for amount in amounts)
    surely_money = any(SURELY_MONEY.search(amount) for amount in amounts)
    if not all_fit or not surely_money:
        return texts
    numbers = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text is not None:
            numbers[row] = float(re.sub("[$€£¥, ]", "", text))
    return numbers


def parse_numbers(texts: np.ndarray) -> Float[np.ndarray, " rows"] | None:
    """Return texts as numbers (`true` and `false` as 1 and 0), or None if a text is neither."""
    column = _cast_texts(texts, pa.float64(), pa.bool_())
    return None if column is None else np.asarray(column.cast(pa.float64()))


def parse_dates(texts: np.ndarray, date_format: str | None = None) -> np.ndarray | None:
    """Return texts as dates, or None if a text is not a date.

    Args:
        texts: The texts, None where missing.
        date_format: How dates are written, as for `strptime`. By default as 2020-12-31; times with
            an offset are converted to UTC.
    """
    if date_format is not None:
        with suppress(ValueError):
            dates = pd.to_datetime(pd.Series(texts), format=date_format)
            return dates.to_numpy().astype("datetime64[us]")
        return None
    column = _cast_texts(texts, pa.timestamp("us"), pa.timestamp("us", "UTC"))
    return None if column is None else np.asarray(column).astype("datetime64[us]")


def _cast_texts(texts: np.ndarray, *types: pa.DataType) -> pa.Array | None:
    """Return texts as the first of the types that fits them all, or None."""
    trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    first_text = trimmed.drop_null()[:1]
    for type in types:
        with suppress(pa.ArrowInvalid):
            # Casting a long column of other text takes long to fail: try one text first.
            first_text.cast(type)
            return trimmed.cast(type)
    return None
