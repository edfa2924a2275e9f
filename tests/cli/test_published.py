"""What is published beside the records in results/paper is what the commands make of those records."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from dlmexp.catalogue import beta_rule
from dlmexp.cli import main
from dlmexp.records.results import read_results
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.published

PAPER = REPOSITORY / "results" / "paper"


@pytest.mark.parametrize(("option", "file"), [("--json", "claims.json"), ("--markdown", "claims.md")])
def test_claims(option: str, file: str, capsys) -> None:
    assert main(["claims", "--results", str(PAPER), option]) == 0
    assert capsys.readouterr().out == (PAPER / file).read_text(encoding="utf-8")


def test_tables(tmp_path: Path, capsys) -> None:
    shutil.copy(PAPER / "records.tar.xz", tmp_path)
    assert main(["collect", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "table.csv").read_bytes() == (PAPER / "table.csv").read_bytes()
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "table.parquet"), pd.read_parquet(PAPER / "table.parquet"), check_exact=True
    )


def test_every_record_was_asked_for_and_nothing_is_missing() -> None:
    found = read_results(PAPER)
    assert found.unasked == 0
    assert {key for one in found.asked for key in one.keys} == found.records.keys()
    assert all(not one.missing for one in found.choices)
    for one in found.choices:
        betas = [record.cell.beta or 0.0 for record in one.records]
        assert len({record.cell.identity for record in one.records}) == 1
        assert betas == sorted(betas, reverse=True)
        if one.betas == beta_rule("paper"):
            assert betas[0] == one.cell.n
            assert betas[-1] >= 0.01 > betas[-1] / 2
