"""Verdicts for people and programs: tables and lists for a terminal, Markdown, and JSON.

JSON is a list of claims in the order of their numbers, each with `number`, `claim`, `where` (in the
paper), `verdicts` (protocol -> verdict) and `protocols`: protocol -> `paper` and `stand_in` (the
verdicts on the paper's data and on stand-ins), `verdict`, `corrected` (with Nadeau and Bengio's
standard errors), `basis`, `data`, `repetitions` (fewest, most), `commands`, `commits`, `records`,
`missing` (commands that would make more), `words`, and `parts`, each with its verdict, `states` (by
size), `comparisons` (paired tests, with n, margin, p and p_corrected) and `figures`. Numbers have 6
significant digits, so that files are the same on every machine; null stands for what is not finite.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from dlmexp.common.catalogue import labelled
from dlmexp.presentation.claims.claim import PairedTest, Part
from dlmexp.presentation.claims.judge import ClaimVerdict, Judged
from dlmexp.presentation.claims.rules import SizeState, Verdict

COLOURS = {
    Verdict.HOLDS: "green",
    Verdict.FAILS: "red",
    Verdict.MIXED: "yellow",
    Verdict.NOT_RUN: "dim",
}
PLURAL = {Verdict.HOLDS: "hold", Verdict.FAILS: "fail"}


def states_words(states: dict[int, SizeState]) -> str:
    """Return how many sizes say what.

    Such as `supported at 4 of 6 sizes, contradicted at 0, undecided at 2`.
    """
    counts = Counter(states.values())
    sizes = "size" if len(states) == 1 else "sizes"
    words = [
        f"supported at {counts[SizeState.SUPPORTED]} of {len(states)} {sizes}",
        f"contradicted at {counts[SizeState.CONTRADICTED]}",
    ]
    others = [
        state for state in SizeState if state not in (SizeState.SUPPORTED, SizeState.CONTRADICTED)
    ]
    words += [f"{state} at {counts[state]}" for state in others if counts[state]]
    return ", ".join(words)


def paired_test_words(test: PairedTest) -> str:
    """Return a paired test with its margin; the corrected p-value stands in brackets."""
    if test.difference:
        # The difference is the rival's value minus ours.
        side = "lower" if test.difference > 0 else "higher"
        difference = f"{side} by {abs(test.difference):.3g}"
    else:
        difference = "equal"
    margin = f"margin {test.margin:.2g}" if math.isfinite(test.margin) else "no margin"
    effect = f"{test.effect:.2g}" if math.isfinite(test.effect) else "∞"
    return (
        f"{test.ours_name} vs {test.rival_name}, n = {test.n}: "
        f"{test.ours:.4g} against {test.rival:.4g} "
        f"({difference}, {margin}, p = {test.p:.2g} [{test.p_corrected:.2g}], d = {effect}, "
        f"{test.repetitions} repetitions)"
    )


def part_words(part: Part) -> str:
    """Return a part without its verdict.

    It has the dataset, the statement, the states of its sizes and the test that decides.
    """
    words = []
    if part.states:
        words.append(states_words(part.states))
    if part.tests and part.deciding is not None:
        others = len(part.tests) - 1
        and_others = f" and {others} more" if others else ""
        words.append(paired_test_words(part.tests[part.deciding]) + and_others)
    if part.corrected is not None and part.corrected != part.verdict:
        words.append(f"corrected for overlapping splits: {part.corrected}")
    if part.reason:
        words.append(part.reason)
    beside = "(beside the claim) " if part.supplementary else ""
    return f"{_where(part)}{beside}{part.statement}. {'; '.join(words)}".rstrip()


def _where(part: Part) -> str:
    """Return the dataset and q of a part, with a colon; nothing where no data are involved."""
    if part.dataset is None:
        return ""
    q = f", q {part.q}" if part.q else ""
    return f"{labelled(part.dataset, part.stands_for)}{q}: "


def summaries(judged: Judged) -> list[str]:
    """Return a line per column with how many claims have which verdict, then what is left out."""
    lines = []
    for column, verdicts in judged.by_column().items():
        counts = Counter(verdict.verdict for verdict in verdicts)
        words = [f"{counts[kind]} {PLURAL.get(kind, kind)}" for kind in Verdict if counts[kind]]
        line = f"{column}: {len(verdicts)} claims: {', '.join(words)}"
        on_stand_ins = _count_on_stand_ins(verdicts)
        if on_stand_ins:
            line += f" ({on_stand_ins} on stand-ins alone)"
        lines.append(line)
    if any(column.preset for column in judged.columns):
        lines.append(
            "A preset's run is a small one of its own: its verdicts are not those of the paper's "
            "experiments."
        )
    if judged.left_out:
        lines.append(f"Other settings: {'; '.join(judged.left_out)}.")
    return lines


def _count_on_stand_ins(verdicts: Sequence[ClaimVerdict]) -> int:
    return sum(verdict.basis == "stand-in" for verdict in verdicts)


def changes(judged: Judged) -> list[str]:
    """Return a sentence for each thing that a verdict depends on.

    It may depend on the protocol, on the coordinates of q and on the correction of p-values.
    """
    sentences = []
    for claim, by_column in judged.by_claim():
        on_paper = {column: verdict.paper for column, verdict in by_column.items()}
        on_stand_ins = {column: verdict.stand_in for column, verdict in by_column.items()}
        sentences += _by_protocol(f"{claim.number}", on_paper)
        sentences += _by_protocol(f"{claim.number} on stand-ins", on_stand_ins)
        for column, verdict in by_column.items():
            sentences += _by_q_and_correction(f"{claim.number} under {column}", verdict)
    return sentences


def _by_protocol(subject: str, verdicts: dict[str, Verdict]) -> list[str]:
    """Return a sentence with the verdicts that were run, by column; nothing if they agree."""
    run = {
        column: verdict for column, verdict in verdicts.items() if verdict is not Verdict.NOT_RUN
    }
    if len(set(run.values())) <= 1:
        return []
    words = [f"{verdict} under {column}" for column, verdict in run.items()]
    return [f"{subject}: {', '.join(words)}."]


def _by_q_and_correction(subject: str, verdict: ClaimVerdict) -> list[str]:
    """Return a sentence each on what depends on the coordinates of q and on the correction."""
    sentences = []
    # The verdicts on a statement under all coordinates of q.
    verdicts_over_q: dict[tuple[str | None, str], set[Verdict]] = {}
    for part in verdict.parts_run:
        verdicts_over_q.setdefault((part.dataset, part.statement), set()).add(part.verdict)
    dependent = {
        str(dataset) for (dataset, _), verdicts in verdicts_over_q.items() if len(verdicts) > 1
    }
    if dependent:
        datasets = ", ".join(sorted(dependent))
        sentences.append(f"{subject}: parts on {datasets} depend on the coordinates of q.")
    if verdict.corrected != verdict.verdict:
        sentences.append(
            f"{subject}: {verdict.corrected} with p-values corrected for overlapping splits."
        )
    return sentences


def as_table(judged: Judged) -> Table:
    """Return claims and columns, for a terminal, a file or a pipe."""
    labels = [column.label for column in judged.columns]
    table = Table("#", *labels, "claim", box=box.SIMPLE)
    for claim, by_column in judged.by_claim():
        cells = [
            Text(verdict.words, COLOURS.get(verdict.verdict, "default"))
            for verdict in by_column.values()
        ]
        table.add_row(str(claim.number), *cells, claim.text)
    return table


def below_table(judged: Judged, details: bool) -> list[str]:
    """Return the lines below the table, in Markdown.

    They are counts, what verdicts depend on and, with `details`, all parts.
    """
    lines = [f"- {text}" for text in summaries(judged)]
    dependences = changes(judged)
    if dependences:
        lines += ["", "# What verdicts depend on", ""]
        lines += [f"- {text}" for text in dependences]
    if details:
        for claim, by_column in judged.by_claim():
            lines += ["", f"## {claim.number}. {claim.text}"]
            for column, verdict in by_column.items():
                lines += ["", f"### {column}: {verdict.words}", ""]
                lines += _details(verdict)
    return lines


def _details(verdict: ClaimVerdict) -> list[str]:
    """Return the parts of a claim under a column, and the commands."""
    lines = [f"- **{part.verdict}**: {_escaped(part_words(part))}" for part in verdict.parts_run]
    for label, commands in (
        ("Commands for these records", verdict.origin.commands),
        ("Not run", verdict.missing),
    ):
        if commands:
            quoted = [f"`{command}`" for command in commands]
            lines += ["", f"{label}: {', '.join(quoted)}"]
    return lines


def as_markdown(judged: Judged) -> str:
    """Return the table, then everything below it."""
    return "\n".join([as_markdown_table(judged), *below_table(judged, details=True)]) + "\n"


def as_markdown_table(judged: Judged) -> str:
    """Return the table alone, for a README."""
    labels = [column.label for column in judged.columns]
    rows = [["#", "claim", *labels, "judged on", "repetitions"]]
    for claim, by_column in judged.by_claim():
        data: list[str] = []
        repetitions: list[str] = []
        for verdict in by_column.values():
            data += verdict.data
            if verdict.repetitions:
                repetitions.append(_range(verdict.repetitions))
        rows.append([
            str(claim.number),
            claim.text,
            *(verdict.words for verdict in by_column.values()),
            ", ".join(dict.fromkeys(data)) or "no data needed",
            ", ".join(dict.fromkeys(repetitions)),
        ])  # fmt: skip
    return _markdown(rows)


def _range(ends: Sequence[int]) -> str:
    """Return `5–20` for fewest and most, and `5` where they are the same."""
    distinct = dict.fromkeys(ends)
    return "–".join(str(number) for number in distinct)


def as_markdown_counts(judged: Judged) -> str:
    """Return how many claims have which verdict: a row per column."""
    present = {verdict.verdict for verdict in judged.verdicts}
    kinds = [kind for kind in Verdict if kind in present]
    headings = [PLURAL.get(kind, kind) for kind in kinds]
    rows = [["protocol", *headings, "of these, on stand-ins alone"]]
    for column, verdicts in judged.by_column().items():
        counts = Counter(verdict.verdict for verdict in verdicts)
        numbers = [counts[kind] for kind in kinds]
        rows.append([column, *map(str, [*numbers, _count_on_stand_ins(verdicts)])])
    return _markdown(rows)


def _markdown(rows: list[list[str]]) -> str:
    lines = []
    for row in rows:
        cells = [_escaped(text) for text in row]
        lines.append(f"| {' | '.join(cells)} |")
    rule = "|" + "---|" * len(rows[0])
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def as_json(judged: Judged) -> list[dict[str, Any]]:
    """Return everything, for programs (the module's docstring has the structure)."""
    documents = []
    for claim, by_column in judged.by_claim():
        verdicts = list(by_column.values())
        document = {
            "number": claim.number,
            "claim": claim.text,
            "where": claim.where,
            "verdicts": {verdict.column: verdict.verdict for verdict in verdicts},
            "protocols": {verdict.column: _verdict_fields(verdict) for verdict in verdicts},
        }
        documents.append(six_digits(document))
    return documents


def _verdict_fields(verdict: ClaimVerdict) -> dict[str, Any]:
    return {
        "paper": verdict.paper,
        "stand_in": verdict.stand_in,
        "verdict": verdict.verdict,
        "corrected": verdict.corrected,
        "basis": verdict.basis,
        "data": verdict.data,
        "repetitions": verdict.repetitions,
        "commands": verdict.origin.commands,
        "commits": verdict.origin.commits,
        "records": verdict.origin.records,
        "missing": verdict.missing,
        "words": verdict.words,
        "parts": [_part_fields(part) for part in verdict.parts_run],
    }


def _part_fields(part: Part) -> dict[str, Any]:
    return {
        "stands_for": part.stands_for,
        "says": part.statement,
        "dataset": part.dataset,
        "q": part.q,
        "verdict": part.verdict,
        "corrected": part.corrected,
        "reason": part.reason,
        "beside": part.supplementary,
        "states": part.states,
        "comparisons": [asdict(test) for test in part.tests],
        "repetitions": part.repetitions,
        "records": part.origin.records,
        "commands": part.origin.commands,
        "commits": part.origin.commits,
        "figures": part.figures,
    }


def six_digits(value: Any) -> Any:
    """Return the value with every number in it, however deep, at 6 significant digits.

    None stands for what is not finite.
    """
    if isinstance(value, dict):
        return {str(key): six_digits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [six_digits(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
