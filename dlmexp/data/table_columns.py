"""The columns of a user's table: what kind each is, and the features it becomes."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from dlmexp.console import counted
from dlmexp.data.advice import setting
from dlmexp.data.schema import Column
from dlmexp.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_LEVELS = 100  # text with more distinct values holds names or identifiers
MANY_WORDS = 10  # so many that are no numbers are no words for a missing value
DAY = np.timedelta64(1, "D")


def from_arrow(name: str, column: "pa.ChunkedArray", file: str) -> np.ndarray:
    """float64 (missing: NaN) for numbers and booleans, object (str or None) for text, datetime64 for dates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if any(
        fits(kind) for fits in (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    ):
        # A safe cast refuses integers beyond 2^53; rounding them is fine for features and targets.
        return pc.cast(column, pa.float64(), safe=False).to_numpy()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:  # dates as text: a CSV file has them so
            dates = pc.cast(column, pa.timestamp("us"))
        except pa.ArrowInvalid:
            dates = None
        if dates is None or dates.null_count == len(dates):
            return column.to_numpy().astype(object)
        column, kind = dates, dates.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pc.cast(column, pa.timestamp("us"), safe=False).to_numpy().astype("datetime64[us]")
    raise UserError(
        f"{file}: column '{name}' holds {kind}: leave it out with {setting('drop', name)}, or turn it into numbers"
    )


def as_words(column: np.ndarray) -> np.ndarray:
    """Booleans, of which `from_arrow` has made numbers, as the words that they are labels by."""
    words = np.where(column == 1, "True", "False").astype(object)
    words[missing(column)] = None
    return words


def from_array(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of an array of an npz file: one, or one for each column of a matrix."""
    if array.ndim not in (1, 2):
        raise UserError(f"array '{name}' has {array.ndim} dimensions: features are 1-D or 2-D")
    if array.dtype.kind not in "biufUOM":
        raise UserError(f"array '{name}' has type {array.dtype}: only numbers, text and dates can be used")
    if array.dtype.kind in "biuf":
        array = array.astype(np.float64)
    elif array.dtype.kind == "U":
        array = array.astype(object)
    if array.ndim == 1:
        return {name: array}
    return {f"{name}[{k}]" if array.shape[1] > 1 else name: array[:, k] for k in range(array.shape[1])}


def missing(column: np.ndarray) -> np.ndarray:
    """Which rows have no value."""
    if column.dtype == object:
        return np.array([value is None for value in column], dtype=bool)
    return np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)


def kind_of(column: np.ndarray) -> Literal["text", "numbers", "dates"]:
    if column.dtype.kind == "O":
        return "text"
    return "dates" if column.dtype.kind == "M" else "numbers"


def days(column: np.ndarray) -> np.ndarray:
    """Dates as days since 1970-01-01, missing ones as NaN."""
    found = column.astype("datetime64[us]").astype("timedelta64[us]") / DAY.astype("timedelta64[us]")
    return np.where(np.isnat(column), np.nan, found)


def numbers_among(column: np.ndarray) -> tuple[int, Counter[str]]:
    """Of a column of text: how many values are numbers, and the others with how often they occur."""
    counts = Counter(value for value in column.tolist() if value is not None)
    others = Counter({value: times for value, times in counts.items() if not _is_number(value)})
    return counts.total() - others.total(), others


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "") if text.count(",") and "." in text else text)
    except ValueError:
        return False
    return True


def refuse_stray_text(name: str, column: np.ndarray) -> None:
    """A column of numbers that is read as text because of a few words in it."""
    numeric, others = numbers_among(column)
    if numeric == 0 or numeric < others.total():
        return
    if not others:
        advice = f"{setting('categories', name)} takes them as categories, {setting('drop', name)} leaves it out"
        raise UserError(f"column '{name}' is text, though all its values are numbers: {advice}")
    words = [word for word, _ in others.most_common()]
    row = next(number for number, value in enumerate(column, start=1) if value in others)
    shown = ", ".join(f"'{word[:20]}'" for word in words[:3]) + (", ..." if len(words) > 3 else "")
    called = f"{setting('na', *words)} calls that missing, " if len(words) <= MANY_WORDS else ""
    raise UserError(
        f"column '{name}' is text because of {shown} in {counted(others.total(), 'row')} (the first: row {row}); its "
        f"other {numeric} values are numbers: {called}{setting('drop', name)} leaves the column out, "
        f"{setting('categories', name)} takes each value as a category"
    )


def features(
    name: str, column: np.ndarray, categories: Sequence[str], dates: Sequence[str]
) -> tuple[Column, np.ndarray, str]:
    """One column as features (float64 [rows, k], missing: NaN): what it is, its values, and what it is in words. A
    category with K levels becomes K - 1 binary features, all 0 for the level that is first in alphabetical order."""
    kind = kind_of(column)
    if kind == "dates" and name not in categories:
        if name not in dates:
            raise UserError(
                f"column '{name}' holds dates: {setting('dates', name)} turns them into days since 1970, "
                f"{setting('drop', name)} leaves it out"
            )
        return Column(name, "date"), days(column)[:, None], "date"
    if name in dates:
        raise UserError(f"csv.dates: column '{name}' holds {kind} such as '{column[0]}': write dates as 2020-12-31")
    if kind == "numbers" and name not in categories:
        return Column(name), column[:, None], "number"
    if name not in categories:
        refuse_stray_text(name, column)
    return _one_hot(name, as_text(column), kind)


def as_text(column: np.ndarray) -> np.ndarray:
    if column.dtype == object:
        return column
    lacking = missing(column)
    texts = [_number_text(v) for v in column] if column.dtype.kind == "f" else [str(v) for v in column]
    return np.array([None if gone else text for text, gone in zip(texts, lacking, strict=True)], dtype=object)


def _number_text(value: float) -> str:
    """A number as people write it; different numbers are different texts."""
    return f"{value:.0f}" if value == round(value, 0) and abs(value) < 2**53 else f"{value:.15g}"


def _one_hot(
    name: str, column: np.ndarray, kind: Literal["text", "numbers", "dates"]
) -> tuple[Column, np.ndarray, str]:
    lacking = missing(column)
    text = np.where(lacking, "", column).astype(str)
    levels = np.unique(text[~lacking])
    most = min(MAX_LEVELS, max(2, len(column) // 10))
    if len(levels) > most:
        raise UserError(
            f"column '{name}' is a category with {len(levels)} distinct values (e.g. '{levels[0][:40]}') in "
            f"{len(column)} rows, more than {most}: {setting('drop', name)} leaves it out"
            + _written_otherwise(levels[0])
        )
    values = (text[:, None] == levels[1:]).astype(np.float64)
    values[lacking] = np.nan
    base = f", base '{levels[0]}'" if len(levels) else ""
    described = Column(name, "category", tuple(levels.tolist()), kind)
    return described, values, f"category of {counted(len(levels), 'level')}{base}"


def _written_otherwise(text: str) -> str:
    """What to do about text that would be a number or a date if it were written in another way."""
    if re.fullmatch(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}", text):
        return "; if these are dates, write them as 2020-12-31"
    if re.fullmatch(r"-?\d+,\d+", text):
        return "; if these are numbers, write them with a decimal point and without commas between thousands"
    if re.fullmatch(r"[^\w.-]*\s*-?[\d.,' ]+\s*[^\w.]*", text):
        return "; if these are numbers, write them without signs and units"
    return ""


def labels(name: str, column: np.ndarray, task: str) -> tuple[np.ndarray, list[str]]:
    """The targets as numbers, and the two labels of a binary target, that of class 1 last."""
    if kind_of(column) == "dates":
        raise UserError(f"csv.target={name} holds dates: a target is a number or, if binary, one of two values")
    if task == "binary":
        classes, codes = np.unique(column.astype(str) if column.dtype == object else column, return_inverse=True)
        if len(classes) != 2:
            shown = ", ".join(str(value) for value in classes[:5])
            raise UserError(f"csv.target={name}: a binary target has two values, this one has {len(classes)} ({shown})")
        texts = [str(value) if column.dtype == object else _number_text(value) for value in classes]
        return codes.astype(np.float64), texts
    if column.dtype == object:
        refuse_stray_text(name, column)
        example = str(column[0])
        advice = _written_otherwise(example)
        raise UserError(f"csv.target={name} is text (e.g. '{example[:40]}'): a {task} target is a number{advice}")
    return column, []


def first_missing(columns: Iterable[tuple[str, np.ndarray]]) -> tuple[int, int, str] | None:
    """How many values are missing, and the row (from 1) and column of the first; None if none is."""
    count, first = 0, None
    for name, column in columns:
        lacking = missing(column)
        count += int(lacking.sum())
        if lacking.any() and (first is None or int(np.argmax(lacking)) + 1 < first[0]):
            first = int(np.argmax(lacking)) + 1, name
    return None if first is None else (count, *first)
