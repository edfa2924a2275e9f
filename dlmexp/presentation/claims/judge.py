"""All claims compared with one results folder, under every protocol that was run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dlmexp.common.catalogue import entries, labelled
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import matching, parse_where
from dlmexp.presentation.claims.claim import Claim, Origin, Part, claims
from dlmexp.presentation.claims.columns import (
    VerdictColumn,
    choose_columns,
    columns_of,
    rows_of,
)
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.rules import MIN_REPETITIONS, Verdict


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim summed up under one column: on the paper's data, on stand-ins, and by what.

    Attributes:
        claim: The claim.
        column: The label of the column.
        parts: All its parts, also those that were not run.
        paper: The verdict on the paper's data.
        stand_in: The verdict on stand-ins.
        corrected: The verdict with Nadeau and Bengio's standard errors.
        basis: What the verdict rests on: `paper`, `stand-in`, or `none` where no data are involved.
        origin: How the records came to be.
        missing: Commands that would compute what was not run on the paper's data.
    """

    claim: Claim
    column: str
    parts: list[Part]
    paper: Verdict
    stand_in: Verdict
    corrected: Verdict
    basis: str
    origin: Origin
    missing: list[str]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the data that it rests on."""
        return self.stand_in if self.basis == "stand-in" else self.paper

    @property
    def parts_run(self) -> list[Part]:
        """The parts that were run."""
        return [part for part in self.parts if part.was_run]

    @property
    def judged(self) -> list[Part]:
        """The parts that were run, are about data and count for the verdict."""
        return [part for part in self.parts_run if part.dataset and not part.supplementary]

    @property
    def data(self) -> list[str]:
        """The datasets judged, with what they stand in for."""
        labels = [labelled(str(part.dataset), part.stands_for) for part in self.judged]
        return list(dict.fromkeys(labels))

    @property
    def seen(self) -> int:
        """The number of the paper's datasets that were run."""
        return len(_paper_datasets(self.judged))

    @property
    def named(self) -> int:
        """The number of the paper's datasets that the claim names."""
        return len(_paper_datasets(counting_parts(self.parts)))

    @property
    def repetitions(self) -> list[int]:
        """The fewest and most repetitions of a part; empty where none was run."""
        counts = [part.repetitions for part in self.judged]
        return [min(counts), max(counts)] if counts else []

    @property
    def words(self) -> str:
        """The verdict as tables show it, such as `holds on 1 of 3; stand-ins: undecided`."""
        judged = self.judged
        if self.claim.seen and Verdict.PARTLY_SEEN in (self.paper, self.stand_in):
            number_of_stand_ins = len(self.data) - self.seen
            count = self.claim.seen(judged)
            return f"{count} ({number_of_stand_ins} a stand-in)" if number_of_stand_ins else count
        if judged and all(part.few for part in judged):
            most = max(part.repetitions for part in judged)
            return f"too few repetitions ({most} of {MIN_REPETITIONS})"
        words = []
        # Where nothing was run at all, `not run` is said of the paper's data alone.
        if self.paper is not Verdict.NOT_RUN or self.stand_in is Verdict.NOT_RUN:
            words.append(self._words_on_paper())
        if self.stand_in is not Verdict.NOT_RUN:
            words.append(f"stand-ins: {self.stand_in}")
        return "; ".join(words)

    def _words_on_paper(self) -> str:
        if 0 < self.seen < self.named:
            return f"{self.paper} on {self.seen} of {self.named}"
        return str(self.paper)


@dataclass(frozen=True)
class Judged:
    """The claims under each column.

    Attributes:
        columns: The settings judged.
        verdicts: One per column and claim, in this order.
        left_out: Options that show other settings.
    """

    columns: list[VerdictColumn]
    verdicts: list[ClaimVerdict]
    left_out: list[str]

    def by_claim(self) -> list[tuple[Claim, dict[str, ClaimVerdict]]]:
        """Return each claim with its verdicts by the label of their column."""
        by_number: dict[int, tuple[Claim, dict[str, ClaimVerdict]]] = {}
        for verdict in self.verdicts:
            claim = verdict.claim
            _, by_column = by_number.setdefault(claim.number, (claim, {}))
            by_column[verdict.column] = verdict
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
                "basis": verdict.basis,
                "data": verdict.data,
                "repetitions": verdict.repetitions,
                "missing": verdict.missing,
                "commands": verdict.origin.commands,
            }
            for verdict in self.verdicts
        ])  # fmt: skip


def judge(
    results: ResultsFolder,
    numbers: Sequence[int] = (),
    protocol: str | None = None,
    where: Sequence[str] = (),
) -> Judged:
    """Judge claims by the records of a folder.

    Args:
        results: The folder.
        numbers: Numbers of the claims; all, if left out.
        protocol: The only protocol to judge under; None: each that was run.
        where: Terms such as `training.lr=0.01` that choose settings.

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

    chosen = [claim for claim in claims() if not numbers or claim.number in numbers]
    verdicts = []
    for column in columns:
        evidence = Evidence(
            results, rows_of(table, column), rows_of(candidates, column), column.preset
        )
        verdicts += [verdict_on(claim, evidence, column) for claim in chosen]
    left_out = [column.options for column in columns_run if column not in columns]
    return Judged(columns, verdicts, left_out)


def verdict_on(claim: Claim, evidence: Evidence, column: VerdictColumn) -> ClaimVerdict:
    """Judge one claim under one column."""
    stands_for = evidence.stands_for
    parts = [
        replace(part, stands_for=stands_for.get(str(part.dataset)))
        for part in claim.parts(evidence)
    ]
    counting = counting_parts(parts)
    on_paper = [part for part in counting if part.stands_for is None]
    on_stand_ins = [part for part in counting if part.stands_for is not None]
    paper = claim.sum_up(on_paper)
    stand_in = claim.sum_up(on_stand_ins)
    rests_on_stand_ins = paper is Verdict.NOT_RUN and stand_in is not Verdict.NOT_RUN
    deciding = on_stand_ins if rests_on_stand_ins else on_paper

    return ClaimVerdict(
        claim=claim,
        column=column.label,
        parts=parts,
        paper=paper,
        stand_in=stand_in,
        corrected=claim.sum_up([_with_corrected_verdict(part) for part in deciding]),
        basis=_basis(parts, rests_on_stand_ins),
        origin=_common_origin(parts),
        missing=_missing_commands(claim, on_paper, evidence.results, column),
    )


def counting_parts(parts: list[Part]) -> list[Part]:
    """Return the parts that count for the verdict on the claim."""
    return [part for part in parts if not part.supplementary]


def _paper_datasets(parts: list[Part]) -> set[str | None]:
    return {part.dataset for part in parts if part.stands_for is None}


def _with_corrected_verdict(part: Part) -> Part:
    return replace(part, verdict=part.corrected or part.verdict)


def _basis(parts: list[Part], rests_on_stand_ins: bool) -> str:
    if not any(part.dataset for part in parts):
        return "none"
    return "stand-in" if rests_on_stand_ins else "paper"


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
    settings = [] if column.protocol == "paper" else [f"protocol={column.protocol}"]
    settings += column.terms
    not_run = dict.fromkeys(part.dataset for part in parts if part.dataset and not part.was_run)
    commands = []
    for dataset in not_run:
        for experiment in claim.experiments:
            if computes(experiment, dataset):
                words = ["dlmexp run", f"experiment={experiment}", f"dataset={dataset}", *settings]
                commands.append(results.command(" ".join(words)))
    return commands


def computes(experiment: str, dataset: str) -> bool:
    """Return whether an experiment is about data of a dataset's task."""
    known = entries("dataset")
    tasks = {known[name]["task"] for name in datasets_of(experiment) if name in known}
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
