"""Results folders that read the packed records and baselines of others as well."""

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.experiment.plan.cell import Setting
from dlmexp.experiment.records.packed import BASELINES
from dlmexp.experiment.records.results import ResultsFolder, collect_packed
from tests.support.cells import ELBO, candidates, fill

MINE = replace(ELBO, beta=1.0, seed=0)
PUBLISHED = replace(ELBO, beta=1.0, seed=1)


@pytest.fixture
def published(tmp_path):
    """A folder with nothing but packed records of another repetition, and baselines."""
    folder = tmp_path / "published"
    fill(tmp_path / "json", candidates("elbo", [PUBLISHED]))
    folder.mkdir()
    collect_packed(str(tmp_path / "json"), str(folder / "records.parquet"))
    _baselines(seconds=2.0).to_parquet(folder / BASELINES)
    return folder


@pytest.fixture
def mine(tmp_path):
    """A folder with records of a run."""
    fill(tmp_path / "mine", candidates("elbo", [MINE]))
    return tmp_path / "mine"


def _baselines(**values):
    row = {"method": "ridge", "dataset": "banana", "seed": 0, "n": 100, "trained_by": "sklearn"}
    return pd.DataFrame([{**row, **values}])


def test_packed_records_of_another_folder_are_rows_of_the_table(mine, published):
    results = ResultsFolder(mine, pack_folders=[published])
    assert sorted(results.table["key"]) == sorted([MINE.key, PUBLISHED.key])


def test_reading_another_folder_writes_nothing(mine, published):
    before = sorted(path.name for path in published.rglob("*"))
    assert len(ResultsFolder(mine, pack_folders=[published]).table) == 2
    assert sorted(path.name for path in published.rglob("*")) == before
    assert len(ResultsFolder(mine).table) == 1


def test_own_record_of_a_cell_comes_before_that_of_another_folder(tmp_path, published):
    fill(tmp_path / "same", candidates("elbo", [PUBLISHED]))
    results = ResultsFolder(tmp_path / "same", pack_folders=[published])
    assert list(results.table["key"]) == [PUBLISHED.key]


def test_settings_of_another_folder_stay_apart(tmp_path, published):
    changed = Setting("paper", {"M": 10})
    fill(tmp_path / "changed", candidates("elbo", [replace(MINE, M=10)], changed))
    results = ResultsFolder(tmp_path / "changed", pack_folders=[published])
    assert set(results.changes) == {"", "M=10"}


@pytest.mark.parametrize("name", ["nowhere", "mine"])
def test_other_folder_without_packs_is_refused(mine, name):
    with pytest.raises(UserError, match=f"--with .*{name}: .*pack"):
        ResultsFolder(mine, pack_folders=[mine.parent / name])


def test_command_names_the_other_folder(mine, published):
    command = ResultsFolder(mine, pack_folders=[published]).command("dlmexp plot ranks")
    assert command == f"dlmexp plot ranks --results {mine} --with {published}"


def test_collected_table_has_the_rows_of_both_folders(mine, published, capsys):
    assert main(["collect", "--results", str(mine), "--with", str(published)]) == 0
    assert "2 rows" in capsys.readouterr().out
    assert len(pd.read_parquet(mine / "table.parquet")) == 2


def test_baselines_of_a_folder_are_not_taken_for_a_pack(published):
    results = ResultsFolder(published)
    assert list(results.table["key"]) == [PUBLISHED.key]
    (row,) = results.baselines.itertuples()
    assert (row.method, row.seconds) == ("ridge", 2.0)


def test_baselines_of_the_first_folder_are_taken(mine, published):
    _baselines(seconds=7.0).to_parquet(mine / BASELINES)
    assert list(ResultsFolder(mine, pack_folders=[published]).baselines["seconds"]) == [7.0]


def test_baselines_without_the_trainer_are_refused(mine):
    _baselines().drop(columns="trained_by").to_parquet(mine / BASELINES)
    with pytest.raises(UserError, match="no column trained_by"):
        _ = ResultsFolder(mine).baselines
