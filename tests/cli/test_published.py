"""What is published beside the records in results/paper is what the commands make of those records."""

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pandas as pd
import pytest

from dlmexp.catalogue import beta_rule
from dlmexp.claims.judge import judge_protocols
from dlmexp.cli import main
from dlmexp.figures import style
from dlmexp.records.pack import PATTERN
from dlmexp.records.results import load
from dlmexp.records.settings import experiment_of
from dlmexp.running import iterations
from tests.conftest import REPOSITORY
from tests.support.generated import NUMBER, PART, READMES, Known, paragraphs, unknown, with_generated_parts
from tests.support.protocol_table import betas as grid
from tests.support.values import ABSOLUTE, RELATIVE, differences

pytestmark = pytest.mark.published

PAPER = REPOSITORY / "results" / "paper"
read, judged = cache(load), cache(judge_protocols)


@pytest.fixture(autouse=True)
def read_and_judged_once(monkeypatch) -> None:
    """By all tests of a process: it takes many seconds. What is advised names the folder as it was named: from here."""
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr("dlmexp.records.results.load", lambda folder: read(os.path.relpath(folder)))
    monkeypatch.setattr("dlmexp.claims.judge.judge_protocols", judged)


@pytest.mark.parametrize(
    ("option", "file", "read"), [("--json", "claims.json", json.loads), ("--markdown", "claims.md", str.splitlines)]
)
def test_claims(option: str, file: str, read: Callable[[str], list], capsys) -> None:
    assert main(["claims", "--results", str(PAPER), option]) == 0
    assert differences(read(capsys.readouterr().out), read((PAPER / file).read_text(encoding="utf-8"))) == []


def test_tables(tmp_path: Path, capsys) -> None:
    for pack in PAPER.glob(PATTERN):
        shutil.copy(pack, tmp_path)
    assert main(["collect", "--results", str(tmp_path)]) == 0
    for name, read in (("table.csv", partial(pd.read_csv, low_memory=False)), ("table.parquet", pd.read_parquet)):
        pd.testing.assert_frame_equal(read(tmp_path / name), read(PAPER / name), rtol=RELATIVE, atol=ABSOLUTE)


def test_every_key_ever_published_is_still_the_key_of_its_cell() -> None:
    records = read(os.path.relpath(PAPER)).records
    assert len(records) == 155_060
    assert [key for key, record in records.items() if key != record.cell.key] == []


def test_the_expected_iterations_are_made_of_the_records() -> None:
    """`python -m dlmexp.running.iterations results/paper` writes the file that is there."""
    assert iterations.as_text(read(os.path.relpath(PAPER)).records.values()) == iterations.FILE.read_text()


def test_claims_and_figures_have_the_same_means() -> None:
    """Of regression, where records with another q lie beside those that are meant."""
    drawn = pd.read_csv(PAPER / "figures" / "reg-log.csv").query("against == 'n'")
    means = {
        (dataset, style.of_method(method).label, n): mean
        for dataset, method, n, mean in drawn[["dataset", "method", "x", "mean"]].itertuples(index=False)
    }
    judged = {claim["number"]: claim for claim in json.loads((PAPER / "claims.json").read_text(encoding="utf-8"))}
    compared = 0
    for found in (one for number in (1, 2) for one in judged[number]["protocols"]["paper"]["findings"]):
        for one in found["comparisons"]:
            for name, value in zip(one["name"].split(" vs "), (one["ours"], one["rival"]), strict=True):
                assert value == pytest.approx(means[found["dataset"], name, one["n"]], rel=RELATIVE, abs=ABSOLUTE)
                compared += 1
    assert compared > 100


def test_every_record_was_asked_for_and_nothing_is_missing() -> None:
    found = read(os.path.relpath(PAPER))
    assert found.unasked == 0
    assert {key for one in found.asked for key in one.keys} == found.records.keys()
    assert all(not one.missing for one in found.choices)
    for one in found.choices:
        betas = [record.cell.beta or 0.0 for record in one.records]
        assert len({record.cell.identity for record in one.records}) == 1
        assert betas == sorted(betas, reverse=True)
        if one.records[0].part == "fits" and one.betas == beta_rule("", one.protocol):
            assert betas == grid(one.protocol, one.cell.n)


def test_every_record_is_of_a_protocol_that_its_file_names() -> None:
    """Or of what an experiment's file changes in it: records of other settings do not belong here."""
    others = {
        setting.label
        for at_hand in read(os.path.relpath(PAPER)).at_hand.values()
        for setting, several in at_hand.items()
        if experiment_of(setting, several[0]) is None
    }
    assert not others


@pytest.mark.parametrize("readme", READMES, ids=["README", "results"])
def test_generated_parts_of_readmes(readme: Path, monkeypatch) -> None:
    """`python -m tests.support.generated` writes them."""
    monkeypatch.chdir(REPOSITORY)
    text = readme.read_text(encoding="utf-8")
    assert PART.search(text)
    assert differences(with_generated_parts(text).splitlines(), text.splitlines()) == []


@pytest.mark.parametrize("readme", READMES, ids=["README", "results"])
def test_every_number_of_readmes_is_in_a_table(readme: Path) -> None:
    """In table.csv, claims.json, or, where it was measured elsewhere, in measured.csv with its source."""
    assert unknown(readme.read_text(encoding="utf-8"), Known(PAPER)) == []


def test_every_number_measured_elsewhere_is_said_and_has_its_source() -> None:
    """Each row of measured.csv is about a paragraph that says the number; a file that it names has it, or its share."""
    said = [paragraph for readme in READMES for paragraph in paragraphs(readme.read_text(encoding="utf-8"))]
    rows = pd.read_csv(PAPER / "measured.csv", dtype=str).to_dict("records")
    for number, where, source in ((str(row["number"]), str(row["where"]), str(row["source"])) for row in rows):
        pattern = re.compile(rf"(?<![\d.]){re.escape(number)}(?!\.?\d)")
        assert any(pattern.search(paragraph) for paragraph in said if where in paragraph), f"{number}: '{where}'"
        assert source != "nan"
        for root in (REPOSITORY, PAPER):
            if (file := root / source).is_file():
                value, digits = float(number.replace(" ", "")), len(number.partition(".")[2])
                values = [float(text) for text in re.findall(r"\d+(?:\.\d+)?", file.read_text(encoding="utf-8"))]
                assert value / 100 in values or value in (round(one, digits) for one in values), f"not in {source}"


def test_no_number_is_taken_for_a_part_of_a_tag() -> None:
    (paragraph,) = paragraphs("<!-- 0.1 -->With β < 1 it is 0.25, with β > 1 <b>0.5</b>.")
    assert NUMBER.findall(paragraph) == ["0.25", "0.5"]


def test_a_wrong_number_would_be_found() -> None:
    text, known = READMES[1].read_text(encoding="utf-8"), Known(PAPER)
    decimals = [number for paragraph in paragraphs(text) for number in NUMBER.findall(paragraph) if "." in number]
    wrong = [number for number, _ in unknown(text, known, shift=4) if "." in number]
    assert len(wrong) > len(decimals) / 2
