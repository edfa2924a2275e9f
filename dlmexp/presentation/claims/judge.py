"""Judge all claims by the records of a results folder, under every protocol that was run."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dlmexp.common.catalogue import dataset_label, entries, family
from dlmexp.common.console import counted
from dlmexp.common.plugin_errors import describe_error
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import is_in_matching_setting, parse_where
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

FIRST_PLUGIN_NUMBER = 100  # claims from this number on are those of plugins


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on a claim in one column, with its tests.

    Attributes:
        claim: The claim.
        column: The label of the column.
        parts: All parts of the claim, also those that were not run.
        origin: Which commands and commits computed the records.
        missing: The commands that would run the missing parts: those on the paper's own data, not
            on stand-ins.
        error: What the function of a plugin's claim raised, and where; '' if nothing.
    """

    claim: Claim
    column: str
    parts: list[Part]
    origin: Origin
    missing: list[str]
    error: str = ""

    @property
    def tally(self) -> Tally:
        """The number of its tests with each outcome."""
        outcomes: list[Outcome] = []
        for part in self._counted_parts:
            outcomes += [test.outcome for test in part.tests]
        return Tally.of(outcomes)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim by its tests."""
        return verdict_of(self.tally, self.claim.needs)

    @property
    def parts_run(self) -> list[Part]:
        """The parts that were run."""
        return [part for part in self.parts if part.was_run]

    @property
    def _counted_parts(self) -> list[Part]:
        """The parts that were run and count for the verdict.

        The statement of a supplementary part is ours and not the paper's, so it does not count.
        """
        return [part for part in self.parts_run if not part.supplementary]

    @property
    def datasets(self) -> list[str]:
        """The datasets that were run."""
        names = [part.dataset for part in self._counted_parts if part.dataset]
        return list(dict.fromkeys(names))

    @property
    def stand_ins(self) -> list[str]:
        """The datasets that were run and that are stand-ins for datasets of the paper."""
        names = [str(part.dataset) for part in self._counted_parts if part.stands_for]
        return list(dict.fromkeys(names))

    @property
    def dataset_labels(self) -> list[str]:
        """The datasets that were run; stand-ins with the dataset that they represent."""
        stands_for = {part.dataset: part.stands_for for part in self._counted_parts}
        return [dataset_label(name, stands_for[name]) for name in self.datasets]

    @property
    def not_available(self) -> list[str]:
        """The paper's datasets that the claim names, if neither they nor their stand-ins were run.

        The datasets of a family, such as `peds1`, are interchangeable here: each stand-in for a
        dataset of the family replaces one of them.
        """
        datasets_run = self.datasets
        not_run: dict[str, None] = {}  # an ordered set
        for part in self.parts:
            if part.dataset and not part.stands_for and part.dataset not in datasets_run:
                not_run[part.dataset] = None
        represented = [part.stands_for for part in self._counted_parts if part.stands_for]
        return _without_represented(not_run, represented)

    @property
    def repetitions(self) -> list[int]:
        """The smallest and the largest number of repetitions of a part; empty if none was run."""
        counts = [part.repetitions for part in self._counted_parts if part.dataset]
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


def _without_represented(datasets: Iterable[str], represented: Iterable[str]) -> list[str]:
    """Return datasets of the paper without those that stand-ins replace.

    Args:
        datasets: The datasets.
        represented: The datasets that stand-ins represent. Each of them removes itself or, if it is
            not among the datasets, the first one of its family.
    """
    remaining = list(datasets)
    for name in dict.fromkeys(represented):
        same_family = [dataset for dataset in remaining if family(dataset) == family(name)]
        if name in remaining:
            remaining.remove(name)
        elif same_family:
            remaining.remove(same_family[0])
    return remaining


class JudgedClaim(NamedTuple):
    """A claim with its verdicts by the label of their column."""

    claim: Claim
    by_column: dict[str, ClaimVerdict]


@dataclass(frozen=True)
class Judged:
    """The verdicts on claims in each column.

    Attributes:
        columns: The settings under which claims were judged.
        verdicts: The verdicts on all claims in the first column, then those in the second, etc.
        left_out: The settings without a column, as the options of `dlmexp claims` that show them.
        with_results_option: The function that adds the option `--results` to a command, so that it
            reads the same results folder.
    """

    columns: list[VerdictColumn]
    verdicts: list[ClaimVerdict]
    left_out: list[str]
    with_results_option: Callable[[str], str]

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
        """Return a table with a row per verdict."""
        return pd.DataFrame([_fields(verdict) for verdict in self.verdicts])


def _fields(verdict: ClaimVerdict) -> dict[str, Any]:
    """Return a verdict as a row of a table."""
    tally = verdict.tally
    return {
        "column": verdict.column,
        "number": verdict.claim.number,
        "claim": verdict.claim.text,
        "where": verdict.claim.where,
        "verdict": verdict.verdict,
        "words": verdict.words,
        "supported": tally.supported,
        "contradicted": tally.contradicted,
        "no_difference": tally.no_difference,
        "unclear": tally.unclear,
        "data": verdict.datasets,
        "stand_ins": verdict.stand_ins,
        "not_available": verdict.not_available,
        "repetitions": verdict.repetitions,
        "missing": verdict.missing,
        "commands": verdict.origin.commands,
    }


def by_section(judged: Judged) -> list[tuple[str, list[JudgedClaim]]]:
    """Return the claims with their verdicts by section of the paper, sorted by its name.

    So the supplement comes after all sections.
    """
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
        numbers: The numbers of the claims; empty means all.
        protocol: The only protocol to judge under; None means each that was run.
        where: Terms such as `training.lr=0.01` that choose settings.
        margins: A factor on all margins.

    Raises:
        UserError: Nothing was run under the protocol, or no record has the values in `where`.
    """
    table = results.table
    candidates = results.candidates
    all_columns = columns_of(candidates, results.changes)
    terms = parse_where(where, table, results.changes)
    if terms:
        table = table[is_in_matching_setting(table, terms, results.changes)]
        candidates = candidates[is_in_matching_setting(candidates, terms, results.changes)]
        matching_columns = columns_of(candidates, results.changes)
        columns = choose_columns(matching_columns, protocol, everything=True)
    else:
        columns = choose_columns(all_columns, protocol)

    verdicts: list[ClaimVerdict] = []
    for column in columns:
        evidence = Evidence(
            results,
            table=rows_of(table, column),
            candidates=rows_of(candidates, column),
            ends_early=column.preset,  # presets end training after few iterations
            margin_factor=margins,
        )
        verdicts += verdicts_on(claims(), evidence, column)
    if numbers:
        verdicts = [verdict for verdict in verdicts if verdict.claim.number in numbers]
    left_out = [column.options for column in all_columns if column not in columns]
    return Judged(columns, verdicts, left_out, with_results_option=results.command)


def verdicts_on(
    claims: Sequence[Claim], evidence: Evidence, column: VerdictColumn
) -> list[ClaimVerdict]:
    """Return the verdicts on claims in one column.

    The outcome of a test depends on the p-values of all other tests (`decide`). So all claims must
    be judged together, also those that the user does not ask for. Claims of plugins are decided
    apart, so that they change no verdict on the paper's claims.
    """
    compared_claims = [_compare(claim, evidence) for claim in claims]
    of_paper = [compared for compared in compared_claims if not compared.is_of_plugin]
    of_plugins = [compared for compared in compared_claims if compared.is_of_plugin]
    decide(_tests_of(of_paper))
    decide(_tests_of(of_plugins))
    return [_verdict_on(compared, evidence.results, column) for compared in compared_claims]


@dataclass(frozen=True)
class ComparedClaim:
    """A claim with its tests. Their outcomes are set later, by `decide`.

    Attributes:
        claim: The claim.
        parts: Its parts; empty if its function raised an exception.
        error: What the function of a plugin's claim raised, and where; '' if nothing.
    """

    claim: Claim
    parts: list[Part]
    error: str = ""

    @property
    def is_of_plugin(self) -> bool:
        """Whether it is the claim of a plugin."""
        return self.claim.number >= FIRST_PLUGIN_NUMBER


def _compare(claim: Claim, evidence: Evidence) -> ComparedClaim:
    """Compare a claim with records; an exception in a plugin's claim becomes its `error`."""
    try:
        return ComparedClaim(claim, _parts_of(claim, evidence))
    except Exception as error:
        if claim.number < FIRST_PLUGIN_NUMBER:
            raise
        return ComparedClaim(claim, parts=[], error=describe_error(error).reason)


def _parts_of(claim: Claim, evidence: Evidence) -> list[Part]:
    """Return the parts of a claim; those on a stand-in with the dataset that it represents."""
    parts = []
    for part in claim.parts(evidence):
        stands_for = evidence.stands_for.get(str(part.dataset))
        parts.append(replace(part, stands_for=stands_for))
    return parts


def _tests_of(compared_claims: Iterable[ComparedClaim]) -> list[ClaimTest]:
    """Return the tests of all parts of all claims."""
    tests: list[ClaimTest] = []
    for compared in compared_claims:
        for part in compared.parts:
            tests += part.tests
    return tests


class PossibleOutcome(NamedTuple):
    """A conclusive outcome that a test may have, with its p-value."""

    test: ClaimTest
    outcome: Outcome
    p: float


def decide(tests: Sequence[ClaimTest]) -> None:
    """Set the outcomes of those tests that have p-values.

    `tests` are all tests that are decided together: the p-values of all their possible outcomes are
    adjusted together. A test has the outcome whose adjusted p-value is significant; at most one
    outcome of a test can be. If none is, the test can't tell.
    """
    possible = _possible_outcomes(tests)
    adjusted = false_discovery_rate(np.array([candidate.p for candidate in possible]))
    # Each test gets the numbers of its outcome with the smallest adjusted p-value. It starts from
    # infinity, so that the first outcome is smaller.
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
    """Return the possible outcomes of all tests."""
    possible: list[PossibleOutcome] = []
    for test in tests:
        possible += [PossibleOutcome(test, outcome, p) for outcome, p in test.p_values.items()]
    return possible


def _verdict_on(
    compared: ComparedClaim, results: ResultsFolder, column: VerdictColumn
) -> ClaimVerdict:
    """Return the verdict on a claim whose tests have outcomes."""
    parts = compared.parts
    not_supplementary = [part for part in parts if not part.supplementary]
    on_paper_data = [part for part in not_supplementary if part.stands_for is None]
    return ClaimVerdict(
        claim=compared.claim,
        column=column.label,
        parts=parts,
        origin=_common_origin(parts),
        missing=_missing_commands(compared.claim, on_paper_data, results, column),
        error=compared.error,
    )


def _common_origin(parts: list[Part]) -> Origin:
    """Return which commands and commits computed the records of all parts."""
    commands: dict[str, None] = {}  # an ordered set
    commits: set[str] = set()
    records = 0
    for part in parts:
        if part.was_run:
            commands.update(dict.fromkeys(part.origin.commands))
            commits.update(part.origin.commits)
            records += part.origin.records
    return Origin(records, list(commands), sorted(commits))


def _missing_commands(
    claim: Claim, parts: list[Part], results: ResultsFolder, column: VerdictColumn
) -> list[str]:
    """Return the commands that compute the parts that were not run."""
    not_run = [part.dataset for part in parts if part.dataset and not part.was_run]
    commands: list[str] = []
    for dataset in dict.fromkeys(not_run):
        for experiment in claim.experiments:
            if is_about_same_task(experiment, dataset):
                command = _run_command(experiment, dataset, column)
                commands.append(results.command(command))
    return commands


def _run_command(experiment: str, dataset: str, column: VerdictColumn) -> str:
    """Return the command that runs an experiment on a dataset under the setting of a column."""
    words = ["dlmexp run", f"experiment={experiment}", f"dataset={dataset}"]
    if column.protocol != "paper":
        words.append(f"protocol={column.protocol}")
    return " ".join([*words, *column.terms])


def is_about_same_task(experiment: str, dataset: str) -> bool:
    """Return whether an experiment has datasets of the same task as a dataset.

    An experiment that names no datasets takes any.
    """
    settings = entries("dataset")
    tasks = {settings[name]["task"] for name in datasets_of(experiment) if name in settings}
    return not tasks or settings[dataset]["task"] in tasks


def datasets_of(experiment: str) -> list[str]:
    """Return the datasets of an experiment, from the `defaults` of its file in `conf/experiment`.

    An entry of `defaults` that is a text names another experiment, which this one starts from. An
    entry `override /dataset` has the name of a dataset, or a list of names. The last entry of these
    two kinds that names datasets counts.
    """
    settings = entries("experiment").get(experiment, {})
    datasets: list[str] = []
    for default in settings.get("defaults", ()):
        if isinstance(default, str):
            datasets = datasets_of(default) or datasets
        elif "override /dataset" in default:
            value = default["override /dataset"]
            datasets = [value] if isinstance(value, str) else list(value)
    return datasets
