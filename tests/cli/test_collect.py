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
    several += [candidates("elbo", [each]) for each in CELLS[::2]]
    write_manifest(store.root, manifest("mine", several))
    for each in CELLS:
        store.write(fit(each, nll=each.beta or 0.0, error=0.1))
    return tmp_path


@pytest.mark.parametrize(("option", "read"), [([], pd.read_parquet), (["--csv"], pd.read_csv)])
def test_the_tidy_table(here, capsys, option, read):
    assert main(["collect", *option]) == 0
    path = capsys.readouterr().out.split(":")[0]
    table = read(path)
    assert sorted(zip(table["method"], table["beta"], strict=True)) == [("beta_elbo", 0.3)] * 2 + [("elbo", 1.0)] * 2
    assert set(table["role"]) == {"fit"}


def test_a_folder_without_records_is_refused(tmp_path, capsys):
    assert main(["collect", "--results", str(tmp_path)]) == 2
    assert "dlmexp run" in capsys.readouterr().err


def test_packed_records(here, capsys):
    assert main(["collect", "--pack", "other/records.parquet"]) == 0
    assert "4 records" in capsys.readouterr().out
    assert len(Store("other").keys()[0]) == 4


@pytest.mark.processes
def test_does_not_load_torch(here):
    code = "from dlmexp.cli import main; import sys; main(['collect']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--protocol", "paper"], "--pack"), (["--pack", ""], ".parquet"),
        (["--pack", "records.tar.xz"], "records.tar.xz"),
        (["--pack", "afile/records.parquet"], "afile/records.parquet"),
        (["--pack", "records.parquet", "--results", "nowhere"], "nowhere"),
        (["--pack", "records.parquet", "--protocol", "mine"], "mine"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_nothing_is_written(here, arguments, named, capsys):
    (here / "afile").write_text("")
    before = sorted(here.rglob("*"))
    assert main(["collect", *arguments]) == 2
    err = capsys.readouterr().err
    assert named in err
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
    assert "mine.json" in done.stderr
    assert done.stderr.count("\n") == 1
    assert foreign.read_text() == "{}"
