"""Choose rows of the tidy table by the terms that a user types, and then rows of one setting.

A setting is a protocol with the values that were changed in it. The column `changes` of the table
shows these values as a text, such as `training.lr=0.01, M=50`. The values themselves are in the
mapping `changes` (`ResultsFolder.changes`), whose keys are these texts.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from dlmexp.common.errors import UserError, nearest
from dlmexp.common.literals import literal
from dlmexp.experiment.config import KINDS
from dlmexp.experiment.plan.cell import Changes, assignments
from dlmexp.experiment.records.columns import IDENTITY, SELECTION

PAPER_PROTOCOL = "paper"  # the default protocol
# Each combination of values in these columns is a setting. Rows of different settings are never
# drawn, averaged or judged together.
SETTING_COLUMNS = ["protocol", "changes", "evaluate", "data", "split"]
MAX_NAMED_VALUES = 12  # in an error message

Where = Mapping[str, list[str]]
"""The values that were typed in `--where` terms, by the name of a column or setting."""

ChangesByText = Mapping[str, Changes]
"""The changed values of settings by their text in the column `changes`."""


def parse_terms(option: str, terms: Iterable[str], valid: Iterable[str]) -> Where:
    """Return the values in the `name=value,...` terms of an option by their name.

    Names are shortened: `training.binary.lr` and `lr` are the same name.

    Args:
        option: The option, such as `--where`.
        terms: The terms.
        valid: The names that are allowed.

    Raises:
        UserError: A term has no value, or its name is not valid.
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
            hint = f" To choose by a setting: --where {term}" if option == "--by" else ""
            raise UserError(
                f"{option} {term}: there is no '{typed_name}' to choose by: "
                f"{nearest(name, sorted(valid))}{hint}"
            )
        # The commas of a list, such as [1,2], do not separate values.
        texts = [value] if "[" in value else value.split(",")
        values.setdefault(name, []).extend(texts)
    return values


def parse_where(terms: Iterable[str], table: pd.DataFrame, changes: ChangesByText) -> Where:
    """Return the values in `--where` terms, such as `training.lr=0.01` and `M=50`, by their name.

    Raises:
        UserError: No setting has a value of this name, or none has this value.
    """
    changed_values = _changed_values(table, changes)
    columns = set(map(str, table.columns))
    valid = (columns | changed_values.keys()) - {*IDENTITY, *SELECTION}
    where = parse_terms("--where", terms, valid)
    for name, texts in where.items():
        if is_in_matching_setting(table, {name: texts}, changes).any():
            continue
        # No row matches this term: name the values that there are.
        known = set(changed_values.get(name, ()))
        if name in table:
            known.update(table[name].dropna())
        check_values("--where", name, texts, known)
    return where


def _changed_values(table: pd.DataFrame, changes: ChangesByText) -> dict[str, set[Any]]:
    """Return the values that the settings of a table have changed, by their short name."""
    values: dict[str, set[Any]] = {}
    for text in table["changes"].unique():
        for name, value in _short_changes(changes[text]).items():
            values.setdefault(name, set()).add(value)
    return values


def check_values(option: str, name: str, texts: Iterable[str], known: Collection[Any]) -> None:
    """Check that each text stands for one of the `known` values.

    Raises:
        UserError: A text stands for none of them.
    """
    for text in texts:
        if any(is_same_value(value, text) for value in known):
            continue
        names = sorted(map(_as_typed, known))
        # A word may be misspelt; for a number the nearest spelling is no help.
        if text[:1].isalpha():
            advice = nearest(text, names)
        else:
            advice = f"there are {', '.join(names[:MAX_NAMED_VALUES]) or 'none'}"
        raise UserError(f"{option} {name}={text}: no record has this value; {advice}")


def _as_typed(value: object) -> str:
    """Return the text that a user types for a value."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_in_matching_setting(rows: pd.DataFrame, where: Where, changes: ChangesByText) -> pd.Series:
    """Return for each row whether its setting has all these values.

    A setting has a value if its changes contain it. If its changes do not contain the name, the
    column of this name counts, and one row of the setting with the value is enough.
    """
    matches = pd.Series(True, index=rows.index)
    setting = [rows[name] for name in [*SETTING_COLUMNS, "dataset", "role"]]
    for name, texts in where.items():
        has_value = is_any_of(_values_in_setting(rows, name, changes), texts)
        matches &= has_value.groupby(setting, dropna=False, observed=True).transform("any")
    return matches


def _values_in_setting(rows: pd.DataFrame, name: str, changes: ChangesByText) -> pd.Series:
    """Return a value for every row: from the changes of its setting, else from its own column."""
    changed = {text: _short_changes(changes[text]).get(name) for text in rows["changes"].unique()}
    values = rows["changes"].map(changed).astype(object)
    if name in rows:
        values = values.where(values.notna(), rows[name])
    return values


def is_any_of(values: pd.Series, texts: Iterable[str]) -> pd.Series:
    """Return for each value whether one of the texts stands for it.

    The texts `null` and `none` stand for a missing value.
    """
    texts = list(texts)
    matching_values = [value for value in values.dropna().unique() if _is_typed(value, texts)]
    matches = values.isin(matching_values)
    if "null" in texts or "none" in texts:
        matches |= values.isna()
    return matches


def _is_typed(value: object, texts: Iterable[str]) -> bool:
    """Return whether one of the texts stands for a value."""
    return any(is_same_value(value, text) for text in texts)


def is_same_value(value: object, text: str) -> bool:
    """Return whether a text stands for a value.

    Numbers are compared as numbers, other values by their texts without case and spaces.
    """
    try:
        return float(str(value)) == float(text)
    except ValueError:
        return str(value).lower().replace(" ", "") == text.lower().replace(" ", "")


def select_setting(
    rows: pd.DataFrame, protocol: str | None, where: Where, changes: ChangesByText
) -> tuple[pd.DataFrame, list[tuple[str, int]]]:
    """Return the rows of one setting of a protocol, and the settings that are left out.

    Of the settings that match `where`, those with the fewest changes are preferred (no changes: the
    protocol itself), and of these the one with the most cells is taken. A setting that is left out
    is returned as the options that select it, with its number of cells.
    """
    is_matching = is_in_matching_setting(rows, where, changes) & (rows["protocol"] == protocol)
    by_setting = _by_setting(rows[is_matching])
    counts = by_setting.size()
    if counts.empty:
        return rows[:0], []

    def rank(setting: tuple[str, ...]) -> tuple[int, int, str]:
        text = setting[SETTING_COLUMNS.index("changes")]
        return len(changes[text]), -counts[setting], str(setting)

    selected = min(counts.index, key=rank)
    left_out: list[tuple[str, int]] = []
    for setting, count in _by_setting(rows).size().items():
        if setting != selected:
            options = _options(setting, selected, changes)
            left_out.append((options, int(count)))
    return by_setting.get_group(selected), left_out


def _by_setting(rows: pd.DataFrame) -> Any:
    """Return rows grouped by their setting."""
    return rows.groupby(SETTING_COLUMNS, sort=False, dropna=False, observed=True)


def _options(setting: Any, selected: tuple[str, ...], changes: ChangesByText) -> str:
    """Return the options of a command that show a setting in place of the `selected` one.

    A setting is a value for each column in `SETTING_COLUMNS`.
    """
    protocol, text, *further_values = setting
    options: list[str] = []
    if protocol != PAPER_PROTOCOL:
        options.append(f"--protocol {protocol}")
    options += [f"--where {assignment}" for assignment in assignments(changes[text])]
    further_columns = SETTING_COLUMNS[2:]  # those after protocol and changes
    for name, value, selected_value in zip(
        further_columns, further_values, selected[2:], strict=True
    ):
        if value != selected_value:
            options.append(f"--where {name}={value}")
    return " ".join(options)


def _short_name(name: str) -> str:
    """Return the name of a setting without its kind of data, dataset, estimator or method.

    The short name of `training.binary.lr` is `lr`, and that of `dataset.pol.M` is `M`.
    """
    parts = [part for part in name.split(".") if part not in ("training", *KINDS)]
    if parts[0:1] in (["dataset"], ["estimator"], ["method"]):
        return parts[-1]
    return ".".join(parts)


def _short_changes(changes: Changes) -> dict[str, str]:
    """Return the texts that a user types for changed values, by the short name of the value."""
    return {_short_name(name): literal(value) for name, value in changes.items()}
