"""What is published beside the records in results/paper is what the commands make of those records:
tables and verdicts, the text in READMEs that commands generate, and the numbers that they say.

A generated part begins with a comment that holds its command and ends with `<!-- end -->`. To write
all of them anew:

    python -m tests.cli.test_published
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dlmexp import api
from dlmexp.cli import main
from dlmexp.experiment.plan.cell import FIELDS, Cell
from dlmexp.experiment.records.record import JSON_FIELDS
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.claims.judge import judge
from scripts import answer
from tests.conftest import REPOSITORY
from tests.support.values import same_text

pytestmark = pytest.mark.published

PAPER = REPOSITORY / "results" / "paper"
MORE = REPOSITORY / "results" / "more"
READMES = (REPOSITORY / "README.md", PAPER / "DETAILS.md")
PART = re.compile(r"(<!-- (dlmexp [^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
# A number with a decimal point, a share, or a whole number of three digits or more (23 350 too).
NUMBER = re.compile(
    r"(?<![\w./=-])(-?(?:\d{1,3}(?: \d{3})+|\d+\.\d+|\d{3,}|\d+(?= ?%)))(?![\w/]|\.\d|-\d)"
)
GROUPS = [
    "dataset",
    "method",
    "n",
    "estimator",
    "samples",
    "parameterisation",
    "evaluate",
    "noise_floor",
    "protocol",
    "role",
    "selected_by",
]
# Which metrics a paragraph is about, by its words; without any of them, NLL.
METRICS = {
    "MSE": ["mse"],
    "error rate": ["error"],
    "MRE": ["mre"],
    "Brier": ["brier"],
    "ECE": ["ece"],
    "CRPS": ["crps"],
    "cover": ["coverage_50", "coverage_90", "coverage_95"],
    "NLL": ["nll"],
}
PUBLISHED = 155_060
read = cache(ResultsFolder)
judge_once = cache(
    lambda results, numbers, protocol, where, margins: judge(
        results, numbers, protocol, where, margins
    )
)


@pytest.fixture(autouse=True)
def read_once(monkeypatch) -> None:
    """By all tests of a process: reading takes a second, judging several. What is advised names the
    folder as it was named: from here."""
    monkeypatch.chdir(REPOSITORY)

    def read_again(folder, label="", others=()):
        return read(os.path.relpath(folder))

    monkeypatch.setattr("dlmexp.experiment.records.results.ResultsFolder", read_again)
    monkeypatch.setattr(api, "ResultsFolder", read_again)

    def judging(results, numbers, protocol, where, margins):
        return judge_once(results, tuple(numbers), protocol, tuple(where), margins)

    monkeypatch.setattr("dlmexp.presentation.claims.judge.judge", judging)


def test_claims(capsys) -> None:
    assert main(["claims", "--results", str(PAPER), "--json"]) == 0
    written = (PAPER / "claims.json").read_text(encoding="utf-8")
    assert same_text(capsys.readouterr().out, written)


def test_table(tmp_path: Path) -> None:
    for path in PAPER.glob("records*.parquet"):
        shutil.copy(path, tmp_path)
    assert main(["collect", "--results", str(tmp_path)]) == 0
    ours, theirs = (pd.read_parquet(folder / "table.parquet") for folder in (tmp_path, PAPER))
    pd.testing.assert_frame_equal(ours[list(theirs)], theirs)
    later = ours.drop(
        columns=list(theirs)
    )  # columns of later versions, which say nothing of old cells
    assert all(column.nunique() <= 1 for _, column in later.items())


def test_every_key_ever_published_is_still_the_key_of_its_cell() -> None:
    def values(name: str, column: pa.ChunkedArray) -> Iterable:
        plain = column.cast("string") if pa.types.is_dictionary(column.type) else column
        return (
            map(cache(json.loads), plain.to_pylist()) if name in JSON_FIELDS else plain.to_pylist()
        )

    count = 0
    for pack in read(PAPER).store.packs:
        table = pack.cells()
        fields = [name for name in FIELDS if name in table.column_names]
        rows = zip(*(values(name, table[name]) for name in fields), strict=True)
        cells = (Cell(**dict(zip(fields, row, strict=True))) for row in rows)  # pyright: ignore[reportArgumentType]
        keys = table["key"].to_pylist()
        assert [cell.key for cell in cells] == keys
        assert set(keys) == pack.keys[0] | pack.keys[1]
        count += len(keys)
    assert count >= PUBLISHED


def test_every_record_was_asked_for_and_nothing_is_missing() -> None:
    results = read(os.path.relpath(PAPER))
    asked = {key for group in results.asked for key in group.keys}
    assert asked == set(results.candidates["key"])
    assert not results.candidates["missing"].any()
    for group in results.asked:
        betas = [beta or 0.0 for beta in group.betas]
        assert betas == sorted(betas, reverse=True)


def with_generated_parts(text: str) -> str:
    """The text with every generated part as its command prints it now; a table without what follows
    it."""

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
    """The numbers of the published tables: the means over repetitions of what was selected, by
    claim what it was judged by (shares also in per cent), and what was measured elsewhere, by words
    of the paragraph that says it."""

    def __init__(self, folder: Path) -> None:
        table = pd.read_parquet(folder / "table.parquet")
        metrics = [name for name in map(str, table) if name.startswith("test_")]
        self.means = table.groupby(GROUPS, dropna=False)[metrics].mean().reset_index()
        claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
        judged = {
            one["number"]: re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", json.dumps(one["protocols"]))
            for one in claims
        }
        self.claims = {
            number: [float(x) * by for x in texts for by in (1, 100)]
            for number, texts in judged.items()
        }
        self.measured = pd.read_csv(folder / "measured.csv", dtype=str)

    def numbers(self, paragraph: str) -> tuple[np.ndarray, np.ndarray]:
        """What a paragraph may say: sizes and metrics of the datasets that it names; and, with any
        sign, the others."""
        metrics = [
            f"test_{name}" for word, names in METRICS.items() if word in paragraph for name in names
        ]
        named = [
            name for name in self.means["dataset"].unique() if re.search(rf"\b{name}\b", paragraph)
        ]
        means = self.means[self.means["dataset"].isin(named)][["n", *(metrics or ["test_nll"])]]
        claims = map(int, re.findall(r"(?:\*\*|claims? |and )(\d+)\b", paragraph))
        others = [value for claim in claims for value in self.claims.get(claim, ())]
        elsewhere = self.measured[[where in paragraph for where in self.measured["where"]]][
            "number"
        ]
        return means.to_numpy(float).ravel(), np.abs(
            [*others, *elsewhere.str.replace(" ", "").astype(float)]
        )


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


@pytest.mark.parametrize("readme", READMES, ids=["README", "DETAILS"])
def test_generated_parts_and_every_number_of_readmes(readme: Path) -> None:
    """Numbers are in table.parquet, claims.json, or, where measured elsewhere, in measured.csv with
    its source."""
    text = readme.read_text(encoding="utf-8")
    assert PART.search(text)
    assert same_text(with_generated_parts(text), text)
    assert unknown(text, Known(PAPER)) == []


def test_every_number_measured_elsewhere_is_said_and_has_its_source() -> None:
    """Each row of measured.csv is about a paragraph that says the number; a file that it names has
    it, or its share."""
    said = [
        paragraph
        for readme in READMES
        for paragraph in paragraphs(readme.read_text(encoding="utf-8"))
    ]
    rows = pd.read_csv(PAPER / "measured.csv", dtype=str).to_dict("records")
    for number, where, source in (
        (str(row["number"]), str(row["where"]), str(row["source"])) for row in rows
    ):
        pattern = re.compile(rf"(?<![\d.]){re.escape(number)}(?!\.?\d)")
        assert any(pattern.search(paragraph) for paragraph in said if where in paragraph), (
            f"{number}: '{where}'"
        )
        assert source != "nan"
        for root in (REPOSITORY, PAPER):
            if (file := root / source).is_file():
                value, digits = float(number.replace(" ", "")), len(number.partition(".")[2])
                values = [
                    float(text)
                    for text in re.findall(r"\d+(?:\.\d+)?", file.read_text(encoding="utf-8"))
                ]
                assert value / 100 in values or value in (round(one, digits) for one in values), (
                    f"not in {source}"
                )


def words_beside_tables(text: str) -> list[str]:
    """The words of a page without tables, commands and comments."""
    prose = re.sub(r"\n(\||    ).*|<!--.*?-->", "", text)
    return re.findall(r"\S*\w\S*", prose)


def test_the_numbers_of_the_answer_are_made_from_the_records_and_in_its_table(
    capsys, monkeypatch
) -> None:
    monkeypatch.setattr("sys.argv", ["answer", str(MORE), str(PAPER)])
    answer.main()
    made, answers = pd.read_csv(StringIO(capsys.readouterr().out)), pd.read_csv(MORE / "answer.csv")
    pd.testing.assert_frame_equal(made, answers, rtol=1e-4, atol=1e-6)
    page = PART.sub("", (PAPER / "README.md").read_text(encoding="utf-8"))
    prose = "\n".join(line for line in page.splitlines() if not line.startswith("|"))
    known = {f"{abs(value):.3f}" for value in answers.select_dtypes("number").to_numpy().ravel()}
    said = re.findall(r"\d\.\d{3}", prose)
    assert len(said) > 25
    assert [number for number in said if number not in known] == []


def test_the_page_and_the_details_are_short() -> None:
    page, details = (
        (PAPER / name).read_text(encoding="utf-8") for name in ("README.md", "DETAILS.md")
    )
    assert len(words_beside_tables(page)) <= 700
    assert len(details.split()) <= 3000


ROWS = {  # rows of the table of the answer: method, use of the validation rows
    "ELBO": ("elbo", "select"),
    "β-ELBO": ("beta_elbo", "select"),
    "FITC": ("fitc", "select"),
    "power EP": ("power_ep", "select"),
    "fixed DLM": ("fixed_log_dlm", "select"),
    "joint DLM": ("joint_log_dlm", "select"),
    "exact GP": ("exact", "select"),
    "ELBO, n + V rows": ("elbo", "train"),
    "FITC, n + V rows": ("fitc", "train"),
}


def test_the_table_of_the_answer_has_nll_crps_and_rmse_of_its_rows() -> None:
    answers = pd.read_csv(MORE / "answer.csv")
    rivals = answers[answers["role"] == "rivals"].set_index(["dataset", "n", "method", "use"])
    page = (PAPER / "README.md").read_text(encoding="utf-8")
    for label, (method, use) in ROWS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {label} |"))
        cells = []
        for dataset, n in (("pol", 2010), ("cadata", 2766), ("sarcos_test", 596)):
            means = rivals.loc[[(dataset, n, method, use)]].iloc[0]
            rmse = means["test_mse"] ** 0.5
            cells.append(f"{means['test_nll']:.3f} / {means['test_crps']:.3f} / {rmse:.3f}")
        assert row == f"| {label} | {' | '.join(cells)} |"


def test_counts_of_recalibrated_elbo_on_the_page_are_those_of_its_intervals() -> None:
    answers = pd.read_csv(MORE / "answer.csv")
    points = answers[
        (answers["role"] == "rivals")
        & (answers["method"] == "elbo")
        & (answers["use"] == "recalibrate")
        & answers["test_mse"].isna()
    ]
    ahead = int((points["high_recalibrated"] < 0).sum())
    behind = int((points["low_recalibrated"] > 0).sum())
    page = " ".join((PAPER / "README.md").read_text(encoding="utf-8").split())
    assert f"lower NLL at {ahead} of {len(points)} points, joint DLM at {behind} " in page
    assert f"{len(points) - ahead - behind} can't tell" in page


def test_generated_parts_of_the_page() -> None:
    text = (PAPER / "README.md").read_text(encoding="utf-8")
    assert PART.search(text)
    assert same_text(with_generated_parts(text), text)


if __name__ == "__main__":
    for readme in (*READMES, PAPER / "README.md"):
        readme.write_text(
            with_generated_parts(readme.read_text(encoding="utf-8")), encoding="utf-8"
        )
        print(readme)
