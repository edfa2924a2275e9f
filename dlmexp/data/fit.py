"""A schema is learned from the columns of a user's training rows; all that is wrong with them is put in one list."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlmexp.console import counted
from dlmexp.data import traps
from dlmexp.data.advice import setting
from dlmexp.data.schema import (
    DATE_FORMATS,
    MANY_WORDS,
    MAX_LEVELS,
    Column,
    Label,
    Schema,
    Values,
    as_label,
    as_text,
    kind_of,
    learn_column,
    missing,
    money,
    number_text,
    parse_dates,
)
from dlmexp.data.table_options import TableOptions
from dlmexp.errors import UserError

ONE = ("missing", "date_format")  # settings with one value, not a list


def _one_value(name: str) -> Callable[[str], str]:
    return lambda value: f"csv.{name}={value}" if value.isalpha() else f"\"csv.{name}='{value}'\""


@dataclass
class Problems:
    """What is wrong with a table: a sentence each, and the settings that would do away with all of it."""

    file: str
    sentences: list[str] = field(default_factory=list)
    settings: dict[str, list[str]] = field(default_factory=dict)

    def add(self, sentence: str, option: str = "", *values: str) -> None:
        self.sentences.append(sentence)
        if option:
            self.settings.setdefault(option, []).extend(one for one in values if one not in self.settings[option])

    def refuse(self) -> None:
        """UserError for all of them, if there are any."""
        if len(self.sentences) == 1:
            raise UserError(self.sentences[0])
        if self.sentences:
            words = [_one_value(name)(v[0]) if name in ONE else setting(name, *v) for name, v in self.settings.items()]
            advice = f"\nAll of it: {' '.join(words)}" if words else ""
            listed = "\n".join(f"- {sentence}" for sentence in self.sentences)
            raise UserError(f"{self.file} has {len(self.sentences)} problems:\n{listed}{advice}")


@dataclass(frozen=True)
class Fitted:
    """A schema, the values of its columns as it takes them, and what looks wrong without being refused."""

    schema: Schema
    values: dict[str, np.ndarray]
    warnings: list[str]


def fit(values: Values, target: str, features: Sequence[str], task: str, options: TableOptions, file: str) -> Fitted:
    """The schema of training rows. UserError lists everything that is wrong with them."""
    problems, warnings = Problems(file), []
    _check_missing(values, target, features, options, problems)
    labels, y = _target(target, values[target], task, options, problems)
    columns: list[Column] = []
    as_learned = dict(values)
    for name in features:
        column, typed = _column(name, values[name], options, problems)
        columns.append(column)
        as_learned[name] = typed
        if y is not None:
            leak = traps.leaks(name, typed, column, target, y, task)
            if leak is not None and leak.exact and name not in options.columns:
                advice = "leaves it out, naming it in csv.columns=[...] takes it all the same"
                problems.add(f"{leak.sentence}; {setting('drop', name)} {advice}", "drop", name)
            elif leak is not None:
                warnings.append(f"{leak.sentence}; is it known when you predict? {setting('drop', name)} leaves it out")
        warnings += traps.warnings(name, typed, column)
    problems.refuse()
    if labels is not None and y is not None:
        warnings += traps.rare_class(labels, y)
    if not any(column.features for column in columns):
        raise UserError(f"{file} has no feature besides the target '{target}'")
    fill = options.missing in ("mean", "level")
    schema = Schema(target, tuple(columns), labels, fill, options.sep, tuple(options.na), options.log)
    return Fitted(schema, as_learned, warnings)


def _check_missing(
    values: Values, target: str, features: Sequence[str], options: TableOptions, problems: Problems
) -> None:
    for name, column in values.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            row = int(np.argmax(np.isinf(column))) + 1
            problems.add(f"a value is infinite in row {row}, column '{name}'; correct it, or drop the row")
    lacking = {name: missing(column) for name, column in values.items()}
    empty = [name for name in features if lacking[name].all() and not problems.file.endswith(".npz")]
    for name in empty:
        problems.add(f"{problems.file}: column '{name}' is empty: {setting('drop', name)} leaves it out", "drop", name)
    # With a mean to put in, only the target and what rows are divided by must be there.
    strict = [name for name in values if name not in empty and (options.missing == "refuse" or name not in features)]
    gaps = [(int(np.argmax(lacking[name])) + 1, name) for name in strict if lacking[name].any()]
    if gaps:
        (row, name), count = min(gaps), sum(int(lacking[name].sum()) for name in strict)
        others = f" ({count} in all)" if count > 1 else ""
        mean = ", csv.missing=mean puts in the mean of the training rows" if name in features else ""
        advice = f"csv.missing=drop leaves such rows out{mean}"
        sentence = f"{problems.file}: a value is missing in row {row}, column '{name}'{others}; {advice}"
        problems.add(sentence, "missing", "drop" if any(name not in features for _, name in gaps) else "mean")


def _target(
    name: str, values: np.ndarray, task: str, options: TableOptions, problems: Problems
) -> tuple[tuple[Label, Label] | None, np.ndarray | None]:
    """The labels of a binary target, and the targets as numbers; None if they are none."""
    said, known = f"csv.target={name}", values[~missing(values)]
    if kind_of(values) == "dates":
        problems.add(f"{said} holds dates: a target is a number or, if binary, one of two values")
        return None, None
    if task == "binary":
        classes = np.unique(known.astype(str) if known.dtype == object else known)
        if len(classes) != 2:
            shown = ", ".join(str(value) for value in classes[:5])
            problems.add(f"{said}: a binary target has two values, this one has {len(classes)} ({shown})")
            return None, None
        zero, one = (str(value) if known.dtype == object else number_text(value) for value in classes)
        return (as_label(zero), as_label(one)), (as_text(values) == one).astype(np.float64)
    if values.dtype == object:
        try:
            values = money(values)
            known = values[~missing(values)]
        except ValueError:
            if not _stray_text(name, values, problems) and len(known):
                advice = _written_otherwise(known)
                problems.add(f"{said} is text (e.g. '{known[0][:40]}'): a {task} target is a number{advice}")
            return None, None
    if options.log and not (known > 0).all():
        row = int(np.argmax(values <= 0)) + 1
        problems.add(f"csv.log=true: the target is {values[row - 1]:g} in row {row}: only numbers > 0 have a logarithm")
        return None, None
    if len(known) > 1 and (known == known[0]).all():
        everywhere = f"it is {known[0]:g} in all {len(known)} rows"
        problems.add(f"{said}: {everywhere}, so there is nothing to predict")
        return None, None
    return None, values


def _column(name: str, values: np.ndarray, options: TableOptions, problems: Problems) -> tuple[Column, np.ndarray]:
    """What a column of features is, and its values as that."""
    category = name in options.categories
    column, typed = learn_column(name, values, category, options.missing == "level", options.date_format)
    if name in options.dates and column.kind != "date" and not category:
        example = values[int(np.argmin(missing(values)))]
        how = options.date_format or "2020-12-31"
        problems.add(f"csv.dates: column '{name}' holds {kind_of(values)} such as '{example}': write dates as {how}")
    elif column.kind == "category" and (category or not _stray_text(name, values, problems)):
        most = options.levels or min(MAX_LEVELS, max(2, len(values) // 10))
        if len(column.levels) > most:
            limit = f"more than {most}: csv.levels={len(column.levels)} allows so many"
            formats = [one for one in DATE_FORMATS if parse_dates(values, one) is not None]
            sentence = (
                f"column '{name}' is a category with {len(column.levels)} distinct values (e.g. "
                f"'{column.levels[0][:40]}') in {len(values)} rows, {limit}, {setting('drop', name)} leaves it out"
            )
            advice = _written_otherwise(values[~missing(values)], formats)
            problems.add(sentence + advice, *(("date_format", formats[0]) if len(formats) == 1 else ("drop", name)))
    return column, typed


def _stray_text(name: str, values: np.ndarray, problems: Problems) -> bool:
    """Whether it is a column of numbers that is text because of a few words in it, which is a problem."""
    if values.dtype != object:
        return False
    words = [value for value in values if value is not None]
    others = [word for word in words if not _is_number(word)]
    numeric = len(words) - len(others)
    if numeric == 0 or numeric < len(others):
        return False
    left_out = (
        f"{setting('drop', name)} leaves the column out, {setting('categories', name)} takes each value as a category"
    )
    if not others:
        problems.add(f"column '{name}' is text, though all its values are numbers: {left_out}", "categories", name)
        return True
    distinct = sorted(set(others), key=lambda word: (-others.count(word), others.index(word)))
    row = int(np.argmax(values == others[0])) + 1
    shown = ", ".join(f"'{word[:20]}'" for word in distinct[:3]) + (", ..." if len(distinct) > 3 else "")
    few = len(distinct) <= MANY_WORDS
    sentence = (
        f"column '{name}' is text because of {shown} in {counted(len(others), 'row')} (the first: row {row}); its "
        f"other {numeric} values are numbers: "
    )
    called = f"{setting('na', *distinct)} calls that missing, " if few else ""
    problems.add(sentence + called + left_out, *(("na", *distinct) if few else ("drop", name)))
    return True


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "") if text.count(",") and "." in text else text)
    except ValueError:
        return False
    return True


def _written_otherwise(values: np.ndarray, formats: Sequence[str] = ()) -> str:
    """What to do about text that would be dates or numbers if it were written in another way."""
    texts = as_text(values)
    if formats:
        return f"; if these are dates, {' or '.join(map(_one_value('date_format'), formats))} reads them"
    text = str(texts[0]) if len(texts) else ""
    if re.fullmatch(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}", text):
        return "; if these are dates, write them as 2020-12-31"
    if re.fullmatch(r"-?\d+,\d+", text):
        return "; if these are numbers, write them with a decimal point and without commas between thousands"
    if re.fullmatch(r"[^\w.-]*\s*-?[\d.,' ]+\s*[^\w.]*", text):
        return "; if these are numbers, write them without signs and units"
    return ""
