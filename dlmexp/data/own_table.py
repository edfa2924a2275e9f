"""A user's own table (`dataset=csv`, or `loader: table`): CSV, TSV or Parquet. All that is wrong
with it is put in one list, with the settings that do away with it; what makes results look better
than they are is warned of."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest
from dlmexp.common.limits import converted
from dlmexp.common.literals import setting
from dlmexp.common.reading.tables import read_table
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset
from dlmexp.data.raw_files import TEST
from dlmexp.data.schema import Column, Schema, Values, as_numbers, as_text, plain_values, value_kind
from dlmexp.data.splits import Arrangement

OTHERS = ("by_task", "checks")  # options that concern others
UNNAMED = (
    "",
    "Unnamed: 0",
    "__index_level_0__",
)  # what pandas calls an index that was saved with a table
MAX_LEVELS = 100
MANY_WORDS = 10  # so many that are no numbers are no words for a missing value
ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
EXACTLY, NEARLY = 1e-12, 1e-3  # of the target's variance: what is left beside a copy of the target
Settings = Mapping[str, str | list[str]]
"""Values of `csv.*` by option."""


@LOADERS.register("table")
def own_table(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Column `options.target` is y, the others are features. The facts say what was read, and what
    was left out."""
    options = _options(spec.options)
    path, test = next(iter(files.values())), files.get(TEST)
    values, left_out = _columns(path, options)
    target, test_rows = str(options.target), 0
    if test is not None:
        below, also = _columns(test, options, values)
        for name, column in values.items():
            if value_kind(column) != value_kind(below[name]):
                kinds = (
                    f"{value_kind(column)} in {path.name}, {value_kind(below[name])} in {test.name}"
                )
                raise UserError(f"column '{name}' holds {kinds}")
        test_rows, left_out = len(below[target]), left_out + also
        values = {name: np.concatenate([column, below[name]]) for name, column in values.items()}
    features = [
        name
        for name in options.columns or values
        if name not in (target, options.by, *options.drop)
    ]
    schema, values = Schema.fit(values, features, spec.task, options)
    found = [*_findings(values, schema, spec.task, options)]
    if problems := [(what, settings) for what, settings, refused in found if refused]:
        raise UserError(_listed(path.name, problems, options))
    X, y = schema.encode(values, source=path.name), schema.encode_target(values[target])
    left_out += [f"column '{name}'" for name in options.drop]
    facts = {
        "schema": schema,
        "file": " and ".join(each.name for each in files.values()),
        "left_out": left_out,
    }
    facts["warnings"] = [f"{what}: {_typed(settings)}" for what, settings, _ in found]
    return Dataset(X, y, facts, _arrangement(values, options, test_rows))


def _options(given: Mapping[str, Any]) -> CsvConfig:
    """What a user says about a table: `csv.*`, or `options:` of a dataset with `loader: table`.
    UserError for an option that does not exist or has a value it can't have."""
    values = {
        name: value for name, value in given.items() if name not in OTHERS and value is not None
    }
    if unknown := values.keys() - CsvConfig.__dataclass_fields__:
        name = min(unknown)
        raise UserError(
            f"a table has no option '{name}': {nearest(name, [*CsvConfig.__dataclass_fields__])}"
        )
    options = converted("csv", values, CsvConfig)
    if (options.split == "random") == (options.by is not None):
        typed = f"csv.by={options.by}" if options.by else f"csv.split={options.split}"
        raise UserError(f"{typed}: csv.split=time or group and csv.by=COLUMN go together")
    return options


def _columns(
    path: Path, options: CsvConfig, used: Collection[Any] = ()
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of a file that are used (in a file of test rows those of the training rows), and
    what is left out."""
    table = read_table(path, options.sep, options.na)
    names = pd.Index(table.column_names)
    if twice := sorted({name.strip() or repr(name) for name in names[names.duplicated()]}):
        raise UserError(
            f"{path.name}: several columns are called {', '.join(twice[:5])}: rename them"
        )
    given = {"target": [options.target], "by": [options.by] if options.by else []}
    given |= {option: getattr(options, option) for option in ("columns", "drop", "categories")}
    asked = {name: f"csv.{option}={name}" for option, listed in given.items() for name in listed}
    for name, typed in (dict.fromkeys(used, "csv.test") or asked).items():
        if name not in names:
            raise UserError(
                f"{typed}: {path.name} has no column '{name}': {nearest(str(name), [*names])}"
            )
    used = used or {
        *(options.columns or set(names).difference(options.drop)),
        options.target,
        options.by,
    }
    values, left_out = dict[str, np.ndarray](), []
    for number, (name, column) in enumerate(zip(names, table.columns, strict=True), start=1):
        if name in used:
            values[name] = plain_values(name, column, path.name)
        if name == options.target and str(column.type) == "bool":  # labels are words, not numbers
            values[name] = np.array(
                [None if value is None else str(value) for value in column.to_pylist()], object
            )
        if (
            name in UNNAMED
            and name in values
            and name not in (*options.columns, options.target, options.by)
        ):
            if not _numbers_rows(values.pop(name)):
                advice = f"name it, or leave it out with {setting('drop', [*options.drop, name])}"
                raise UserError(f"{path.name}: column {number} has no name ('{name}'): {advice}")
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
    gone = np.any([pd.isna(column) for column in values.values()], axis=0) & (
        options.missing == "drop"
    )
    if gone.all():
        raise UserError(
            f"{path.name} has no rows" + " in which all values are there" * bool(len(gone))
        )
    if gone.any():
        left_out.append(f"{counted(int(gone.sum()), 'row')} with missing values (csv.missing=drop)")
    return {name: column[~gone] for name, column in values.items()}, left_out


def _arrangement(values: Values, options: CsvConfig, test_rows: int) -> Arrangement:
    if options.by is None:
        return Arrangement(test=test_rows)
    column = values[options.by]
    if options.split == "group":
        codes = np.unique(as_text(column).astype(str), return_inverse=True)[1]
        return Arrangement("group", codes.astype(np.float64), options.by, test_rows)
    if column.dtype == object:
        advice = "write dates as 2020-12-31, or say how they are written with csv.date_format"
        raise UserError(f"csv.by={options.by}: text such as '{column[0]}' is no time: {advice}")
    return Arrangement("time", as_numbers(column), options.by, test_rows)


def _findings(
    values: Values, schema: Schema, task: str, options: CsvConfig
) -> Iterator[tuple[str, Settings, bool]]:
    """What is odd about a table, the settings that do away with it, and whether it is refused for
    that."""
    target, features = values[schema.target], [column.name for column in schema.columns]
    if not features:
        yield f"it has no feature besides the target '{schema.target}'", {}, True
    # With a mean to put in, only the target and what rows are divided by must be there.
    strict = [name for name in values if options.missing == "refuse" or name not in features]
    gaps = np.argwhere(np.column_stack([pd.isna(values[name]) for name in strict]))
    if len(gaps):
        where = f"row {gaps[0, 0] + 1}, column '{strict[gaps[0, 1]]}'"
        filled = {strict[k] for k in np.unique(gaps[:, 1])} <= {*features}
        said = (
            f"a value is missing in {where} ({len(gaps)} in all); csv.missing=drop leaves rows out"
        )
        yield (
            said + ", =mean puts in the mean" * filled,
            {"missing": "mean" if filled else "drop"},
            True,
        )
    if wrong := _wrong_target(target, schema, task):
        yield f"csv.target={schema.target}{wrong}", {}, True
    y = schema.encode_target(target) if schema.labels else target
    for column in schema.columns:
        name, some, drop = column.name, values[column.name], {"drop": [column.name]}
        if column.kind == "category" and name not in options.categories:
            odd, settings = _odd_category(column, some, options.missing)
            if odd:
                yield (
                    f"column '{name}' {odd}; {setting('categories', [name])} takes it as it is",
                    settings,
                    True,
                )
        exact, how = (False, "") if wrong else _leak(some, column, y)
        if how:
            known = "if it is known when you predict, name it in csv.columns=[...]"
            said = f"column '{name}' gives the target '{schema.target}' away: {how} ({known})"
            yield said, drop, exact and name not in options.columns
        if _numbers_rows(some):
            yield f"column '{name}' numbers the rows", drop, False
        elif pd.Series(some).nunique(dropna=False) == 1:
            yield f"column '{name}' is the same in all rows", drop, False
    used = pd.DataFrame({name: column for name, column in values.items() if name != options.by})
    if len(used) >= ENOUGH and (repeated := int(used.duplicated().sum())) > len(used) * MANY:
        said = f"{repeated} of {len(used)} rows are copies of others, so that some test rows are trained on"
        yield (
            f"{said}; leave copies out or keep them together",
            {"split": "group", "by": "COLUMN"},
            False,
        )


def _typed(settings: Settings) -> str:
    return " ".join(setting(option, value) for option, value in settings.items())


def _listed(file: str, problems: list[tuple[str, Settings]], options: CsvConfig) -> str:
    """All problems, and the settings that do away with them, which keep what is in the same lists
    already."""
    together = dict[str, Any]()
    for option, value in (pair for _, settings in problems for pair in settings.items()):
        if isinstance(value, str):
            together.setdefault(option, value)
        else:
            together[option] = list(
                dict.fromkeys([*together.get(option, getattr(options, option)), *value])
            )
    said = "\n- ".join(
        [f"{len(problems)} problems:"] * (len(problems) > 1) + [what for what, _ in problems]
    )
    return f"{file}: {said}" + (f"\nAll of it: {_typed(together)}" if together else "")


def _wrong_target(values: np.ndarray, schema: Schema, task: str) -> str:
    """What is wrong with the target, or ''."""
    known, kind = values[~pd.isna(values)], value_kind(values)
    if task == "binary":
        classes = np.unique(known.astype(str)).tolist()
        few = f": a binary target has two values, this one has {len(classes)} ({', '.join(classes[:5])})"
        return few if schema.labels is None else ""
    if kind != "numbers":
        odd = _stray_words(values)[0] if kind == "text" else ""
        odd = odd or f"holds {kind} ({', '.join(map(str, known[:3]))})"
        return f" {odd}: a {task} target is a number"
    if schema.log and (values <= 0).any():
        row = int(np.argmax(values <= 0))
        return f", csv.log=true: it is {values[row]:g} in row {row + 1}: only numbers > 0 have a logarithm"
    same = len(known) > 1 and known.min() == known.max()
    return (
        f": it is {known[0]:g} in all {len(known)} rows, so there is nothing to predict"
        if same
        else ""
    )


def _odd_category(column: Column, values: np.ndarray, missing: str) -> tuple[str, Settings]:
    """What is odd about a category ('': nothing) that is rather numbers with a few words, names or
    dates; and the settings that read it otherwise."""
    count, most = len(column.levels), min(MAX_LEVELS, max(2, len(values) // 10))
    odd, words = _stray_words(values)
    if odd and 0 < len(words) <= MANY_WORDS:
        return odd, {"na": words} | ({"missing": "mean"} if missing == "refuse" else {})
    if odd or count <= most:
        return odd, {"categories": [column.name]}
    example = f"{count} distinct values (e.g. '{column.levels[0][:40]}') in {len(values)} rows, more than {most}"
    dates = "if these are dates, say how they are written, as in csv.date_format=%d.%m.%Y"
    return f"is a category with {example}; {dates}", {"drop": [column.name]}


def _stray_words(values: np.ndarray) -> tuple[str, list[str]]:
    """What to say of a column of text that is numbers but for a few words in it ('' of others), and
    the words."""
    texts = pd.Series(values, dtype=object).dropna()
    plain = texts.str.replace(r",(?=.*\.)", "", regex=True)  # else it may be a decimal comma
    odd = texts[pd.to_numeric(plain, errors="coerce").isna()]
    if len(texts) == len(odd) or 2 * len(odd) > len(texts):
        return "", []
    if odd.empty:
        return "is text, though all its values are numbers: make them numbers", []
    words = odd.value_counts().index.tolist()
    shown = ", ".join(f"'{word[:20]}'" for word in words[:3]) + ", ..." * (len(words) > 3)
    where = f"in {counted(len(odd), 'row')} (the first: row {odd.index[0] + 1})"
    missing = f"; {setting('na', words)} calls that missing" * (len(words) <= MANY_WORDS)
    return (
        f"is text because of {shown} {where}; its other {len(texts) - len(odd)} values are numbers{missing}",
        words,
    )


def _leak(values: np.ndarray, column: Column, y: np.ndarray) -> tuple[bool, str]:
    """Whether a column of features is the target in other units or words, and how it gives the
    target away ('')."""
    known = ~pd.isna(values) & ~np.isnan(y)
    x, y = values[known], y[known]
    if len(y) < ENOUGH or (y == y[0]).all():
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
    pairs = pd.DataFrame({"x": x, "y": y}).drop_duplicates().sort_values("x")
    if not pairs["x"].is_unique:
        return False, ""
    if column.kind != "category" and (
        pairs["y"].is_monotonic_increasing or pairs["y"].is_monotonic_decreasing
    ):
        return False, "sorted by it, the target only rises or only falls"
    how = (
        "each of its values occurs with one value of the target only"
        if len(pairs) <= len(y) // 5
        else ""
    )
    return pairs["y"].is_unique, how


def _numbers_rows(values: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    return len(values) > 1 and any(
        np.array_equal(values, np.arange(len(values)) + first) for first in (0, 1)
    )
