"""`dlmexp status`: its options, JSON, and no torch."""

import json
import subprocess
import sys

import pytest

from dlmexp.cli import main
from dlmexp.records.store import Store
from tests.support.cells import ask
from tests.support.made_up import cell, failed, fit

CELLS = [cell("banana", seed=seed) for seed in range(4)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two done, one failed, one missing."""
    monkeypatch.chdir(tmp_path)
    store = Store("results")
    ask(store.root, "mine", CELLS)
    for each in CELLS[:2]:
        store.write(fit(each, nll=0.5, error=0.1))
    store.write(failed(CELLS[2], "the objective is [red]NaN[/red]"))
    return tmp_path


def _numbers(line):
    return [word for word in line.replace("│", " ").split() if word.isdigit()]


def test_table(here, capsys):
    assert main(["status"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "mine" in line]
    assert _numbers(line)[0] == "2"
    assert _numbers(line)[-2:] == ["1", "1"]


def test_lists(here, capsys):
    assert main(["status", "--failed", "--missing"]) == 0
    output = capsys.readouterr().out
    assert "mine: banana n=100 seed=2 elbo exact beta=1: the objective is [red]NaN[/red] (iteration 17)" in output
    assert "mine: missing banana n=100 seed=3 elbo exact beta=1" in output


def test_json(here, capsys):
    assert main(["status", "--json", "--failed"]) == 0
    found = json.loads(capsys.readouterr().out)
    (experiment,) = found["experiments"]
    assert (experiment["done"], experiment["failed"], experiment["missing"]) == (2, 1, 1)
    assert experiment["failures"][0]["key"] == CELLS[2].key


def test_no_folder(tmp_path, capsys):
    assert main(["status", "--results", str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder; `dlmexp run results=" in capsys.readouterr().err


@pytest.mark.processes
def test_loads_neither_torch_nor_pandas(here):
    code = "from dlmexp.cli import main; import sys; main(['status']); print({'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_records_in_packs(here, capsys):
    main(["collect", "--pack", "other/records.parquet"])
    assert main(["status", "--results", "other"]) == 0
    assert "3 records" in capsys.readouterr().out


def test_a_foreign_file_among_the_manifests_is_ignored(here, capsys):
    (here / "results" / "mine" / "cells" / "notes.txt").write_bytes("café".encode("latin-1"))
    assert main(["status"]) == 0
    assert "mine" in capsys.readouterr().out


def test_watching_where_nothing_runs(here, capsys):
    assert main(["status", "--watch"]) == 0
    assert capsys.readouterr().out.endswith("nothing runs\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--watch", "0"], "--watch 0: give a number of seconds"),
        (["--watch", "nan"], "--watch nan: give a number of seconds"),
        (["--watch", "soon"], "'soon'"),
        (["--watch", "--json"], "not allowed with"),
    ],
)
def test_how_not_to_watch(here, capsys, words, said):
    assert main(["status", *words]) == 2
    assert said in capsys.readouterr().err
