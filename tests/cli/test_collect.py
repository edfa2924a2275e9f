"""`dlmexp collect`: tables, packs, and no torch."""

import subprocess
import sys

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.store import Store
from tests.support.cells import candidates
from tests.support.made_up import cell, fit

CELLS = [replace(cell("banana"), seed=seed, beta=beta) for seed in range(2) for beta in (1.0, 0.3)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("results")
    several = [candidates("beta_elbo", CELLS[:2]), candidates("beta_elbo", CELLS[2:])]
    several += [candidates("elbo", [one], "1") for one in CELLS[::2]]
    write_manifest(store.root, manifest("mine", several))
    for each in CELLS:
        store.write(fit(each, nll=each.beta or 0.0, error=0.1))
    return tmp_path


def test_tables_of_selected_and_all_betas(here, capsys):
    assert main(["collect"]) == 0
    assert "results/mine/table.csv: 4 rows" in capsys.readouterr().out
    chosen = pd.read_parquet("results/mine/table.parquet")
    assert sorted(zip(chosen["method"], chosen["beta"], strict=True)) == [("beta_elbo", 0.3)] * 2 + [("elbo", 1.0)] * 2
    assert len(pd.read_parquet("results/mine/all.parquet")) == 4


def test_an_unknown_experiment_is_refused(here, capsys):
    assert main(["collect", "mien"]) == 2
    assert "did you mean mine" in capsys.readouterr().err


def test_a_folder_without_records_is_refused(tmp_path, capsys):
    assert main(["collect", "--results", str(tmp_path)]) == 2
    assert "dlmexp run" in capsys.readouterr().err


def test_a_pack_holds_all_records(here, capsys):
    assert main(["collect", "--pack", "other/records.tar.xz"]) == 0
    assert "4 records" in capsys.readouterr().out
    assert len(list(Store("other").all())) == 4


@pytest.mark.processes
def test_does_not_load_torch(here):
    code = "from dlmexp.cli import main; import sys; main(['collect']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--light"], "--light needs --pack FILE"),
        (["--new"], "--new needs --pack FILE"),
        (["--protocol", "paper"], "--protocol NAME needs --pack FILE"),
        (["mine", "--pack", "records.tar.xz"], "--pack takes all records of a results folder: leave out mine"),
        (["--pack", ""], "choose one like records.tar.xz"),
        (["--pack", "afile/records.tar.xz"], "can't write to 'afile/records.tar.xz': choose another path with --pack"),
        (["--pack", "records.tar.xz", "--results", "nowhere"], "--results nowhere: there are no records"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(here, arguments, message, capsys):
    (here / "afile").write_text("")
    before = sorted(here.rglob("*"))
    assert main(["collect", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(here.rglob("*")) == before


@pytest.mark.processes
def test_a_file_that_is_not_a_record_is_skipped_and_kept(here):
    (here / "results" / "records" / ".DS_Store").write_text("")
    foreign = here / "results" / "records" / "banana" / "mine.json"
    foreign.write_text("{}")
    code = "from dlmexp.cli import main; import sys; sys.exit(main(['collect']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == (
        "skipped 1 files or lines that are no sound records, such as results/records/banana/mine.json: "
        "it does not fit the schema of a record: 'cell'\n"
    )
    assert foreign.read_text() == "{}"
