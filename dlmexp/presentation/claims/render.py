"""Write verdicts as tables and lists for a terminal, as Markdown, and as JSON.

The JSON is a list of claims in the order of their numbers. Each has these fields:

- `number`, `claim` (the sentence), and `where` it stands in the paper;
- `verdicts`: the verdict by protocol;
- `protocols`: by protocol, an object with `verdict`, `words`, the number of tests with each
  outcome, `data`, `stand_ins`, `not_available`, `repetitions` (fewest, most), `commands`,
  `commits`, `records`, `missing` (commands that compute what was not run), and `parts`, which are
  statements about a dataset, each with its `tests`.

Numbers have 6 significant digits, so that files are the same on every machine. Numbers that are not
finite are null.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from dlmexp.common.catalogue import dataset_label
from dlmexp.common.console import counted
from dlmexp.presentation.claims.claim import Claim, ClaimTest, Part
from dlmexp.presentation.claims.judge import ClaimVerdict, Judged, JudgedClaim, by_section
from dlmexp.presentation.claims.rules import Outcome, Tally, Verdict

VERDICT_COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "red",
    Verdict.PARTLY: "yellow",
    Verdict.NOT_TESTED: "dim",
}
# The headings of the columns with counts of datasets (`data_counts`).
DATA_HEADINGS = ("data sets", "stand-ins", "not available")


def summaries(judged: Judged) -> list[str]:
    """Return a line per column with the number of claims of each verdict, then remarks."""
    lines = []
    for column, verdicts in judged.by_column().items():
        counts = _counts_in_words(_verdict_counts(verdicts))
        lines.append(f"{column}: {counted(len(verdicts), 'claim')}: {counts}")
    if any(column.preset for column in judged.columns):
        lines.append(
            "A preset makes runs smaller. Verdicts on such runs are not verdicts on the paper's "
            "experiments."
        )
    if judged.left_out:
        lines.append(f"Other settings: {'; '.join(judged.left_out)}.")
    return lines


def _verdict_counts(verdicts: Iterable[ClaimVerdict]) -> dict[Verdict, int]:
    """Return the number of claims of each verdict, also of verdicts that no claim has."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    return {verdict: counts[verdict] for verdict in Verdict}


def _counts_in_words(counts: Mapping[Verdict, int] | Mapping[Outcome, int]) -> str:
    """Return counts as a text such as `1 reproduced, 2 partly`, without counts of 0."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def split_by_tested(judged: Judged) -> tuple[list[JudgedClaim], list[Claim]]:
    """Return the claims with a test or an error in any column, and those without."""
    tested = []
    not_tested = []
    for judged_claim in judged.by_claim():
        if _is_tested(judged_claim.by_column.values()):
            tested.append(judged_claim)
        else:
            not_tested.append(judged_claim.claim)
    return tested, not_tested


def _is_tested(verdicts: Iterable[ClaimVerdict]) -> bool:
    """Return whether any of the verdicts on a claim has a test, or an error of a plugin."""
    return any(verdict.tally.tests or verdict.error for verdict in verdicts)


def not_tested_words(claims: Sequence[Claim], with_results_option: Callable[[str], str]) -> str:
    """Return the line on claims without tests; '' if there are none.

    Args:
        claims: The claims without tests.
        with_results_option: `Judged.with_results_option`.
    """
    if not claims:
        return ""
    numbers = ", ".join(str(claim.number) for claim in claims)
    example = with_results_option(f"dlmexp claims {claims[0].number}")
    return f"{counted(len(claims), 'claim')} not tested: {numbers}. What to run for one: {example}"


def data_counts(verdicts: Iterable[ClaimVerdict]) -> list[str]:
    """Return the numbers of datasets that were run, of stand-ins, and of those not available.

    The numbers are those of the verdict with the most datasets; '' means 0.
    """
    verdict = max(verdicts, key=lambda verdict: len(verdict.datasets))
    # In the order of DATA_HEADINGS.
    groups = (verdict.datasets, verdict.stand_ins, verdict.not_available)
    return [str(len(datasets) or "") for datasets in groups]


def as_table(judged: Judged) -> Table:
    """Return a table of the claims that were tested, grouped by section of the paper."""
    labels = [column.label for column in judged.columns]
    table = Table("#", *labels, *DATA_HEADINGS, "claim", box=box.SIMPLE)
    for section, judged_claims in by_section(judged):
        tested = [item for item in judged_claims if _is_tested(item.by_column.values())]
        if tested:
            table.add_section()
            table.add_row("", Text(section, "bold"))
        for judged_claim in tested:
            table.add_row(*_table_cells(judged_claim))
    return table


def _table_cells(judged_claim: JudgedClaim) -> list[str | Text]:
    """Return the row of a claim: number, verdicts in colour, counts of datasets, sentence."""
    claim = judged_claim.claim
    verdicts = judged_claim.by_column.values()
    cells: list[str | Text] = [str(claim.number)]
    for verdict in verdicts:
        colour = VERDICT_COLOURS.get(verdict.verdict, "default")
        cells.append(Text(verdict.words, colour))
    return [*cells, *data_counts(verdicts), claim.text]


def detail_lines(judged: Judged) -> list[str]:
    """Return the lines of a Markdown text with the tests, figures and commands of each claim."""
    lines = []
    for claim, by_column in judged.by_claim():
        lines += ["", f"## {claim.number}. {claim.text}", "", f"Where: {claim.where}"]
        for column, verdict in by_column.items():
            lines += ["", f"### {column}: {verdict.words}", ""]
            lines += _verdict_lines(verdict)
        if any(verdict.tally.tests for verdict in by_column.values()):
            commands = [f"dlmexp plot {name}" for name in claim.figures]
            commands = [judged.with_results_option(command) for command in commands]
            lines += _paragraph("Pictures", _quoted(commands))
    return lines[1:]  # without the empty line before the first claim


def _verdict_lines(verdict: ClaimVerdict) -> list[str]:
    """Return lines with the tests, data and commands of a verdict."""
    lines = []
    tally = verdict.tally
    if tally.tests:
        lines += [tally_words(tally), ""]
    for part in verdict.parts_run:
        lines += part_lines(part)
    lines += _paragraph("Data", verdict.dataset_labels)
    lines += _paragraph("Not available", verdict.not_available)
    lines += _paragraph("Commands for these records", _quoted(verdict.origin.commands))
    lines += _paragraph("Not run", _quoted(verdict.missing))
    return lines


def _paragraph(label: str, items: Sequence[str]) -> list[str]:
    """Return an empty line and a line `label: item, item`; [] if there are no items."""
    if not items:
        return []
    return ["", f"{label}: {', '.join(items)}"]


def _quoted(commands: Iterable[str]) -> list[str]:
    """Return commands as code in Markdown."""
    return [f"`{command}`" for command in commands]


def tally_words(tally: Tally) -> str:
    """Return a tally as a text such as `3 tests: 1 supported, 2 can't tell`."""
    counts = {
        Outcome.SUPPORTED: tally.supported,
        Outcome.CONTRADICTED: tally.contradicted,
        Outcome.NO_DIFFERENCE: tally.no_difference,
        Outcome.UNCLEAR: tally.unclear,
    }
    return f"{counted(tally.tests, 'test')}: {_counts_in_words(counts)}"


def part_lines(part: Part) -> list[str]:
    """Return a line for the statement of a part, and one for each of its tests."""
    lines = [f"- {statement_of_part(part)}"]
    for test in part.tests:
        numbers = numbers_of_test(test)
        separator = ": " if numbers else ""
        lines.append(f"  - **{test.outcome}**{separator}{numbers}")
    return lines


def statement_of_part(part: Part) -> str:
    """Return the statement of a part with its dataset, parameterisation of q and remark."""
    text = part.statement
    if part.supplementary:
        text = f"(counted apart) {text}"
    if part.dataset and part.q:
        text = f"q {part.q}: {text}"
    if part.dataset:
        text = f"{dataset_label(part.dataset, part.stands_for)}, {text}"
    if part.reason:
        text = f"{text} ({part.reason})"
    return text


def numbers_of_test(test: ClaimTest) -> str:
    """Return a text with the numbers of a test, and with what it lacks."""
    words = []
    if test.n is not None:
        words.append(f"n = {test.n}")
    if test.ours_name:
        words.append(_comparison(test))
    if test.reason:
        words.append(test.reason)
    return ", ".join(words)


def _comparison(test: ClaimTest) -> str:
    """Return a text with both means, their difference, the margin, p-value and repetitions."""
    rival = test.rival_name
    if test.rivals > 1:
        rival = f"{rival} (the nearest of {test.rivals})"
    kind = "median difference" if test.median else "difference"
    difference = f"{kind} {test.difference:.3g}"
    if math.isfinite(test.high):
        difference += f" [{test.low:.3g}, {test.high:.3g}]"
    margin = f"margin {test.margin:.2g}" if math.isfinite(test.margin) else "no margin"
    words = [difference, margin]
    if math.isfinite(test.p):
        words.append(f"p = {test.p:.2g} [{test.p_adjusted:.2g}]")
    words.append(counted(test.repetitions, "repetition"))
    return f"{test.ours_name} {test.ours:.4g}, {rival} {test.rival:.4g}: {', '.join(words)}"


def as_markdown(judged: Judged) -> str:
    """Return a Markdown table of the tested claims, and the line on the other claims."""
    labels = [column.label for column in judged.columns]
    rows = [["#", "claim", *labels, *DATA_HEADINGS]]
    tested, not_tested = split_by_tested(judged)
    for claim, by_column in tested:
        verdicts = by_column.values()
        words = [verdict.words for verdict in verdicts]
        rows.append([str(claim.number), claim.text, *words, *data_counts(verdicts)])
    lines = [_markdown(rows)]
    if not_tested:
        lines.append(f"{not_tested_words(not_tested, judged.with_results_option)}\n")
    return "\n".join(lines)


def as_markdown_counts(judged: Judged) -> str:
    """Return a Markdown table with a row per column of verdicts.

    It has the number of claims of each verdict, and the number of tests of each outcome.
    """
    rows = [["protocol", *Verdict, "tests", *Outcome]]
    for column, verdicts in judged.by_column().items():
        tally = _total(verdict.tally for verdict in verdicts)
        numbers = [*_verdict_counts(verdicts).values()]
        numbers += [tally.tests, tally.supported, tally.contradicted]
        numbers += [tally.no_difference, tally.unclear]
        rows.append([column, *map(str, numbers)])
    return _markdown(rows)


def _total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    total = Tally()
    for tally in tallies:
        total = Tally(
            supported=total.supported + tally.supported,
            contradicted=total.contradicted + tally.contradicted,
            no_difference=total.no_difference + tally.no_difference,
            unclear=total.unclear + tally.unclear,
        )
    return total


def _markdown(rows: list[list[str]]) -> str:
    """Return a Markdown table whose first row is the heading."""
    lines = []
    for row in rows:
        cells = [_escaped(text) for text in row]
        lines.append(f"| {' | '.join(cells)} |")
    separator = "|" + "---|" * len(rows[0])
    return "\n".join([lines[0], separator, *lines[1:]]) + "\n"


def _escaped(text: str) -> str:
    """Return a text without the bars and line breaks that would end a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def as_json(judged: Judged) -> list[dict[str, Any]]:
    """Return all claims with their verdicts and tests, in the fields that this module documents."""
    return [six_digits(_claim_fields(judged_claim)) for judged_claim in judged.by_claim()]


def _claim_fields(judged_claim: JudgedClaim) -> dict[str, Any]:
    claim, by_column = judged_claim
    return {
        "number": claim.number,
        "claim": claim.text,
        "where": claim.where,
        "verdicts": {column: verdict.verdict for column, verdict in by_column.items()},
        "protocols": {column: _verdict_fields(verdict) for column, verdict in by_column.items()},
    }


def _verdict_fields(verdict: ClaimVerdict) -> dict[str, Any]:
    return {
        "verdict": verdict.verdict,
        "words": verdict.words,
        **asdict(verdict.tally),
        "data": verdict.datasets,
        "stand_ins": verdict.stand_ins,
        "not_available": verdict.not_available,
        "repetitions": verdict.repetitions,
        "commands": verdict.origin.commands,
        "commits": verdict.origin.commits,
        "records": verdict.origin.records,
        "missing": verdict.missing,
        "parts": [_part_fields(part) for part in verdict.parts_run],
    }


def _part_fields(part: Part) -> dict[str, Any]:
    return {
        "says": part.statement,
        "dataset": part.dataset,
        "stands_for": part.stands_for,
        "q": part.q,
        "beside": part.supplementary,
        "reason": part.reason,
        "figures": part.figures,
        "repetitions": part.repetitions,
        "records": part.origin.records,
        "commands": part.origin.commands,
        "commits": part.origin.commits,
        "tests": [_test_fields(test) for test in part.tests],
    }


def _test_fields(test: ClaimTest) -> dict[str, Any]:
    """Return the fields of a test, but for `p_values`: the field `p` has that of the outcome."""
    fields = asdict(test)
    del fields["p_values"]
    return fields


def six_digits(value: Any) -> Any:
    """Return a value of JSON with all numbers in it, at any depth, at 6 significant digits.

    Numbers that are not finite become None.
    """
    if isinstance(value, dict):
        return {str(key): six_digits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [six_digits(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
