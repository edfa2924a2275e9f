"""All claims held against one results folder, under every protocol that was run: a table of parts, one of verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pandas as pd

from dlmexp import catalogue
from dlmexp.claims.claim import TASKS, Claim, Part, claims
from dlmexp.claims.evidence import COLUMNS, Evidence, ResultsTable, coded, family
from dlmexp.claims.rules import Verdict, combine
from dlmexp.claims.runs import alone_on_device
from dlmexp.claims.thresholds import MIN_REPETITIONS
from dlmexp.errors import UserError

PROTOCOLS = ("paper", "released", "converged")  # in this order, before others
TASK_OF = {"reg": "regression", "class": "binary", "count": "count"}  # first word of an experiment's name


@dataclass(frozen=True)
class Column:
    """A setting that verdicts are given for: a protocol with its own values, or with some that were changed."""

    protocol: str
    changes: str = ""  # 'training.lr=0.01, M=50'
    preset: bool = False

    @property
    def label(self) -> str:
        return self.protocol + (f", {self.changes}" if self.changes else "") + (" (preset)" if self.preset else "")


@dataclass(frozen=True)
class Judged:
    """The claims under each column.

    `parts` has one row per part (the fields of `Part`, with `column`, `number` and `stands_for`), `verdicts` one per
    claim and column: `number`, `claim`, `where`, `column`, `verdict`, `words` (as a table shows it), `basis` (paper,
    stand-in or none), `paper`, `stand_in`, `corrected`, `by_q`, `data`, `repetitions`, `commands`, `missing`.
    """

    columns: list[Column]
    parts: pd.DataFrame
    verdicts: pd.DataFrame
    left_out: list[str]  # options that show other settings


def judge(
    results: ResultsTable, numbers: Sequence[int] = (), protocol: str | None = None, where: Sequence[str] = ()
) -> Judged:
    """Every claim (or those with these numbers) under each protocol that was run, or under those asked for."""
    chosen = [claim for claim in claims() if not numbers or claim.number in numbers]
    table, candidates = coded(results.table), coded(results.candidates.reindex(columns=COLUMNS))
    alone = cache(partial(alone_on_device, candidates))
    columns, left_out = choose_columns(candidates, protocol, where)
    parts, verdicts = [], []
    for column in columns:
        evidence = Evidence(results, *rows_of(table, candidates, column), alone, capped=column.preset)
        for claim in chosen:
            several = list(claim.parts(evidence))
            facts = {"column": column.label, "number": claim.number}
            parts += [
                facts | {"stands_for": evidence.stands_for.get(part.dataset or "")} | vars(part) for part in several
            ]
            verdicts.append(facts | _verdict(claim, several, evidence, column, results))
    return Judged(columns, pd.DataFrame(parts), pd.DataFrame(verdicts), left_out)


def check_numbers(texts: Sequence[str]) -> list[int]:
    """Numbers of claims as they were typed; UserError for one that no claim has."""
    known = {str(claim.number): claim.number for claim in claims()}
    for text in texts:
        if text not in known:
            raise UserError(f"there is no claim '{text}': choose of {', '.join(known)}")
    return [known[text] for text in texts]


def choose_columns(
    candidates: pd.DataFrame, protocol: str | None = None, where: Sequence[str] = ()
) -> tuple[list[Column], list[str]]:
    """The settings to judge, and the options that show the others. Without `where` each protocol has its own values, or
    if these were not run, the fewest changes; a preset is left out where a whole protocol was run."""
    counts = candidates.groupby(["protocol", "changes"], observed=True).size()
    settings = [(str(name), str(changes)) for name, changes in counts.index]
    names = list(dict.fromkeys(name for name, _ in settings))
    if protocol and protocol not in names:
        raise UserError(f"--protocol {protocol}: nothing was run under it; there is {', '.join(names)}")
    chosen = [setting for setting in settings if protocol in (None, setting[0])]
    if where:
        chosen = [setting for setting in chosen if _has(candidates, setting, where)]
        if not chosen:
            raise UserError(f"--where {' '.join(where)}: no results have this value")
    else:
        whole = [setting for setting in chosen if not is_preset(setting[0])]
        chosen = whole or chosen
        fewest = {name: min((s for s in chosen if s[0] == name), key=lambda s: (_changed(s[1]), -counts[s]))
                  for name, _ in chosen}  # fmt: skip
        chosen = list(fewest.values())
    order = sorted(chosen, key=lambda s: (PROTOCOLS.index(s[0]) if s[0] in PROTOCOLS else len(PROTOCOLS), s))
    left = [_options(*setting) for setting in settings if setting not in chosen]
    return [Column(name, changes, is_preset(name)) for name, changes in order], left


def is_preset(protocol: str) -> bool:
    """Whether a protocol's name is that of a preset, such as `quick` or `released-quick`."""
    return protocol.rpartition("-")[2] in catalogue.presets() and protocol not in catalogue.protocols()


def _changed(changes: str) -> int:
    return len(list(filter(None, changes.split(", "))))


def _options(protocol: str, changes: str) -> str:
    return f"--protocol {protocol}" + "".join(f" --where {one}" for one in changes.split(", ") if one)


def _has(candidates: pd.DataFrame, setting: tuple[str, str], where: Sequence[str]) -> bool:
    """Whether a setting has all values asked for, among its changes or in all of its rows."""
    rows = candidates[(candidates["protocol"] == setting[0]) & (candidates["changes"] == setting[1])]
    changes = {one.rpartition(".")[2] for one in setting[1].split(", ")}
    for wanted in where:
        name, separator, value = wanted.rpartition(".")[2].partition("=")
        if not separator:
            raise UserError(f"--where {wanted}: write NAME=VALUE, such as training.lr=0.01")
        same = name in rows and (rows[name].astype(str) == value).any()
        if f"{name}={value}" not in changes and not same:
            return False
    return True


def rows_of(table: pd.DataFrame, candidates: pd.DataFrame, column: Column) -> list[pd.DataFrame]:
    """The rows of one column. Where a dataset was run with other contents or splits, those with most rows count."""
    frames, same = [], ["dataset", "role"]
    for frame in (table, candidates):
        frame = frame[(frame["protocol"] == column.protocol) & (frame["changes"] == column.changes)]
        counts = frame.groupby([*same, "evaluate", "data", "split"], observed=True, dropna=False).size()
        usual = counts.sort_values(ascending=False, kind="stable").reset_index().drop_duplicates(same)
        if len(usual) < len(counts):
            frame = frame.merge(usual.drop(columns=0), on=[*same, "evaluate", "data", "split"])
        frames.append(frame)
    return frames


def _verdict(
    claim: Claim, parts: list[Part], evidence: Evidence, column: Column, results: ResultsTable
) -> dict[str, Any]:
    """A claim summed up on the paper's data and on stand-ins, by coordinates of q."""
    told = [part for part in parts if not part.beside]
    on = {basis: [part for part in told if (part.dataset in evidence.stands_for) == (basis == "stand-in")]
          for basis in ("paper", "stand-in")}  # fmt: skip
    by_q = {basis: _by_q(claim, some) for basis, some in on.items()}
    paper, stand_in = (combine(under.values()) for under in by_q.values())
    basis = "stand-in" if paper is Verdict.NOT_RUN and stand_in is not Verdict.NOT_RUN else "paper"
    run = [part for part in told if part.verdict is not Verdict.NOT_RUN]
    corrected = [Part(**{**vars(part), "verdict": part.corrected or part.verdict}) for part in on[basis]]
    counts = [part.repetitions for part in run if part.dataset]
    made = [part for part in parts if part.verdict is not Verdict.NOT_RUN]
    found = {
        "claim": claim.text, "where": claim.where, "figures": list(claim.figures),
        "verdict": stand_in if basis == "stand-in" else paper,
        "basis": basis if any(part.dataset for part in parts) else "none", "paper": paper, "stand_in": stand_in,
        "corrected": combine(_by_q(claim, corrected).values()),
        "by_q": {name: under for name, under in by_q.items() if len(set(under.values()) - {Verdict.NOT_RUN}) > 1},
        "data": list(dict.fromkeys(labelled(part.dataset, evidence.stands_for) for part in run if part.dataset)),
        "seen": len({part.dataset for part in on["paper"] if part in run}),
        "named": len({part.dataset for part in on["paper"]}),
        "repetitions": [min(counts), max(counts)] if counts else [],
        "commands": list(dict.fromkeys(command for part in made for command in part.commands)),
        "commits": sorted({commit for part in made for commit in part.commits}),
        "records": sum(part.records for part in made),
        "missing": _missing(claim, on["paper"], evidence, column, results),
    }  # fmt: skip
    return found | {"words": _words(claim, found, run)}


def _by_q(claim: Claim, parts: list[Part]) -> dict[str, Verdict]:
    """Coordinates of q -> verdict. A dataset that has one of them, as all of regression has, counts under either."""
    options: dict[str | None, set[str]] = {}
    for part in parts:
        options.setdefault(part.dataset, set()).update([part.q] if part.q else [])
    several = {q for some in options.values() if len(some) > 1 for q in some}
    if not several:
        return {"": claim.sum_up(parts)} if parts else {}
    return {
        q: claim.sum_up([part for part in parts if part.q == q or q not in options[part.dataset]])
        for q in sorted(several, reverse=True)
    }


def _words(claim: Claim, found: dict[str, Any], run: list[Part]) -> str:
    """`holds on 1 of 3; stand-ins: undecided`, as tables show a verdict."""
    if claim.seen and Verdict.PARTLY_SEEN in (found["paper"], found["stand_in"]):
        stand_ins = sum(found["data"][i].endswith(")") for i in range(len(found["data"])))
        return claim.seen(run) + (f", {stand_ins} of them stand-ins" if stand_ins else "")
    if run and all(part.dataset and part.repetitions < MIN_REPETITIONS for part in run):
        return f"too few repetitions ({max(part.repetitions for part in run)} of {MIN_REPETITIONS})"
    said = []
    if found["paper"] is not Verdict.NOT_RUN or found["stand_in"] is Verdict.NOT_RUN:
        part_of = 0 < found["seen"] < found["named"]
        said.append(found["paper"] + (f" on {found['seen']} of {found['named']}" if part_of else ""))
    if found["stand_in"] is not Verdict.NOT_RUN:
        said.append(f"stand-ins: {found['stand_in']}")
    return "; ".join(said)


def labelled(dataset: str, stands_for: dict[str, str]) -> str:
    """The dataset's name, with what it stands in for."""
    of = stands_for.get(dataset)
    return f"{dataset} (stand-in for {family(of)})" if of else dataset


def _missing(
    claim: Claim, parts: list[Part], evidence: Evidence, column: Column, results: ResultsTable
) -> list[str]:  # fmt: skip
    """Commands that would compute what was not run on the paper's data."""
    settings = [f"protocol={column.protocol}"] if column.protocol != "paper" else []
    settings += [one for one in column.changes.split(", ") if one]
    absent = dict.fromkeys(part.dataset for part in parts if part.verdict is Verdict.NOT_RUN and part.dataset)
    commands = [
        " ".join([f"dlmexp run experiment={experiment} dataset={dataset}", *settings])
        for dataset in absent
        for experiment in claim.experiments
        if TASK_OF.get(experiment.split("-")[0]) in (None, TASKS.get(str(dataset)))
    ]
    return [results.command(command) for command in commands]


def verdicts(folder: str = "results", protocol: str | None = None) -> pd.DataFrame:
    """The paper's 22 claims, judged on the records of a folder (called as `dlmexp.claims`).

    Args:
        folder: A results folder.
        protocol: Judge the records of this protocol alone, such as `"paper"`; otherwise of all that were run.

    Returns:
        A table with one row per claim and protocol. Its columns are `number`, `claim`, `where` (in the paper),
        `protocol`, `verdict`, `words` (the verdict with stand-ins and the number of datasets), `basis` (on whose data),
        `data`, `repetitions`, `missing` (commands that would compute what is not there) and `commands` (those that made
        the records).

    Raises:
        UserError: There are no records in the folder, or none of this protocol.

    Example:
        ```python
        verdicts = dlmexp.claims("results/paper")
        verdicts[verdicts["verdict"] == "holds"]["claim"]
        ```
    """
    from dlmexp.records.results import load

    found = judge(load(folder), protocol=protocol).verdicts.rename(columns={"column": "protocol"})
    names = ("number", "claim", "where", "protocol", "verdict", "words", "basis", "data", "repetitions", "missing")
    return found[[*names, "commands"]]
