"""Judgements as text for a terminal, as Markdown, and as JSON."""

import math
from typing import Any

from dlmexp import catalogue
from dlmexp.claims.finding import Finding
from dlmexp.claims.judge import PAPER, STAND_IN, Judgement
from dlmexp.claims.rules import Verdict


def evidence_words(found: Finding) -> str:
    """The closest comparison of a finding (the one that decides), and what else there is to say."""
    said = []
    if found.measured:
        closest = min(found.measured, key=lambda measured: measured.comparison.difference)
        others = len(found.measured) - 1
        said.append(f"{closest.name}: {closest.comparison.words()}" + (f" and {others} more" if others else ""))
    return "; ".join(filter(None, [*said, found.words]))


def repetitions_words(judgement: Judgement) -> str:
    low, high = judgement.repetitions
    return "" if not high else f"{low}" if low == high else f"{low} to {high}"


def as_text(judgements: list[Judgement]) -> str:
    """For people at a terminal: a block per claim."""
    lines = []
    for one in judgements:
        basis = "" if one.basis == PAPER else f" ({one.basis})"
        lines.append(f"{one.claim.number:2}. {one.verdict.upper()}{basis}: {one.claim.says}")
        for found in one.judged:
            how = f", q {found.parameterisation}" if found.parameterisation and one.claim.both else ""
            where = f"{catalogue.labelled(found.dataset)}{how}: " if found.dataset else ""
            lines.append(f"      {found.verdict}: {where}{found.about}. {evidence_words(found)}".rstrip())
        if one.difference:
            lines.append(f"      {one.difference}")
        if one.commands and one.repetitions[1]:
            lines.append(f"      {repetitions_words(one)} repetitions; made by: {'; '.join(one.commands)}")
        lines += [f"      not run: {command}" for command in one.missing]
    lines.append(summary_words(judgements))
    return "\n".join(lines)


def summary_words(judgements: list[Judgement]) -> str:
    """`19 claims: 7 hold, 2 fail, ...`, and how many of the verdicts rest on stand-ins."""
    counts = {verdict: sum(one.verdict is verdict for one in judgements) for verdict in Verdict}
    stand_ins = sum(one.basis == STAND_IN for one in judgements)
    text = f"{len(judgements)} claims: " + ", ".join(
        f"{counts[verdict]} {word}" for verdict, word in zip(Verdict, ("hold", "fail", "mixed", "not run"), strict=True)
    )
    return text + (f" ({stand_ins} judged on stand-in data only)" if stand_ins else "")


def as_markdown(judgements: list[Judgement]) -> str:
    """A table, then the parts of each claim."""
    lines = ["| # | claim | the paper's data | stand-ins | judged on | repetitions |", "|---|---|---|---|---|---|"]
    for one in judgements:
        paper = one.verdict if one.basis == "no data needed" else one.on(PAPER)
        stand_in = one.on(STAND_IN) if one.basis != "no data needed" else ""
        cells = [
            str(one.claim.number), one.claim.says, paper, stand_in, ", ".join(one.data), repetitions_words(one),
        ]  # fmt: skip
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    lines += ["", summary_words(judgements) + "."]
    for one in judgements:
        lines += ["", f"## {one.claim.number}. {one.claim.says}", ""]
        for found in one.judged:
            how = f", q {found.parameterisation}" if found.parameterisation and one.claim.both else ""
            where = f"{catalogue.labelled(found.dataset)}{how}: " if found.dataset else ""
            lines.append(f"- **{found.verdict}**: {_cell(f'{where}{found.about}. {evidence_words(found)}')}")
        if one.difference:
            lines += ["", _cell(one.difference)]
        if one.commands:
            lines += ["", "Records made by: " + ", ".join(f"`{command}`" for command in one.commands)]
        if one.missing:
            lines += ["", "Not run: " + ", ".join(f"`{command}`" for command in one.missing)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def as_json(judgements: list[Judgement]) -> list[dict[str, Any]]:
    """Everything, for programs; numbers that are not finite become null."""
    return [
        {
            "number": one.claim.number,
            "claim": one.claim.says,
            "verdict": one.verdict,
            "basis": one.basis,
            "paper": one.on(PAPER),
            "stand_in": one.on(STAND_IN),
            "parameterisations": one.by_basis if one.claim.both else None,
            "difference": one.difference,
            "data": one.data,
            "repetitions": list(one.repetitions),
            "commands": one.commands,
            "missing": one.missing,
            "findings": [_finding(found) for found in one.findings],
        }
        for one in judgements
    ]


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "about": found.about,
        "verdict": found.verdict,
        "dataset": found.dataset,
        "stands_for": found.stands_for,
        "parameterisation": found.parameterisation,
        "words": found.words,
        "repetitions": found.repetitions,
        "figures": {name: _finite(value) for name, value in found.figures.items()},
        "comparisons": [
            {"name": measured.name} | {name: _finite(value) for name, value in vars(measured.comparison).items()}
            for measured in found.measured
        ],
        "commands": found.commands,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
