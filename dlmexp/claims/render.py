"""Verdicts for people and programs: one table and one list of sections, written as text, Markdown or JSON.

JSON is a list of claims in the order of their numbers:

    number, claim, where     the sentence, and where the paper has it
    verdicts                 protocol -> verdict
    protocols                protocol -> verdict, words, basis, paper and stand_in (the verdicts on the paper's data and on
                             stand-ins), corrected (with Nadeau and Bengio's standard errors), by_q (where it matters), data,
                             repetitions (fewest, most), records, commands, commits, missing (commands that would make more),
                             and parts, each with its verdict, states (by size), figures and comparisons (a paired test
                             each, with its n, margin, p and p_corrected)

Numbers have 6 significant digits, so that the files are the same on every machine; null stands for what is not finite.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich import box
from rich.markup import escape
from rich.table import Table

from dlmexp.claims.judge import Judged, labelled
from dlmexp.claims.rules import State, Verdict

COLOURS = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.MIXED: "yellow", Verdict.NOT_RUN: "dim"}
PLURAL = {Verdict.HOLDS: "hold", Verdict.FAILS: "fail"}
MOST_PARTS = 6  # in one sentence
IN_PART = [
    "says", "dataset", "stands_for", "q", "verdict", "corrected", "reason", "beside", "states", "figures", "repetitions",
    "records", "commands", "commits", "comparisons",
]  # fmt: skip
IN_VERDICT = [
    "verdict", "words", "basis", "paper", "stand_in", "corrected", "by_q", "data", "repetitions", "records", "commands",
    "commits", "missing",
]  # fmt: skip


class Section(NamedTuple):
    """A claim under one protocol: its parts in sentences, and the commands."""

    number: int
    claim: str
    column: str
    words: str
    parts: list[str]
    commands: list[str]
    missing: list[str]


def states_words(states: dict[int, State]) -> str:
    """`supported at 4 of 6 sizes, contradicted at 0, undecided at 2`."""
    several, told = len(states), list(states.values())
    counts = {state: told.count(state) for state in State}
    text = f"supported at {counts.pop(State.SUPPORTED)} of {several} size{'' if several == 1 else 's'}"
    text += f", contradicted at {counts.pop(State.CONTRADICTED)}"
    return text + "".join(f", {state} at {number}" for state, number in counts.items() if number)


def comparison_words(row: dict[str, Any]) -> str:
    """One paired test, with its margin, and with the p-value corrected for overlapping splits in brackets."""
    difference, effect = row["difference"], row["effect"]
    sign = "equal" if not difference else f"{'lower' if difference > 0 else 'higher'} by {abs(difference):.3g}"
    d = f"{effect:.2g}" if math.isfinite(effect) else "∞"
    margin = f"margin {row['margin']:.2g}" if math.isfinite(row["margin"]) else "no margin"
    return (
        f"{row['ours_name']} vs {row['rival_name']}, n = {row['n']}: {row['ours']:.4g} against {row['rival']:.4g} "
        f"({sign}, {margin}, p = {row['p']:.2g} [{row['p_corrected']:.2g}], d = {d}, {row['repetitions']} repetitions)"
    )


def part_words(part: Any) -> str:
    """A part in a sentence: the statement, the states of its sizes, the comparison that decides, what else to say."""
    said = [states_words(part.states)] if part.states else []
    if part.comparisons:
        others = len(part.comparisons) - 1
        said.append(comparison_words(part.comparisons[int(part.deciding)]) + (f" and {others} more" if others else ""))
    if isinstance(part.corrected, str) and part.corrected != part.verdict:
        said.append(f"corrected for overlapping splits: {part.corrected}")
    where = ""
    if isinstance(part.dataset, str):
        stands_for = {part.dataset: part.stands_for} if isinstance(part.stands_for, str) else {}
        q = f", q {part.q}" if isinstance(part.q, str) else ""
        where = f"{labelled(part.dataset, stands_for)}{q}: "
    beside = "(beside the claim) " if part.beside else ""
    return f"{part.verdict}: {where}{beside}{part.says}. {'; '.join(filter(None, [*said, part.reason]))}".rstrip()


def sections(judged: Judged) -> Iterator[Section]:
    """Claim by claim, under each protocol."""
    run = judged.parts[judged.parts["verdict"] != Verdict.NOT_RUN]
    by_claim = dict(list(run.groupby(["number", "column"])))
    for row in judged.verdicts.sort_values("number", kind="stable").itertuples():
        key = (row.number, row.column)
        parts = [part_words(part) for part in by_claim[key].itertuples()] if key in by_claim else []
        yield Section(row.number, row.claim, row.column, row.words, parts, row.commands, row.missing)  # pyright: ignore


def summaries(judged: Judged) -> list[str]:
    """A line per protocol: how many claims have which verdict."""
    said = []
    for column, rows in judged.verdicts.groupby("column", sort=False):
        numbers = rows["verdict"].value_counts()
        counts = ", ".join(
            f"{numbers[verdict]} {PLURAL.get(verdict, verdict)}" for verdict in Verdict if verdict in numbers
        )
        stand_ins = (rows["basis"] == "stand-in").sum()
        said.append(f"{column}: {len(rows)} claims: {counts}" + f" ({stand_ins} on stand-ins alone)" * bool(stand_ins))
    return said


def changes(judged: Judged) -> list[str]:
    """What a verdict depends on, a sentence each: the protocol, the coordinates of q, the correction of p-values."""
    said = []
    for number, rows in judged.verdicts.groupby("number"):
        for basis, words in (("paper", ""), ("stand_in", " on stand-ins")):
            run = rows[rows[basis] != Verdict.NOT_RUN]
            if run[basis].nunique() > 1:
                each = ", ".join(
                    f"{verdict} under {column}" for column, verdict in zip(run["column"], run[basis], strict=True)
                )
                said.append(f"{number}{words}: {each}{_differing(judged, int(number), basis == 'stand_in')}.")
    for row in judged.verdicts.itertuples():
        for basis, under in row.by_q.items():  # pyright: ignore
            each = ", ".join(f"{verdict} with q {q}" for q, verdict in under.items())
            said.append(f"{row.number} under {row.column} ({basis}): {each}.")
        if row.corrected != row.verdict:
            said.append(f"{row.number} under {row.column}: {row.corrected} if corrected for overlapping splits.")
    return said


def _differing(judged: Judged, number: int, stand_in: bool) -> str:
    """The parts that protocols judge differently, in the same coordinates of q."""
    parts = judged.parts[(judged.parts["number"] == number) & (judged.parts["verdict"] != Verdict.NOT_RUN)]
    parts = parts[parts["stands_for"].notna() == stand_in]
    said = []
    for (dataset, q, says), some in parts.groupby(["dataset", "q", "says"], sort=False, dropna=False):
        if some["verdict"].nunique() > 1:
            each = ", ".join(
                f"{column} {verdict}" for column, verdict in zip(some["column"], some["verdict"], strict=True)
            )
            said.append(f"{dataset}{f', q {q}' if isinstance(q, str) else ''}: {says} ({each})")
    more = f"; and {len(said) - MOST_PARTS} more" if len(said) > MOST_PARTS else ""
    return f"; they differ in: {'; '.join(said[:MOST_PARTS])}{more}" if said else ""


def table_rows(judged: Judged) -> list[tuple[int, str, dict[str, Any]]]:
    """A row per claim: its number, its text, and its verdict under each column."""
    return [
        (int(number), rows["claim"].iloc[0], {row.column: row for row in rows.itertuples()})
        for number, rows in judged.verdicts.groupby("number")
    ]


def as_table(judged: Judged) -> Table:
    """Claims and protocols for a terminal, a file or a pipe."""
    table = Table("#", *(escape(column.label) for column in judged.columns), "claim", box=box.SIMPLE)
    for number, claim, under in table_rows(judged):
        cells = []
        for row in under.values():
            colour = COLOURS.get(row.verdict)
            cells.append(f"[{colour}]{escape(row.words)}[/]" if colour else escape(row.words))
        table.add_row(str(number), *cells, escape(claim))
    return table


def after_table(judged: Judged, details: bool) -> list[str]:
    """The lines below the table: counts, what changes verdicts, and on request all parts."""
    lines = summaries(judged)
    if any(column.preset for column in judged.columns):
        lines.append("A preset's run is a small one of its own: its verdicts are not on the paper's experiments.")
    if judged.left_out:
        lines.append(f"Other settings: {'; '.join(judged.left_out)}.")
    if said := changes(judged):
        lines += ["", "What verdicts depend on:", *said]
    if not details:
        return [*lines, "", "The numbers behind each verdict, and commands for what was not run: --details."]
    for one in sections(judged):
        lines += [
            "",
            f"{one.number}. {one.column}: {one.words.upper()}: {one.claim}",
            *(f"    {text}" for text in one.parts),
        ]
        lines += [f"    made by: {command}" for command in one.commands]
        lines += [f"    not run: {command}" for command in one.missing]
    return lines


def as_markdown(judged: Judged) -> str:
    """The table, what verdicts depend on, then the parts of each claim under each protocol."""
    lines = [as_markdown_table(judged)]
    lines += [f"{text}\n" for text in summaries(judged)]
    if said := changes(judged):
        lines += ["# What verdicts depend on", "", *(f"- {_cell(text)}" for text in said)]
    number = None
    for one in sections(judged):
        if one.number != number:
            lines += ["", f"## {one.number}. {one.claim}"]
        number = one.number
        lines += ["", f"### {one.column}: {one.words}", ""]
        lines += [f"- **{text.partition(':')[0]}**:{_cell(text.partition(':')[2])}" for text in one.parts]
        for label, commands in (("Commands for these records", one.commands), ("Not run", one.missing)):
            lines += ["", f"{label}: " + ", ".join(f"`{command}`" for command in commands)] if commands else []
    return "\n".join(lines) + "\n"


def as_markdown_table(judged: Judged) -> str:
    """The table alone, for a README."""
    names = [column.label for column in judged.columns]
    lines = [f"| # | claim | {' | '.join(names)} | judged on | repetitions |", "|---|---|" + "---|" * (len(names) + 2)]
    for number, claim, under in table_rows(judged):
        several = list(under.values())
        data = dict.fromkeys(name for row in several for name in row.data) or {"no data needed": None}
        repetitions = dict.fromkeys("–".join(map(str, dict.fromkeys(row.repetitions))) for row in several)
        cells = [
            str(number),
            claim,
            *(row.words for row in several),
            ", ".join(data),
            ", ".join(filter(None, repetitions)),
        ]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def as_markdown_counts(judged: Judged) -> str:
    """How many claims have which verdict: a row per protocol."""
    verdicts = [verdict for verdict in Verdict if (judged.verdicts["verdict"] == verdict).any()]
    lines = [
        "| protocol | " + " | ".join(PLURAL.get(one, one) for one in verdicts) + " | of these, on stand-ins alone |"
    ]
    lines.append("|---|" + "---|" * (len(verdicts) + 1))
    for column, rows in judged.verdicts.groupby("column", sort=False):
        counts = [(rows["verdict"] == verdict).sum() for verdict in verdicts] + [(rows["basis"] == "stand-in").sum()]
        lines.append(f"| {_cell(str(column))} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def as_json(judged: Judged) -> list[dict[str, Any]]:
    """Everything, for programs (the module's docstring has the structure)."""
    parts = judged.parts.astype(object).where(judged.parts.notna(), None)
    found = []
    for number, claim, under in table_rows(judged):
        here = parts[parts["number"] == number]
        protocols = {
            column: {name: getattr(row, name) for name in IN_VERDICT}
            | {"parts": here.loc[here["column"] == column, IN_PART].to_dict("records")}
            for column, row in under.items()
        }
        verdicts = {column: row.verdict for column, row in under.items()}
        where = next(iter(under.values())).where
        entry = {"number": number, "claim": claim, "where": where, "verdicts": verdicts, "protocols": protocols}
        found.append(six_digits(entry))
    return found


def six_digits(value: Any) -> Any:
    """The value with every number in it, however deep, at 6 significant digits, and None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): six_digits(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [six_digits(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
