"""The schema of a user's table: what its columns are, and how they become features.

`Schema.fit` learns it from training rows, and it is saved with the model. `Schema.encode` turns
every table into features: training rows, test rows, and rows to predict on, in files or in memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest, shortened
from dlmexp.data.config import CsvConfig
from dlmexp.data.values import (
    Label,
    ValueKind,
    Values,
    as_label,
    as_numbers,
    as_text,
    parse_dates,
    parse_numbers,
    plain_values,
    value_kind,
    without_markers,
)
from dlmexp.data.written import (
    PLAIN,
    Decimal,
    date_formats,
    distinct,
    has_doubtful_decimal,
    match_all,
    parse_times,
    parse_written,
)

MISSING_LEVEL = "(missing)"
"""The level that missing values of a category have with `csv.missing=level`."""
TIME_OF_DAY = "time"
"""The `Column.format` of columns of times of day."""
OTHER_LEVEL = "(other)"
"""The name of the last indicator of a category, which is 1 for levels that no training row has."""

Unseen = Literal["error", "base"]
"""How to treat a row with a level that no training row had.

error: the row has a problem, and no prediction; base: it is predicted from the other columns."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of numbers, of dates (as days since 1970), or a category.

    A category with K levels becomes K + 1 features, its indicators. Exactly one of them is 1: the
    indicator of the row's level, or the last one if no training row had this level. The kernel
    makes any two levels equally distant (`dlmexp.core.gp.mixed_kernels`). In models of version 0.3
    and earlier, a category becomes K - 1 features, which are all zero for the first level
    ("dummies").

    Attributes:
        name: The name in the table.
        kind: What the column is.
        levels: The distinct values of a category in training rows, as text, sorted.
        of: The kind of a category's values in the table.
        format: How dates are written, None for 2020-12-31; `TIME_OF_DAY` for a column of times of
            day, which become hours.
        encoding: How a category becomes features.
    """

    name: str
    kind: Literal["number", "date", "category"] = "number"
    levels: tuple[str, ...] = ()
    of: ValueKind = "text"
    format: str | None = None
    encoding: Literal["dummies", "indicators"] = "dummies"

    @property
    def has_indicators(self) -> bool:
        """Whether the column is a category whose features are indicators."""
        return self.kind == "category" and self.encoding == "indicators"

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features: `column=level` for the levels of a category."""
        if self.kind != "category":
            return (self.name,)
        levels = (*self.levels, OTHER_LEVEL) if self.has_indicators else self.levels[1:]
        return tuple(f"{self.name}={level}" for level in levels)

    @property
    def description(self) -> str:
        """A description for people."""
        if self.kind == "number":
            return "time of day in hours" if self.format == TIME_OF_DAY else "number"
        if self.kind == "date":
            return f"date as {self.format}" if self.format else "date"
        description = f"category of {counted(len(self.levels), 'level')}"
        has_base_level = self.levels and not self.has_indicators  # all dummies are 0 for the base
        return f"{description}, base '{self.levels[0]}'" if has_base_level else description

    @property
    def value_kind(self) -> ValueKind:
        """The kind of values in the table."""
        if self.kind == "category":
            return self.of
        return "dates" if self.kind == "date" else "numbers"


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target, the columns that become features, and how to read files with these columns.

    Attributes:
        target: The name of the target.
        columns: The columns that become features, in the order of training.
        labels: The labels of a binary target for the classes 0 and 1.
        fill: Whether missing values are allowed. The mean of the training rows replaces a missing
            number; a missing category counts as a level that no training row has.
        sep: The separator of columns in a text file. None: the ending of the file's name decides.
        na: Texts that mark missing values, besides the usual ones.
        log: Whether the model predicts the logarithm of the target.
        decimal: The decimal mark of numbers that are text.
        encoding: The encoding of text files that are neither in UTF-8 nor in UTF-16.
    """

    target: str
    columns: tuple[Column, ...]
    labels: tuple[Label, Label] | None = None
    fill: bool = False
    sep: str | None = None
    na: tuple[str, ...] = ()
    log: bool = False
    decimal: Decimal = "point"
    encoding: str | None = None

    @classmethod
    def plain(cls, features: Sequence[str] | int, task: str) -> "Schema":
        """Return a schema of columns of numbers and the target y.

        Args:
            features: The names of the columns, or their number; then they are called x1, x2, ...
            task: regression, binary or count.
        """
        if isinstance(features, int):
            features = [f"x{k + 1}" for k in range(features)]
        columns = tuple(Column(name) for name in features)
        return cls("y", columns, labels=(0, 1) if task == "binary" else None)

    @classmethod
    def fit(
        cls, values: Values, features: Sequence[str], task: str, options: CsvConfig
    ) -> tuple["Schema", Values]:
        """Learn the schema of training rows; `table_checks` reports the problems of a table.

        Args:
            values: The columns of the training rows.
            features: The names of the columns that become features.
            task: regression, binary or count.
            options: The settings `csv.*`.

        Returns:
            The schema, and the columns after parsing: texts that are dates or numbers have become
            datetime64 or float64.
        """
        target = str(options.target)
        # Categories, and the labels of a binary target, stay text even if they look like numbers.
        never_numbers = set(options.categories)
        if task == "binary":
            never_numbers.add(target)
        values, formats = _parsed_columns(values, options, never_numbers)
        columns = [_column(name, values[name], formats.get(name), options) for name in features]
        labels = _labels(values[target], options.positive) if task == "binary" else None
        schema = cls(
            target=target,
            columns=tuple(columns),
            labels=labels,
            fill=options.missing in ("mean", "level"),
            sep=options.sep,
            na=tuple(options.na),
            log=options.log,
            decimal="comma" if options.decimal == "comma" else "point",
            encoding=options.encoding,
        )
        return schema, values

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features, in the order of the arrays."""
        names = []
        for column in self.columns_of_features:
            names.extend(column.features)
        return tuple(names)

    @property
    def columns_of_features(self) -> tuple[Column, ...]:
        """The columns in the order of their features: columns with indicators are last.

        The kernel needs this order. An array that a user gives in place of a table has the order of
        `columns`.
        """
        return tuple(sorted(self.columns, key=lambda column: column.has_indicators))

    @property
    def categories(self) -> tuple[int, ...]:
        """The number of indicators of each category. Indicators are the last features."""
        with_indicators = [column for column in self.columns_of_features if column.has_indicators]
        return tuple(len(column.features) for column in with_indicators)

    def encode(
        self, rows: Any, first: int = 1, source: str = "X", unseen: Unseen = "error"
    ) -> Float[np.ndarray, "N D"]:
        """Return the features of `rows` before normalisation, missing values as NaN.

        A missing category has the indicator of unknown levels.

        Args:
            rows: An Arrow table, a DataFrame or `Values` with the columns of the schema in any
                order; other columns are ignored. Or an array with exactly the columns of the
                schema, in their order.
            first: The number of the first row, for messages.
            source: What the rows are called in messages.
            unseen: How to treat a row with a level that no training row had.

        Raises:
            UserError: a value cannot be encoded; the message names its row and column.
        """
        encoded = self.encode_rows(rows, source, unseen)
        if encoded.problems:
            row, problem = next(iter(encoded.problems.items()))
            raise UserError(f"{source}: row {first + row}, {problem}")
        return encoded.X

    def encode_rows(
        self, rows: Any, source: str = "X", unseen: Unseen = "error", fill: bool = False
    ) -> "EncodedRows":
        """Return the features of the rows that can be encoded, and the problems of other rows.

        Args:
            rows: A table, or an array, in one of the forms that `encode` accepts.
            source: What the rows are called in messages.
            unseen: How to treat a row with a level that no training row had.
            fill: Whether to allow missing values even if `Schema.fill` is false.

        Raises:
            UserError: a column is missing, or of another kind than in training.
        """
        values = rows if isinstance(rows, dict) else self._values(rows, source)
        rules = _ValueRules(fill=self.fill or fill, unseen=unseen, decimal=self.decimal)
        problems: dict[int, str] = {}
        features = []
        for column in self.columns_of_features:
            column_values = without_markers(values[column.name], self.na)
            location = _Location(source, column.name, problems)
            features.append(_encoded(column, column_values, rules, location))
        n_rows = len(features[0]) if features else 0
        no_features = np.empty((n_rows, 0))  # for a schema without columns
        X = np.concatenate([no_features, *features], axis=1)
        return EncodedRows(X, problems)

    def encode_target(self, values: np.ndarray) -> Float[np.ndarray, " N"]:
        """Return targets for training: numbers, their logarithms, or 0 and 1 for the labels."""
        if self.labels is not None:
            _, positive_label = map(str, self.labels)
            is_positive = as_text(values) == positive_label
            return is_positive.astype(np.float64)
        return np.log(values) if self.log else values

    def check_columns(self, names: Sequence[str], source: str) -> None:
        """Raise UserError if a column of the schema is missing in a table, or occurs twice.

        Args:
            names: The columns of the table.
            source: What the table is called in messages.
        """
        required = [column.name for column in self.columns]
        absent = [name for name in required if name not in names]
        if absent:
            listed = shortened("', '".join(absent))
            # If no name is close, `nearest` says "valid: a, b"; here it is "it has a, b".
            advice = nearest(absent[0], list(names)).replace("valid:", "it has")
            raise UserError(f"{source} has no column '{listed}', which the model needs: {advice}")
        duplicates = [name for name in required if list(names).count(name) > 1]
        if duplicates:
            raise UserError(f"{source}: several columns are called {', '.join(duplicates)}")

    def _values(self, rows: Any, source: str) -> Values:
        """Return the values of the schema's columns in a table or an array."""
        if not isinstance(rows, pa.Table | pa.RecordBatch | pd.DataFrame):
            rows = self._array_as_frame(rows, source)
        names = _column_names(rows)
        self.check_columns(names, source)
        required = {column.name for column in self.columns}
        values = {}
        for position, name in enumerate(names):
            if name not in required:
                continue
            is_frame = isinstance(rows, pd.DataFrame)
            column = rows.iloc[:, position] if is_frame else rows.column(position)
            values[name] = plain_values(name, column, source)
        return values

    def _array_as_frame(self, rows: Any, source: str) -> pd.DataFrame:
        """Return an array with the columns of the schema as a DataFrame.

        Raises:
            UserError: the array does not have as many columns as the schema.
        """
        names = [column.name for column in self.columns]
        array = np.asarray(rows)
        if array.ndim == 2 and array.shape[1] == len(names):
            return pd.DataFrame(array, columns=names)
        listed = shortened(", ".join(names))
        columns = f"the {counted(len(names), 'column')} of training ({listed})"
        raise UserError(
            f"{source} has shape {array.shape}: give rows with {columns}, or a DataFrame"
        )


def _column_names(rows: pa.Table | pa.RecordBatch | pd.DataFrame) -> list[str]:
    if isinstance(rows, pd.DataFrame):
        return list(map(str, rows.columns))
    return list(rows.schema.names)


def _column(name: str, values: np.ndarray, format: str | None, options: CsvConfig) -> Column:
    """Return the description of a column that becomes features.

    Args:
        name: Its name.
        values: Its values, parsed.
        format: How dates in it are written, or `TIME_OF_DAY` (`Column.format`).
        options: The settings `csv.*`.
    """
    kind = value_kind(values)
    if kind == "text" or name in options.categories:
        levels = _levels(values, options)
        return Column(name, "category", levels, of=kind, format=format, encoding="indicators")
    return Column(name, "date" if kind == "dates" else "number", format=format)


def _parsed_columns(
    values: Values, options: CsvConfig, never_numbers: Collection[str]
) -> tuple[dict[str, np.ndarray], dict[str, str | None]]:
    """Return the columns; a column of text is parsed if all texts are dates, times or numbers.

    Args:
        values: The columns.
        options: The settings `csv.*`.
        never_numbers: Columns that are parsed only as dates, not as numbers or times of day.

    Returns:
        The columns, and for each parsed one its `Column.format`.
    """
    parsed = dict(values)
    formats: dict[str, str | None] = {}
    for name, column in values.items():
        if value_kind(column) != "text":
            continue
        values_and_format = _as_dates(column, options.date_format)
        if values_and_format is None and name not in never_numbers:
            values_and_format = _as_numbers(column, options.decimal)
        if values_and_format is not None:
            parsed[name], formats[name] = values_and_format
    return parsed, formats


def _as_dates(texts: np.ndarray, date_format: str | None) -> tuple[np.ndarray, str | None] | None:
    """Return texts as dates, and their format; None if they are not dates, or are ambiguous."""
    candidates = [None] if date_format is None else [None, date_format]  # None is 2020-12-31
    fitting_formats = date_formats(texts)
    if len(fitting_formats) == 1:
        candidates += fitting_formats
    for format in candidates:
        dates = parse_dates(texts, format)
        if dates is not None:
            return dates, format
    return None


def _as_numbers(texts: np.ndarray, decimal: str | None) -> tuple[np.ndarray, str | None] | None:
    """Return texts as times of day or as numbers, and their format; None if they are neither.

    It is also None if all texts are plain numbers. The reader of text files turns these into
    numbers, so the column is from a table with types, such as a Parquet file, and its author may
    have stored numbers as text for a reason.
    """
    times = parse_times(texts)
    if times is not None:
        return times, TIME_OF_DAY
    if decimal is None and has_doubtful_decimal(texts):
        return None
    if _are_plain_numbers(distinct(texts), decimal):
        return None
    numbers = parse_written(texts, "comma" if decimal == "comma" else "point")
    return None if numbers is None else (numbers, None)


def _are_plain_numbers(texts: list[str], decimal: str | None) -> bool:
    """Return whether all texts are numbers that cannot be misread; True without any text."""
    if decimal == "comma" and any("." in text for text in texts):
        return False  # a point separates thousands
    return match_all(PLAIN, texts)


def _labels(target: np.ndarray, positive: str | None) -> tuple[Label, Label] | None:
    """Return the labels for 0 and 1, or None if the target does not have two values.

    Args:
        target: The values.
        positive: The label for 1; None: the second one in the order of numbers or letters.

    Raises:
        UserError: `positive` is neither of the two labels.
    """
    present = target[~pd.isna(target)]
    classes = as_text(np.unique(present))
    if len(classes) != 2:
        return None
    first, second = map(as_label, classes)
    if positive is None or str(second) == positive:
        return first, second
    if str(first) != positive:
        raise UserError(f"csv.positive={positive}: the labels are {first} and {second}")
    return second, first


def _levels(values: np.ndarray, options: CsvConfig) -> tuple[str, ...]:
    """Return the levels of a category, sorted; the level of missing values, if any, is last."""
    texts = as_text(values)
    is_missing = pd.isna(texts)
    levels = np.unique(texts[~is_missing]).tolist()
    has_missing_level = options.missing == "level" and is_missing.any()
    if has_missing_level and MISSING_LEVEL not in levels:
        levels.append(MISSING_LEVEL)
    return tuple(levels)


@dataclass(frozen=True)
class EncodedRows:
    """Features, and the problems of rows that can't be encoded.

    Attributes:
        X: The features. Those of rows with a problem have no meaning.
        problems: The problems by the number of their row, counted from 0. A row has at most one
            problem, with the name of the column. They are in the order in which they were found,
            column by column.
    """

    X: Float[np.ndarray, "N D"]
    problems: dict[int, str]


@dataclass(frozen=True)
class _Location:
    """The source and the column of values, and all problems so far, by row."""

    source: str
    column: str
    problems: dict[int, str]

    def report(self, row: int | np.integer, problem: str) -> None:
        """Record a problem with a value, unless the row has one already."""
        self.problems.setdefault(int(row), f"column '{self.column}': {problem}")


@dataclass(frozen=True)
class _ValueRules:
    """Which values are allowed, and how numbers are written.

    Attributes:
        fill: Whether values may be missing.
        unseen: How to treat a row with a level that no training row had.
        decimal: The decimal mark of numbers that are text.
    """

    fill: bool
    unseen: Unseen
    decimal: Decimal


def _encoded(
    column: Column, values: np.ndarray, rules: _ValueRules, location: _Location
) -> Float[np.ndarray, "N k"]:
    """Return the features of a column, missing values as NaN.

    Args:
        column: The column in training.
        values: The values to encode. Text is parsed if training had numbers or dates.
        rules: Which values are allowed.
        location: Where the values come from; problems are reported to it.
    """
    values = _parse_as_in_training(column, values, rules.decimal, location)
    is_missing = pd.isna(values)
    may_be_missing = rules.fill or MISSING_LEVEL in column.levels
    if not may_be_missing:
        for row in np.flatnonzero(is_missing):
            location.report(row, "the value is missing; fill it in")
    if column.kind == "category":
        codes = _level_codes(column, values, location, rules.unseen)
        return _indicators(column, codes) if column.has_indicators else _dummies(column, codes)
    numbers = as_numbers(values)
    for row in np.flatnonzero(np.isinf(numbers)):
        location.report(row, "the value is infinite")
    return numbers[:, None]


def _parse_as_in_training(
    column: Column, values: np.ndarray, decimal: Decimal, location: _Location
) -> np.ndarray:
    """Return values of the kind that the column had in training; text is parsed.

    A text that cannot be parsed is reported, and becomes a missing value.

    Raises:
        UserError: the values are of another kind, and not text.
    """
    if pd.isna(values).all():
        return np.full(len(values), np.nan)
    kind = value_kind(values)
    trained_kind = column.value_kind
    if trained_kind == "text" or kind == trained_kind:
        return values
    if kind != "text":
        problem = f"holds {kind}; the model was trained on {trained_kind}"
        raise UserError(f"{location.source}: column '{column.name}' {problem}")
    parsed = _parsed(column, values, decimal)
    if parsed is not None:
        return parsed
    is_unparsable = _is_unparsable(column, values, decimal)
    expected = _expected_value(column)
    for row in np.flatnonzero(is_unparsable):
        location.report(row, f"'{values[row]}' is not {expected}, as in training")
    parsable_texts = values.astype(object)
    parsable_texts[is_unparsable] = None
    parsed = _parsed(column, parsable_texts, decimal)
    return np.full(len(values), np.nan) if parsed is None else parsed


def _expected_value(column: Column) -> str:
    """Return what the values of a column should be, for messages."""
    if column.value_kind != "numbers":
        return f"a date written as {column.format or '2020-12-31'}"
    return "a time of day" if column.format == TIME_OF_DAY else "a number"


def _parsed(column: Column, texts: np.ndarray, decimal: Decimal) -> np.ndarray | None:
    """Return texts as numbers or dates, whichever the column had in training; None if one fails."""
    if column.kind == "number" and column.format == TIME_OF_DAY:
        return parse_times(texts)
    if column.value_kind == "numbers":
        return parse_numbers(texts, decimal)
    return parse_dates(texts, column.format)


def _is_unparsable(column: Column, texts: np.ndarray, decimal: Decimal) -> Bool[np.ndarray, " N"]:
    """Return which rows prevent a column of texts from being parsed.

    A text may be parsable by itself, but not together with other texts: a time with an offset among
    times without, or `true` among numbers. So each text is tried together with the first text that
    is parsable by itself.
    """
    candidates = distinct(texts)
    first = next((text for text in candidates if _can_parse(column, [text], decimal)), None)
    if first is None:
        return ~pd.isna(texts)
    parsable = {text for text in candidates if _can_parse(column, [first, text], decimal)}
    return ~pd.isna(texts) & ~pd.Series(texts, dtype=object).isin(parsable).to_numpy()


def _can_parse(column: Column, texts: list[str], decimal: Decimal) -> bool:
    return _parsed(column, np.array(texts, dtype=object), decimal) is not None


def _level_codes(
    column: Column, values: np.ndarray, location: _Location, unseen: Unseen
) -> Int[np.ndarray, " N"]:
    """Return the position of every value among the K levels: K if unknown, -1 if missing."""
    texts = as_text(values)
    if MISSING_LEVEL in column.levels:
        texts = np.where(pd.isna(values), MISSING_LEVEL, texts)
    is_missing = pd.isna(texts)
    levels = pd.Index(column.levels, dtype=object)
    codes = levels.get_indexer(pd.Index(texts, dtype=object))  # -1 for texts that are not a level
    is_unknown = (codes < 0) & ~is_missing
    may_be_unknown = unseen == "base" and column.has_indicators
    if not may_be_unknown:
        listed = shortened(", ".join(column.levels))
        for row in np.flatnonzero(is_unknown):
            problem = f"'{texts[row]}' is not a value that the model was trained on"
            location.report(row, f"{problem}; there were {listed}")
    return np.where(is_unknown, len(column.levels), codes)


def _indicators(column: Column, codes: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N k"]:
    """Return the indicators of a category [rows, levels + 1]; a missing level counts as unknown."""
    n_levels = len(column.levels)
    indicator_of_row = np.where(codes < 0, n_levels, codes)
    is_level = indicator_of_row[:, None] == np.arange(n_levels + 1)
    return is_level.astype(np.float64)


def _dummies(column: Column, codes: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N k"]:
    """Return the dummies of a category [rows, levels - 1]; those of a missing value are NaN."""
    is_level = codes[:, None] == np.arange(1, len(column.levels))
    features = is_level.astype(np.float64)
    features[codes < 0] = np.nan
    return features
