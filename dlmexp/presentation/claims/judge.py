"""All claims held against one results folder, under every protocol that was run: a table of parts,
one of verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.common.catalogue import labelled
from dlmexp.common.errors import UserError
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import (
    Changes,
    ChangesByText,
    assignments,
    matching,
    parse_where,
)
from dlmexp.presentation.claims.claim import Claim, Part, claims
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.rules import MIN_REPETITIONS, Verdict

FIRST_WORD = {
    "reg": "regression",
    "class": "binary",
    "count": "count",
}  # of an experiment's name -> task


@dataclass(frozen=True)
class Column:
    """A setting that verdicts are given for: a protocol with its own values, or with some that were
    changed."""

    protocol: str
    changes: str = ""  # 'training.lr=0.01, M=50'
    preset: bool = False

    @property
    def label(self) -> str:
        return (
            self.protocol
            + (f", {self.changes}" if self.changes else "")
            + (" (preset)" if self.preset else "")
        )


@dataclass(frozen=True)
class Judged:
    """The claims under each column.

    `parts` has one row per part (the fields of `Part`, with `column`, `number` and `stands_for`),
    `verdicts` one per claim and column (what `_verdict` gives)."""

    columns: list[Column]
    parts: pd.DataFrame
    verdicts: pd.DataFrame
    left_out: list[str]  # options that show other settings


def judge(
    results: ResultsFolder,
    numbers: Sequence[int] = (),
    protocol: str | None = None,
    where: Sequence[str] = (),
) -> Judged:
    """Every claim (or those with these numbers) under each protocol that was run, or in the
    settings asked for."""
    table, candidates = results.table, results.candidates
    settings = _settings(candidates)
    if terms := parse_where(where, results.table, results.changes):
        table, candidates = (
            frame[matching(frame, terms, results.changes)] for frame in (table, candidates)
        )
    columns = choose_columns(
        _settings(candidates) if terms else settings,
        results.changes,
        protocol,
        everything=bool(terms),
    )
    parts, verdicts = [], []
    for column in columns:
        evidence = Evidence(
            results, rows_of(table, column), rows_of(candidates, column), column.preset
        )
        for claim in claims():
            if not numbers or claim.number in numbers:
                facts = {"column": column.label, "number": claim.number}
                several = list(claim.parts(evidence))
                parts += [
                    facts | {"stands_for": evidence.stands_for.get(str(one.dataset))} | vars(one)
                    for one in several
                ]
                verdicts.append(facts | _verdict(claim, several, evidence, column))
    shown = {(column.protocol, column.changes) for column in columns}
    left_out = [
        _options(name, results.changes[changed])
        for name, changed in settings
        if (name, changed) not in shown
    ]
    return Judged(columns, pd.DataFrame(parts), pd.DataFrame(verdicts), left_out)


def _settings(candidates: pd.DataFrame) -> list[tuple[str, str]]:
    """Protocol and changes of what was run, the most frequent first; of runs for timing only where
    there are no others."""
    timing = candidates["role"] == "timing"
    run = candidates.loc[~timing | timing.all(), ["protocol", "changes"]]  # pyright: ignore[reportOperatorIssue]
    counts = run.groupby(["protocol", "changes"], observed=True, sort=False).size()
    return list(counts.sort_values(ascending=False, kind="stable").index)


def choose_columns(
    settings: list[tuple[str, str]],
    changes: ChangesByText,
    protocol: str | None,
    everything: bool = False,
) -> list[Column]:
    """The settings to judge: of each protocol its own values, or if these were not run, the fewest
    changes; or `everything` that there is. A preset is left out where a whole protocol was run."""
    run = [Column(name, changed, bool(catalogue.of_preset(name)[0])) for name, changed in settings]
    names = list(dict.fromkeys(one.protocol for one in run))
    if protocol and protocol not in names:
        raise UserError(
            f"--protocol {protocol}: nothing was run under it; there is {', '.join(names)}"
        )
    chosen = [one for one in run if protocol in (None, one.protocol)]
    if not everything:
        chosen = [one for one in chosen if not one.preset] or chosen
        fewest = sorted(chosen, key=lambda one: len(changes[one.changes]), reverse=True)
        chosen = list({one.protocol: one for one in fewest}.values())
    rank = {name: position for position, name in enumerate(catalogue.PROTOCOLS)}
    return sorted(
        chosen, key=lambda one: (rank.get(one.protocol, len(rank)), one.protocol, one.changes)
    )


def _options(protocol: str, changes: Changes) -> str:
    return " ".join([f"--protocol {protocol}", *(f"--where {t}" for t in assignments(changes))])


def rows_of(frame: pd.DataFrame, column: Column) -> pd.DataFrame:
    """The rows of one column, with runs for timing, which have values of their own. Where a dataset
    was run with other contents or splits, those with most rows count."""
    same, contents = ["dataset", "role"], ["evaluate", "data", "split"]
    frame = frame[frame["protocol"] == column.protocol]
    frame = frame[
        (frame["changes"] == column.changes)
        | ((frame["role"] == "timing") & (column.changes == ""))
    ]
    counts = frame.groupby([*same, *contents], observed=True, dropna=False).size()
    usual = counts.sort_values(ascending=False, kind="stable").reset_index().drop_duplicates(same)
    return (
        frame
        if len(usual) == len(counts)
        else frame.merge(usual.drop(columns=0), on=[*same, *contents])
    )


def _verdict(claim: Claim, parts: list[Part], evidence: Evidence, column: Column) -> dict[str, Any]:
    """A claim summed up on the paper's data and on stand-ins, and what it rests on."""
    stands_for = evidence.stands_for
    told = [part for part in parts if not part.beside]
    on_paper, on_stand_ins = (
        [one for one in told if (one.dataset in stands_for) == is_one] for is_one in (False, True)
    )
    paper, stand_in = claim.sum_up(on_paper), claim.sum_up(on_stand_ins)
    basis = "stand-in" if paper is Verdict.NOT_RUN and stand_in is not Verdict.NOT_RUN else "paper"
    deciding = on_stand_ins if basis == "stand-in" else on_paper
    run = [part for part in parts if part.verdict is not Verdict.NOT_RUN]
    judged = [part for part in run if part.dataset and not part.beside]
    counts = [part.repetitions for part in judged]
    found = {
        "claim": claim.text, "where": claim.where, "figures": list(claim.figures), "paper": paper, "stand_in": stand_in,
        "verdict": stand_in if basis == "stand-in" else paper,
        "corrected": claim.sum_up([replace(part, verdict=part.corrected or part.verdict) for part in deciding]),
        "basis": basis if any(part.dataset for part in parts) else "none",
        "data": list(dict.fromkeys(labelled(str(part.dataset), stands_for.get(str(part.dataset))) for part in judged)),
        "seen": len({part.dataset for part in judged} - {*stands_for}),
        "named": len({part.dataset for part in on_paper}),
        "repetitions": [min(counts), max(counts)] if counts else [],
        "commands": list(dict.fromkeys(command for part in run for command in part.commands)),
        "commits": sorted({commit for part in run for commit in part.commits}),
        "records": sum(part.records for part in run),
        "missing": _missing(claim, on_paper, evidence, column),
    }  # fmt: skip
    return found | {"words": _words(claim, found, judged)}


def _words(claim: Claim, found: dict[str, Any], judged: list[Part]) -> str:
    """`holds on 1 of 3; stand-ins: undecided`, as tables show a verdict."""
    if claim.seen and Verdict.PARTLY_SEEN in (found["paper"], found["stand_in"]):
        stand_ins = len(found["data"]) - found["seen"]
        return claim.seen(judged) + (f" ({stand_ins} a stand-in)" if stand_ins else "")
    if judged and all(part.few for part in judged):
        return (
            f"too few repetitions ({max(part.repetitions for part in judged)} of {MIN_REPETITIONS})"
        )
    said = []
    if found["paper"] is not Verdict.NOT_RUN or found["stand_in"] is Verdict.NOT_RUN:
        part_of = 0 < found["seen"] < found["named"]
        said.append(
            found["paper"] + (f" on {found['seen']} of {found['named']}" if part_of else "")
        )
    if found["stand_in"] is not Verdict.NOT_RUN:
        said.append(f"stand-ins: {found['stand_in']}")
    return "; ".join(said)


def _missing(claim: Claim, parts: list[Part], evidence: Evidence, column: Column) -> list[str]:
    """Commands that would compute what was not run on the paper's data."""
    settings = [f"protocol={column.protocol}"] * (column.protocol != "paper")
    settings += assignments(evidence.results.changes[column.changes])
    absent = dict.fromkeys(
        part.dataset for part in parts if part.verdict is Verdict.NOT_RUN and part.dataset
    )
    return [
        evidence.results.command(
            " ".join([f"dlmexp run experiment={experiment} dataset={dataset}", *settings])
        )
        for dataset in absent
        for experiment in claim.experiments
        if FIRST_WORD.get(experiment.split("-")[0])
        in (None, catalogue.entries("dataset")[str(dataset)]["task"])
    ]
