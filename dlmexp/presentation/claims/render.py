"""Verdicts for people and programs: one table and one list of lines, for a terminal and as
Markdown; and JSON.

JSON is a list of claims in the order of their numbers, each with `number`, `claim`, `where` (in the
paper), `verdicts` (protocol -> verdict) and `protocols`: protocol -> `verdict`, `words`, `basis`,
`paper` and `stand_in` (the verdicts on the paper's data and on stand-ins), `corrected` (with Nadeau
and Bengio's standard errors), `by_q` (where it matters), `data`, `repetitions` (fewest, most),
`records`, `commands`, `commits`, `missing` (commands that would make more), and `parts`, each with
its verdict, `states` (by size), `figures` and `comparisons` (paired tests, with n, margin, p and
p_corrected). Numbers have 6 significant digits, so that files are the same on every machine; null
stands for what is not finite."""

import math
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from dlmexp.common.catalogue import labelled
from dlmexp.presentation.claims.judge import Judged
from dlmexp.presentation.claims.rules import State, Verdict

COLOURS = {
    Verdict.HOLDS: "green",
    Verdict.FAILS: "red",
    Verdict.MIXED: "yellow",
    Verdict.NOT_RUN: "dim",
}
PLURAL = {Verdict.HOLDS: "hold", Verdict.FAILS: "fail"}
NOT_IN_JSON = {
    "Index",
    "column",
    "number",
    "claim",
    "where",
    "figures",
    "seen",
    "named",
    "tolerant",
    "deciding",
    "few",
}


def states_words(states: dict[int, State]) -> str:
    """`supported at 4 of 6 sizes, contradicted at 0, undecided at 2`."""
    told = list(states.values())
    counts = {state: told.count(state) for state in State}
    text = f"supported at {counts.pop(State.SUPPORTED)} of {len(told)} size{'' if len(told) == 1 else 's'}"
    text += f", contradicted at {counts.pop(State.CONTRADICTED)}"
    return text + "".join(f", {state} at {number}" for state, number in counts.items() if number)


def comparison_words(row: dict[str, Any]) -> str:
    """One paired test, with its margin; the p-value corrected for overlapping splits in
    brackets."""
    difference, effect = row["difference"], row["effect"]
    sign = (
        "equal"
        if not difference
        else f"{'lower' if difference > 0 else 'higher'} by {abs(difference):.3g}"
    )
    margin = f"margin {row['margin']:.2g}" if math.isfinite(row["margin"]) else "no margin"
    d = f"{effect:.2g}" if math.isfinite(effect) else "∞"
    return (
        f"{row['ours_name']} vs {row['rival_name']}, n = {row['n']}: {row['ours']:.4g} against {row['rival']:.4g} "
        f"({sign}, {margin}, p = {row['p']:.2g} [{row['p_corrected']:.2g}], d = {d}, {row['repetitions']} repetitions)"
    )


def part_words(part: Any) -> str:
    """A part without its verdict: where, the statement, the states of its sizes, the comparison
    that decides."""
    said = [states_words(part.states)] if part.states else []
    if part.comparisons:
        more = f" and {len(part.comparisons) - 1} more" if len(part.comparisons) > 1 else ""
        said.append(comparison_words(part.comparisons[int(part.deciding)]) + more)
    if isinstance(part.corrected, str) and part.corrected != part.verdict:
        said.append(f"corrected for overlapping splits: {part.corrected}")
    q = f", q {part.q}" if isinstance(part.q, str) else ""
    where = (
        f"{labelled(part.dataset, part.stands_for)}{q}: " if isinstance(part.dataset, str) else ""
    )
    beside = "(beside the claim) " if part.beside else ""
    return f"{where}{beside}{part.says}. {'; '.join(filter(None, [*said, part.reason]))}".rstrip()


def by_claim(judged: Judged) -> Iterator[tuple[int, str, dict[str, Any], dict[str, list[Any]]]]:
    """Number and text of each claim, its verdict and its parts that were run under each column."""
    run = judged.parts[judged.parts["verdict"] != Verdict.NOT_RUN]
    parts: dict[tuple[int, str], list[Any]] = {}
    for part in run.itertuples():
        parts.setdefault((part.number, part.column), []).append(part)  # pyright: ignore
    for number, rows in judged.verdicts.groupby("number"):
        under: dict[str, Any] = {row.column: row for row in rows.itertuples()}  # pyright: ignore
        claim_number = int(number)  # pyright: ignore[reportArgumentType]
        parts_under = {name: parts.get((claim_number, name), []) for name in under}
        yield claim_number, rows["claim"].iloc[0], under, parts_under


def summaries(judged: Judged) -> list[str]:
    """A line per column: how many claims have which verdict; then what is left out."""
    said = []
    for column, rows in judged.verdicts.groupby("column", sort=False):
        numbers = rows["verdict"].value_counts()
        counts = ", ".join(
            f"{numbers[one]} {PLURAL.get(one, one)}" for one in Verdict if one in numbers
        )
        stand_ins = (rows["basis"] == "stand-in").sum()
        said.append(
            f"{column}: {len(rows)} claims: {counts}"
            + f" ({stand_ins} on stand-ins alone)" * bool(stand_ins)
        )
    if any(column.preset for column in judged.columns):
        said.append(
            "A preset's run is a small one of its own: its verdicts are not those of the paper's experiments."
        )
    return said + ([f"Other settings: {'; '.join(judged.left_out)}."] if judged.left_out else [])


def changes(judged: Judged) -> list[str]:
    """What a verdict depends on, a sentence each: the protocol, the coordinates of q, the
    correction of p-values."""
    said = []
    for number, _, under, parts in by_claim(judged):
        for basis, words in (("paper", ""), ("stand_in", " on stand-ins")):
            run = {
                name: one
                for name, row in under.items()
                if (one := getattr(row, basis)) != Verdict.NOT_RUN
            }
            if len(set(run.values())) > 1:
                said.append(
                    f"{number}{words}: "
                    + ", ".join(f"{one} under {name}" for name, one in run.items())
                    + "."
                )
        for name, row in under.items():
            by_q: dict[tuple[str, str], set[Verdict]] = {}
            for part in parts[name]:
                by_q.setdefault((part.dataset, part.says), set()).add(part.verdict)
            if differing := sorted(
                {dataset for (dataset, _), told in by_q.items() if len(told) > 1}
            ):
                said.append(
                    f"{number} under {name}: parts on {', '.join(differing)} depend on the coordinates of q."
                )
            if row.corrected != row.verdict:
                said.append(
                    f"{number} under {name}: {row.corrected} with p-values corrected for overlapping splits."
                )
    return said


def as_table(judged: Judged) -> Table:
    """Claims and columns, for a terminal, a file or a pipe."""
    table = Table("#", *(column.label for column in judged.columns), "claim", box=box.SIMPLE)
    for number, claim, under, _ in by_claim(judged):
        cells = [Text(row.words, COLOURS.get(row.verdict, "default")) for row in under.values()]
        table.add_row(str(number), *cells, claim)
    return table


def below_table(judged: Judged, details: bool) -> list[str]:
    """The lines below the table, in Markdown: counts, what verdicts depend on, and on request all
    parts."""
    lines = [f"- {text}" for text in summaries(judged)]
    if said := changes(judged):
        lines += ["", "# What verdicts depend on", "", *(f"- {text}" for text in said)]
    for number, claim, under, parts in by_claim(judged) if details else ():
        lines += ["", f"## {number}. {claim}"]
        for name, row in under.items():
            lines += ["", f"### {name}: {row.words}", ""]
            lines += [f"- **{part.verdict}**: {_cell(part_words(part))}" for part in parts[name]]
            for label, commands in (
                ("Commands for these records", row.commands),
                ("Not run", row.missing),
            ):
                lines += (
                    ["", f"{label}: " + ", ".join(f"`{command}`" for command in commands)]
                    if commands
                    else []
                )
    return lines


def as_markdown(judged: Judged) -> str:
    """The table, then everything below it."""
    return "\n".join([as_markdown_table(judged), *below_table(judged, details=True)]) + "\n"


def as_markdown_table(judged: Judged) -> str:
    """The table alone, for a README."""
    rows = [
        ["#", "claim", *(column.label for column in judged.columns), "judged on", "repetitions"]
    ]
    for number, claim, under, _ in by_claim(judged):
        data = dict.fromkeys(name for row in under.values() for name in row.data) or [
            "no data needed"
        ]
        counts = dict.fromkeys(
            "–".join(map(str, dict.fromkeys(row.repetitions))) for row in under.values()
        )
        cells = [str(number), claim, *(row.words for row in under.values())]
        rows.append([*cells, ", ".join(data), ", ".join(filter(None, counts))])
    return _markdown(rows)


def as_markdown_counts(judged: Judged) -> str:
    """How many claims have which verdict: a row per column."""
    verdicts = [verdict for verdict in Verdict if (judged.verdicts["verdict"] == verdict).any()]
    table = [
        [
            "protocol",
            *(PLURAL.get(verdict, verdict) for verdict in verdicts),
            "of these, on stand-ins alone",
        ]
    ]
    for column, rows in judged.verdicts.groupby("column", sort=False):
        counts = [(rows["verdict"] == verdict).sum() for verdict in verdicts] + [
            (rows["basis"] == "stand-in").sum()
        ]
        table.append([str(column), *map(str, counts)])
    return _markdown(table)


def _markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def as_json(judged: Judged) -> list[dict[str, Any]]:
    """Everything, for programs (the module's docstring has the structure)."""
    found = []
    for number, claim, under, parts in by_claim(judged):
        protocols = {
            name: _fields(row)
            | {"parts": [_fields(part) | {"figures": part.figures} for part in parts[name]]}
            for name, row in under.items()
        }
        facts = {
            "where": next(iter(under.values())).where,
            "verdicts": {n: row.verdict for n, row in under.items()},
        }
        found.append(
            six_digits({"number": number, "claim": claim, **facts, "protocols": protocols})
        )
    return found


def _fields(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in NOT_IN_JSON}


def six_digits(value: Any) -> Any:
    """The value with every number in it, however deep, at 6 significant digits, and None for what
    is not finite."""
    if isinstance(value, dict):
        return {str(key): six_digits(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [six_digits(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
