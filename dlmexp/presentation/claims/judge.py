"""All claims compared with one results folder, under every protocol that was run."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from dlmexp.common.catalogue import entries, family, labelled
from dlmexp.common.console import counted
from dlmexp.common.plugin_errors import raised
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import matching, parse_where
from dlmexp.presentation.claims.claim import Claim, ClaimTest, Origin, Part, claims
from dlmexp.presentation.claims.columns import (
    VerdictColumn,
    choose_columns,
    columns_of,
    rows_of,
)
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.paired import false_discovery_rate
from dlmexp.presentation.claims.rules import (
    FALSE_DISCOVERIES,
    Outcome,
    Tally,
    Verdict,
    verdict_of,
)

FIRST_OF_PLUGINS = 100  # the number from which on claims are those of plugins


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim under one column: its tests, and what they say together.

    Attributes:
        claim: The claim.
        column: The label of the column.
        parts: All its parts, also those that were not run.
        origin: How the records came to be.
        missing: Commands that would compute what was not run on the paper's data.
        error: Where and what the function of a plugin's claim raised; empty if nothing.
    """

    claim: Claim
    column: str
    parts: list[Part]
    origin: Origin
    missing: list[str]
    error: str = ""

    @property
    def tally(self) -> Tally:
        """How many of its tests have which outcome."""
        outcomes: list[Outcome] = []
        for part in self._counting:
            outcomes += [test.outcome for test in part.tests]
        return Tally.of(outcomes)

    @property
    def verdict(self) -> Verdict:
        """What its tests say together."""
        return verdict_of(self.tally, self.claim.needs)

    @property
    def parts_run(self) -> list[Part]:
        """The parts that were run."""
        return [part for part in self.parts if part.was_run]

    @property
    def _counting(self) -> list[Part]:
        """The parts that were run and count for the verdict."""
        return [part for part in self.parts_run if not part.supplementary]

    @property
    def datasets(self) -> list[str]:
        """The datasets that were run."""
        names = [part.dataset for part in self._counting if part.dataset]
        return list(dict.fromkeys(names))

    @property
    def stand_ins(self) -> list[str]:
        """Those of them that stand in for the paper's."""
        names = [str(part.dataset) for part in self._counting if part.stands_for]
        return list(dict.fromkeys(names))

    @property
    def data(self) -> list[str]:
        """The datasets that were run, with what they stand in for."""
        stands_for = {part.dataset: part.stands_for for part in self._counting}
        return [labelled(name, stands_for[name]) for name in self.datasets]

    @property
    def not_available(self) -> list[str]:
        """The paper's datasets that the claim names, and that neither they nor stand-ins were run.

        A stand-in for any of a family, such as Peds1, makes up for one of them.
        """
        run = self.datasets
        absent: dict[str, None] = {}
        for part in self.parts:
            if part.dataset and not part.stands_for and part.dataset not in run:
                absent[part.dataset] = None
        replaced = [part.stands_for for part in self._counting if part.stands_for]
        return _without_replaced(absent, replaced)

    @property
    def repetitions(self) -> list[int]:
        """The fewest and most repetitions of a part; empty where none was run."""
        counts = [part.repetitions for part in self._counting if part.dataset]
        if not counts:
            return []
        return [min(counts), max(counts)]

    @property
    def words(self) -> str:
        """The verdict as tables show it, such as `partly (12 of 30 tests)`."""
        if self.error:
            return f"{self.verdict}: {self.error}"
        tally = self.tally
        if not tally.tests:
            return str(self.verdict)
        tests = counted(tally.tests, "test")
        if not tally.conclusive:
            return f"{self.verdict} ({tests} can't tell)"
        return f"{self.verdict} ({tally.supported} of {tests})"


def _without_replaced(datasets: Iterable[str], replaced: Iterable[str]) -> list[str]:
    """Return datasets of the paper without those that stand-ins make up for.

    Args:
        datasets: Names of datasets.
        replaced: The datasets that stand-ins stand for. Each removes itself, or else the first
            dataset of its family.
    """
    remaining = list(datasets)
    for name in dict.fromkeys(replaced):
        of_family = [other for other in remaining if family(other) == family(name)]
        if name in remaining:
            remaining.remove(name)
        elif of_family:
            remaining.remove(of_family[0])
    return remaining


class JudgedClaim(NamedTuple):
    """A claim with its verdicts by the label of their column."""

    claim: Claim
    by_column: dict[str, ClaimVerdict]


@dataclass(frozen=True)
class Judged:
    """The claims under each column.

    Attributes:
        columns: The settings judged.
        verdicts: One per column and claim, in this order.
        left_out: Options that show other settings.
        here: Function that makes a command read this results folder.
    """

    columns: list[VerdictColumn]
    verdicts: list[ClaimVerdict]
    left_out: list[str]
    here: Callable[[str], str]

    def by_claim(self) -> list[JudgedClaim]:
        """Return each claim with its verdicts."""
        by_number: dict[int, JudgedClaim] = {}
        for verdict in self.verdicts:
            claim = verdict.claim
            judged = by_number.setdefault(claim.number, JudgedClaim(claim, {}))
            judged.by_column[verdict.column] = verdict
        return list(by_number.values())

    def by_column(self) -> dict[str, list[ClaimVerdict]]:
        """Return the verdicts by the label of their column."""
        by_label: dict[str, list[ClaimVerdict]] = {}
        for verdict in self.verdicts:
            by_label.setdefault(verdict.column, []).append(verdict)
        return by_label

    def as_frame(self) -> pd.DataFrame:
        """Return one row per verdict."""
        return pd.DataFrame([
            {
                "column": verdict.column,
                "number": verdict.claim.number,
                "claim": verdict.claim.text,
                "where": verdict.claim.where,
                "verdict": verdict.verdict,
                "words": verdict.words,
                "supported": verdict.tally.supported,
                "contradicted": verdict.tally.contradicted,
                "no_difference": verdict.tally.no_difference,
                "unclear": verdict.tally.unclear,
                "data": verdict.datasets,
                "stand_ins": verdict.stand_ins,
                "not_available": verdict.not_available,
                "repetitions": verdict.repetitions,
                "missing": verdict.missing,
                "commands": verdict.origin.commands,
            }
            for verdict in self.verdicts
        ])  # fmt: skip


def by_section(judged: Judged) -> list[tuple[str, list[JudgedClaim]]]:
    """Return the claims with their verdicts by section of the paper, its supplement last."""
    sections: dict[str, list[JudgedClaim]] = {}
    for judged_claim in judged.by_claim():
        section = judged_claim.claim.section
        sections.setdefault(section, []).append(judged_claim)
    return sorted(sections.items(), key=lambda item: item[0])


def judge(
    results: ResultsFolder,
    numbers: Sequence[int] = (),
    protocol: str | None = None,
    where: Sequence[str] = (),
    margins: float = 1.0,
) -> Judged:
    """Judge claims by the records of a folder.

    Args:
        results: The folder.
        numbers: Numbers of the claims; all, if left out.
        protocol: The only protocol to judge under; None: each that was run.
        where: Terms such as `training.lr=0.01` that choose settings.
        margins: Factor on all margins.

    Raises:
        UserError: Nothing was run under the protocol, or no record has these values.
    """
    table = results.table
    candidates = results.candidates
    columns_run = columns_of(candidates, results.changes)
    terms = parse_where(where, table, results.changes)
    if terms:
        table = table[matching(table, terms, results.changes)]
        candidates = candidates[matching(candidates, terms, results.changes)]
        fitting = columns_of(candidates, results.changes)
        columns = choose_columns(fitting, protocol, everything=True)
    else:
        columns = choose_columns(columns_run, protocol)

    verdicts: list[ClaimVerdict] = []
    for column in columns:
        evidence = Evidence(
            results,
            rows_of(table, column),
            rows_of(candidates, column),
            column.preset,
            margins,
        )
        verdicts += verdicts_on(claims(), evidence, column)
    if numbers:
        verdicts = [verdict for verdict in verdicts if verdict.claim.number in numbers]
    left_out = [column.options for column in columns_run if column not in columns]
    return Judged(columns, verdicts, left_out, results.command)


def verdicts_on(
    claims: Sequence[Claim], evidence: Evidence, column: VerdictColumn
) -> list[ClaimVerdict]:
    """Judge claims under one column.

    The rate of false discoveries is that of the whole table, so all claims are judged whichever are
    asked for. Claims of plugins have a table of their own: they change no verdict of the paper's.
    """
    compared = [_compare(claim, evidence) for claim in claims]
    decide(_tests(claim for claim in compared if not claim.is_of_plugin))
    decide(_tests(claim for claim in compared if claim.is_of_plugin))
    return [_verdict_on(claim, evidence.results, column) for claim in compared]


@dataclass(frozen=True)
class ComparedClaim:
    """A claim with its tests, before these have outcomes.

    Attributes:
        claim: The claim.
        parts: Its parts; none where its function raised.
        error: Where and what the function of a plugin's claim raised; empty if nothing.
    """

    claim: Claim
    parts: list[Part]
    error: str = ""

    @property
    def is_of_plugin(self) -> bool:
        """Whether it is the claim of a plugin."""
        return self.claim.number >= FIRST_OF_PLUGINS


def _compare(claim: Claim, evidence: Evidence) -> ComparedClaim:
    """Compare a claim with records; an exception in a plugin's claim is its error."""
    try:
        return ComparedClaim(claim, _parts(claim, evidence))
    except Exception as error:
        if claim.number < FIRST_OF_PLUGINS:
            raise
        return ComparedClaim(claim, [], raised(error).reason)


def _parts(claim: Claim, evidence: Evidence) -> list[Part]:
    """Return the parts of a claim, with what their datasets stand in for."""
    parts = []
    for part in claim.parts(evidence):
        stands_for = evidence.stands_for.get(str(part.dataset))
        parts.append(replace(part, stands_for=stands_for))
    return parts


def _tests(compared: Iterable[ComparedClaim]) -> list[ClaimTest]:
    """Return the tests of all parts of claims."""
    tests: list[ClaimTest] = []
    for claim in compared:
        for part in claim.parts:
            tests += part.tests
    return tests


class PossibleOutcome(NamedTuple):
    """An outcome that a test may have, with its p-value."""

    test: ClaimTest
    outcome: Outcome
    p: float


def decide(tests: Sequence[ClaimTest]) -> None:
    """Set the outcomes of all tests of a table that have p-values.

    The p-values of all outcomes that are asked for are one family. An outcome is that of the test
    if its p-value is small enough after the adjustment; at most one can be.
    """
    possible = _possible_outcomes(tests)
    adjusted = false_discovery_rate(np.array([outcome.p for outcome in possible]))
    for test in tests:
        if test.p_values:
            test.p_adjusted = math.inf
    for (test, outcome, p), p_adjusted in zip(possible, adjusted, strict=True):
        if p_adjusted < test.p_adjusted:
            test.p = p
            test.p_adjusted = float(p_adjusted)
            is_significant = p_adjusted < FALSE_DISCOVERIES
            test.outcome = outcome if is_significant else Outcome.UNCLEAR


def _possible_outcomes(tests: Iterable[ClaimTest]) -> list[PossibleOutcome]:
    """Return the outcomes that are asked for, of all tests."""
    possible: list[PossibleOutcome] = []
    for test in tests:
        possible += [PossibleOutcome(test, outcome, p) for outcome, p in test.p_values.items()]
    return possible


def _verdict_on(
    compared: ComparedClaim, results: ResultsFolder, column: VerdictColumn
) -> ClaimVerdict:
    """Return the verdict on a claim whose tests have outcomes."""
    parts = compared.parts
    on_paper = [part for part in parts if not part.supplementary and part.stands_for is None]
    return ClaimVerdict(
        claim=compared.claim,
        column=column.label,
        parts=parts,
        origin=_common_origin(parts),
        missing=_missing_commands(compared.claim, on_paper, results, column),
        error=compared.error,
    )


def _common_origin(parts: list[Part]) -> Origin:
    """Return how the records of all parts that were run came to be."""
    commands: dict[str, None] = {}
    commits: set[str] = set()
    records = 0
    for part in parts:
        if part.was_run:
            commands |= dict.fromkeys(part.origin.commands)
            commits |= set(part.origin.commits)
            records += part.origin.records
    return Origin(records, list(commands), sorted(commits))


def _missing_commands(
    claim: Claim, parts: list[Part], results: ResultsFolder, column: VerdictColumn
) -> list[str]:
    """Return commands that would compute what was not run on the paper's data."""
    not_run = [part.dataset for part in parts if part.dataset and not part.was_run]
    commands = []
    for dataset in dict.fromkeys(not_run):
        experiments = [name for name in claim.experiments if computes(name, dataset)]
        commands += [_run_command(experiment, dataset, column) for experiment in experiments]
    return [results.command(command) for command in commands]


def _run_command(experiment: str, dataset: str, column: VerdictColumn) -> str:
    """Return the command that runs an experiment on a dataset under the setting of a column."""
    words = ["dlmexp run", f"experiment={experiment}", f"dataset={dataset}"]
    if column.protocol != "paper":
        words.append(f"protocol={column.protocol}")
    return " ".join([*words, *column.terms])


def computes(experiment: str, dataset: str) -> bool:
    """Return whether an experiment is about data of a dataset's task."""
    known = entries("dataset")
    of_experiment = [name for name in datasets_of(experiment) if name in known]
    tasks = {known[name]["task"] for name in of_experiment}
    return not tasks or known[dataset]["task"] in tasks


def datasets_of(experiment: str) -> list[str]:
    """Return the datasets that an experiment names, itself or in the experiment it starts from."""
    settings = entries("experiment").get(experiment, {})
    datasets: list[str] = []
    for default in settings.get("defaults", ()):
        if isinstance(default, str):
            datasets = datasets_of(default) or datasets
        elif "override /dataset" in default:
            named = default["override /dataset"]
            datasets = [named] if isinstance(named, str) else list(named)
    return datasets
