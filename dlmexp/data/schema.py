"""The one schema of a user's table: learned from training rows (`fit`), saved with the model, and applied to whatever
table follows (`encode`): training rows, a file of test rows, rows to predict on, a DataFrame, an array."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.console import counted
from dlmexp.data.advice import setting
from dlmexp.errors import UserError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["text", "numbers", "dates"]
Label = int | str
Values = Mapping[str, np.ndarray]
"""Columns by name: float64 (missing: NaN), object (text, missing: None) or datetime64 (missing: NaT), [rows] each."""

SHOWN = 8  # names or values in a message
MAX_LEVELS = 100
MANY_WORDS = 10  # so many that are no numbers are no words for a missing value
MISSING_LEVEL = "(missing)"
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y", "%Y%m%d")
TRUTH = {"true": 1.0, "false": 0.0}
MONEY = re.compile(r"[-+]?[$€£¥]? ?[-+]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)? ?[$€£¥]?", re.ASCII)
SURELY_MONEY = re.compile(r"[$€£¥.]|,\d{3},")  # else "1,234" may have a decimal comma


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of numbers, of dates (as days since 1970), or a category, which with K `levels`, in order, becomes K - 1
    binary features; `of` is what the levels were before they were text, `format` how dates are written if not as
    2020-12-31."""

    name: str
    kind: Literal["number", "date", "category"] = "number"
    levels: tuple[str, ...] = ()
    of: Kind = "text"
    format: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features; that of a level is `column=level`, and the first level is all zeros."""
        return tuple(f"{self.name}={level}" for level in self.levels[1:]) if self.kind == "category" else (self.name,)

    @property
    def words(self) -> str:
        """What it is, for people."""
        if self.kind != "category":
            return self.kind
        base = f", base '{self.levels[0]}'" if self.levels else ""
        return f"category of {counted(len(self.levels), 'level')}{base}"


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target and the columns of features in the order of training; of a binary target, its labels for 0 and 1; and
    how its files are read."""

    target: str
    columns: tuple[Column, ...]
    labels: tuple[Label, Label] | None = None
    fill: bool = False  # a missing value is taken as the mean of the training rows
    sep: str | None = None  # between the columns of a text file; None: by the ending of its name
    na: tuple[str, ...] = ()  # further words for a missing value
    log: bool = False  # the model predicts the logarithm of the target

    @classmethod
    def plain(cls, features: Sequence[str] | int, task: str) -> "Schema":
        """Columns of numbers under the given names, or so many called x1, x2, ...; the target is y."""
        names = [f"x{k + 1}" for k in range(features)] if isinstance(features, int) else features
        return cls("y", tuple(Column(name) for name in names), (0, 1) if task == "binary" else None)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features, in the order of the arrays."""
        return tuple(name for column in self.columns for name in column.features)

    def encode(self, rows: Any, first: int = 1, source: str = "X") -> Float[np.ndarray, "N D"]:
        """The features of `rows` before normalisation, missing values as NaN.

        `rows` is an Arrow table or a DataFrame with the columns of the schema in any order (others are ignored), or an
        array with exactly these columns in their order. A mistake is a `UserError` that names `source`, the row
        (counted from `first`) and the column.
        """
        columns = self._arrow_columns(rows, source)
        typed = {c.name: _typed(c, columns[c.name], first, source) for c in self.columns}
        return self.encode_values(typed, first, source)

    def encode_values(self, values: Values, first: int = 1, source: str = "X") -> Float[np.ndarray, "N D"]:
        """The same for columns that have the types of training already."""
        rows = len(values[self.columns[0].name]) if self.columns else 0
        X, at = np.empty((rows, len(self.features))), 0
        for column in self.columns:
            width = len(column.features)
            X[:, at : at + width] = _encoded(column, values[column.name], self.fill, first, source)
            at += width
        return X

    def encode_target(self, values: np.ndarray) -> Float[np.ndarray, " N"]:
        """The targets that a model is trained on: numbers, their logarithms, or 0 and 1 for the labels."""
        if self.labels is None:
            y = money(values) if values.dtype == object else values
            return np.log(y) if self.log else y
        return (as_text(values) == str(self.labels[1])).astype(np.float64)

    def check_columns(self, names: Sequence[str], source: str) -> None:
        """UserError for columns that are missing in a table with these names, or there twice."""
        wanted = [column.name for column in self.columns]
        if absent := [name for name in wanted if name not in names]:
            close = nearest(absent[0], list(names)).replace("valid:", "it has") if names else "it has none"
            more = f" (and {len(absent) - 1} more: {', '.join(absent[1:SHOWN])})" if len(absent) > 1 else ""
            raise UserError(f"{source} has no column '{absent[0]}'{more}, which the model needs: {close}")
        times = Counter(names)
        if twice := sorted(name for name in wanted if times[name] > 1):
            raise UserError(f"{source}: several columns are called {', '.join(twice)}")

    def _arrow_columns(self, rows: Any, source: str) -> "dict[str, pa.Array | pa.ChunkedArray]":
        import pandas as pd
        import pyarrow as pa

        if isinstance(rows, pa.Table | pa.RecordBatch):
            self.check_columns(rows.schema.names, source)
            return {column.name: rows.column(column.name) for column in self.columns}
        if isinstance(rows, pd.DataFrame):
            names = [str(name) for name in rows.columns]
            self.check_columns(names, source)
            return {c.name: _arrow(rows.iloc[:, names.index(c.name)]) for c in self.columns}
        array = np.asarray(rows)
        if array.ndim != 2 or array.shape[1] != len(self.columns):
            shown = ", ".join(column.name for column in self.columns[:SHOWN])
            raise UserError(
                f"{source} has shape {array.shape}: give rows with the {counted(len(self.columns), 'column')} of "
                f"training ({shown}{', ...' * (len(self.columns) > SHOWN)}), or a DataFrame with these names"
            )
        return {column.name: _arrow(array[:, k].tolist()) for k, column in enumerate(self.columns)}


def learn_column(
    name: str, values: np.ndarray, category: bool = False, level: bool = False, format: str | None = None
) -> tuple[Column, np.ndarray]:
    """What a column of training rows is, and its values as that. `category`: one, whatever it holds; `level`: missing
    values of a category are a level of their own; `format`: how dates are written."""
    if format is not None and (dates := parse_dates(values, format)) is not None:
        values = dates
    else:
        format = None
    kind = kind_of(values)
    if kind != "text" and not category:
        return Column(name, "date" if kind == "dates" else "number", format=format), values
    texts = as_text(values)
    lacking = missing(texts)
    levels = np.unique(texts[~lacking].astype(str)).tolist()
    if level and lacking.any():
        levels.append(MISSING_LEVEL)
    return Column(name, "category", tuple(levels), kind, format), values


def kind_of(values: np.ndarray) -> Kind:
    return "text" if values.dtype.kind == "O" else "dates" if values.dtype.kind == "M" else "numbers"


def missing(values: np.ndarray) -> np.ndarray:
    """Which rows have no value."""
    import pandas as pd

    return np.asarray(pd.isna(values))


def days(values: np.ndarray) -> np.ndarray:
    """Dates as days since 1970-01-01, missing ones as NaN."""
    counts = values.astype("datetime64[us]").astype("timedelta64[us]") / np.timedelta64(24 * 3600 * 10**6, "us")
    return np.where(np.isnat(values), np.nan, counts)


def as_text(values: np.ndarray) -> np.ndarray:
    """Values as people write them, different ones differently; None where missing."""
    if values.dtype == object:
        return values
    texts = [number_text(v) for v in values] if values.dtype.kind == "f" else [str(v) for v in values]
    found = np.array(texts, dtype=object)
    found[missing(values)] = None
    return found


def number_text(value: float) -> str:
    value += 0.0  # -0 is 0
    return f"{value:.0f}" if value == round(value, 0) and abs(value) < 2**53 else f"{value:.15g}"


def as_label(text: str) -> Label:
    """A label as a whole number where it is one."""
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text, re.ASCII) else text


def values_of(name: str, column: "pa.Array | pa.ChunkedArray", source: str) -> np.ndarray:
    """A column of an Arrow table as `Values` has it. Text of which all is written as dates (2020-12-31) is dates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, is_a = column.type, pa.types
    if is_a.is_null(kind):
        return np.full(len(column), np.nan)
    if is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        # A safe cast refuses integers beyond 2^53; rounding them is fine for features and targets.
        return pc.cast(column, pa.float64(), safe=False).to_numpy()
    if is_a.is_string(kind) or is_a.is_large_string(kind):
        dates = None
        with suppress(pa.ArrowInvalid):
            dates = pc.cast(column, pa.timestamp("us"))
        if dates is None or dates.null_count == len(dates):
            return column.to_numpy().astype(object)
        column, kind = dates, dates.type
    if is_a.is_date(kind) or is_a.is_timestamp(kind):
        return pc.cast(column, pa.timestamp("us"), safe=False).to_numpy().astype("datetime64[us]")
    advice = f"leave it out with {setting('drop', name)}, or turn it into numbers"
    raise UserError(f"{source}: column '{name}' holds {kind}: {advice}")


def money(texts: np.ndarray) -> np.ndarray:
    """Amounts such as '$1,234.50' as numbers, missing ones as NaN; `ValueError` if one is none."""
    known = [text.strip() for text in texts if text is not None]
    if not all(map(MONEY.fullmatch, known)) or not any(map(SURELY_MONEY.search, known)):
        raise ValueError("these are no amounts of money")
    return np.array([np.nan if text is None else float(re.sub("[$€£¥, ]", "", text)) for text in texts])


def parse_dates(texts: np.ndarray, format: str) -> np.ndarray | None:
    """Text in a format of `strftime` as datetime64; None if a value is written in another way, or if there is none."""
    import pandas as pd

    if texts.dtype != object or missing(texts).all():
        return None
    with suppress(ValueError):
        return pd.to_datetime(pd.Series(texts), format=format).to_numpy().astype("datetime64[us]")
    return None


def _arrow(values: Any) -> "pa.Array":
    """A column in memory for Arrow. Values without a common type are taken as text, which names the odd one later."""
    import pandas as pd
    import pyarrow as pa

    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError):
        return pa.array([None if pd.isna(value) is True else str(value) for value in values], pa.string())


def _typed(column: Column, values: "pa.Array | pa.ChunkedArray", first: int, source: str) -> np.ndarray:
    """The values as training had them: numbers, text or dates; text is parsed where training had none."""
    wanted = {"number": "numbers", "date": "dates"}.get(column.kind, column.of)
    found = values_of(column.name, values, source)
    if missing(found).all():
        nothing = {"numbers": np.nan, "dates": np.datetime64("NaT", "us"), "text": None}[wanted]
        return np.full(len(found), nothing, dtype=object if wanted == "text" else None)
    if found.dtype == object and wanted != "text":
        place = f"{source}: row {{row}}, column '{column.name}':"
        return _parsed_dates(found, column, first, place) if wanted == "dates" else _parsed(found, first, place)
    if wanted == "text" and kind_of(found) == "numbers":
        found = as_text(found)
    if kind_of(found) != wanted:
        raise UserError(f"{source}: column '{column.name}' holds {kind_of(found)}; the model was trained on {wanted}")
    return found


def _parsed(texts: np.ndarray, first: int, place: str) -> np.ndarray:
    """Text as numbers, `true` and `false` as 1 and 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    with suppress(pa.ArrowInvalid):
        found = trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not (np.isnan(found) & ~missing(texts)).any():
            return found
    numbers = np.full(len(texts), np.nan)
    for row, text in enumerate(trimmed.to_pylist()):
        try:
            if text is not None:
                numbers[row] = TRUTH[text.lower()] if text.lower() in TRUTH else float(text)
        except ValueError:
            raise UserError(f"{place.format(row=first + row)} '{text}' is not a number") from None
    return numbers


def _parsed_dates(texts: np.ndarray, column: Column, first: int, place: str) -> np.ndarray:
    """Text as dates; those with an offset are taken in UTC, as in training."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.format is not None:
        if (found := parse_dates(texts, column.format)) is not None:
            return found
        wrong = (k for k in np.flatnonzero(~missing(texts)) if parse_dates(texts[k : k + 1], column.format) is None)
        row = int(next(wrong))
        raise UserError(f"{place.format(row=first + row)} '{texts[row]}' is not a date written as {column.format}")
    trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    kinds = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
    for kind in kinds:
        with suppress(pa.ArrowInvalid):
            return trimmed.cast(kind).to_numpy(zero_copy_only=False).astype("datetime64[us]")
    present = [(row, text) for row, text in enumerate(trimmed.to_pylist()) if text is not None]
    usual = next((kind for kind in kinds if _reads_as(present[0][1], kind)), kinds[0])
    row, text = next((row, text) for row, text in present if not _reads_as(text, usual))
    like = "2020-12-31" if usual == kinds[0] else "2020-12-31T12:00Z, with an offset as in the first row"
    raise UserError(f"{place.format(row=first + row)} '{text}' is not a date such as {like}")


def _reads_as(text: str, kind: "pa.DataType") -> bool:
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        pa.scalar(text, pa.string()).cast(kind)
        return True
    return False


def _encoded(column: Column, values: np.ndarray, fill: bool, first: int, source: str) -> Float[np.ndarray, "N k"]:
    """One column as its features, missing values as NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def refuse(rows: np.ndarray, why: str) -> UserError:
        return UserError(f"{source}: row {first + int(np.argmax(rows))}, column '{column.name}': {why}")

    lacking = missing(values)
    own_level = column.kind == "category" and MISSING_LEVEL in column.levels
    if lacking.any() and not fill and not own_level:
        raise refuse(lacking, "the value is missing; fill it in")
    if column.kind == "date":
        return days(values)[:, None]
    if column.kind == "number":
        if (infinite := np.isinf(values)).any():
            raise refuse(infinite, "the value is infinite")
        return values[:, None]
    texts = as_text(values)
    if own_level:
        texts, lacking = np.where(lacking, MISSING_LEVEL, texts), np.zeros(len(texts), dtype=bool)
    levels = pa.array(column.levels, pa.string())
    codes = pc.index_in(pa.array(texts, pa.string()), levels)  # pyright: ignore[reportAttributeAccessIssue]
    found = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    if (unknown := (found < 0) & ~lacking).any():
        known = ", ".join(column.levels[:SHOWN]) + (", ..." if len(column.levels) > SHOWN else "")
        odd = texts[int(np.argmax(unknown))]
        raise refuse(unknown, f"'{odd}' is not a value that the model was trained on; there were {known}")
    features = (found[:, None] == np.arange(1, len(column.levels))).astype(np.float64)
    features[lacking] = np.nan
    return features
