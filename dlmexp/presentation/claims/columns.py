"""Choose the settings that claims are judged under, and the rows of each.

In this module a setting is a combination: a protocol, together with all values that were changed in
it, if there are any. Each setting has a column in the table of verdicts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError
from dlmexp.experiment.records.settings import ChangesByText, assignments

# Results on a dataset that differ in one of these columns are not comparable.
COMPARABILITY_COLUMNS = ["evaluate", "data", "split"]


@dataclass(frozen=True)
class VerdictColumn:
    """A setting that verdicts are about.

    Attributes:
        protocol: The name of the protocol. A preset that made the runs smaller is part of the name,
            such as `released-quick`; `quick` alone is the protocol `paper` with a preset.
        changes: The values that differ from the protocol's, such as `training.lr=0.01, M=50`.
        terms: The values in `changes` one by one, as users type them.
        preset: Whether `protocol` contains a preset.
    """

    protocol: str
    changes: str = ""
    terms: tuple[str, ...] = ()
    preset: bool = False

    @property
    def label(self) -> str:
        """The setting as tables show it."""
        label = self.protocol
        if self.changes:
            label += f", {self.changes}"
        if self.preset:
            label += " (preset)"
        return label

    @property
    def options(self) -> str:
        """The options that make `dlmexp claims` show the setting."""
        options = [f"--protocol {self.protocol}"]
        options += [f"--where {term}" for term in self.terms]
        return " ".join(options)


def columns_of(candidates: pd.DataFrame, changes: ChangesByText) -> list[VerdictColumn]:
    """Return the settings that were run, the most frequent first.

    Runs for timing are ignored, unless there are no other runs.

    Args:
        candidates: The rows of all runs.
        changes: The changed values of settings, by their text in the column `changes`.
    """
    is_for_results = candidates["role"] != "timing"
    counted_runs = candidates[is_for_results] if is_for_results.any() else candidates
    counts = counted_runs.groupby(["protocol", "changes"], observed=True, sort=False).size()
    settings = counts.sort_values(ascending=False, kind="stable").index
    columns: list[VerdictColumn] = []
    for protocol, text_of_changes in settings:
        preset, _ = catalogue.preset_and_protocol(protocol)
        terms = tuple(assignments(changes[text_of_changes]))
        columns.append(VerdictColumn(protocol, text_of_changes, terms, preset=bool(preset)))
    return columns


def choose_columns(
    available: Sequence[VerdictColumn], protocol: str | None, everything: bool = False
) -> list[VerdictColumn]:
    """Return the settings to judge, in the order of their columns.

    Args:
        available: The settings that were run, the most frequent first.
        protocol: The only protocol to judge; None means all.
        everything: Whether to judge all settings. Otherwise each protocol has one column, that with
            the fewest changes, and settings with a preset are left out if there are others.

    Raises:
        UserError: Nothing was run under the protocol.
    """
    chosen = list(available) if protocol is None else _with_protocol(available, protocol)
    if not everything:
        without_preset = [column for column in chosen if not column.preset]
        chosen = _with_fewest_changes(without_preset or chosen)
    return sorted(chosen, key=_rank)


def _with_protocol(available: Sequence[VerdictColumn], protocol: str) -> list[VerdictColumn]:
    """Return the settings that have a protocol.

    Raises:
        UserError: Nothing was run under the protocol.
    """
    chosen = [column for column in available if column.protocol == protocol]
    if not chosen:
        known = ", ".join(dict.fromkeys(column.protocol for column in available))
        raise UserError(f"--protocol {protocol}: nothing was run under it; there is {known}")
    return chosen


def _with_fewest_changes(columns: list[VerdictColumn]) -> list[VerdictColumn]:
    """Return for each protocol the column with the fewest changes.

    Of columns with equally many changes, the last is returned: the one with the fewest runs, as the
    most frequent come first.
    """
    chosen: dict[str, VerdictColumn] = {}
    for column in columns:
        best = chosen.get(column.protocol)
        if best is None or len(column.terms) <= len(best.terms):
            chosen[column.protocol] = column
    return list(chosen.values())


def _rank(column: VerdictColumn) -> tuple[int, str, str]:
    """Return a sort key: the protocols of `PROTOCOLS` in their order, then others by name."""
    if column.protocol in catalogue.PROTOCOLS:
        position = catalogue.PROTOCOLS.index(column.protocol)
    else:
        position = len(catalogue.PROTOCOLS)
    return position, column.protocol, column.changes


def rows_of(frame: pd.DataFrame, column: VerdictColumn) -> pd.DataFrame:
    """Return the rows of one column.

    Runs for timing change values of their protocol, but they belong to the column of the protocol
    without changes. Where results on a dataset are not comparable (`COMPARABILITY_COLUMNS`), the
    largest comparable group of rows is taken.
    """
    of_protocol = frame[frame["protocol"] == column.protocol]
    in_column = of_protocol["changes"] == column.changes
    if not column.changes:
        in_column |= of_protocol["role"] == "timing"
    return _largest_comparable_groups(of_protocol[in_column])


def _largest_comparable_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Return, for each dataset and role, the largest group of comparable rows."""
    group_columns = ["dataset", "role", *COMPARABILITY_COLUMNS]
    counts = rows.groupby(group_columns, observed=True, dropna=False).size()
    largest_first = counts.sort_values(ascending=False, kind="stable").reset_index(name="rows")
    largest = largest_first.drop_duplicates(["dataset", "role"])
    all_are_comparable = len(largest) == len(counts)
    if all_are_comparable:
        return rows
    return rows.merge(largest.drop(columns="rows"), on=group_columns)
