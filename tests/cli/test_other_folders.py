"""Commands that read packed records of another folder: different settings never share a row."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.experiment.plan.cell import Setting
from dlmexp.experiment.records.results import collect_packed
from tests.support.cells import ELBO, PAPER, candidates, fill

CELLS = [replace(ELBO, seed=seed) for seed in range(3)]
SLOW = Setting("paper", {"training.lr": 0.01})


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with packed records of ELBO and FITC."""
    groups = [candidates("elbo", [cell]) for cell in CELLS]
    groups += [candidates("fitc", [replace(cell, objective="fitc", beta=None)]) for cell in CELLS]
    fill(tmp_path / "json", *groups)
    (tmp_path / "theirs").mkdir()
    collect_packed(str(tmp_path / "json"), str(tmp_path / "theirs" / "records.parquet"))
    return tmp_path / "theirs"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with ELBO at another learning rate, on the same splits."""
    fill(tmp_path / "mine", *[candidates("elbo", [replace(cell, lr=0.01)], SLOW) for cell in CELLS])
    return tmp_path / "mine"


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_rank_has_a_row_for_each_setting(mine: Path, theirs: Path, capsys: Any) -> None:
    (board,) = json.loads(printed(capsys, "rank", "--json", "--results", mine, "--with", theirs))
    labels = [method["label"] for method in board["methods"]]
    assert sorted(labels) == ["ELBO", "ELBO, training.lr=0.01", "FITC"]


def test_collected_table_has_a_row_for_each_setting(mine: Path, theirs: Path, capsys: Any) -> None:
    printed(capsys, "collect", "--results", mine, "--with", theirs)
    table = pd.read_parquet(mine / "table.parquet").query(
        "method == 'elbo' and selected_by == 'nll'"
    )
    assert (table["candidates"] == 1).all()
    assert table["changes"].value_counts().to_dict() == {"": 3, "training.lr=0.01": 3}


def test_scores_of_splits_name_the_settings(mine: Path, theirs: Path, capsys: Any) -> None:
    printed(capsys, "collect", "--as", "scores", "--results", mine, "--with", theirs)
    scores = pd.read_parquet(mine / "scores.parquet")
    assert not scores.duplicated(["method", "dataset", "split", "metric"]).any()
    assert scores["method"].nunique() == 3


def test_claims_judge_records_without_changes_alone(mine: Path, theirs: Path, capsys: Any) -> None:
    both = json.loads(printed(capsys, "claims", "--json", "--results", mine, "--with", theirs))
    alone = json.loads(printed(capsys, "claims", "--json", "--results", theirs))
    for found, expected in zip(both, alone, strict=True):
        of_paper = found["protocols"]["paper"]
        assert of_paper["parts"] == expected["protocols"]["paper"]["parts"]
        assert of_paper["records"] == expected["protocols"]["paper"]["records"]


def test_figures_draw_records_without_changes_alone(mine: Path, theirs: Path, capsys: Any) -> None:
    figure = ("plot", "class-log", "--protocol", PAPER.protocol)
    shown = printed(capsys, *figure, "--results", mine, "--with", theirs)
    printed(capsys, *figure, "--results", theirs)
    assert "training.lr=0.01" in shown
    both, alone = (pd.read_csv(folder / "figures" / "class-log.csv") for folder in (mine, theirs))
    pd.testing.assert_frame_equal(both, alone)
