"""The READMEs about results: text that commands generate, and numbers that tables must have.

A generated part begins with a comment that holds its command and ends with `<!-- end -->`. To write all of them anew:

    python -m tests.support.generated
"""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd

from dlmexp.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAPER = ROOT / "results" / "paper"
READMES = (ROOT / "README.md", PAPER / "DETAILS.md")
PART = re.compile(r"(<!-- (dlmexp [^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
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


def with_generated_parts(text: str) -> str:
    """The text with every generated part as its command prints it now; a table without what follows it."""

    def part(old: re.Match[str]) -> str:
        with redirect_stdout(StringIO()) as printed:
            assert main(shlex.split(old[2])[1:]) == 0, old[2]
        table, _, _ = printed.getvalue().rstrip().partition("\n\n")
        return f"{old[1]}\n{table}\n\n{old[4]}"

    return PART.sub(part, text)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and rows of tables; commands and generated parts left out."""
    prose = re.sub(r"<[!/a-z][^>]*>|`[^`]*`|\]\([^)]*\)", " ", PART.sub("", text))
    for block in re.split(r"\n\s*\n|\n(?=- |\|)", prose):
        if not block.startswith("    "):
            yield " ".join(block.split())


class Known:
    """The numbers of the published tables: the means over repetitions of what was selected, by claim what it was judged
    by (shares also in per cent), and what was measured elsewhere, by words of the paragraph that says it."""

    def __init__(self, folder: Path) -> None:
        table = pd.read_parquet(folder / "table.parquet")
        metrics = [name for name in map(str, table) if name.startswith("test_")]
        self.means = table.groupby(GROUPS, dropna=False)[metrics].mean().reset_index()
        claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
        judged = {one["number"]: re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", json.dumps(one["protocols"])) for one in claims}
        self.claims = {number: [float(x) * by for x in texts for by in (1, 100)] for number, texts in judged.items()}
        self.measured = pd.read_csv(folder / "measured.csv", dtype=str)

    def numbers(self, paragraph: str) -> tuple[np.ndarray, np.ndarray]:
        """What a paragraph may say: sizes and metrics of the datasets that it names; and, with any sign, the others."""
        metrics = [f"test_{name}" for word, names in METRICS.items() if word in paragraph for name in names]
        named = [name for name in self.means["dataset"].unique() if re.search(rf"\b{name}\b", paragraph)]
        means = self.means[self.means["dataset"].isin(named)][["n", *(metrics or ["test_nll"])]]
        claims = map(int, re.findall(r"(?:\*\*|claims? |and )(\d+)\b", paragraph))
        others = [value for claim in claims for value in self.claims.get(claim, ())]
        elsewhere = self.measured[[where in paragraph for where in self.measured["where"]]]["number"]
        return means.to_numpy(float).ravel(), np.abs([*others, *elsewhere.str.replace(" ", "").astype(float)])


def unknown(text: str, known: Known) -> list[tuple[str, str]]:
    """The numbers of a README that no table has to as many digits, each with its paragraph."""
    found = []
    for paragraph in paragraphs(text):
        means, others = known.numbers(paragraph)
        for said in NUMBER.findall(paragraph):
            digits, value = len(said.partition(".")[2]), float(said.replace(" ", ""))
            equal = [*(means.round(digits) - value), *(others.round(digits) - abs(value))]
            if not np.any(np.abs(equal) < 1e-9):
                found.append((said, paragraph))
    return found


if __name__ == "__main__":
    for readme in READMES:
        readme.write_text(with_generated_parts(readme.read_text(encoding="utf-8")), encoding="utf-8")
        print(readme)
