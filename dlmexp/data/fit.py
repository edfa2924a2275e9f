"""A schema is learned from the columns of a user's training rows. All that is wrong with them is put in one list; what
makes results look better than they are (features that give the target away, copies of rows) is warned of."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

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
ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
RARE = 10  # rows of a class
NEARLY = 1e-3  # of the target's variance: what is left beside another copy of the target, rounded or with its own noise


def fit(
    values: Values, target: str, features: Sequence[str], task: str, options: TableOptions, file: str
) -> tuple[Schema, list[str]]:
    """The schema of training rows, and what looks wrong without being refused. UserError lists all that is wrong."""
    remedies: dict[str, list[str]] = defaultdict(list)  # by option: what does away with the problems
    problems, warnings, columns = list(_gaps(values, features, options, remedies)), list[str](), list[Column]()
    labels, y, problem = _target(values[target], task, options.log)
    problems += [f"csv.target={target}{problem}"] if problem else []
    for name in features:
        category = name in options.categories
        column = learn_column(name, values[name], category, options.missing == "level", options.date_format)
        columns.append(column)
        if column.kind == "category":
            odd = "" if category else _stray_words(values[name])
            wrong = f" {odd}, {setting('categories', name)} takes each value as a category" if odd else ""
            if wrong:
                remedies["categories"].append(name)
            else:
                wrong, formats = _too_many_levels(column, values[name], options)
                if wrong:
                    option, value = ("date_format", formats[0]) if len(formats) == 1 else ("drop", name)
                    remedies[option].append(value)
            problems += [f"column '{name}'{wrong}; {setting('drop', name)} leaves it out"] if wrong else []
        exact, how = (False, "") if y is None else _leak(values[name], column, y)
        sentence = f"column '{name}' gives the target '{target}' away: {how}; {setting('drop', name)} leaves it out"
        if exact and name not in options.columns:
            problems.append(f"{sentence}, naming it in csv.columns=[...] takes it all the same")
            remedies["drop"].append(name)
        elif how:
            warnings.append(f"{sentence}; is it known when you predict?")
        if counts_rows(values[name]):
            warnings.append(f"column '{name}' numbers the rows: {setting('drop', name)} leaves it out")
        elif len(values[name]) and (values[name] == values[name][0]).all():
            warnings.append(f"column '{name}' is the same in all rows")
    if problems:
        if len(problems) == 1:
            raise UserError(f"{file}: {problems[0]}")
        words = [setting(option, *dict.fromkeys(names)) for option, names in remedies.items() if names]
        advice = f"\nAll of it: {' '.join(words)}" if words else ""
        raise UserError("\n- ".join([f"{file}: {len(problems)} problems:", *problems]) + advice)
    if labels is not None and y is not None:
        counts = [(label, int((y == value).sum())) for value, label in enumerate(labels)]
        rare = [f"class '{label}' has {counted(rows, 'row')}" for label, rows in counts if rows < RARE]
        warnings += [f"{rare[0]}: not every training, validation and test set has some"] if rare else []
    if not any(column.features for column in columns):
        raise UserError(f"{file} has no feature besides the target '{target}'")
    fill = options.missing in ("mean", "level")
    return Schema(target, tuple(columns), labels, fill, options.sep, tuple(options.na), options.log), warnings


def _gaps(
    values: Values, features: Sequence[str], options: TableOptions, remedies: dict[str, list[str]]
) -> Iterator[str]:
    """Infinite and missing values that are problems; what to do about them is added to `remedies`."""
    lacking = {name: missing(column) for name, column in values.items()}
    for name, column in values.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            row = int(np.argmax(np.isinf(column))) + 1
            yield f"a value is infinite in row {row}, column '{name}'; correct it, or drop the row"
    empty = [name for name in features if lacking[name].all()]
    remedies["drop"] += empty
    yield from (f"column '{name}' is empty: {setting('drop', name)} leaves it out" for name in empty)
    # With a mean to put in, only the target and what rows are divided by must be there.
    strict = [name for name in values if name not in empty and (options.missing == "refuse" or name not in features)]
    gaps = [(int(np.argmax(lacking[name])) + 1, name) for name in strict if lacking[name].any()]
    if gaps:
        (row, name), count = min(gaps), sum(int(lacking[name].sum()) for name in strict)
        others = f" ({count} in all)" if count > 1 else ""
        mean = ", csv.missing=mean puts in the mean of the training rows" if name in features else ""
        remedies["missing"].append("mean" if all(name in features for _, name in gaps) else "drop")
        yield f"a value is missing in row {row}, column '{name}'{others}; csv.missing=drop leaves such rows out{mean}"


def _target(values: np.ndarray, task: str, log: bool) -> tuple[tuple[Label, Label] | None, np.ndarray | None, str]:
    """The labels of a binary target, the targets as numbers (None if they are none), and what is wrong with them."""
    known = values[~missing(values)]
    if kind_of(values) == "dates" or parse_dates(values) is not None:
        return None, None, " holds dates: a target is a number or, if binary, one of two values"
    if task == "binary":
        classes = np.unique(known.astype(str) if known.dtype == object else known)
        if len(classes) != 2:
            shown = ", ".join(str(value) for value in classes[:5])
            return None, None, f": a binary target has two values, this one has {len(classes)} ({shown})"
        zero, one = (str(value) if known.dtype == object else number_text(value) for value in classes)
        return (as_label(zero), as_label(one)), (as_text(values) == one).astype(np.float64), ""
    if values.dtype == object:
        try:
            values = money(values)
            known = values[~missing(values)]
        except ValueError:
            example = f" is text (e.g. '{str(known[0])[:40]}'): a {task} target is a number" if len(known) else ""
            return None, None, f" {odd}" if (odd := _stray_words(values)) else example
    if log and not (known > 0).all():
        row = int(np.argmax(values <= 0))
        return None, None, f", csv.log=true: it is {values[row]:g} in row {row + 1}: only numbers > 0 have a logarithm"
    if len(known) > 1 and (known == known[0]).all():
        return None, None, f": it is {known[0]:g} in all {len(known)} rows, so there is nothing to predict"
    return None, values, ""


def _too_many_levels(column: Column, values: np.ndarray, options: TableOptions) -> tuple[str, list[str]]:
    """What to say of a category that may be a name or a date ('' of others), and the formats that read it as dates."""
    most, count = options.levels or min(MAX_LEVELS, max(2, len(values) // 10)), len(column.levels)
    if count <= most:
        return "", []
    formats = [form for form in DATE_FORMATS if parse_dates(values, form) is not None]
    choices = " or ".join(setting("date_format", form) for form in formats)
    dates = f"if these are dates, {choices} reads them, " if formats else ""
    example = f"{count} distinct values (e.g. '{column.levels[0][:40]}') in {len(values)} rows, more than {most}"
    return f" is a category with {example}: {dates}csv.levels={count} allows so many", formats


def _stray_words(values: np.ndarray) -> str:
    """What to say of a column of numbers that is text because of a few words in it; '' of others."""
    words = [value for value in values if value is not None] if values.dtype == object else []
    odd = [word for word in words if not is_number(word.replace(",", "") if "." in word else word)]
    if len(words) in (0, len(odd)) or 2 * len(odd) > len(words):
        return ""
    if not odd:
        return "is text, though all its values are numbers: make them numbers"
    distinct = sorted(set(odd), key=lambda word: (-odd.count(word), odd.index(word)))
    shown = ", ".join(f"'{word[:20]}'" for word in distinct[:3]) + (", ..." if len(distinct) > 3 else "")
    where = f"in {counted(len(odd), 'row')} (the first: row {int(np.argmax(values == odd[0])) + 1})"
    advice = f"{setting('na', *distinct)} calls that missing" if len(distinct) <= MANY_WORDS else "correct them"
    return f"is text because of {shown} {where}; its other {len(words) - len(odd)} values are numbers: {advice}"


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def counts_rows(values: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    if kind_of(values) != "numbers" or len(values) < 2 or values[0] not in (0.0, 1.0):
        return False
    return bool((values == np.arange(len(values)) + values[0]).all())


def repeated_rows(X: np.ndarray, y: np.ndarray) -> list[str]:
    """A warning if many rows occur more than once: of copies, some are trained on and others tested on."""
    rows = np.column_stack([X, y])
    repeated = len(rows) - len({hash(row.tobytes()) for row in rows})
    if len(rows) < ENOUGH or repeated <= len(rows) * MANY:
        return []
    advice = "leave copies out or keep them together with csv.split=group csv.by=COLUMN"
    return [f"{repeated} of {len(rows)} rows are copies of others, so that some test rows are trained on; {advice}"]


def _leak(values: np.ndarray, column: Column, y: np.ndarray) -> tuple[bool, str]:
    """Whether a column of features is the target in other units or words, and how it gives the target away ('')."""
    if column.kind == "date":
        dates = parse_dates(values, column.format)
        values = days(values if dates is None else dates)
    elif kind_of(values) == "dates":
        values = as_text(values)
    known = ~missing(values) & ~np.isnan(y)
    x, y = values[known], y[known]
    if len(y) < ENOUGH or (y == y[0]).all() or (x == x[0]).all():
        return False, ""
    if x.dtype != object:
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
    _, codes = np.unique(x.astype(str) if x.dtype == object else x, return_inverse=True)
    pairs = len(np.unique(np.column_stack([codes, y]), axis=0))
    if pairs == codes.max() + 1 <= len(y) // 5:
        return pairs == len(np.unique(y)), "each of its values occurs with one value of the target only"
    return False, ""
