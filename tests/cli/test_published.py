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
from scripts import answer, equal_rows
from tests.conftest import REPOSITORY
from tests.support.values import same_text

pytestmark = pytest.mark.published

PAPER = REPOSITORY / "results" / "paper"
MORE = REPOSITORY / "results" / "more"
FAIR = REPOSITORY / "results" / "fair"
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

    def read_again(folder, label="", pack_folders=()):
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
    asked = {key for group in results.groups for key in group.keys}
    assert asked == set(results.candidates["key"])
    assert not results.candidates["missing"].any()
    for group in results.groups:
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


def test_the_numbers_of_the_answer_are_made_from_the_records(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["answer", str(MORE), str(PAPER)])
    answer.main()
    made, answers = pd.read_csv(StringIO(capsys.readouterr().out)), pd.read_csv(MORE / "answer.csv")
    pd.testing.assert_frame_equal(made, answers, rtol=1e-4, atol=1e-6)


def test_the_tables_on_equal_rows_are_made_from_the_records(tmp_path: Path) -> None:
    equal_rows.write_tables([str(FAIR), str(FAIR.parent / "controls")], str(tmp_path))
    for name in (equal_rows.MEANS_FILE, equal_rows.DIFFERENCES_FILE):
        made, published = pd.read_csv(tmp_path / name), pd.read_csv(FAIR / name)
        pd.testing.assert_frame_equal(made, published, rtol=1e-4, atol=1e-6)
    table = (tmp_path / equal_rows.TABLE_FILE).read_text(encoding="utf-8")
    assert table == (FAIR / equal_rows.TABLE_FILE).read_text(encoding="utf-8")


def test_every_number_of_the_page_is_in_a_table_that_a_command_makes() -> None:
    page = PART.sub("", (PAPER / "README.md").read_text(encoding="utf-8"))
    prose = "\n".join(line for line in page.splitlines() if not line.startswith("|"))
    known: set[str] = set()
    for path in (MORE / "answer.csv", FAIR / "means.csv", FAIR / "differences.csv"):
        numbers = pd.read_csv(path).select_dtypes("number").to_numpy().ravel()
        known |= {f"{abs(value):.3f}" for value in numbers}
    # How much L-BFGS lowers an objective, and the limit of what twice the decay changes: the tests
    # below.
    measured_in_pairs = {"0.009", "0.001"}
    noise_control = pd.read_csv(MORE / "noise_control.csv")
    means = noise_control.groupby(["dataset", "control"])["test_nll"].mean()
    known |= {f"{abs(value):.3f}" for value in means}
    said = re.findall(r"\d\.\d{3}", prose)
    assert len(said) > 25
    assert [number for number in said if number not in known | measured_in_pairs] == []


def test_lbfgs_lowers_objectives_of_elbo_by_no_more_than_the_page_says() -> None:
    means = pd.read_csv(FAIR / "means.csv")
    elbo = means[(means["role"] == "optimisation") & (means["method"] == "elbo")]
    by_optimiser = elbo.pivot_table(index="M", columns="optimizer", values="objective").dropna()
    gain = (by_optimiser["adam"] - by_optimiser["lbfgs"]).max()
    assert f"at most {gain:.3f} per row" in (PAPER / "README.md").read_text(encoding="utf-8")
    assert (elbo["converged"] == 1).all(), "every ELBO fit meets the stopping rule"


def test_twice_the_decay_moves_elbo_on_pol_by_less_than_the_page_says() -> None:
    table = pd.read_csv(MORE / "answer.csv")
    twice = table[(table["role"] == "decay") & (table["dataset"] == "pol")]
    elbo = twice[twice["method"] == "elbo"]
    assert elbo["n"].tolist() == [503]
    assert elbo["largest_change"].max() < 0.001
    assert "twice the decay moves no test NLL by 0.001 (n = 503)" in (
        PAPER / "README.md"
    ).read_text(encoding="utf-8")


def test_noise_of_dlm_makes_the_published_score_of_elbo_q() -> None:
    controls = pd.read_csv(MORE / "noise_control.csv")
    controls = controls[controls["control"] == "noise of DLM"]
    table = pd.read_csv(MORE / "answer.csv")
    published = table[
        (table["role"] == "gain")
        & (table["method"] == "dlm_elbo_q")
        & (table["changes"] == "beta.values=[1]")
        & (table["use"] == "select")
    ].set_index(["dataset", "n"])["test_nll"]
    made_again = controls.groupby(["dataset", "n"])["test_nll"].mean()
    both = pd.concat([made_again, published.rename("published")], axis=1, join="inner")
    assert len(both) == 3
    np.testing.assert_allclose(both["test_nll"], both["published"], atol=1e-3)


def test_the_page_and_the_details_are_short() -> None:
    page, details = (
        (PAPER / name).read_text(encoding="utf-8") for name in ("README.md", "DETAILS.md")
    )
    assert len(words_beside_tables(page)) <= 700
    assert len(details.split()) <= 3000


def test_the_page_has_the_tables_on_equal_rows() -> None:
    page = (PAPER / "README.md").read_text(encoding="utf-8")
    tables = (FAIR / equal_rows.TABLE_FILE).read_text(encoding="utf-8").split("\n\n")
    for table in tables:
        assert table.strip() in page


TRUTH = {"role": "truth", "ard": False, "likelihood": "gaussian"}
# What the page says of pairs of methods: which one is ahead by what, at its place.
PAIRS = [
    ("pol", "nll", "joint_log_dlm", "elbo", {}, "0.750 [0.474, 1.026]"),
    ("cadata", "nll", "joint_log_dlm", "elbo", {}, "0.162 [0.134, 0.190]"),
    ("sarcos_test", "nll", "fitc", "joint_log_dlm", {}, "0.085 [0.048, 0.122]"),
    ("gp_constant", "nll", "elbo", "joint_log_dlm", TRUTH, "0.037 [0.021, 0.054]"),
    ("gp_constant", "nll", "elbo", "fitc", TRUTH, "0.184 [0.099, 0.269]"),
    ("gp_varying", "nll", "joint_log_dlm", "elbo", TRUTH, "0.235 [0.226, 0.244]"),
    ("pol", "rmse_by_mse", "elbo", "joint_log_dlm", {}, "0.112 [0.103, 0.121]"),
    ("pol", "rmse_by_mse", "beta_elbo", "elbo", {}, "0.030 [0.023, 0.036]"),
    ("banana", "recalibrated_nll", "elbo", "joint_log_dlm", {}, "0.008 [0.003, 0.012]"),
    ("peds1_left", "recalibrated_nll", "joint_log_dlm", "elbo", {}, "0.007 [0.005, 0.009]"),
    ("pol", "nll", "joint_log_dlm", "fitc", {"kernel": "matern52"}, "0.424 [0.235, 0.613]"),
    ("pol", "nll", "joint_log_dlm", "fitc", {"ard": False}, "0.262 [0.210, 0.314]"),
    ("cadata", "nll", "joint_log_dlm", "fitc", {"M": 25}, "0.036 [0.012, 0.059]"),
]


@pytest.mark.parametrize(("dataset", "metric", "ahead", "behind", "setting", "words"), PAIRS)
def test_the_page_says_who_is_ahead_of_whom(dataset, metric, ahead, behind, setting, words) -> None:
    page = " ".join((PAPER / "README.md").read_text(encoding="utf-8").split())
    row = difference(dataset, metric, ahead, behind, {"role": "fair"} | setting)
    sign = -1 if row["against"] == behind else 1
    low, high = sorted((sign * row["low"], sign * row["high"]))
    assert f"{sign * row['difference']:.3f} [{low:.3f}, {high:.3f}]" == words
    assert words in page


def difference(dataset, metric, first, second, setting):
    """The row of differences.csv about two methods, whichever of them is the reference."""
    rows = pd.read_csv(FAIR / "differences.csv")
    wanted = {"kernel": "rbf", "ard": True, "M": 100} | setting
    for name, value in ({"dataset": dataset, "metric": metric} | wanted).items():
        rows = rows[rows[name] == value]
    pairs = {(first, second), (second, first)}
    is_pair = [pair in pairs for pair in zip(rows["method"], rows["against"], strict=True)]
    return rows[is_pair].iloc[0]


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
