"""The tidy table: one row per selected result, one column per fact. Made here, from records and what was asked for;
figures, claims, the report, closing tables and Python users read it and nothing else.

`candidates` has a row for every cell that was asked for and has a record, `select` keeps of each group of candidates
the one with the lowest validation metric. No refit follows a selection. `select_setting` keeps rows of one setting.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.errors import UserError, nearest
from dlmexp.plan.cell import FIRST_OPTIONS
from dlmexp.records.manifest import Asked

SETTING = ["protocol", "changes", "evaluate", "data", "split"]  # rows that differ in one of them never meet
PAPER = "paper"  # the protocol that is meant where none is named
IDENTITY = [
    "dataset", "stands_for", "task", "n", "size", "seed", "method", "estimator", "samples", "parameterisation", "role",
    "protocol", "changes",
]  # fmt: skip
SELECTION = ["selected_by", "beta", "candidates", "missing", "failed", "edge", "status", "key"]
TEST = [f"test_{name}" for name in ("nll", "mse", "error", "mre")]
COUNTS = ("n", "seed", "M")  # columns of whole numbers that every cell has


class Frames(NamedTuple):
    """`table`: selected results. `candidates`: every cell that was asked for and has a record; a cell that belongs to
    two groups has two rows."""

    table: pd.DataFrame
    candidates: pd.DataFrame


def frames(cells: pa.Table, asked: Sequence[Asked]) -> Frames:
    """The tidy table and its candidates, from `Store.cells` and what was asked for."""
    records, groups = _records(cells), _groups(asked)
    keys = np.array([key for group in asked for key in group.keys], dtype=object)
    of = np.repeat(np.arange(len(asked)), [len(group.keys) for group in asked])
    order = pd.Index(records["key"]).get_indexer(pd.Index(keys))
    rows = records.take(order[order >= 0]).reset_index(drop=True)
    about = groups.take(of[order >= 0]).reset_index(drop=True)
    candidates = pd.concat([about, rows.drop(columns=["dataset", "n", "seed"])], axis=1)
    candidates = candidates.loc[_first_of(candidates)].reset_index(drop=True)
    present = candidates.groupby("group")["status"].agg(["size", lambda s: int((s != "done").sum())])
    present.columns = ["size", "failed"]
    candidates["failed"] = candidates["group"].map(present["failed"]).to_numpy()
    candidates["missing"] = candidates["candidates"] - candidates["group"].map(present["size"]).to_numpy()
    return Frames(_table(candidates, groups, asked), _ordered(candidates))


def _records(cells: pa.Table) -> pd.DataFrame:
    """Records as a frame: options of estimators as columns, initial values as one text."""
    frame = cells.to_pandas()
    for name in (*COUNTS,):
        frame[name] = frame[name].astype("int64")
    options = {text: json.loads(text) for text in frame["options"].unique()}
    for name in dict.fromkeys([*FIRST_OPTIONS, *(name for some in options.values() for name in some)]):
        frame[name] = frame["options"].map({text: some.get(name) for text, some in options.items()})
    frame["samples"] = pd.to_numeric(frame["samples"]).astype("float64")
    initial = {text: _listed(json.loads(text)) for text in frame["initial"].unique()}
    frame["initial"] = frame["initial"].map(initial)
    for name in TEST:
        if name not in frame:
            frame[name] = np.nan
    return frame.drop(columns="options")


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in sorted(values.items()))


def _groups(asked: Sequence[Asked]) -> pd.DataFrame:
    """What was asked for, one row per group of candidates. Groups with the same cells, role and setting are one, which
    names all their experiments: `group` is the number of the first of them."""
    first: dict[tuple[object, ...], int] = {}
    rows = []
    for index, group in enumerate(asked):
        same = (group.role, group.method, group.setting.protocol, group.setting.text, group.keys or index)
        rows.append(
            (
                first.setdefault(same, index), group.dataset, group.n, group.seed, group.size, group.method, group.role,
                group.setting.protocol, group.setting.text, group.setting.selection, group.experiment,
                group.stands_for, len(group.betas),
            )
        )  # fmt: skip
    names = ["group", "dataset", "n", "seed", "size", "method", "role", "protocol", "changes", "selection",
             "experiment", "stands_for", "candidates"]  # fmt: skip
    frame = pd.DataFrame(rows, columns=names).astype({"n": "int64", "seed": "int64", "candidates": "int64"})
    joined = frame.groupby("group")["experiment"].agg(lambda names: ", ".join(dict.fromkeys(names)))
    frame["experiment"] = frame["group"].map(joined)
    return frame


def _first_of(candidates: pd.DataFrame) -> np.ndarray:
    """Which rows are no repetition: a cell counts once in a group, however often the group was asked for."""
    return (~candidates.duplicated(["group", "key"])).to_numpy()


def select(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Of each `group`, the row with the lowest finite validation metric, the larger beta of equals. Groups without such
    a row are left out. A single candidate needs no validation rows."""
    name = f"validation_{metric}"
    values = candidates[name] if name in candidates else pd.Series(np.nan, index=candidates.index)
    alone = (candidates["candidates"] == 1) & values.isna() & (candidates["role"] != "gradient")
    usable = (candidates["status"] == "done") & (np.isfinite(values) | alone)
    ranked = pd.DataFrame({"group": candidates["group"], "value": values, "beta": -candidates["beta"].fillna(0.0)})
    ranked = ranked[usable].sort_values(["group", "value", "beta"], kind="stable")
    return candidates.loc[ranked.drop_duplicates("group").index]


def _table(candidates: pd.DataFrame, groups: pd.DataFrame, asked: Sequence[Asked]) -> pd.DataFrame:
    """Selected rows, by NLL and by MSE where candidates have both; groups that lack records or failed are rows without
    metrics."""
    fits = candidates[candidates["role"] != "gradient"]
    complete = fits[fits["missing"] == 0]
    chosen = []
    for metric in ("nll", "mse"):
        name = f"validation_{metric}"
        having = set(complete.loc[complete[name].notna(), "group"]) if name in complete else set()
        if metric == "nll":
            without = complete.groupby("group")["group"].first().index.difference(pd.Index(sorted(having)))
            no_nll = set(without)
            single = {g for g in no_nll if not _has_any(complete, g)} if no_nll else set()
            wanted = complete[complete["group"].isin(having | single)]
        else:  # where another metric is asked to select, MSE selects only among those that have no NLL
            own = complete["group"].isin(having) & ((complete["selection"] == "reported") | complete["group"].isin(no_nll))
            wanted = complete[own]
        chosen.append(select(wanted, metric).assign(selected_by=metric))
    selected = pd.concat(chosen)
    selected["edge"] = _edges(selected, asked)
    rest = fits[~fits["group"].isin(selected["group"])].drop_duplicates("group").copy()
    measured = [name for name in rest.columns if name.startswith(("test_", "validation_", "hyper_"))]
    rest[[*measured, "beta"]] = np.nan
    rest["key"], rest["selected_by"], rest["edge"] = None, "nll", ""
    rest["status"] = np.where(rest["missing"] > 0, "incomplete", "failed")
    return _ordered(pd.concat([selected, rest]).sort_values(["group", "selected_by"], ascending=[True, False]))


def _has_any(complete: pd.DataFrame, group: int) -> bool:
    """Whether some candidate of a group has validation metrics."""
    rows = complete[complete["group"] == group]
    return bool(rows[[name for name in rows.columns if name.startswith("validation_")]].notna().any(axis=None))


def _edges(selected: pd.DataFrame, asked: Sequence[Asked]) -> list[str]:
    """Where each selected beta lies among its candidates: 'smallest', 'largest', or ''."""
    edges = []
    for group, beta in zip(selected["group"], selected["beta"], strict=True):
        betas = asked[group].betas
        ends = {betas[0]: "largest", betas[-1]: "smallest"} if len(betas) > 1 else {}
        edges.append(ends.get(beta, ""))
    return edges


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns in the order in which people look for them."""
    first = [name for name in (*IDENTITY, *SELECTION, *TEST) if name in frame]
    return frame[[*first, *(name for name in frame.columns if name not in first)]].reset_index(drop=True)


def rows_for(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Of each group, the row selected for a reported metric: by MSE for MSE, by NLL for all others; the only row where
    there is one."""
    wanted = "mse" if metric == "mse" else "nll"
    ordered = table.iloc[np.argsort((table["selected_by"] != wanted).to_numpy(), kind="stable")]
    return ordered.drop_duplicates("group").sort_index()


class Term(NamedTuple):
    """`name=value` of `--where`, as it was typed and without `training.` and the kind of data."""

    typed: str
    name: str
    value: str


class Selected(NamedTuple):
    """Rows of one setting. `others` are the settings that were left out: options to type, and a number of cells."""

    rows: pd.DataFrame
    protocol: str | None
    changes: str
    others: list[tuple[str, int]]


KINDS = ("regression", "binary", "count", "large")


def parse_where(terms: Iterable[str], table: pd.DataFrame) -> tuple[Term, ...]:
    """`training.lr=0.01`, `M=50` and the like; UserError for a name that no setting has, or a value that none has."""
    parsed = []
    changed = {_plain(name) for text in table["changes"].unique() for name in changes_of(text)}
    valid = sorted({*table.columns, *changed} - {*IDENTITY, *SELECTION})
    for typed in terms:
        name, equals, value = typed.partition("=")
        if not equals or not value:
            raise UserError(f"--where {typed}: write setting=value, for instance training.lr=0.01")
        term = Term(typed, _plain(name), value)
        if term.name not in valid:
            raise UserError(f"--where {typed}: there is no setting '{name}': {nearest(term.name, valid)}")
        if not matching(table, [term]).any():
            values = sorted({str(v) for v in _values(table, term.name)})[:12]
            raise UserError(f"--where {typed}: no record has this value; there are {', '.join(values) or 'none'}")
        parsed.append(term)
    return tuple(parsed)


def _plain(name: str) -> str:
    parts = [part for part in name.split(".") if part not in ("training", *KINDS)]
    return parts[-1] if parts[:1] in (["dataset"], ["estimator"]) else ".".join(parts)


def changes_of(text: str) -> dict[str, str]:
    """The names and values of a setting's text: lists are `[a,b]`, so that ', ' stands only between changes."""
    return dict(part.partition("=")[::2] for part in text.split(", ") if part)


def _values(table: pd.DataFrame, name: str) -> set[Any]:
    changed = {v for text in table["changes"].unique() for n, v in changes_of(text).items() if _plain(n) == name}
    return changed | ({*table[name].dropna().unique()} if name in table else set())


def matching(rows: pd.DataFrame, where: Iterable[Term]) -> pd.Series:
    """Which rows belong to settings that have all these values: among their changes, or else in some row of theirs."""
    keep = pd.Series(True, index=rows.index)
    for term in where:
        texts = {text: {_plain(n): v for n, v in changes_of(text).items()} for text in rows["changes"].unique()}
        said = rows["changes"].map({text: term.name in named for text, named in texts.items()}).astype(bool)
        fits = rows["changes"].map({t: same(named.get(term.name), term.value) for t, named in texts.items()}).astype(bool)
        if term.name in rows:
            has = rows[term.name].map({value: same(value, term.value) for value in rows[term.name].unique()})
            has = has.where(rows[term.name].notna(), term.value in ("null", "none")).astype(bool)
            fits |= ~said & has.groupby([rows[name] for name in [*SETTING, "dataset", "role"]], dropna=False).transform("any")
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
    counts = rows.groupby(SETTING, sort=False, dropna=False)["group"].size()
    fitting = rows[matching(rows, where)] if where else rows
    if protocol is not None:
        fitting = fitting[fitting["protocol"] == protocol]
    elif PAPER in set(fitting["protocol"]):
        fitting = fitting[fitting["protocol"] == PAPER]
    if fitting.empty:
        return Selected(fitting, None, "", [])
    among = fitting.groupby(SETTING, sort=False, dropna=False)["group"].size()
    if protocol is None:
        most = among.groupby(level="protocol").sum().idxmax()
        among = among[among.index.get_level_values("protocol") == most]
    best = min(among.index, key=lambda setting: (len(changes_of(setting[1])), -among[setting], str(setting)))
    keep = np.logical_and.reduce([(fitting[name] == value).to_numpy() for name, value in zip(SETTING, best, strict=True)])
    others = [(_options(setting, best), int(count)) for setting, count in counts.items() if setting != best]
    return Selected(fitting[keep], best[0], best[1], others)


def _options(setting: Any, best: tuple[str, ...]) -> str:
    """What makes a command take a setting in place of `best`."""
    protocol, changes, *rest = setting
    words = [] if protocol == PAPER else [f"--protocol {protocol}"]
    words += [f"--where {name}={value}" for name, value in changes_of(changes).items()]
    words += [f"--where {name}={a}" for name, a, b in zip(SETTING[2:], rest, best[2:], strict=True) if a != b]
    return " ".join(words)
