"""The READMEs about results: text that commands generate, and numbers that tables must have.

A generated part begins with a comment that holds its command and ends with `<!-- end -->`. To write all of them anew:

    python -m tests.support.generated

What a benchmark printed on some machine can't be generated again. It begins with `<!-- measured: COMMAND -->`.
"""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pandas as pd

from dlmexp.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAPER = ROOT / "results" / "paper"
READMES = (ROOT / "README.md", PAPER / "DETAILS.md")
PART = re.compile(r"(<!-- (dlmexp [^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MEASURED = re.compile(r"<!-- measured: dlmexp [^\n]*? -->\n.*?<!-- end -->", re.DOTALL)
# A number with a decimal point, a share, or a whole number of three digits or more (23 350 too).
NUMBER = re.compile(r"(?<![\w./=-])(-?(?:\d{1,3}(?: \d{3})+|\d+\.\d+|\d{3,}|\d+(?= ?%)))(?![\w/]|\.\d|-\d)")
GROUPS = [
    "dataset", "method", "n", "estimator", "samples", "parameterisation", "evaluate", "noise_floor", "protocol", "role",
    "selected_by",
]  # fmt: skip
# Which metrics a paragraph is about, by its words; without any of them, NLL.
METRICS = {
    "MSE": ["mse"], "error rate": ["error"], "MRE": ["mre"], "Brier": ["brier"], "ECE": ["ece"], "CRPS": ["crps"],
    "cover": ["coverage_50", "coverage_90", "coverage_95"], "NLL": ["nll"],
}  # fmt: skip


def output(command: str) -> str:
    """What a command of ours prints."""
    text = StringIO()
    with redirect_stdout(text):
        assert main(shlex.split(command)[1:]) == 0, command
    return text.getvalue()


def with_generated_parts(text: str) -> str:
    """The text with every generated part as its command prints it now."""
    return PART.sub(lambda found: found[1] + "\n" + output(found[2]) + "\n" + found[4], text)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and rows of tables; commands, generated and measured parts left out."""
    prose = re.sub(r"<[!/a-z][^>]*>|`[^`]*`|\]\([^)]*\)", " ", MEASURED.sub("", PART.sub("", text)))
    for block in re.split(r"\n\s*\n|\n(?=- |\|)", prose):
        if not block.startswith("    "):
            yield " ".join(block.split())


class Known:
    """The numbers of the published tables: by dataset the means over repetitions of what was selected, by claim what it
    was judged by; and what was measured elsewhere, by words of the paragraph that says it."""

    def __init__(self, folder: Path) -> None:
        table = pd.read_parquet(folder / "table.parquet")
        metrics = [name for name in map(str, table) if name.startswith("test_")]
        groups = table.groupby([name for name in GROUPS if name in table], dropna=False)[metrics].mean()
        self.datasets = {str(name): some for name, some in groups.groupby(level="dataset")}
        claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
        self.claims = {one["number"]: set(_values(one["protocols"])) for one in claims}
        measured = pd.read_csv(folder / "measured.csv", dtype=str)
        self.measured = [
            (str(where), float(text.replace(" ", "")))
            for where, text in zip(measured["where"], measured["number"], strict=True)
        ]

    def has(self, text: str, paragraph: str) -> bool:
        """Whether a number that a paragraph says is one of those it may be about, to as many digits as it gives. What
        claims were judged by, and what was measured elsewhere, is compared without its sign."""
        digits, wanted = len(text.partition(".")[2]), float(text.replace(" ", ""))
        others = {value for where, value in self.measured if where in paragraph}
        for claim in re.findall(r"(?:\*\*|claims? |and )(\d+)\b", paragraph):
            others |= self.claims.get(int(claim), set())
        return any(abs(round(value, digits) - wanted) < 1e-9 for value in self._means(paragraph)) or any(
            abs(round(abs(value), digits) - abs(wanted)) < 1e-9 for value in others
        )

    def _means(self, paragraph: str) -> Iterator[float]:
        """The sizes of the datasets that a paragraph names, and the means of the metrics that it names."""
        metrics = {f"test_{one}" for word, some in METRICS.items() if word in paragraph for one in some} or {"test_nll"}
        for name, means in self.datasets.items():
            if re.search(rf"\b{name}\b", paragraph):
                yield from map(float, means.index.get_level_values("n"))
                yield from map(float, means[[one for one in means if one in metrics]].to_numpy().ravel())


def unknown(text: str, known: Known, shift: int = 0) -> list[tuple[str, str]]:
    """The numbers of a README that no table has, each with its paragraph; `shift` units of the last digit are added to
    those with decimals."""
    found = []
    for paragraph in paragraphs(text):
        for number in NUMBER.findall(paragraph):
            digits = len(number.partition(".")[2])
            said = f"{float(number) + shift / 10**digits:.{digits}f}" if digits else number
            if not known.has(said, paragraph):
                found.append((said, paragraph))
    return found


def _values(value: object) -> Iterator[float]:
    """All numbers of a JSON value, those in its words too; shares also in per cent."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _values(one)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one)
    elif isinstance(value, str):
        yield from (float(text) for text in re.findall(r"\d+(?:\.\d+)?", value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from (abs(float(value)), 100 * abs(float(value)))


if __name__ == "__main__":
    for readme in READMES:
        readme.write_text(with_generated_parts(readme.read_text(encoding="utf-8")), encoding="utf-8")
        print(readme)
