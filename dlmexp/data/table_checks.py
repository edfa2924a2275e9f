"""Checks of a user's own table: for errors, and for traits that make results look too good.

All problems are reported at once, with the settings (`csv.*`) that remedy them. A finding that does
not prevent training is a warning.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.literals import csv_setting
from dlmexp.data.config import CsvConfig
from dlmexp.data.schema import Column, Schema
from dlmexp.data.suspicious import Outliers, find_outliers, missing_marker, summands
from dlmexp.data.values import Values, as_numbers, value_kind
from dlmexp.data.written import (
    DATE_LIKE,
    NUMBER,
    Decimal,
    date_formats,
    distinct,
    has_doubtful_decimal,
)

MAX_LEVELS = 100
"""A category with more levels is probably a name or a date."""
MAX_MISSING_MARKERS = 10
"""If more distinct words stand among numbers, they are not taken for markers of missing values."""
MIN_ROWS = 20
"""Leaks and copies of rows are not reported in smaller tables, where they occur by chance."""
MAX_DUPLICATES = 0.1
"""A larger share of duplicate rows causes a warning."""
EXACT_RESIDUAL = 1e-12
"""A linear function that leaves less than this share of the target's variance is exact."""
SMALL_RESIDUAL = 1e-3
"""If a linear function of a column leaves less than this share, the column leaks the target."""
SHOWN_VALUES = 5
MAX_NUMBERING = 1.5
"""In a column that numbers the rows, the last number is at most this multiple of their count."""

CsvSettings = Mapping[str, str | list[str]]
"""Values of settings `csv.*`, by their name without `csv.`."""


@dataclass(frozen=True)
class Finding:
    """A problem or an oddity of a table.

    Attributes:
        message: What is wrong or odd.
        remedy: The settings that remedy it; empty if no setting does.
        is_refused: Whether the table is refused because of it; if not, the finding is a warning.
    """

    message: str
    remedy: CsvSettings
    is_refused: bool

    @property
    def warning(self) -> str:
        """The message, followed by the settings as a user types them."""
        return f"{self.message}: {_as_typed(self.remedy)}" if self.remedy else self.message


@dataclass(frozen=True)
class StrayWords:
    """The few words in a column of text whose other values are numbers.

    Attributes:
        description: A description of the column for messages.
        words: The distinct words; none if all values are numbers that are stored as text.
    """

    description: str
    words: list[str]


@dataclass(frozen=True)
class Leak:
    """A relation between a column and the target by which the column gives the target away.

    Attributes:
        description: The relation, for messages.
        is_exact: Whether the column is the target itself, in other units or words.
    """

    description: str
    is_exact: bool


def check_table(
    values: Values, schema: Schema, task: str, options: CsvConfig, source: str
) -> list[str]:
    """Return the warnings about a table.

    Args:
        values: All columns of the table, parsed.
        schema: The target, and the columns that become features.
        task: regression, binary or count.
        options: The settings `csv.*`.
        source: What the table is called in messages.

    Raises:
        UserError: the table is refused; the message lists all problems.
    """
    findings = list(_findings(values, schema, task, options))
    problems = [finding for finding in findings if finding.is_refused]
    if problems:
        raise UserError(_problem_list(source, problems, options))
    return [finding.warning for finding in findings]


def _as_typed(settings: CsvSettings) -> str:
    """Return settings as a user types them."""
    return " ".join(csv_setting(option, value) for option, value in settings.items())


def _problem_list(source: str, problems: Sequence[Finding], options: CsvConfig) -> str:
    """Return a message with all problems, followed by the settings that remedy all of them."""
    lines = [problem.message for problem in problems]
    if len(problems) > 1:
        lines.insert(0, f"{len(problems)} problems:")
    message = f"{source}: " + "\n- ".join(lines)
    remedy = _combined_remedy(problems, options)
    if not remedy:
        return message
    all_have_remedies = all(problem.remedy for problem in problems)
    label = "Remedy" if all_have_remedies else "Remedy for the others"
    return f"{message}\n{label}: {_as_typed(remedy)}"


def _combined_remedy(problems: Sequence[Finding], options: CsvConfig) -> CsvSettings:
    """Return the settings that remedy all problems.

    Lists, such as `drop`, keep the elements that the user typed, and are extended.
    """
    combined = dict[str, Any]()
    for problem in problems:
        for option, value in problem.remedy.items():
            if isinstance(value, str):
                combined.setdefault(option, value)
            else:
                so_far = combined.get(option, getattr(options, option))
                combined[option] = list(dict.fromkeys([*so_far, *value]))
    return combined


def _findings(values: Values, schema: Schema, task: str, options: CsvConfig) -> Iterator[Finding]:
    """Yield all problems and oddities of a table."""
    if not schema.columns:
        message = f"it has no feature besides the target '{schema.target}'"
        yield Finding(message, remedy={}, is_refused=True)
    yield from _gaps(values, schema, options)
    target = values[schema.target]
    target_problem = _target_problem(target, schema, task)
    if target_problem:
        message = f"csv.target={schema.target}{target_problem}"
        yield Finding(message, remedy={}, is_refused=True)
    for column in schema.columns:
        array = values[column.name]
        if column.kind == "category" and column.name not in options.categories:
            yield from _odd_category(column, array, options, schema.decimal)
        if not target_problem:
            yield from _leaking_column(column, array, target, schema, options)
        yield from _uninformative_column(column.name, array)
        if column.kind == "number":
            yield from _odd_numbers(column.name, array, options, is_target=False)
    if not target_problem:
        yield from _odd_target(values, schema, task, options)
    yield from _duplicates(values, options)


def _odd_target(values: Values, schema: Schema, task: str, options: CsvConfig) -> Iterator[Finding]:
    """Yield oddities of a target that has no problem."""
    target = values[schema.target]
    if task == "regression":
        yield from _odd_numbers(schema.target, target, options, is_target=True)
    if schema.labels is None:
        yield from _sum_of_columns(values, schema, target)


def _gaps(values: Values, schema: Schema, options: CsvConfig) -> Iterator[Finding]:
    """Yield a finding if values are missing in columns in which all values are required."""
    features = {column.name for column in schema.columns}
    # The target and the column that divides the rows must be complete. Features may have gaps if
    # the settings say how these are filled.
    must_be_complete = list(values)
    if options.missing != "refuse":
        must_be_complete = [name for name in values if name not in features]
    is_gap = np.column_stack([pd.isna(values[name]) for name in must_be_complete])
    gaps = np.argwhere(is_gap)
    if not len(gaps):
        return
    row, first_column = gaps[0]
    incomplete = {must_be_complete[position] for position in np.unique(gaps[:, 1])}
    where = f"row {row + 1}, column '{must_be_complete[first_column]}'"
    count = f"{len(gaps)} in all"
    message = f"a value is missing in {where} ({count}); csv.missing=drop leaves rows out"
    if incomplete <= features:
        message += ", =mean puts in the mean"
        yield Finding(message, remedy={"missing": "mean"}, is_refused=True)
    else:
        yield Finding(message, remedy={"missing": "drop"}, is_refused=True)


def _target_problem(values: np.ndarray, schema: Schema, task: str) -> str:
    """Return what is wrong with the target, as the end of a message; '' if all is well."""
    present = values[~pd.isna(values)]
    if task == "binary":
        return _binary_target_problem(present, schema)
    if value_kind(values) != "numbers":
        content = _content_of_target(values, schema.decimal)
        return f" {content}: a {task} target is a number"
    if schema.log and (values <= 0).any():
        row = int(np.argmax(values <= 0))
        value = f"it is {values[row]:g} in row {row + 1}"
        return f", csv.log=true: {value}: only numbers > 0 have a logarithm"
    if len(present) > 1 and present.min() == present.max():
        return f": it is {present[0]:g} in all {len(present)} rows, so there is nothing to predict"
    return ""


def _content_of_target(values: np.ndarray, decimal: Decimal) -> str:
    """Return a clause that says what a target holds in place of numbers."""
    kind = value_kind(values)
    if kind == "text" and has_doubtful_decimal(values):
        return _doubtful_numbers(values)
    stray_words = _stray_words(values, decimal) if kind == "text" else None
    if stray_words is not None:
        return stray_words.description
    present = values[~pd.isna(values)]
    examples = ", ".join(map(str, present[:3]))
    return f"holds {kind} ({examples})"


def _binary_target_problem(present: np.ndarray, schema: Schema) -> str:
    """Return the problem that a binary target does not have two classes; '' if it has.

    Args:
        present: The values of the target that are not missing.
        schema: The schema, which has labels if there are two classes.
    """
    if schema.labels is not None:
        return ""
    classes = np.unique(present.astype(str)).tolist()
    listed = ", ".join(classes[:SHOWN_VALUES])
    return f": a binary target has two values, this one has {len(classes)} ({listed})"


def _odd_category(
    column: Column, values: np.ndarray, options: CsvConfig, decimal: Decimal = "point"
) -> Iterator[Finding]:
    """Yield a finding if a category is probably a column of numbers, names or dates."""
    name = column.name
    keep_as_category = f"{csv_setting('categories', [name])} keeps it as a category"
    if column.of == "text" and has_doubtful_decimal(values):
        message = f"column '{name}' {_doubtful_numbers(values)}; {keep_as_category}"
        yield Finding(message, remedy={}, is_refused=True)
        return
    stray_words = _stray_words(values, decimal)
    if stray_words is not None:
        message = f"column '{name}' {stray_words.description}; {keep_as_category}"
        remedy = _remedy_for_stray_words(name, stray_words, options)
        yield Finding(message, remedy, is_refused=True)
        return
    formats = date_formats(values) if column.of == "text" else []
    if len(formats) > 1:
        choices = " or ".join(csv_setting("date_format", format) for format in formats)
        dates = f"dates such as '{column.levels[0]}': where is the day? {choices}"
        message = f"column '{name}' has {dates}; {keep_as_category}"
        yield Finding(message, remedy={}, is_refused=True)
        return
    max_levels = min(MAX_LEVELS, max(2, len(values) // 10))
    if len(column.levels) > max_levels:
        message = f"{_too_many_levels(column, len(values), max_levels)}; {keep_as_category}"
        # A column of numbers or dates is worth keeping: do not advise to drop it.
        remedy = {} if _looks_measured(values) else {"drop": [name]}
        yield Finding(message, remedy, is_refused=True)


def _too_many_levels(column: Column, n_rows: int, max_levels: int) -> str:
    """Return the message that a category has too many levels, and how to read them as dates."""
    example = f"'{column.levels[0][:40]}'"
    count = f"{len(column.levels)} distinct values (e.g. {example}) in {n_rows} rows"
    dates = "if these are dates, say how they are written, as in csv.date_format=%d.%m.%Y"
    return f"column '{column.name}' is a category with {count}, more than {max_levels}; {dates}"


def _doubtful_numbers(values: np.ndarray) -> str:
    """Return the clause that the decimal mark of numbers is in doubt, and how to name it."""
    texts_with_mark = [text for text in distinct(values) if re.search("[.,]", text)]
    example = texts_with_mark[0]  # there is one: other numbers are not doubtful
    return (
        f"has numbers such as '{example}', whose mark may separate thousands or decimals: "
        "csv.decimal=point (then a comma separates thousands) or csv.decimal=comma"
    )


def _looks_measured(values: np.ndarray) -> bool:
    """Return whether most texts are numbers or dates."""
    texts = [text for text in values if isinstance(text, str)]
    n_measured = sum(map(_is_date_or_number, texts))
    return 2 * n_measured > len(texts)


def _is_date_or_number(text: str) -> bool:
    patterns = (DATE_LIKE, *NUMBER.values())
    return any(pattern.fullmatch(text) for pattern in patterns)


def _remedy_for_stray_words(name: str, stray_words: StrayWords, options: CsvConfig) -> CsvSettings:
    """Return the settings that declare stray words to be missing values.

    If there are no words, or too many, declare the column to be a category.
    """
    if not 0 < len(stray_words.words) <= MAX_MISSING_MARKERS:
        return {"categories": [name]}
    if options.missing == "refuse":
        return {"na": stray_words.words, "missing": "mean"}
    return {"na": stray_words.words}


def _stray_words(values: np.ndarray, decimal: Decimal = "point") -> StrayWords | None:
    """Return the words among numbers in a column of text; None if most of its values are words."""
    texts = pd.Series(values, dtype=object).dropna()
    pattern = NUMBER[decimal]
    is_number = texts.map(lambda value: pattern.fullmatch(str(value)) is not None)
    non_numbers = texts[~is_number.astype(bool)]
    n_numbers = len(texts) - len(non_numbers)
    is_mostly_words = n_numbers == 0 or len(non_numbers) > n_numbers
    if is_mostly_words:
        return None
    if non_numbers.empty:
        return StrayWords("is text, though all its values are numbers: make them numbers", [])
    words = non_numbers.value_counts().index.tolist()
    examples = [f"'{word[:20]}'" for word in words[:3]]
    if len(words) > 3:
        examples.append("...")
    first_row = non_numbers.index[0] + 1
    rows = f"{counted(len(non_numbers), 'row')} (the first: row {first_row})"
    description = (
        f"is text because of {', '.join(examples)} in {rows}; "
        f"its other {n_numbers} values are numbers"
    )
    if len(words) <= MAX_MISSING_MARKERS:
        description += f"; {csv_setting('na', words)} makes them missing values"
    return StrayWords(description, words)


def _leaking_column(
    column: Column, values: np.ndarray, target: np.ndarray, schema: Schema, options: CsvConfig
) -> Iterator[Finding]:
    """Yield a finding if a column gives the target away.

    A column that is the target itself is refused, unless the user has named it as a feature.
    """
    name = column.name
    y = schema.encode_target(target) if schema.labels else target
    leak = _leak(values, column, y)
    if leak is None:
        return
    advice = "if it is known when you predict, name it in csv.columns=[...]"
    message = (
        f"column '{name}' gives the target '{schema.target}' away: {leak.description} ({advice})"
    )
    is_refused = leak.is_exact and name not in options.columns
    yield Finding(message, remedy={"drop": [name]}, is_refused=is_refused)


def _leak(values: np.ndarray, column: Column, y: Float[np.ndarray, " N"]) -> Leak | None:
    """Return how a column gives the target away, or None.

    Args:
        values: The values of the column.
        column: The description of the column.
        y: The target as numbers.
    """
    is_known = ~pd.isna(values) & ~np.isnan(y)
    x = values[is_known]
    y = y[is_known]
    if len(y) < MIN_ROWS or (y == y[0]).all():
        return None
    if column.kind == "category":
        return _one_to_one_leak(x, y, has_order=False)
    x = as_numbers(x)
    return _linear_leak(x, y) or _one_to_one_leak(x, y, has_order=True)


def _linear_leak(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> Leak | None:
    """Return the leak if the target is a linear function of a column, up to `SMALL_RESIDUAL`."""
    # Least squares. Huge values may overflow; `dataset.parse` refuses them later.
    with np.errstate(all="ignore"):
        centred_x = x - x.mean()
        centred_y = y - y.mean()
        slope = np.dot(centred_x, centred_y) / np.dot(centred_x, centred_x)
        offset = y.mean() - slope * x.mean()
        residuals = slope * x + offset - y
        residual_share = np.var(residuals) / np.var(y)
    if np.isnan(residual_share) or residual_share >= SMALL_RESIDUAL:
        return None
    description = f"the target is {slope:.6g} times it"
    if abs(offset) > EXACT_RESIDUAL * np.abs(y).max():
        description += f" plus {offset:.6g}"
    is_exact = bool(residual_share < EXACT_RESIDUAL)
    if not is_exact:
        description += f", which leaves {100 * residual_share:.2g} % of its variance"
    return Leak(description, is_exact)


def _one_to_one_leak(x: np.ndarray, y: Float[np.ndarray, " N"], has_order: bool) -> Leak | None:
    """Return the leak if every value of a column determines the target.

    Args:
        x: The values of the column.
        y: The target.
        has_order: Whether the values of the column are numbers or dates, not categories.
    """
    pairs = pd.DataFrame({"x": x, "y": y}).drop_duplicates().sort_values("x")
    if not pairs["x"].is_unique:
        return None
    if has_order and (pairs["y"].is_monotonic_increasing or pairs["y"].is_monotonic_decreasing):
        return Leak("sorted by it, the target only rises or only falls", is_exact=False)
    # With fewer than five rows per value, one target per value occurs by chance.
    if len(pairs) > len(y) // 5:
        return None
    description = "each of its values occurs with one value of the target only"
    return Leak(description, is_exact=bool(pairs["y"].is_unique))


def _odd_numbers(
    name: str, values: np.ndarray, options: CsvConfig, is_target: bool
) -> Iterator[Finding]:
    """Yield a finding if a column of numbers has a marker of missing values, or outliers."""
    if value_kind(values) != "numbers":
        return
    marker = missing_marker(values)
    if marker is not None:
        rows = counted(marker.count, "row")
        message = f"column '{name}' is {marker.value:g} in {rows}, which may mean missing"
        remedy = _declare_missing([f"{marker.value:g}"], options, is_target)
        yield Finding(message, remedy, is_refused=False)
        return
    outliers = find_outliers(values)
    if outliers is not None:
        texts = [f"{value:.15g}" for value in outliers.values]
        remedy = _declare_missing(texts, options, is_target)
        yield Finding(_outlier_message(name, outliers), remedy, is_refused=False)


def _declare_missing(texts: Sequence[str], options: CsvConfig, is_target: bool) -> CsvSettings:
    """Return the settings that declare texts to be missing values, and allow missing values."""
    remedy: dict[str, str | list[str]] = {"na": [*options.na, *texts]}
    if is_target and options.missing != "drop":
        remedy["missing"] = "drop"
    elif options.missing == "refuse":
        remedy["missing"] = "mean"
    return remedy


def _outlier_message(name: str, outliers: Outliers) -> str:
    further = f", and {outliers.count - 1} more like it" if outliers.count > 1 else ""
    deviations = f"{outliers.deviations:.2g}"
    return (
        f"column '{name}' is {outliers.value:g} in row {outliers.row + 1}, {deviations} standard "
        f"deviations of the others away from them{further}; if that is a mistake"
    )


def _sum_of_columns(values: Values, schema: Schema, target: np.ndarray) -> Iterator[Finding]:
    """Yield a finding if columns add up to the target."""
    numbers = {}
    for column in schema.columns:
        array = values[column.name]
        # A column that gives the target away by itself is reported by `_leaking_column`.
        if column.kind != "category" and _leak(array, column, target) is None:
            numbers[column.name] = as_numbers(array)
    weights = summands(numbers, target)
    if not weights:
        return
    terms = [_weighted(name, weight) for name, weight in weights.items()]
    shown_terms = terms[:SHOWN_VALUES]
    n_hidden = len(terms) - len(shown_terms)
    if n_hidden:
        shown_terms.append(f"{n_hidden} more")
    equation = f"the target '{schema.target}' is {' + '.join(shown_terms)}"
    advice = "if these are not known when you predict"
    yield Finding(f"{equation}; {advice}", remedy={"drop": list(weights)}, is_refused=False)


def _weighted(name: str, weight: float) -> str:
    """Return a term of a sum: the name of a column, with its weight unless that is 1."""
    is_one = abs(weight - 1) < SMALL_RESIDUAL
    return f"'{name}'" if is_one else f"{weight:.6g} '{name}'"


def _uninformative_column(name: str, values: np.ndarray) -> Iterator[Finding]:
    """Yield a finding if a column numbers the rows or is constant."""
    remedy: CsvSettings = {"drop": [name]}
    if is_row_numbering(values):
        yield Finding(f"column '{name}' numbers the rows", remedy, is_refused=False)
    elif pd.Series(values).nunique(dropna=False) == 1:
        yield Finding(f"column '{name}' is the same in all rows", remedy, is_refused=False)


def is_row_numbering(values: np.ndarray) -> bool:
    """Return whether a column numbers the rows from 0 or 1; the numbers may have gaps."""
    n_rows = len(values)
    if n_rows < 2 or value_kind(values) != "numbers" or not np.isfinite(values).all():
        return False
    first = values[0]
    last = values[-1]
    if first not in (0, 1) or last > MAX_NUMBERING * n_rows:
        return False
    is_whole = values == np.trunc(values)
    is_increase = np.diff(values) >= 1
    return bool(is_whole.all() and is_increase.all())


def _duplicates(values: Values, options: CsvConfig) -> Iterator[Finding]:
    """Yield a finding if many rows are copies of other rows."""
    rows = pd.DataFrame({name: values[name] for name in values if name != options.by})
    if len(rows) < MIN_ROWS:
        return
    n_copies = int(rows.duplicated().sum())
    if n_copies <= MAX_DUPLICATES * len(rows):
        return
    message = (
        f"{n_copies} of {len(rows)} rows are copies of others, so that some test rows are "
        "trained on; leave copies out"
    )
    if options.split == "group":
        yield Finding(message, remedy={}, is_refused=False)
    else:
        message += " or keep them together"
        yield Finding(message, remedy={"split": "group", "by": "COLUMN"}, is_refused=False)
