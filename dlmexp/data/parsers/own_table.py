"""A user's own table (`dataset=csv`, or `loader: table`): CSV, TSV or Parquet. All that is wrong with it is put in one
list, with the settings that do away with it; what makes results look better than they are is warned of."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from dlmexp.config import CsvConfig, DatasetConfig
from dlmexp.console import counted
from dlmexp.data.options import TableProblems, setting, table_options
from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.schema import Column, Schema, Values, as_numbers, as_text, from_arrow, parse_texts, value_kind
from dlmexp.data.spec import TEST
from dlmexp.data.splits import Arrangement
from dlmexp.errors import UserError, nearest
from dlmexp.reading.tables import read_table

UNNAMED = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls an index that was saved with a table
MAX_LEVELS = 100
MANY_WORDS = 10  # so many that are no numbers are no words for a missing value
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y", "%Y%m%d")
ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
RARE = 10  # rows of a class
EXACTLY, NEARLY = 1e-12, 1e-3  # of the target's variance: what is left beside a copy of the target


@parser("table")
def own_table(spec: DatasetConfig, files: Mapping[str, Path]) -> Parsed:
    """Column `options.target` is y, the others are features. The facts say what was read, and what was left out."""
    options = table_options(spec.options)
    path, test = next(path for name, path in files.items() if name != TEST), files.get(TEST)
    values, left_out = _columns(path, options)
    test_rows = 0
    if test is not None:
        below = _test_columns(test, values, options)
        test_rows = len(below[str(options.target)])
        values = {name: np.concatenate([column, below[name]]) for name, column in values.items()}
    target = str(options.target)
    features = options.columns or [name for name in values if name not in (target, options.by)]
    values = {name: values[name] for name in dict.fromkeys([target, *features, *filter(None, [options.by])])}
    if options.missing == "drop":
        gone = np.any([pd.isna(column) for column in values.values()], axis=0)
        if gone.all():
            raise UserError(f"{path.name}: every row has a missing value: leave out a column with csv.drop=[COLUMN]")
        values = {name: column[~gone] for name, column in values.items()}
        left_out += [f"{counted(int(gone.sum()), 'row')} with missing values (csv.missing=drop)"] if gone.any() else []
        test_rows -= int(gone[len(gone) - test_rows :].sum())
    schema, values = Schema.fit(values, features, spec.task, options)
    warnings = _examine(values, schema, spec.task, options, path.name)
    X, y = schema.encode(values, source=path.name), schema.encode_target(values[target])
    facts: dict[str, Any] = {
        "features": list(schema.features), "schema": msgspec.to_builtins(schema),
        "kinds": {column.name: column.words for column in schema.columns}, "file": path.name,
        "target": f"log({target})" if options.log else target,
        "classes": [str(label) for label in schema.labels or ()], "warnings": warnings,
        "left_out": left_out + [f"column '{name}'" for name in options.drop],
        "filled": int(np.isnan(X).any(axis=1).sum()), "test_file": test.name if test else None,
    }  # fmt: skip
    return Parsed(X, y, facts, _arrangement(values, options, test_rows))


def _columns(path: Path, options: CsvConfig, test: bool = False) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of a file that are used, and what is left out."""
    table = read_table(path, options.sep, options.na)
    names = list(map(str, table.column_names))
    numbers = path.suffix != ".parquet" and parse_texts(np.array(names, object), "numbers") is not None
    if numbers and len(names) > 1 and not all(map(str.isdecimal, names)):
        raise UserError(f"{path.name}: its first line holds numbers ({names[0]}, ...): write names of columns above it")
    if twice := sorted(name.strip() or repr(name) for name, times in Counter(names).items() if times > 1):
        raise UserError(f"{path.name}: several columns are called {', '.join(twice[:5])}: rename them")
    if table.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    if options.target is None:
        raise UserError(f"csv.target is not set: name the column to predict, one of {', '.join(names[:20])}")
    for option in ("target", "by", "columns", "drop", "categories") if not test else ():
        given = getattr(options, option) or ()
        for name in [given] if isinstance(given, str) else given:
            if name not in names:
                raise UserError(f"csv.{option}={name}: {path.name} has no column '{name}': {nearest(name, names)}")
    if options.target in options.columns:
        raise UserError(f"csv.columns: '{options.target}' is the target, it can't be a feature as well")
    values, left_out = dict[str, np.ndarray](), []
    for number, (name, column) in enumerate(zip(names, table.columns, strict=True), start=1):
        unused = name in options.drop or (options.columns and name not in options.columns)
        if unused and name not in (options.target, options.by):
            continue
        values[name] = from_arrow(name, column, path.name)
        if name == options.target and str(column.type) == "bool":  # labels are words, not numbers
            values[name] = np.array([None if value is None else str(value) for value in column.to_pylist()], object)
        if name in UNNAMED and name not in options.columns:
            if not _numbers_rows(values.pop(name)):
                advice = f"name it, or leave it out with {setting('drop', name)}"
                raise UserError(f"{path.name}: column {number} has no name ('{name}'): {advice}")
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
    return values, left_out


def _test_columns(path: Path, values: Values, options: CsvConfig) -> Values:
    """The columns of a user's own test rows, of the same kinds as those of the training rows."""
    below, _ = _columns(path, options, test=True)
    for name, column in values.items():
        if name not in below:
            needed = name in (options.target, options.by)
            advice = "" if needed else f": {setting('drop', *options.drop, name)} leaves it out of both files"
            raise UserError(f"csv.test={path}: it has no column '{name}'{advice}")
        if value_kind(column) != value_kind(below[name]):
            kinds = f"{value_kind(column)} in training rows, {value_kind(below[name])} in {path.name}"
            raise UserError(f"column '{name}' holds {kinds}")
    return below


def _arrangement(values: Values, options: CsvConfig, test_rows: int) -> Arrangement | None:
    if options.by is None:
        return Arrangement(test=test_rows) if test_rows else None
    column = values[options.by]
    if options.split == "group":
        codes = np.unique(as_text(column).astype(str), return_inverse=True)[1]
        return Arrangement("group", codes.astype(np.float64), options.by, test_rows)
    if column.dtype == object:
        advice = "write dates as 2020-12-31, or say how they are written with csv.date_format"
        raise UserError(f"csv.by={options.by}: text such as '{column[0]}' is no time: {advice}")
    return Arrangement("time", as_numbers(column), options.by, test_rows)


def _examine(values: Values, schema: Schema, task: str, options: CsvConfig, file: str) -> list[str]:
    """What looks wrong without being refused. `TableProblems` lists all that is wrong."""
    problems, warnings = TableProblems(file, options), []
    _check_gaps(values, schema, problems)
    y, wrong = _targets(values[schema.target], schema, task)
    if wrong:
        problems.add(f"csv.target={schema.target}{wrong}")
    for column in schema.columns:
        name, some = column.name, values[column.name]
        if column.kind == "category":
            _check_category(column, some, problems)
        exact, how = (False, "") if y is None else _leak(some, column, y)
        advice = f"{setting('drop', name)} leaves it out"
        sentence = f"column '{name}' gives the target '{schema.target}' away: {how}; {advice}"
        if exact and name not in options.columns:
            problems.add(f"{sentence}, naming it in csv.columns=[...] keeps it", drop=[name])
        elif how:
            warnings.append(f"{sentence}; is it known when you predict?")
        if _numbers_rows(some):
            warnings.append(f"column '{name}' numbers the rows: {advice}")
        elif (some == some[0]).all():
            warnings.append(f"column '{name}' is the same in all rows")
    if problems.problems:
        raise problems
    if not schema.features:
        raise UserError(f"{file} has no feature besides the target '{schema.target}'")
    for value, label in enumerate(schema.labels or ()):
        if (rows := int((y == value).sum())) < RARE:
            said = f"class '{label}' has {counted(rows, 'row')}"
            warnings.append(f"{said}: not every training, validation and test set has some")
    used = pd.DataFrame({name: column for name, column in values.items() if name != options.by})
    if len(used) >= ENOUGH and (repeated := int(used.duplicated().sum())) > len(used) * MANY:
        said = f"{repeated} of {len(used)} rows are copies of others, so that some test rows are trained on"
        warnings.append(f"{said}; leave copies out or keep them together with csv.split=group csv.by=COLUMN")
    return warnings


def _check_gaps(values: Values, schema: Schema, problems: TableProblems) -> None:
    """Note infinite and missing values."""
    features, lacking = [column.name for column in schema.columns], pd.DataFrame(values).isna()
    for name, column in values.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            row = int(np.argmax(np.isinf(column))) + 1
            problems.add(f"a value is infinite in row {row}, column '{name}'; correct it, or drop the row")
    for name in (empty := [name for name in features if lacking[name].all()]):
        problems.add(f"column '{name}' is empty: {setting('drop', name)} leaves it out", drop=[name])
    # With a mean to put in, only the target and what rows are divided by must be there.
    refused = problems.options.missing == "refuse"
    strict = [name for name in values if name not in empty and (refused or name not in features)]
    if gaps := [(int(lacking[name].argmax()) + 1, name) for name in strict if lacking[name].any()]:
        (row, name), count = min(gaps), int(lacking[strict].to_numpy().sum())
        mean = ", mean puts in the mean of the training rows (level: a level of categories)" if name in features else ""
        said = f"a value is missing in row {row}, column '{name}' ({count} in all)"
        remedy = "mean" if all(name in features for _, name in gaps) else "drop"
        problems.add(f"{said}; csv.missing=drop leaves such rows out{mean}", missing=[remedy])


def _targets(values: np.ndarray, schema: Schema, task: str) -> tuple[np.ndarray | None, str]:
    """The targets as numbers (None if they are none), and what is wrong with them."""
    known = values[~pd.isna(values)]
    if value_kind(values) == "dates":
        return None, " holds dates: a target is a number or, if binary, one of two values"
    if task == "binary" and schema.labels is None:
        classes = np.unique(known.astype(str)).tolist()
        return None, f": a binary target has two values, this one has {len(classes)} ({', '.join(classes[:5])})"
    try:
        y = msgspec.structs.replace(schema, log=False).encode_target(values)
    except ValueError:
        words = _stray_words(values)[0] or f"is text (e.g. '{[*known, ''][0][:40]}'): a {task} target is a number"
        return None, f" {words}"
    if schema.log and (y <= 0).any():
        row = int(np.argmax(y <= 0))
        return None, f", csv.log=true: it is {y[row]:g} in row {row + 1}: only numbers > 0 have a logarithm"
    if task != "binary" and len(known) > 1 and np.nanmin(y) == np.nanmax(y):
        return None, f": it is {np.nanmin(y):g} in all {len(known)} rows, so there is nothing to predict"
    return y, ""


def _check_category(column: Column, values: np.ndarray, problems: TableProblems) -> None:
    """Note a category that is rather numbers with a few words among them, names or dates."""
    options, name, drop = problems.options, column.name, f"{setting('drop', column.name)} leaves it out"
    odd, words = _stray_words(values) if name not in options.categories else ("", [])
    if odd:
        gaps = {"missing": ["mean"]} if options.missing == "refuse" else {}
        remedies = {"na": words, **gaps} if 0 < len(words) <= MANY_WORDS else {"categories": [name]}
        advice = f"{setting('categories', name)} takes each value as a category; {drop}"
        return problems.add(f"column '{name}' {odd}, {advice}", **remedies)
    most, count = options.levels or min(MAX_LEVELS, max(2, len(values) // 10)), len(column.levels)
    if count > most:
        forms = DATE_FORMATS if value_kind(values) == "text" else ()
        formats = [form for form in forms if parse_texts(values, "dates", form) is not None]
        choices = " or ".join(setting("date_format", form) for form in formats)
        example = f"{count} distinct values (e.g. '{column.levels[0][:40]}') in {len(values)} rows, more than {most}"
        dates = f"if these are dates, {choices} reads them, " if formats else ""
        said = f"column '{name}' is a category with {example}: {dates}csv.levels={count} allows so many; {drop}"
        problems.add(said, **{"date_format": formats} if len(formats) == 1 else {"drop": [name]})


def _stray_words(values: np.ndarray) -> tuple[str, list[str]]:
    """What to say of a column of numbers that is text because of a few words in it ('' of others), and the words."""
    texts = pd.Series(values if value_kind(values) == "text" else [], dtype=object).dropna()
    with_commas = texts.str.contains(".", regex=False).astype(bool)
    odd = texts[pd.to_numeric(texts.mask(with_commas, texts.str.replace(",", "")), errors="coerce").isna()]
    if len(texts) == len(odd) or 2 * len(odd) > len(texts):
        return "", []
    if odd.empty:
        return "is text, though all its values are numbers: make them numbers", []
    words = odd.value_counts().index.tolist()
    shown = ", ".join(f"'{word[:20]}'" for word in words[:3]) + ", ..." * (len(words) > 3)
    where = f"in {counted(len(odd), 'row')} (the first: row {odd.index[0] + 1})"
    advice = f"{setting('na', *words)} calls that missing" if len(words) <= MANY_WORDS else "correct them"
    return f"is text because of {shown} {where}; its other {len(texts) - len(odd)} values are numbers: {advice}", words


def _leak(values: np.ndarray, column: Column, y: np.ndarray) -> tuple[bool, str]:
    """Whether a column of features is the target in other units or words, and how it gives the target away ('')."""
    known = ~pd.isna(values) & ~np.isnan(y)
    x, y = values[known], y[known]
    if len(y) < ENOUGH or (y == y[0]).all() or (x == x[0]).all():
        return False, ""
    if column.kind != "category":
        x = as_numbers(x)
        with np.errstate(all="ignore"):  # values so large that they overflow are refused for that
            slope = np.dot(x - x.mean(), y - y.mean()) / np.dot(x - x.mean(), x - x.mean())
            offset = y.mean() - slope * x.mean()
            rest = np.var(slope * x + offset - y) / np.var(y)
        if rest < NEARLY:
            left = "" if rest < EXACTLY else f", which leaves {100 * rest:.2g} % of its variance"
            more = f" plus {offset:.6g}" if abs(offset) > EXACTLY * np.abs(y).max() else ""
            return not left, f"the target is {slope:.6g} times it{more}{left}"
        order = np.lexsort((y, x))
        steps, ties = np.diff(y[order]), np.diff(x[order]) == 0
        if (steps[ties] == 0).all() and ((steps >= 0).all() or (steps <= 0).all()):
            return False, "sorted by it, the target only rises or only falls"
    pairs = pd.DataFrame({"x": x, "y": y}).drop_duplicates()
    if len(pairs) == pairs["x"].nunique() <= len(y) // 5:
        return len(pairs) == pairs["y"].nunique(), "each of its values occurs with one value of the target only"
    return False, ""


def _numbers_rows(values: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    counts = value_kind(values) == "numbers" and len(values) > 1 and values[0] in (0.0, 1.0)
    return bool(counts and (values == np.arange(len(values)) + values[0]).all())
