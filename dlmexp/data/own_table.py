"""A user's own table (`dataset=csv`, or `loader: table`): CSV, TSV or Parquet. All that is wrong with it is put in one
list, with the settings that do away with it; what makes results look better than they are is warned of."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from dlmexp.config import CsvConfig, DatasetConfig, setting
from dlmexp.console import counted
from dlmexp.data.dataset import LOADERS, Dataset
from dlmexp.data.raw_files import TEST
from dlmexp.data.schema import Column, Schema, Values, as_numbers, as_text, from_arrow, parse_texts, value_kind
from dlmexp.data.splits import Arrangement
from dlmexp.errors import UserError, nearest
from dlmexp.reading.tables import read_table

Problems = Iterator[tuple[str, dict[str, list[str]]]]
"""What is wrong, and the values that do away with it, by option."""

OTHERS = ("by_task", "checks")  # options that concern others
UNNAMED = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls an index that was saved with a table
MAX_LEVELS = 100
MANY_WORDS = 10  # so many that are no numbers are no words for a missing value
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y", "%Y%m%d")
ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
EXACTLY, NEARLY = 1e-12, 1e-3  # of the target's variance: what is left beside a copy of the target


@LOADERS.register("table")
def own_table(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Column `options.target` is y, the others are features. The facts say what was read, and what was left out."""
    options = _options(spec.options)
    path, test = next(path for name, path in files.items() if name != TEST), files.get(TEST)
    values, left_out = _columns(path, options)
    target, test_rows = str(options.target), 0
    if test is not None:
        below, also = _columns(test, options, values)
        test_rows, left_out = len(below[target]), left_out + also
        values = {name: np.concatenate([column, below[name]]) for name, column in values.items()}
    features = options.columns or [name for name in values if name not in (target, options.by)]
    schema, values = Schema.fit(values, features, spec.task, options)
    warnings = _examine(values, schema, spec.task, options, path.name)
    X, y = schema.encode(values, source=path.name), schema.encode_target(values[target])
    left_out += [f"column '{name}'" for name in options.drop]
    facts = {"schema": schema, "file": path.name, "test_file": test and test.name, "left_out": left_out}
    facts |= {"filled": int(np.isnan(X).any(axis=1).sum()), "warnings": warnings}
    return Dataset(X, y, facts, _arrangement(values, options, test_rows))


def _options(given: Mapping[str, Any]) -> CsvConfig:
    """What a user says about a table: `csv.*`, or `options:` of a dataset with `loader: table`. UserError for an option
    that does not exist or has a value it can't have."""
    values = {name: value for name, value in given.items() if name not in OTHERS and value is not None}
    known = {field.name: field.metadata.get("choices") for field in fields(CsvConfig)}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"a table has no option '{name}': {nearest(name, list(known))}")
        if (choices := known[name]) and value not in choices:
            raise UserError(f"csv.{name}={value}: give one of {', '.join(choices)}")
    try:
        options = msgspec.convert(values, CsvConfig)
    except msgspec.ValidationError as error:
        raise UserError(f"csv.*: {error}") from None
    if (options.split == "random") == (options.by is not None):
        typed = f"csv.by={options.by}" if options.by else f"csv.split={options.split}"
        raise UserError(f"{typed}: csv.split=time or group and csv.by=COLUMN go together")
    if options.columns and options.drop:
        raise UserError("csv.columns and csv.drop: give the columns to take or those to leave out, not both")
    return options


def _columns(path: Path, options: CsvConfig, like: Values | None = None) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of a file that are used, and what is left out. Those of test rows are `like` those of training rows,
    with the same names and kinds."""
    table = read_table(path, options.sep, options.na)
    names = list(map(str, table.column_names))
    numbers = path.suffix != ".parquet" and parse_texts(np.array(names, object), "numbers") is not None
    if numbers and len(names) > 1 and not all(map(str.isdecimal, names)):
        raise UserError(f"{path.name}: its first line holds numbers ({names[0]}, ...): write names of columns above it")
    if twice := sorted(name.strip() or repr(name) for name, times in Counter(names).items() if times > 1):
        raise UserError(f"{path.name}: several columns are called {', '.join(twice[:5])}: rename them")
    if options.target is None:
        raise UserError(f"csv.target is not set: name the column to predict, one of {', '.join(names[:20])}")
    if options.target in options.columns:
        raise UserError(f"csv.columns: '{options.target}' is the target, it can't be a feature as well")
    for option in ("target", "by", "columns") if like else ("target", "by", "columns", "drop", "categories"):
        given = getattr(options, option) or ()
        for name in [given] if isinstance(given, str) else given:
            if name not in names:
                raise UserError(f"csv.{option}={name}: {path.name} has no column '{name}': {nearest(name, names)}")
    used = like or {*(options.columns or set(names).difference(options.drop)), options.target, options.by}
    values, left_out = dict[str, np.ndarray](), []
    for number, (name, column) in enumerate(zip(names, table.columns, strict=True), start=1):
        if name in used:
            values[name] = from_arrow(name, column, path.name)
        if name == options.target and str(column.type) == "bool":  # labels are words, not numbers
            values[name] = np.array([None if value is None else str(value) for value in column.to_pylist()], object)
        if name in UNNAMED and name in values and name not in (*options.columns, options.target, options.by):
            if not _numbers_rows(values.pop(name)):
                advice = f"name it, or leave it out with {setting('drop', *options.drop, name)}"
                raise UserError(f"{path.name}: column {number} has no name ('{name}'): {advice}")
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
    for name, column in (like or {}).items():
        if name not in values:
            advice = f"{setting('drop', *options.drop, name)} leaves it out of both files"
            raise UserError(f"csv.test={path}: it has no column '{name}': {advice}")
        if value_kind(column) != value_kind(values[name]):
            kinds = f"{value_kind(column)} in training rows, {value_kind(values[name])} in {path.name}"
            raise UserError(f"column '{name}' holds {kinds}")
    kept = np.full(table.num_rows, True)
    if options.missing == "drop":
        kept = ~np.any([pd.isna(column) for column in values.values()], axis=0)
        gone = counted(int((~kept).sum()), "row")
        left_out += [] if kept.all() else [f"{gone} with missing values (csv.missing=drop)"]
    if not kept.any():
        raise UserError(f"{path.name} has no rows" + " in which all values are there" * bool(table.num_rows))
    return {name: column[kept] for name, column in values.items()}, left_out


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
    """What looks wrong without being refused. UserError with all that is wrong."""
    y, wrong = _targets(values[schema.target], schema, task)
    problems, warnings = [*_gaps(values, schema, options.missing)], []
    problems += [(f"csv.target={schema.target}{wrong}", {})] if wrong else []
    for column in schema.columns:
        name, some = column.name, values[column.name]
        if column.kind == "category" and name not in options.categories:
            problems += _category_problems(column, some, options.missing)
        exact, how = (False, "") if y is None else _leak(some, column, y)
        advice = f"{setting('drop', name)} leaves it out"
        sentence = f"column '{name}' gives the target '{schema.target}' away: {how}; {advice}"
        if exact and name not in options.columns:
            problems.append((f"{sentence}, naming it in csv.columns=[...] keeps it", {"drop": [name]}))
        elif how:
            warnings.append(f"{sentence}; is it known when you predict?")
        if _numbers_rows(some):
            warnings.append(f"column '{name}' numbers the rows: {advice}")
        elif (some == some[0]).all():
            warnings.append(f"column '{name}' is the same in all rows: {advice}")
    if problems:
        raise UserError(_listed(file, problems, options))
    if not schema.features:
        raise UserError(f"{file} has no feature besides the target '{schema.target}'")
    used = pd.DataFrame({name: column for name, column in values.items() if name != options.by})
    if len(used) >= ENOUGH and (repeated := int(used.duplicated().sum())) > len(used) * MANY:
        said = f"{repeated} of {len(used)} rows are copies of others, so that some test rows are trained on"
        warnings.append(f"{said}; leave copies out or keep them together with csv.split=group csv.by=COLUMN")
    return warnings


def _listed(file: str, problems: list[tuple[str, dict[str, list[str]]]], options: CsvConfig) -> str:
    """All problems, and the settings that do away with them, which keep what is in the same lists already."""
    remedies = dict[str, list[str]]()
    for option, values in ((option, values) for _, some in problems for option, values in some.items()):
        given = getattr(options, option)
        before = remedies.get(option, given if isinstance(given, list) else [])
        remedies[option] = list(dict.fromkeys([*before, *values]))
    sentences = [sentence for sentence, _ in problems]
    said = "\n- ".join([f"{len(problems)} problems:", *sentences] if len(problems) > 1 else sentences)
    add = f"\nAll of it: {' '.join(setting(option, *values) for option, values in remedies.items())}"
    return f"{file}: {said}{add if remedies else ''}"


def _gaps(values: Values, schema: Schema, missing: str) -> Problems:
    """Infinite and missing values."""
    features, lacking = [column.name for column in schema.columns], pd.DataFrame(values).isna()
    for name, column in values.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            row = int(np.argmax(np.isinf(column))) + 1
            yield f"a value is infinite in row {row}, column '{name}'; correct it, or drop the row", {}
    for name in (empty := [name for name in features if lacking[name].all()]):
        yield f"column '{name}' is empty: {setting('drop', name)} leaves it out", {"drop": [name]}
    # With a mean to put in, only the target and what rows are divided by must be there.
    strict = [name for name in values if name not in empty and (missing == "refuse" or name not in features)]
    if gaps := [(int(lacking[name].argmax()) + 1, name) for name in strict if lacking[name].any()]:
        (row, name), count = min(gaps), int(lacking[strict].to_numpy().sum())
        mean = ", mean puts in the mean of the training rows (level: a level of categories)" if name in features else ""
        said = f"a value is missing in row {row}, column '{name}' ({count} in all)"
        remedy = "mean" if all(name in features for _, name in gaps) else "drop"
        yield f"{said}; csv.missing=drop leaves such rows out{mean}", {"missing": [remedy]}


def _targets(values: np.ndarray, schema: Schema, task: str) -> tuple[np.ndarray | None, str]:
    """The targets as numbers (None if they are none), and what is wrong with them."""
    known = values[~pd.isna(values)]
    if value_kind(values) == "dates":
        return None, " holds dates: a target is a number or, if binary, one of two values"
    if task == "binary" and schema.labels is None:
        classes = np.unique(known.astype(str)).tolist()
        return None, f": a binary target has two values, this one has {len(classes)} ({', '.join(classes[:5])})"
    if task == "binary":
        return schema.encode_target(values), ""
    if value_kind(values) == "text":
        words = _stray_words(values)[0] or f"is text (e.g. '{[*known, ''][0][:40]}'): a {task} target is a number"
        return None, f" {words}"
    if schema.log and (values <= 0).any():
        row = int(np.argmax(values <= 0))
        return None, f", csv.log=true: it is {values[row]:g} in row {row + 1}: only numbers > 0 have a logarithm"
    if len(known) > 1 and known.min() == known.max():
        return None, f": it is {known[0]:g} in all {len(known)} rows, so there is nothing to predict"
    return values, ""


def _category_problems(column: Column, values: np.ndarray, missing: str) -> Problems:
    """A category that is rather numbers with a few words among them, names or dates."""
    name, count, most = column.name, len(column.levels), min(MAX_LEVELS, max(2, len(values) // 10))
    advice = f"{setting('categories', name)} takes each value as a category; {setting('drop', name)} leaves it out"
    odd, words = _stray_words(values)
    if odd:
        gaps = {"missing": ["mean"]} if missing == "refuse" else {}
        remedies = {"na": words, **gaps} if 0 < len(words) <= MANY_WORDS else {"categories": [name]}
        yield f"column '{name}' {odd}, {advice}", remedies
    elif count > most:
        formats = [form for form in DATE_FORMATS if parse_texts(values, "dates", form) is not None]
        choices = " or ".join(setting("date_format", form) for form in formats)
        example = f"{count} distinct values (e.g. '{column.levels[0][:40]}') in {len(values)} rows, more than {most}"
        dates = f"if these are dates, {choices} reads them, " if formats else ""
        said = f"column '{name}' is a category with {example}: {dates}{advice}"
        yield said, {"date_format": formats} if len(formats) == 1 else {"drop": [name]}


def _stray_words(values: np.ndarray) -> tuple[str, list[str]]:
    """What to say of a column of text that is numbers but for a few words in it ('' of others), and the words."""
    texts = pd.Series(values, dtype=object).dropna()
    with_point = texts.str.contains(".", regex=False).astype(bool)  # without one, a comma may be a decimal comma
    plain = texts.mask(with_point, texts.str.replace(",", ""))
    odd = texts[pd.to_numeric(plain, errors="coerce").isna()]
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
