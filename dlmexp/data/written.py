"""How people write numbers, dates and times of day as text: `1.234,50 €`, `12 %`, `31/01/2013`.

Ambiguous texts are not guessed: `1,234` alone may mean a thousand or a little more than one, and
`01/02/2013` may be in January or in February.
"""

import re
from collections.abc import Iterable
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

Decimal = Literal["point", "comma"]
"""The decimal mark of a number."""

SYMBOLS = "$€£¥"
SPACES = " \u00a0\u202f\u2009"
"""Spaces that separate thousands: the usual one, and three that prevent a line break."""
THOUSANDS_SEPARATORS = {"point": f",'’{SPACES}", "comma": f".'’{SPACES}"}
"""Characters that may separate thousands, by the decimal mark."""
DECIMAL_MARK = {"point": r"\.", "comma": ","}
"""Regular expressions of the decimal marks."""


def _pattern(decimal: Decimal) -> re.Pattern[str]:
    """Return the regular expression of a number as people write it.

    The number may have separators of thousands, decimals, an exponent, a sign, and a symbol of a
    currency or of per cent.
    """
    separator = f"[{THOUSANDS_SEPARATORS[decimal]}]"
    mark = DECIMAL_MARK[decimal]
    whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:{separator}\d{{3}})+)"
    number = rf"(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][-+]?\d+)?"
    return re.compile(
        rf"\s*[-+]?[{SYMBOLS}]?[{SPACES}]?[-+]?{number}[{SPACES}]?[{SYMBOLS}%]?\s*", re.ASCII
    )


NUMBER: dict[Decimal, re.Pattern[str]] = {
    "point": _pattern("point"),
    "comma": _pattern("comma"),
}
PLAIN = re.compile(r"\s*[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?\s*", re.ASCII)
"""A number that nobody can misread."""
TIME = re.compile(r"\s*(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?\s*", re.ASCII)
DATE_LIKE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[ T].*)?\s*", re.ASCII)
CLOCK_FORMATS = ("", " %H:%M", " %H:%M:%S")
DATE_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d.%m.%y")
SECONDS_PER_HOUR = 3600


def distinct(texts: np.ndarray) -> list[str]:
    """Return the distinct texts, without missing ones."""
    unique = pd.unique(texts)
    return unique[~pd.isna(unique)].tolist()


def match_all(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    """Return whether every text matches a pattern as a whole."""
    return all(pattern.fullmatch(text) for text in texts)


def sure_decimal(texts: np.ndarray) -> Decimal | None:
    """Return the decimal mark in a column of texts, or None if it is in doubt.

    The mark is sure if at least half of the distinct texts are numbers with this mark, and fewer
    are numbers with the other mark.
    """
    distinct_texts = distinct(texts)
    with_point = _count_matches(NUMBER["point"], distinct_texts)
    with_comma = _count_matches(NUMBER["comma"], distinct_texts)
    if with_comma == with_point or 2 * max(with_comma, with_point) < len(distinct_texts):
        return None
    return "comma" if with_comma > with_point else "point"


def _count_matches(pattern: re.Pattern[str], texts: Iterable[str]) -> int:
    return sum(pattern.fullmatch(text) is not None for text in texts)


def has_doubtful_decimal(texts: np.ndarray) -> bool:
    """Return whether all texts are numbers for both decimal marks, but not the same numbers."""
    distinct_texts = distinct(texts)
    if not distinct_texts or not all(
        match_all(pattern, distinct_texts) for pattern in NUMBER.values()
    ):
        return False
    return any(_value(text, "point") != _value(text, "comma") for text in distinct_texts)


def parse_written(texts: np.ndarray, decimal: Decimal) -> Float[np.ndarray, " rows"] | None:
    """Return the values of numbers as people write them; None if a text is not a number.

    Missing texts become NaN. Percentages are not divided by 100: `12 %` becomes 12.
    """
    distinct_texts = distinct(texts)
    if not match_all(NUMBER[decimal], distinct_texts):
        return None
    value_of = {text: _value(text, decimal) for text in distinct_texts}
    return _look_up(texts, value_of)


def _look_up(texts: np.ndarray, values: dict[str, float]) -> Float[np.ndarray, " rows"]:
    """Return the value of each text, NaN where it is missing."""
    return np.array([values.get(text, np.nan) for text in texts], dtype=np.float64)


def _value(text: str, decimal: Decimal) -> float:
    """Return the value of a text that is a number."""
    number = re.sub(rf"[{THOUSANDS_SEPARATORS[decimal]}{SYMBOLS}%\s]", "", text)
    return float(number.replace(",", "."))


def parse_times(texts: np.ndarray) -> Float[np.ndarray, " rows"] | None:
    """Return times of day such as 08:30 in hours; None if a text is not a time of day."""
    distinct_texts = distinct(texts)
    if not distinct_texts or not match_all(TIME, distinct_texts):
        return None
    hours_of = {text: _hours(text) for text in distinct_texts}
    return _look_up(texts, hours_of)


def _hours(text: str) -> float:
    parts = [float(part) for part in text.split(":")]
    hours, minutes = parts[:2]
    seconds = parts[2] if len(parts) > 2 else 0.0
    return hours + minutes / 60 + seconds / SECONDS_PER_HOUR


def date_formats(texts: np.ndarray) -> list[str]:
    """Return the formats in which all texts are dates; several if days may be taken for months."""
    distinct_texts = distinct(texts)
    if not distinct_texts or not match_all(DATE_LIKE, distinct_texts):
        return []
    formats = map("".join, product(DATE_FORMATS, CLOCK_FORMATS))
    return [format for format in formats if _all_dates(distinct_texts, format)]


def _all_dates(texts: list[str], format: str) -> bool:
    """Return whether all texts are dates in a format."""
    # First try the first text alone, which is fast and excludes most formats.
    for sample in (texts[:1], texts):
        series = pd.Series(sample, dtype=object)
        dates = pd.to_datetime(series, format=format, errors="coerce")
        if dates.isna().any():
            return False
    return True
