"""Judgements as text for a terminal, as Markdown, and as JSON; all of them with the protocols side by side.

JSON is a list of claims, in the order of their numbers:

    number, claim      the sentence
    verdicts           protocol -> verdict: holds, fails, mixed, undecided, undecidable or not run
    changes            what changes the verdict between protocols, in sentences
    protocols          protocol -> verdict, basis (what the verdict rests on), paper and stand_in (the verdicts on the
                       paper's data and on stand-ins), parameterisations (the same by parameterisation of q, where it
                       matters), difference (what they change, in words), data, repetitions (fewest, most), commands
                       for the records, missing (commands that would make more), and findings: each part with about,
                       verdict, dataset, stands_for, parameterisation, words, counts (of sizes, in words), sizes
                       (n -> supported, contradicted, undecided, neither, incomplete, no margin, perhaps
                       contradicted), ours (told beside the paper's claim, not judged with it), repetitions,
                       figures, comparisons (a paired test each, with its n), commands
"""

import math
from typing import Any

from rich import box
from rich.table import Table

from dlmexp import catalogue
from dlmexp.claims.changes import (
    Judged,
    changes,
    claim_by_claim,
    number_of,
    part_changes,
    protocol_changes,
    verdict_on,
)
from dlmexp.claims.finding import Finding
from dlmexp.claims.judge import NO_DATA, ONE_Q, PAPER, STAND_IN, Judgement
from dlmexp.claims.rules import Verdict
from dlmexp.config import PARAMETERISATIONS

WORDS = {
    Verdict.HOLDS: "hold", Verdict.FAILS: "fail", Verdict.MIXED: "mixed", Verdict.UNDECIDED: "undecided",
    Verdict.UNDECIDABLE: "undecidable", Verdict.NOT_RUN: "not run",
}  # fmt: skip
COLOURS = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.MIXED: "yellow", Verdict.NOT_RUN: "dim"}


def evidence_words(found: Finding) -> str:
    """At how many sizes it is supported, the comparison that decides, and what else there is to say."""
    said = [found.sizes.words] if found.sizes else []
    if one := found.deciding:
        where = f", n = {one.n}" if one.n and len({other.n for other in found.measured}) > 1 else ""
        others = len(found.measured) - 1
        said.append(f"{one.name}{where}: {one.comparison.words()}" + (f" and {others} more" if others else ""))
    return "; ".join(filter(None, [*said, found.words]))


def repetitions_words(judgement: Judgement) -> str:
    low, high = judgement.repetitions
    return "" if not high else f"{low}" if low == high else f"{low} to {high}"


def verdict_words(under: dict[str, Judgement], name: str) -> str:
    """`holds`; with stand-ins, `holds; stand-ins: mixed` or `stand-ins: mixed`."""
    one = under[name]
    if one.basis == NO_DATA:
        return str(one.verdict)
    paper, stand_in = verdict_on(under, name, PAPER), verdict_on(under, name, STAND_IN)
    if one.on(STAND_IN) is Verdict.NOT_RUN:
        return paper
    return f"stand-ins: {stand_in}" if one.on(PAPER) is Verdict.NOT_RUN else f"{paper}; stand-ins: {stand_in}"


def summary_words(judgements: list[Judgement]) -> str:
    """`22 claims: 7 hold, 2 fail, ...`, and how many of the verdicts rest on stand-ins."""
    counts = ", ".join(f"{sum(one.verdict is verdict for one in judgements)} {word}" for verdict, word in WORDS.items())
    stand_ins = sum(one.basis == STAND_IN for one in judgements)
    return f"{len(judgements)} claims: {counts}" + (f" ({stand_ins} judged on stand-in data only)" if stand_ins else "")


def summaries(judged: Judged) -> list[str]:
    """The same for each protocol; which claims were judged on some of the paper's data, not on all; and what was run
    with a parameterisation of q that is not the protocol's."""
    said = []
    for name, judgements in judged.items():
        part = [str(one.claim.number) for one in judgements if one.on(PAPER) is not Verdict.NOT_RUN and one.missing]
        of_these = f" On a part of the paper's data: {', '.join(part)}." if part else ""
        said.append(f"Protocol {name}: {summary_words(judgements)}.{of_these}{_other_q(judgements)}")
    return said


def _other_q(judgements: list[Judgement]) -> str:
    found = {(str(one.parameterisation), str(one.dataset)) for under in judgements for one in under.other_q}
    by_q = {how: sorted(dataset for q, dataset in found if q == how) for how in PARAMETERISATIONS}
    parts = [f"{', '.join(names)} with q {how}" for how, names in by_q.items() if names]
    return f" Run and not judged, for this q is not the protocol's: {'; '.join(parts)}." if parts else ""


def as_text(judged: Judged, details: bool = False) -> str:
    """For files and pipes: a line per claim with its verdict under each protocol, then what changes them, then (on
    request) the figures behind each."""
    rows = claim_by_claim(judged)
    cells = [[verdict_words(under, name) for name in under] for under in rows]
    widths = [max(map(len, column)) for column in zip(list(judged), *cells, strict=True)]
    lines = [" #  " + "  ".join(name.ljust(width) for name, width in zip(judged, widths, strict=True)) + "  claim"]
    for under, texts in zip(rows, cells, strict=True):
        padded = "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
        lines.append(f"{number_of(under):2}  {padded}  {next(iter(under.values())).claim.says}")
    return "\n".join([*lines, "", *after_table(judged, details)])


def as_table(judged: Judged) -> Table:
    """The same table for a terminal, in colour."""
    table = Table(box=box.SIMPLE)
    table.add_column("#", justify="right")
    table.add_column("claim")
    for name in judged:
        table.add_column(name)
    for under in claim_by_claim(judged):
        texts = []
        for name, one in under.items():
            colour, words = COLOURS.get(one.verdict), verdict_words(under, name)
            texts.append(f"[{colour}]{words}[/]" if colour else words)
        table.add_row(str(number_of(under)), next(iter(under.values())).claim.says, *texts)
    return table


def after_table(judged: Judged, details: bool) -> list[str]:
    """The lines below the table."""
    lines = summaries(judged)
    if said := changes(judged):
        lines += ["", "What changes verdicts:", *said]
    if not details:
        return [*lines, "", "The figures behind each verdict, and commands for what was not run: --details."]
    if parts := part_changes(judged):
        lines += ["", *parts]
    for name, judgements in judged.items():
        lines += ["", f"Protocol {name}:"]
        for one in judgements:
            lines += _details(one)
    return lines


def _details(one: Judgement) -> list[str]:
    basis = "" if one.basis == PAPER else f" ({one.basis})"
    lines = [f"{one.claim.number:2}. {one.verdict.upper()}{basis}: {one.claim.says}"]
    lines += [f"      {found.verdict}: {_part(found)}".rstrip() for found in one.judged]
    if one.difference:
        lines.append(f"      {one.difference}")
    if one.commands and (words := repetitions_words(one)):
        lines.append(f"      {words} repetition{'' if words == '1' else 's'}; commands: {'; '.join(one.commands)}")
    return lines + [f"      not run: {command}" for command in one.missing]


def _part(found: Finding) -> str:
    how = f", q {found.parameterisation}" if found.parameterisation else ""
    where = f"{catalogue.labelled(found.dataset)}{how}: " if found.dataset else ""
    return f"{where}{found.about}. {evidence_words(found)}"


def as_markdown(judged: Judged) -> str:
    """The table, what changes verdicts, then the parts of each claim under each protocol."""
    lines = _markdown_table(judged)
    for text in summaries(judged):
        lines += ["", text]
    if said := changes(judged):
        lines += ["", "# What changes verdicts", "", *(f"- {_cell(text)}" for text in said)]
    if parts := part_changes(judged):
        lines += [
            "",
            "# Parts that differ between protocols",
            "",
            parts[0],
            "",
            *(f"- {_cell(text)}" for text in parts[1:]),
        ]
    for under in claim_by_claim(judged):
        lines += ["", f"## {number_of(under)}. {next(iter(under.values())).claim.says}"]
        for name, one in under.items():
            lines += ["", f"### Protocol {name}: {verdict_words(under, name)}", *_markdown_details(one)]
    return "\n".join(lines) + "\n"


def as_markdown_table(judged: Judged) -> str:
    """The table alone, for a README."""
    return "\n".join(_markdown_table(judged)) + "\n"


def as_markdown_counts(judged: Judged) -> str:
    """How many claims have which verdict: a row per protocol."""
    lines = [
        "| protocol | " + " | ".join(WORDS.values()) + " | of these, on stand-ins alone |",
        "|---|" + "---|" * (len(WORDS) + 1),
    ]
    for name, judgements in judged.items():
        counts = [sum(one.verdict is verdict for one in judgements) for verdict in WORDS]
        counts.append(sum(one.basis == STAND_IN for one in judgements))
        lines.append(f"| {_cell(name)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines) + "\n"


def _markdown_table(judged: Judged) -> list[str]:
    lines = [
        f"| # | claim | {' | '.join(f'verdict, protocol {name}' for name in judged)} | judged on | repetitions |",
        "|---|---|" + "---|" * len(judged) + "---|---|",
    ]
    for under in claim_by_claim(judged):
        several = list(under.values())
        data = dict.fromkeys(name for one in several for name in one.data or [NO_DATA] * (one.basis == NO_DATA))
        repetitions = dict.fromkeys(filter(None, map(repetitions_words, several)))
        cells = [str(number_of(under)), several[0].claim.says, *(verdict_words(under, name) for name in under)]
        cells += [", ".join(data), "; ".join(repetitions)]
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return lines


def _markdown_details(one: Judgement) -> list[str]:
    lines = [""] if one.judged else []
    lines += [f"- **{found.verdict}**: {_cell(_part(found))}" for found in one.judged]
    if one.difference:
        lines += ["", _cell(one.difference)]
    if one.commands:
        lines += ["", "Commands for these records: " + ", ".join(f"`{command}`" for command in one.commands)]
    if one.missing:
        lines += ["", "Not run: " + ", ".join(f"`{command}`" for command in one.missing)]
    return lines


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def as_json(judged: Judged) -> list[dict[str, Any]]:
    """Everything, for programs (the module's docstring has the structure); numbers that are not finite become null."""
    return [
        {
            "number": number_of(under),
            "claim": next(iter(under.values())).claim.says,
            "verdicts": {name: one.verdict for name, one in under.items()},
            "changes": protocol_changes(under),
            "protocols": {name: _judgement(one) for name, one in under.items()},
        }
        for under in claim_by_claim(judged)
    ]


def _judgement(one: Judgement) -> dict[str, Any]:
    return {
        "verdict": one.verdict,
        "basis": one.basis,
        "paper": one.on(PAPER),
        "stand_in": one.on(STAND_IN),
        "parameterisations": None if any(ONE_Q in under for under in one.by_basis.values()) else one.by_basis,
        "difference": one.difference,
        "data": one.data,
        "repetitions": list(one.repetitions),
        "commands": one.commands,
        "missing": one.missing,
        "findings": [_finding(found) for found in one.findings],
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "about": found.about,
        "verdict": found.verdict,
        "dataset": found.dataset,
        "stands_for": found.stands_for,
        "parameterisation": found.parameterisation,
        "words": found.words,
        "counts": found.sizes.words if found.sizes else "",
        "sizes": {str(n): state for n, state in found.sizes.states.items()} if found.sizes else {},
        "ours": found.ours,
        "repetitions": found.repetitions,
        "figures": {name: _finite(value) for name, value in found.figures.items()},
        "comparisons": [
            {"name": measured.name, "n": measured.n}
            | {name: _finite(value) for name, value in vars(measured.comparison).items()}
            for measured in found.measured
        ],
        "commands": found.commands,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
