"""The tidy table: one row per selected result, one column per fact. Made here, from records and what was asked for;
figures, claims, the report, closing tables and Python users read it and nothing else.

`candidates` has a row for every cell that was asked for and has a record, `select` keeps of each group of candidates
the one with the lowest validation metric. No refit follows a selection. `select_setting` keeps rows of one setting.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.config import KINDS
from dlmexp.errors import UserError, nearest
from dlmexp.plan.cell import FIRST_OPTIONS
from dlmexp.reading.json_text import json_value
from dlmexp.records.manifest import Asked

SETTING = ["protocol", "changes", "evaluate", "data", "split"]  # rows that differ in one of them never meet
PAPER = "paper"  # the protocol that is meant where none is named
IDENTITY = [
    "dataset", "stands_for", "task", "n", "size", "seed", "method", "estimator", "samples", "parameterisation", "role",
    "protocol", "changes",
]  # fmt: skip
SELECTION = ["selected_by", "beta", "candidates", "missing", "failed", "edge", "status", "key"]
TEST = [f"test_{name}" for name in ("nll", "mse", "error", "mre")]
OWN_UNITS = [f"test_{name}" for name in ("rmse", "mae", "r2", "coverage_95")]  # of users' own tables, beside TEST
GROUP = ["group", "dataset", "n", "seed", "size", "method", "role", "protocol", "changes", "selection", "experiment",
         "stands_for", "candidates"]  # fmt: skip


class Frames:
    """The tidy table and its candidates, from `Store.cells` and what was asked for. Each is made when asked for."""

    def __init__(self, cells: pa.Table, asked: Sequence[Asked]):
        self._asked = asked
        self._records, self._groups = _records(cells), _groups(asked)
        keys = pd.Index([key for group in asked for key in group.keys], dtype=object)
        group = np.repeat(np.arange(len(asked)), [len(group.keys) for group in asked])
        record = pd.Index(self._records["key"], dtype=object).get_indexer(keys)
        pairs = pd.DataFrame({"asked": group, "group": self._groups["group"].to_numpy()[group], "record": record})
        # A cell counts once in a group, however often the group was asked for.
        self._pairs = pairs[record >= 0].drop_duplicates(["group", "record"]).reset_index(drop=True)

    def _joined(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """What was asked for, beside the records."""
        rows = _take(self._records, pairs["record"]).drop(columns=["dataset", "n", "seed"])
        return pd.concat([_take(self._groups, pairs["asked"]), rows], axis=1)

    @cached_property
    def _counts(self) -> pd.DataFrame:
        """What selection looks at, one row per pair of a group and a record."""
        about = _take(self._groups[["group", "role", "selection", "candidates"]], self._pairs["asked"])
        names = ["status", "beta", *_starting(self._records, "validation_")]
        counts = pd.concat([about, _take(self._records[names], self._pairs["record"])], axis=1)
        counts["failed"] = _in_group(counts, counts["status"] != "done")
        counts["missing"] = counts["candidates"] - _in_group(counts, counts["status"].notna())
        return counts

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """Every cell that was asked for and has a record; a cell that belongs to two groups has two rows."""
        candidates = self._joined(self._pairs)
        candidates[["failed", "missing"]] = self._counts[["failed", "missing"]]
        return _ordered(candidates)

    @property
    def selected_or_undecided(self) -> pd.DataFrame:
        """The candidates that some metric selects, and all of a group in which nothing is selected (yet)."""
        selected = self.table[self.table["status"] == "done"]
        undecided = ~self.candidates["group"].isin(selected["group"])
        return self.candidates[undecided | self.candidates["key"].isin(selected["key"])]

    @cached_property
    def table(self) -> pd.DataFrame:
        """Selected rows, by NLL and by MSE where candidates have both; groups that lack records or failed are rows
        without metrics. Where there are no validation rows, as on airline, nothing is selected but a single candidate.
        """
        counts = self._counts
        known = counts[_starting(counts, "validation_")].notna()
        validated = _in_group(counts, known.any(axis=1)) > 0
        nll, mse = (
            _in_group(counts, known[name]) > 0 if name in known else np.zeros(len(known), dtype=bool)
            for name in ("validation_nll", "validation_mse")
        )
        undecided = (counts["missing"] > 0) | (counts["failed"] == counts["candidates"])
        fits = (counts["role"] != "gradient") & (validated | (counts["candidates"] == 1) | undecided)
        complete = fits & (counts["missing"] == 0)
        by_mse = mse & ((counts["selection"] == "reported") | ~nll)  # a protocol may ask for NLL whatever is reported
        by_nll = select(counts[complete & (nll | ~validated)], "nll").assign(selected_by="nll")
        chosen = pd.concat([by_nll, select(counts[complete & by_mse], "mse").assign(selected_by="mse")])
        rest = counts[fits & ~counts["group"].isin(chosen["group"])].drop_duplicates("group")
        rest = rest.assign(selected_by="nll", status=np.where(rest["missing"] > 0, "incomplete", "failed"))
        chosen = pd.concat([chosen, rest]).sort_values(["group", "selected_by"], ascending=[True, False])
        about = ["failed", "missing", "selected_by", "status"]
        table = self._joined(_take(self._pairs, chosen.index))
        table[about] = chosen[about].reset_index(drop=True)
        empty = table["status"] != "done"
        table.loc[empty, _starting(table, "test_", "validation_", "hyper_")] = np.nan
        table.loc[empty, ["beta", "key"]] = [np.nan, None]
        betas = [self._asked[group].betas for group in table["group"]]
        ends = [{b[0]: "largest", b[-1]: "smallest"} if len(b) > 1 else {} for b in betas]
        table["edge"] = [each.get(beta, "") for each, beta in zip(ends, table["beta"], strict=True)]
        return _ordered(table)


def _take(frame: pd.DataFrame, places: "pd.Series[int] | pd.Index[int]") -> pd.DataFrame:
    return frame.take(places.to_numpy()).reset_index(drop=True)


def _starting(frame: pd.DataFrame, *beginnings: str) -> list[str]:
    """The columns whose names begin so."""
    return [name for name in map(str, frame.columns) if name.startswith(beginnings)]


def _records(cells: pa.Table) -> pd.DataFrame:
    """Records as a frame: options of estimators as columns, initial values as one text."""
    frame = cells.to_pandas()
    frame = frame.astype(dict.fromkeys(("n", "seed", "M"), "int64"))
    options = {text: json_value(text.encode()) for text in frame["options"].unique()}
    taken = {*frame.columns, *GROUP} - {*FIRST_OPTIONS}
    names = [name for given in options.values() for name in given if name not in taken]
    for name in dict.fromkeys([*FIRST_OPTIONS, *names]):
        frame[name] = frame["options"].map({text: given.get(name) for text, given in options.items()})
    frame["samples"] = pd.to_numeric(frame["samples"], errors="coerce").astype("float64")
    initial = {text: json_value(text.encode()) for text in frame["initial"].unique()}
    frame["initial"] = frame["initial"].map(
        {text: ", ".join(f"{name}={value:g}" for name, value in sorted(v.items())) for text, v in initial.items()}
    )
    for name in TEST:
        if name not in frame:
            frame[name] = np.nan
    return frame.drop(columns="options")


def _groups(asked: Sequence[Asked]) -> pd.DataFrame:
    """What was asked for, one row per group of candidates. Groups with the same cells, role and setting are one, which
    names all their experiments: `group` is the number of the first of them."""
    first: dict[tuple[object, ...], int] = {}
    experiments: dict[int, dict[str, None]] = {}
    for index, group in enumerate(asked):
        number = first.setdefault(group.identity[1:], index)
        experiments.setdefault(number, {})[group.experiment] = None
    rows = [
        (
            number, group.dataset, group.n, group.seed, group.size, group.method, group.role, group.setting.protocol,
            group.setting.text, group.setting.selection, ", ".join(experiments[number]), group.stands_for,
            len(group.betas),
        )
        for group in asked
        for number in [first[group.identity[1:]]]
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=GROUP).astype({"n": "int64", "seed": "int64", "candidates": "int64"})


def select(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The row of each `group` with the lowest finite validation metric, the larger beta of equals. Groups without such
    a row are left out. A single candidate needs no validation rows."""
    name = f"validation_{metric}"
    values = candidates[name] if name in candidates else pd.Series(np.nan, index=candidates.index)
    alone = (candidates["candidates"] == 1) & values.isna() & (candidates["role"] != "gradient")
    usable = (candidates["status"] == "done") & (np.isfinite(values) | alone)
    ranked = pd.DataFrame({"group": candidates["group"], "value": values, "beta": -candidates["beta"].fillna(0.0)})
    ranked = ranked[usable].sort_values(["group", "value", "beta"], kind="stable")
    return candidates.loc[ranked.drop_duplicates("group").index]


def _in_group(candidates: pd.DataFrame, which: pd.Series) -> np.ndarray:
    """For each row, how many rows of its group are among `which`."""
    group = candidates["group"].to_numpy(dtype="int64")
    return np.bincount(group, which.to_numpy(dtype=float), minlength=1)[group].astype("int64")


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns in the order in which people look for them."""
    first = [name for name in (*IDENTITY, *SELECTION, *OWN_UNITS, *TEST) if name in frame]
    return frame[[*first, *(name for name in frame.columns if name not in first)]].reset_index(drop=True)


def rows_for(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The row of each group selected for a reported metric: by MSE for MSE, by NLL for all others; the only row where
    there is one."""
    wanted = "mse" if metric == "mse" else "nll"
    ordered = table.iloc[np.argsort((table["selected_by"] != wanted).to_numpy(), kind="stable")]
    return ordered.drop_duplicates("group").sort_index()


class Term(NamedTuple):
    """`name=value` of `--where` or `--by`; the name without `training.` and the kind of data."""

    name: str
    value: str


class Selected(NamedTuple):
    """Rows of one setting. `others` are the settings that were left out: options to type, and a number of cells."""

    rows: pd.DataFrame
    protocol: str | None
    changes: str
    others: list[tuple[str, int]]


def parse_terms(option: str, typed: Iterable[str], valid: Iterable[str]) -> list[Term]:
    """The `name=value` terms of an option; UserError for a name that is none of `valid`."""
    terms = []
    for text in typed:
        name, _, value = text.partition("=")
        if not value:
            raise UserError(f"{option} {text}: write field=value, for instance dataset=flights or lr=0.01")
        term = Term(_plain(name), value)
        if term.name not in valid:
            also = f" Of a setting: --where {text}" if option == "--by" else ""
            close = nearest(term.name, sorted(valid))
            raise UserError(f"{option} {text}: there is no '{name}' to choose by: {close}{also}")
        terms.append(term)
    return terms


def fitting_values(option: str, term: Term, values: Iterable[Any]) -> list[Any]:
    """Those of `values` that the term names, alone or with commas between them; UserError for one that is not there."""
    known, fitting = list(values), []
    for text in term.value.split(",") if "[" not in term.value else [term.value]:
        same_values = [value for value in known if same(value, text)]
        if not same_values:
            names = sorted(f"{value:g}" if isinstance(value, float) else str(value) for value in known)
            close = nearest(text, names) if text[:1].isalpha() else f"there are {', '.join(names[:12]) or 'none'}"
            raise UserError(f"{option} {term.name}={text}: no record has this value; {close}")
        fitting += same_values
    return fitting


def parse_where(typed: Iterable[str], table: pd.DataFrame) -> tuple[Term, ...]:
    """`training.lr=0.01`, `M=50` and the like; UserError for a name that no setting has, or a value that none has."""
    changes = [_changes(text) for text in table["changes"].unique()]
    names = {*map(str, table.columns), *(name for each in changes for name in each)} - {*IDENTITY, *SELECTION}
    terms = parse_terms("--where", typed, names)
    for term in terms:
        if not matching(table, [term]).any():
            values = {each[term.name] for each in changes if term.name in each}
            fitting_values("--where", term, values | ({*table[term.name].dropna()} if term.name in table else set()))
    return tuple(terms)


def _plain(name: str) -> str:
    parts = [part for part in name.split(".") if part not in ("training", *KINDS)]
    return parts[-1] if parts[:1] in (["dataset"], ["estimator"]) else ".".join(parts)


def changes_of(text: str) -> dict[str, str]:
    """The names and values of a setting's text: lists are `[a,b]`, so that ', ' stands only between changes."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(", ") if part)}


def _changes(text: str) -> dict[str, str]:
    return {_plain(name): value for name, value in changes_of(text).items()}


def matching(rows: pd.DataFrame, where: Iterable[Term]) -> pd.Series:
    """Which rows belong to settings that have all these values: among their changes, or else in some row of theirs."""
    keep = pd.Series(True, index=rows.index)
    for name, text in where:
        said = rows["changes"].map({each: _changes(each).get(name) for each in rows["changes"].unique()})
        fits = said.isin([value for value in said.dropna().unique() if same(value, text)])
        if name in rows:
            has = rows[name].isin([value for value in rows[name].dropna().unique() if same(value, text)])
            has |= rows[name].isna() & (text in ("null", "none"))
            own = has.groupby(
                [rows[each] for each in [*SETTING, "dataset", "role"]], dropna=False, observed=True
            ).transform("any")
            fits |= said.isna() & own
        keep &= fits
    return keep


def same(value: object, text: str) -> bool:
    """Whether a value is what somebody typed."""
    try:
        return float(str(value)) == float(text)
    except ValueError:
        return str(value).lower().replace(" ", "") == text.lower().replace(" ", "")


def select_setting(rows: pd.DataFrame, protocol: str | None = None, where: Sequence[Term] = ()) -> Selected:
    """The rows of one setting: of the protocol that is named (else the paper's, else the one with most cells) its own
    values where there are such rows; else those with the fewest changes, then with the most cells."""
    counts = rows.groupby(SETTING, sort=False, dropna=False, observed=True)["group"].size()
    fitting = rows[matching(rows, where)] if where else rows
    if protocol is not None:
        fitting = fitting[fitting["protocol"] == protocol]
    elif PAPER in set(fitting["protocol"]):
        fitting = fitting[fitting["protocol"] == PAPER]
    if fitting.empty:
        return Selected(fitting, None, "", [])
    among = fitting.groupby(SETTING, sort=False, dropna=False, observed=True)["group"].size()
    if protocol is None:
        most = among.groupby(level="protocol", observed=True).sum().idxmax()
        among = among[among.index.get_level_values("protocol") == most]
    best = min(among.index, key=lambda setting: (len(changes_of(setting[1])), -among[setting], str(setting)))
    keep = np.logical_and.reduce(
        [(fitting[name] == value).to_numpy() for name, value in zip(SETTING, best, strict=True)]
    )
    others = [(_options(setting, best), int(count)) for setting, count in counts.items() if setting != best]
    return Selected(fitting[keep], best[0], best[1], others)


def _options(setting: Any, best: tuple[str, ...]) -> str:
    """What makes a command take a setting in place of `best`."""
    protocol, changes, *rest = setting
    words = [] if protocol == PAPER else [f"--protocol {protocol}"]
    words += [f"--where {name}={value}" for name, value in changes_of(changes).items()]
    words += [f"--where {name}={a}" for name, a, b in zip(SETTING[2:], rest, best[2:], strict=True) if a != b]
    return " ".join(words)
