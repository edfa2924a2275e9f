"""Choose rows of the tidy table by what a user types, and keep one setting of them.

A setting is a protocol with the values that were changed in it. The column `changes` of the table
shows these values as a text, such as `training.lr=0.01, M=50`; functions here take the values
themselves as a mapping from that text (`ResultsFolder.changes`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from dlmexp.common.errors import UserError, nearest
from dlmexp.common.literals import literal
from dlmexp.experiment.config import KINDS
from dlmexp.experiment.plan.cell import Changes, assignments
from dlmexp.experiment.records.columns import IDENTITY, SELECTION

PAPER = "paper"  # the protocol that is meant where none is named
# Rows that differ in one of these columns are never drawn, averaged or judged together.
SETTING = ["protocol", "changes", "evaluate", "data", "split"]
MAX_NAMED_VALUES = 12  # in an error message

Where = Mapping[str, list[str]]
"""The values that rows or settings should have, as they were typed, by name."""

ChangesByText = Mapping[str, Changes]
"""The changed values of settings by their text in the column `changes`."""


def parse_terms(option: str, terms: Iterable[str], valid: Iterable[str]) -> Where:
    """Return the values of the `name=value,...` terms of an option by their name.

    Names are shortened: `training.binary.lr` and `lr` are the same.

    Raises:
        UserError: A term has no value, or its name is none of `valid`.
    """
    values: dict[str, list[str]] = {}
    for term in terms:
        typed_name, _, value = term.partition("=")
        if not value:
            raise UserError(
                f"{option} {term}: write field=value, for instance dataset=flights or lr=0.01"
            )
        name = _short_name(typed_name)
        if name not in valid:
            hint = f" Of a setting: --where {term}" if option == "--by" else ""
            raise UserError(
                f"{option} {term}: there is no '{typed_name}' to choose by: "
                f"{nearest(name, sorted(valid))}{hint}"
            )
        listed = [value] if "[" in value else value.split(",")
        values.setdefault(name, []).extend(listed)
    return values


def parse_where(terms: Iterable[str], table: pd.DataFrame, changes: ChangesByText) -> Where:
    """Return the values of `--where` terms, such as `training.lr=0.01` and `M=50`, by their name.

    Raises:
        UserError: No setting has a value of that name, or none has this value.
    """
    changes_of_rows = [_short_changes(changes[text]) for text in table["changes"].unique()]
    columns = {*map(str, table.columns)}
    changed_names = {name for values in changes_of_rows for name in values}
    where = parse_terms("--where", terms, (columns | changed_names) - {*IDENTITY, *SELECTION})
    for name, texts in where.items():
        if matching(table, {name: texts}, changes).any():
            continue
        known = {values[name] for values in changes_of_rows if name in values}
        if name in table:
            known |= {*table[name].dropna()}
        check_values("--where", name, texts, known)
    return where


def check_values(option: str, name: str, texts: Iterable[str], known: Collection[Any]) -> None:
    """Check that each text stands for one of the `known` values.

    Raises:
        UserError: A text stands for none of them.
    """
    for text in texts:
        if any(same(value, text) for value in known):
            continue
        names = sorted(f"{value:g}" if isinstance(value, float) else str(value) for value in known)
        if text[:1].isalpha():
            advice = nearest(text, names)
        else:
            advice = f"there are {', '.join(names[:MAX_NAMED_VALUES]) or 'none'}"
        raise UserError(f"{option} {name}={text}: no record has this value; {advice}")


def matching(rows: pd.DataFrame, where: Where, changes: ChangesByText) -> pd.Series:
    """Return which rows belong to a setting with all these values.

    A setting has a value if one of its changes says so or, where no change names it, if one of its
    rows has it.
    """
    matches = pd.Series(True, index=rows.index)
    setting = [rows[name] for name in [*SETTING, "dataset", "role"]]
    for name, texts in where.items():
        fits = named(_values_in_setting(rows, name, changes), texts)
        matches &= fits.groupby(setting, dropna=False, observed=True).transform("any")
    return matches


def _values_in_setting(rows: pd.DataFrame, name: str, changes: ChangesByText) -> pd.Series:
    """Return a value for every row: of the setting's changes, else of the row itself."""
    changed = {text: _short_changes(changes[text]).get(name) for text in rows["changes"].unique()}
    values = rows["changes"].map(changed).astype(object)
    return values.where(values.notna(), rows[name]) if name in rows else values


def named(values: pd.Series, texts: Iterable[str]) -> pd.Series:
    """Return which values are among those that a user typed; `null` stands for no value."""
    texts = list(texts)
    known = values.dropna().unique()
    fitting = [value for value in known if any(same(value, text) for text in texts)]
    matches = values.isin(fitting)
    if "null" in texts or "none" in texts:
        matches |= values.isna()
    return matches


def same(value: object, text: str) -> bool:
    """Return whether a value is what a user typed: as a number, or as a text but for its case."""
    try:
        return float(str(value)) == float(text)
    except ValueError:
        return str(value).lower().replace(" ", "") == text.lower().replace(" ", "")


def select_setting(
    rows: pd.DataFrame, protocol: str | None, where: Where, changes: ChangesByText
) -> tuple[pd.DataFrame, list[tuple[str, int]]]:
    """Return the rows of one setting of a protocol, and the settings that are left out.

    The setting with the protocol's own values is taken where there are such rows; else the one with
    the fewest changes, then with the most cells. A setting that is left out is given as the options
    that select it, and its number of cells.
    """
    fitting = _by_setting(rows[matching(rows, where, changes) & (rows["protocol"] == protocol)])
    counts = fitting.size()
    if counts.empty:
        return rows[:0], []

    def rank(setting: tuple[str, ...]) -> tuple[int, int, str]:
        text = setting[SETTING.index("changes")]
        return len(changes[text]), -counts[setting], str(setting)

    selected = min(counts.index, key=rank)
    others = [
        (_options(setting, selected, changes), int(count))
        for setting, count in _by_setting(rows).size().items()
        if setting != selected
    ]
    return fitting.get_group(selected), others


def _by_setting(rows: pd.DataFrame) -> Any:
    return rows.groupby(SETTING, sort=False, dropna=False, observed=True)


def _options(setting: Any, selected: tuple[str, ...], changes: ChangesByText) -> str:
    """Return the options of a command that take a setting in place of the `selected` one."""
    protocol, text, *contents = setting
    words = [] if protocol == PAPER else [f"--protocol {protocol}"]
    words += [f"--where {assignment}" for assignment in assignments(changes[text])]
    for name, value, selected_value in zip(SETTING[2:], contents, selected[2:], strict=True):
        if value != selected_value:
            words.append(f"--where {name}={value}")
    return " ".join(words)


def _short_name(name: str) -> str:
    """Return the name of a setting without what it belongs to: a kind of data, a dataset, ..."""
    parts = [part for part in name.split(".") if part not in ("training", *KINDS)]
    if parts[:1] in (["dataset"], ["estimator"], ["method"]):
        return parts[-1]
    return ".".join(parts)


def _short_changes(changes: Changes) -> dict[str, str]:
    """Return changed values, as a user types them, by their short name."""
    return {_short_name(name): literal(value) for name, value in changes.items()}
