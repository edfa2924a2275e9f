"""The one schema of a user's table: learned from training rows (`Schema.fit`), saved with the
model, and applied to whatever table follows (`Schema.encode`): training rows, test rows, rows to
predict on, a DataFrame, an array."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest, shortened
from dlmexp.common.literals import setting
from dlmexp.data.config import CsvConfig

ValueKind = Literal["text", "numbers", "dates"]
Label = int | str
Values = Mapping[str, np.ndarray]
"""Columns by name: float64 (missing: NaN), object (text, missing: None) or datetime64 (missing: NaT), [rows] each."""

MISSING_LEVEL = "(missing)"
MONEY = re.compile(r"[-+]?[$€£¥]? ?[-+]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)? ?[$€£¥]?", re.ASCII)
SURELY_MONEY = re.compile(r"[$€£¥.]|,\d{3},")  # else "1,234" may have a decimal comma


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of numbers, of dates (as days since 1970), or a category, which with K `levels`, in
    order, becomes K - 1 binary features; `of` is what the levels were before they were text,
    `format` how dates are written if not as 2020-12-31."""

    name: str
    kind: Literal["number", "date", "category"] = "number"
    levels: tuple[str, ...] = ()
    of: ValueKind = "text"
    format: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features; that of a level is `column=level`, and the first level is all
        zeros."""
        return (
            tuple(f"{self.name}={level}" for level in self.levels[1:])
            if self.kind == "category"
            else (self.name,)
        )

    @property
    def words(self) -> str:
        """What it is, for people."""
        base = f", base '{self.levels[0]}'" if self.levels else ""
        return (
            f"category of {counted(len(self.levels), 'level')}{base}"
            if self.kind == "category"
            else self.kind
        )


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target and the columns of features in the order of training; of a binary target, its
    labels for 0 and 1; and how its files are read."""

    target: str
    columns: tuple[Column, ...]
    labels: tuple[Label, Label] | None = None
    fill: bool = False  # a missing value is taken as the mean of the training rows
    sep: str | None = None  # between the columns of a text file; None: by the ending of its name
    na: tuple[str, ...] = ()  # further words for a missing value
    log: bool = False  # the model predicts the logarithm of the target

    @classmethod
    def plain(cls, features: Sequence[str] | int, task: str) -> "Schema":
        """Columns of numbers under the given names, or so many called x1, x2, ...; the target is
        y."""
        names = [f"x{k + 1}" for k in range(features)] if isinstance(features, int) else features
        return cls("y", tuple(Column(name) for name in names), (0, 1) if task == "binary" else None)

    @classmethod
    def fit(
        cls, values: Values, features: Sequence[str], task: str, options: CsvConfig
    ) -> tuple["Schema", Values]:
        """What the columns `features` and the target of training rows are, whatever may be wrong
        with them; and the columns, in which text that is dates is datetime64, and a target of
        amounts of money is numbers."""
        target, formats, values = str(options.target), {}, dict(values)
        for name in values:
            for format in (None, options.date_format):
                if (
                    value_kind(values[name]) == "text"
                    and (dates := parse_texts(values[name], "dates", format)) is not None
                ):
                    values[name], formats[name] = dates, format
        if task != "binary" and value_kind(values[target]) == "text":
            values[target] = money(values[target])
        classes = (
            as_text(np.unique(values[target][~pd.isna(values[target])])) if task == "binary" else ()
        )
        labels = (as_label(classes[0]), as_label(classes[1])) if len(classes) == 2 else None
        columns = []
        for name in features:
            kind, format = value_kind(values[name]), formats.get(name)
            if kind != "text" and name not in options.categories:
                columns.append(Column(name, "date" if kind == "dates" else "number", format=format))
                continue
            texts = as_text(values[name])
            levels = np.unique(texts[~pd.isna(texts)]).tolist()
            levels += [MISSING_LEVEL] if options.missing == "level" and pd.isna(texts).any() else []
            columns.append(Column(name, "category", tuple(dict.fromkeys(levels)), kind, format))
        fill = options.missing in ("mean", "level")
        return cls(
            target, tuple(columns), labels, fill, options.sep, tuple(options.na), options.log
        ), values

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features, in the order of the arrays."""
        return tuple(name for column in self.columns for name in column.features)

    def encode(self, rows: Any, first: int = 1, source: str = "X") -> Float[np.ndarray, "N D"]:
        """The features of `rows` before normalisation, missing values as NaN.

        `rows` is an Arrow table, a DataFrame or `Values` with the columns of the schema in any
        order (others are ignored), or an array with exactly these columns in their order. A mistake
        is a `UserError` that names `source`, the row (counted from `first`) and the column."""
        values = rows if isinstance(rows, dict) else self._values(rows, source)
        encoded = [
            _encoded(column, values[column.name], self.fill, first, source)
            for column in self.columns
        ]
        return np.concatenate([np.empty((len(encoded[0]) if encoded else 0, 0)), *encoded], axis=1)

    def encode_target(self, values: np.ndarray) -> Float[np.ndarray, " N"]:
        """The targets that a model is trained on: numbers, their logarithms, or 0 and 1 for the
        labels."""
        if self.labels is not None:
            return (as_text(values) == str(self.labels[1])).astype(np.float64)
        return np.log(values) if self.log else values

    def check_columns(self, names: Sequence[str], source: str) -> None:
        """UserError for columns that are missing in a table with these names, or there twice."""
        wanted = [column.name for column in self.columns]
        if absent := [name for name in wanted if name not in names]:
            listed, advice = (
                shortened("', '".join(absent)),
                nearest(absent[0], list(names)).replace("valid:", "it has"),
            )
            raise UserError(f"{source} has no column '{listed}', which the model needs: {advice}")
        if twice := [name for name in wanted if list(names).count(name) > 1]:
            raise UserError(f"{source}: several columns are called {', '.join(twice)}")

    def _values(self, rows: Any, source: str) -> Values:
        wanted = [column.name for column in self.columns]
        if not isinstance(rows, pa.Table | pa.RecordBatch | pd.DataFrame):
            array = np.asarray(rows)
            if array.ndim != 2 or array.shape[1] != len(wanted):
                known = f"the {counted(len(wanted), 'column')} of training ({shortened(', '.join(wanted))})"
                raise UserError(
                    f"{source} has shape {array.shape}: give rows with {known}, or a DataFrame"
                )
            rows = pd.DataFrame(array, columns=wanted)
        items = (
            rows.items()
            if isinstance(rows, pd.DataFrame)
            else zip(rows.schema.names, rows.columns, strict=True)
        )
        columns = [(str(name), column) for name, column in items]
        self.check_columns([name for name, _ in columns], source)
        return {
            name: plain_values(name, column, source) for name, column in columns if name in wanted
        }


def value_kind(values: np.ndarray) -> ValueKind:
    return (
        "text" if values.dtype.kind == "O" else "dates" if values.dtype.kind == "M" else "numbers"
    )


def as_numbers(values: np.ndarray) -> np.ndarray:
    """Numbers as they are, and dates as days since 1970-01-01, missing ones as NaN."""
    return (
        (values - np.datetime64(0, "D")) / np.timedelta64(1, "D")
        if value_kind(values) == "dates"
        else values
    )


def as_text(values: np.ndarray) -> np.ndarray:
    """Values as people write them, different ones differently; None where missing."""
    if values.dtype.kind == "O":
        return values
    # Whole numbers in full; -0 is 0.
    written = (
        (lambda v: f"{v + 0.0:.15g}" if abs(v) < 1e15 else f"{v:.0f}")
        if values.dtype.kind == "f"
        else str
    )
    texts = np.array([written(value) for value in values], dtype=object)
    texts[pd.isna(values)] = None
    return texts


def as_label(text: str) -> Label:
    """A label as a whole number where it is one."""
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text, re.ASCII) else text


def plain_values(
    name: str, column: pa.Array | pa.ChunkedArray | pd.Series, source: str
) -> np.ndarray:
    """A column of an Arrow table or a DataFrame as `Values` has it."""
    if isinstance(column, pd.Series):
        try:
            column = pa.array(column, from_pandas=True)
        except (
            pa.ArrowException,
            TypeError,
        ):  # no common type: as text, in which the odd one is named later
            column = pa.array(column.astype("string"), from_pandas=True)
    is_a, kind = pa.types, column.type
    if is_a.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if is_a.is_string(kind) or is_a.is_large_string(kind):
        return np.asarray(column).astype(object)
    plain = pa.timestamp("us") if is_a.is_date(kind) or is_a.is_timestamp(kind) else pa.float64()
    with suppress(
        pa.ArrowException
    ):  # a safe cast refuses integers beyond 2^53; rounding them is fine
        return np.asarray(column.cast(plain, safe=False)).astype(plain.to_pandas_dtype())
    raise UserError(
        f"{source}: column '{name}' holds {kind}: {setting('drop', [name])} leaves it out"
    )


def money(texts: np.ndarray) -> np.ndarray:
    """Amounts such as '$1,234.50' as numbers, missing ones as NaN; the texts themselves if one is
    no amount."""
    known = [text.strip() for text in texts if text is not None]
    if not all(map(MONEY.fullmatch, known)) or not any(map(SURELY_MONEY.search, known)):
        return texts
    return np.array(
        [np.nan if text is None else float(re.sub("[$€£¥, ]", "", text)) for text in texts]
    )


def parse_texts(texts: np.ndarray, kind: str, format: str | None = None) -> np.ndarray | None:
    """Text as numbers (`true` and `false` as 1 and 0), or as dates, written as 2020-12-31 or in a
    `format` of `strftime`; None if a value is neither. Times with an offset are taken in UTC."""
    if format is not None:
        with suppress(ValueError):
            return (
                pd.to_datetime(pd.Series(texts), format=format).to_numpy().astype("datetime64[us]")
            )
        return None
    trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    dates = kind == "dates"
    for type in (
        (pa.timestamp("us"), pa.timestamp("us", "UTC")) if dates else (pa.float64(), pa.bool_())
    ):
        with suppress(pa.ArrowInvalid):
            trimmed.drop_null()[:1].cast(type)  # a whole column of other text takes long to fail
            values = trimmed.cast(type)
            return (
                np.asarray(values).astype("datetime64[us]")
                if dates
                else np.asarray(values.cast(pa.float64()))
            )
    return None


def _encoded(
    column: Column, values: np.ndarray, fill: bool, first: int, source: str
) -> Float[np.ndarray, "N k"]:
    """A column as its features, missing values as NaN. Text is parsed where training had none."""

    def refuse(row: Any, why: str) -> UserError:
        return UserError(f"{source}: row {first + int(row)}, column '{column.name}': {why}")

    wanted = {"number": "numbers", "date": "dates"}.get(column.kind, column.of)
    known = np.flatnonzero(~pd.isna(values))
    if not len(known):
        values = np.full(len(values), np.nan)
    elif wanted != "text" and value_kind(values) == "text":
        if (parsed := parse_texts(values, wanted, column.format)) is None:
            pairs = (
                (row, values[[known[0], row]]) for row in known
            )  # a value may be odd only beside the first
            row = next(
                row for row, pair in pairs if parse_texts(pair, wanted, column.format) is None
            )
            like = (
                "a number"
                if wanted == "numbers"
                else f"a date written as {column.format or '2020-12-31'}"
            )
            raise refuse(row, f"'{values[row]}' is not {like}, as others are")
        values = parsed
    elif wanted not in ("text", value_kind(values)):
        held = f"holds {value_kind(values)}; the model was trained on {wanted}"
        raise UserError(f"{source}: column '{column.name}' {held}")
    lacking, own_level = pd.isna(values), MISSING_LEVEL in column.levels
    if lacking.any() and not fill and not own_level:
        raise refuse(np.argmax(lacking), "the value is missing; fill it in")
    if column.kind != "category":
        numbers = as_numbers(values)
        if (infinite := np.isinf(numbers)).any():
            raise refuse(np.argmax(infinite), "the value is infinite")
        return numbers[:, None]
    texts = np.where(lacking, MISSING_LEVEL, as_text(values)) if own_level else as_text(values)
    codes = pd.Index(column.levels, dtype=object).get_indexer(pd.Index(texts, dtype=object))
    if (unknown := (codes < 0) & ~pd.isna(texts)).any():
        row, levels = np.argmax(unknown), shortened(", ".join(column.levels))
        raise refuse(
            row, f"'{texts[row]}' is not a value that the model was trained on; there were {levels}"
        )
    features = (codes[:, None] == np.arange(1, len(column.levels))).astype(np.float64)
    features[pd.isna(texts)] = np.nan
    return features
