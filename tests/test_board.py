"""The leaderboard of a folder is made again from its packed records, byte for byte."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from dlmexp.experiment.records.results import collect_packed
from tests.support.cells import ELBO, candidates, fill

SCRIPT = Path(__file__).parents[1] / "scripts" / "results"
CELLS = [replace(ELBO, seed=seed) for seed in range(3)]


def board(folder: Path) -> dict[str, bytes]:
    """Return the files of a board that is made from the packs of a folder, by their names."""
    settings = {"PYTHON_WITH_DLMEXP": sys.executable, "METRICS": "nll"}
    command = ["bash", str(SCRIPT), "board", str(folder)]
    subprocess.run(command, env=os.environ | settings, check=True, capture_output=True)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.processes
def test_board_is_made_from_packs_byte_for_byte(tmp_path: Path) -> None:
    groups = [candidates("elbo", [cell]) for cell in CELLS]
    groups += [candidates("fitc", [replace(cell, objective="fitc", beta=None)]) for cell in CELLS]
    fill(tmp_path / "json", *groups)
    first, second = tmp_path / "a" / "board", tmp_path / "b" / "board"
    first.mkdir(parents=True)
    collect_packed(str(tmp_path / "json"), str(first / "records.parquet"))
    shutil.copytree(first, second)
    made = board(first)
    assert {"scores.parquet", "croissant.json", "board-nll.json", "figures/ranks.png"} <= set(made)
    assert made == board(second)
