"""A schema is learned from the columns of a user's training rows. All that is wrong with them is put in one list; what
makes results look better than they are (features that give the target away, copies of rows) is warned of."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dlmexp.console import counted
from dlmexp.data.options import TableOptions, setting
from dlmexp.data.schema import (
    Column,
    Label,
    Schema,
    Values,
    as_label,
    as_text,
    days,
    kind_of,
    learn_column,
    missing,
    money,
    number_text,
    parse_dates,
)
from dlmexp.errors import UserError

MAX_LEVELS = 100
MANY_WORDS = 10  # so many that are no numbers are no words for a missing value
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y", "%Y%m%d")
OTHERWISE = {
    r"\d{1,4}([./-])\d{1,2}\1\d{1,4}": "; if these are dates, write them as 2020-12-31",
    r"-?\d+,\d+": "; if these are numbers, write them with a decimal point and without commas between thousands",
    r"[^\w.-]*\s*-?[\d.,' ]+\s*[^\w.]*": "; if these are numbers, write them without signs and units",
}
"""Text that would be dates or numbers if it were written in another way, and what to do about it."""
ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
RARE = 10  # rows of a class
NEARLY = 1e-3  # of the target's variance: what is left beside another copy of the target, rounded or with its own noise


@dataclass
class Problems:
    """What is wrong with a table: a sentence each, and the settings that would do away with all of it."""

    file: str
    sentences: list[str] = field(default_factory=list)
    settings: dict[str, list[str]] = field(default_factory=dict)

    def add(self, sentence: str, option: str = "", *values: str) -> None:
        self.sentences.append(sentence)
        if option:
            self.settings[option] = list(dict.fromkeys([*self.settings.get(option, ()), *values]))

    def refuse(self) -> None:
        """UserError for all of them, if there are any."""
        if len(self.sentences) == 1:
            raise UserError(self.sentences[0])
        if self.sentences:
            one = ("missing", "date_format")  # options with one value
            words = [setting(name, *values[: 1 if name in one else None]) for name, values in self.settings.items()]
            listed = "\n".join(f"- {sentence}" for sentence in self.sentences)
            advice = f"\nAll of it: {' '.join(words)}" if words else ""
            raise UserError(f"{self.file} has {len(self.sentences)} problems:\n{listed}{advice}")


def fit(
    values: Values, target: str, features: Sequence[str], task: str, options: TableOptions, file: str
) -> tuple[Schema, list[str]]:
    """The schema of training rows, and what looks wrong without being refused. UserError lists all that is wrong."""
    problems, warnings = Problems(file), []
    _check_missing(values, target, features, options, problems)
    labels, y = _target(target, values[target], task, options, problems)
    columns = [_column(name, values[name], options, problems) for name in features]
    for column in columns:
        leak = None if y is None else _leak(values[column.name], column, y, task)
        if leak is not None:
            exact, how = leak
            sentence = f"column '{column.name}' gives the target '{target}' away: {how}"
            drop = setting("drop", column.name)
            if exact and column.name not in options.columns:
                advice = f"{drop} leaves it out, naming it in csv.columns=[...] takes it all the same"
                problems.add(f"{sentence}; {advice}", "drop", column.name)
            else:
                warnings.append(f"{sentence}; is it known when you predict? {drop} leaves it out")
        warnings += _column_warnings(values[column.name], column)
    problems.refuse()
    if labels is not None and y is not None:
        counts = [(label, int((y == value).sum())) for value, label in enumerate(labels)]
        rare = [f"class '{label}' has {counted(rows, 'row')}" for label, rows in counts if rows < RARE]
        warnings += [f"{rare[0]}: not every training, validation and test set has some"] if rare else []
    if not any(column.features for column in columns):
        raise UserError(f"{file} has no feature besides the target '{target}'")
    fill = options.missing in ("mean", "level")
    return Schema(target, tuple(columns), labels, fill, options.sep, tuple(options.na), options.log), warnings


def _check_missing(
    values: Values, target: str, features: Sequence[str], options: TableOptions, problems: Problems
) -> None:
    lacking = {name: missing(column) for name, column in values.items()}
    for name, column in values.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            row = int(np.argmax(np.isinf(column))) + 1
            problems.add(f"a value is infinite in row {row}, column '{name}'; correct it, or drop the row")
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
        sentence = f"{problems.file}: a value is missing in row {row}, column '{name}'{others}"
        best = "drop" if any(name not in features for _, name in gaps) else "mean"
        problems.add(f"{sentence}; csv.missing=drop leaves such rows out{mean}", "missing", best)


def _target(
    name: str, values: np.ndarray, task: str, options: TableOptions, problems: Problems
) -> tuple[tuple[Label, Label] | None, np.ndarray | None]:
    """The labels of a binary target, and the targets as numbers; None if they are none."""
    known, problem = values[~missing(values)], ""
    if kind_of(values) == "dates" or parse_dates(values) is not None:
        problem = " holds dates: a target is a number or, if binary, one of two values"
    elif task == "binary":
        classes = np.unique(known.astype(str) if known.dtype == object else known)
        if len(classes) == 2:
            zero, one = (str(value) if known.dtype == object else number_text(value) for value in classes)
            return (as_label(zero), as_label(one)), (as_text(values) == one).astype(np.float64)
        shown = ", ".join(str(value) for value in classes[:5])
        problem = f": a binary target has two values, this one has {len(classes)} ({shown})"
    elif values.dtype == object:
        try:
            values = money(values)
            known = values[~missing(values)]
        except ValueError:
            if _stray_text(name, values, problems) or not len(known):
                return None, None
            problem = f" is text (e.g. '{known[0][:40]}'): a {task} target is a number{_written_otherwise(known)}"
    if not problem and options.log and not (known > 0).all():
        row = int(np.argmax(values <= 0))
        problem = f", csv.log=true: it is {values[row]:g} in row {row + 1}: only numbers > 0 have a logarithm"
    elif not problem and len(known) > 1 and (known == known[0]).all():
        problem = f": it is {known[0]:g} in all {len(known)} rows, so there is nothing to predict"
    if problem:
        problems.add(f"csv.target={name}{problem}")
        return None, None
    return None, values


def _column(name: str, values: np.ndarray, options: TableOptions, problems: Problems) -> Column:
    """What a column of features is; what is wrong with it is a problem."""
    category = name in options.categories
    column = learn_column(name, values, category, options.missing == "level", options.date_format)
    if name in options.dates and column.kind != "date" and not category:
        example, how = values[int(np.argmin(missing(values)))], options.date_format or "2020-12-31"
        problems.add(f"csv.dates: column '{name}' holds {kind_of(values)} such as '{example}': write dates as {how}")
    elif column.kind == "category" and (category or not _stray_text(name, values, problems)):
        most, count = options.levels or min(MAX_LEVELS, max(2, len(values) // 10)), len(column.levels)
        if count > most:
            formats = [format for format in DATE_FORMATS if parse_dates(values, format) is not None]
            choices = " or ".join(setting("date_format", format) for format in formats)
            otherwise = _written_otherwise(values[~missing(values)]) if column.of == "text" else ""
            otherwise = f"; if these are dates, {choices} reads them" if formats else otherwise
            problems.add(
                f"column '{name}' is a category with {count} distinct values (e.g. '{column.levels[0][:40]}') in "
                f"{len(values)} rows, more than {most}: csv.levels={count} allows so many, {setting('drop', name)} "
                f"leaves it out{otherwise}",
                *(("date_format", formats[0]) if len(formats) == 1 else ("drop", name)),
            )
    return column


def _stray_text(name: str, values: np.ndarray, problems: Problems) -> bool:
    """Whether it is a column of numbers that is text because of a few words in it, which is a problem."""
    words = [value for value in values if value is not None] if values.dtype == object else []
    odd = [word for word in words if not is_number(word.replace(",", "") if "." in word else word)]
    numeric = len(words) - len(odd)
    if numeric == 0 or numeric < len(odd):
        return False
    left_out = (
        f"{setting('drop', name)} leaves the column out, {setting('categories', name)} takes each value as a category"
    )
    if not odd:
        problems.add(f"column '{name}' is text, though all its values are numbers: {left_out}", "categories", name)
        return True
    distinct = sorted(set(odd), key=lambda word: (-odd.count(word), odd.index(word)))
    row = int(np.argmax(values == odd[0])) + 1
    shown = ", ".join(f"'{word[:20]}'" for word in distinct[:3]) + (", ..." if len(distinct) > 3 else "")
    few = len(distinct) <= MANY_WORDS
    called = f"{setting('na', *distinct)} calls that missing, " if few else ""
    problems.add(
        f"column '{name}' is text because of {shown} in {counted(len(odd), 'row')} (the first: row {row}); its other "
        f"{numeric} values are numbers: {called}{left_out}",
        *(("na", *distinct) if few else ("drop", name)),
    )
    return True


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _written_otherwise(values: np.ndarray) -> str:
    text = str(as_text(values[:1])[0]) if len(values) else ""
    return next((advice for pattern, advice in OTHERWISE.items() if re.fullmatch(pattern, text)), "")


def counts_rows(values: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    if kind_of(values) != "numbers" or len(values) < 2 or values[0] not in (0.0, 1.0):
        return False
    return bool((values == np.arange(len(values)) + values[0]).all())


def _column_warnings(values: np.ndarray, column: Column) -> list[str]:
    name = column.name
    if counts_rows(values):
        return [f"column '{name}' numbers the rows: {setting('drop', name)} leaves it out"]
    found = [f"column '{name}' is the same in all rows"] if len(values) and (values == values[0]).all() else []
    first: dict[str, str] = {}
    for level in column.levels:
        if (other := first.setdefault(" ".join(level.split()).casefold(), level)) != level:
            alike = f"column '{name}' has the levels '{other}' and '{level}', which count as different"
            return [*found, f"{alike}; write them in one way if they are the same"]
    return found


def repeated_rows(X: np.ndarray, y: np.ndarray, own_test: bool) -> list[str]:
    """A warning if many rows occur more than once: of copies, some are trained on and others tested on."""
    rows = np.column_stack([X, y])
    repeated = len(rows) - len({hash(row.tobytes()) for row in rows})
    if len(rows) < ENOUGH or repeated <= len(rows) * MANY:
        return []
    grouped = "leave copies out or keep them together with csv.split=group csv.by=COLUMN"
    advice = "leave out those of test rows" if own_test else grouped
    return [f"{repeated} of {len(rows)} rows are copies of others, so that some test rows are trained on; {advice}"]


def _leak(values: np.ndarray, column: Column, y: np.ndarray, task: str) -> tuple[bool, str] | None:
    """How a column of features gives the target away, and whether it is the target in other units or words."""
    if column.kind == "date":
        dates = parse_dates(values, column.format)
        values = days(values if dates is None else dates)
    elif kind_of(values) == "dates":
        values = as_text(values)
    known = ~missing(values) & ~np.isnan(y)
    x, y = values[known], y[known]
    if len(y) < ENOUGH or (y == y[0]).all() or (x == x[0]).all():
        return None
    if x.dtype != object and task != "binary":
        return _same_up_to_units(x, y)
    _, codes = np.unique(x.astype(str) if x.dtype == object else x, return_inverse=True)
    low, high = np.full(codes.max() + 1, np.inf), np.full(codes.max() + 1, -np.inf)
    np.minimum.at(low, codes, y)
    np.maximum.at(high, codes, y)
    if len(low) <= len(y) // 5 and (low == high).all():
        return len(low) == len(np.unique(y)), "each of its values occurs with one value of the target only"
    if x.dtype != object:
        ones, zeros = x[y == 1.0], x[y == 0.0]
        if ones.max() < zeros.min() or zeros.max() < ones.min():
            return False, "a threshold on it separates the classes without an error"
    return None


def _same_up_to_units(x: np.ndarray, y: np.ndarray) -> tuple[bool, str] | None:
    with np.errstate(over="ignore", invalid="ignore"):  # values so large are refused for that
        slope = np.dot(x - x.mean(), y - y.mean()) / np.dot(x - x.mean(), x - x.mean())
        offset = y.mean() - slope * x.mean()
        residual = slope * x + offset - y
        rest = np.var(residual) / np.var(y)
    if np.abs(residual).max() <= 1e-9 * np.abs(y - y.mean()).max():
        return True, f"the target is {slope:.6g} times it" + (f" plus {offset:.6g}" if abs(offset) > 1e-9 else "")
    order = np.lexsort((y, x))
    steps, ties = np.diff(y[order]), np.diff(x[order]) == 0
    if (steps[ties] == 0).all() and ((steps >= 0).all() or (steps <= 0).all()):
        return False, "sorted by it, the target only rises or only falls"
    if rest < NEARLY:
        return False, f"the target is about {slope:.4g} times it, which leaves {100 * rest:.2g} % of its variance"
    return None
