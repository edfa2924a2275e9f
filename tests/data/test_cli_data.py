"""The subcommand `dlmexp data`."""

import argparse
import json
import subprocess
import sys

import pytest

from dlmexp.cli import data as cli
from dlmexp.data.spec import DatasetSpec, FileSpec, dataset_names
from dlmexp.errors import UserError
from tests.support.http_server import Behaviour, serving

TABLE = b"1,0\n2,1\n"


def data(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["data", *arguments])
    return args.run(args)


@pytest.fixture
def toy(monkeypatch):
    def use(**file) -> None:
        files = (FileSpec("toy/toy.dat", **file),)
        spec = DatasetSpec("toy", "label_last", "binary", "counts", features=1, files=files)
        monkeypatch.setattr("dlmexp.data.spec.read_spec", lambda name, conf=None: spec)
        monkeypatch.setattr("dlmexp.data.spec.dataset_names", lambda conf=None: ["toy"])

    return use


def test_list_on_an_empty_root(tmp_path, capsys):
    assert data("list", "--data-root", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["name", "task", "rows", "features", "M", "state"]
    assert [line.split()[0] for line in lines[1:]] == dataset_names()
    assert next(line for line in lines if line.startswith("song ")).split()[5] == "missing"
    assert list(tmp_path.iterdir()) == []


def test_list_as_json_on_the_real_data(data_root, monkeypatch, capsys):
    monkeypatch.setenv("DLMEXP_DATA", str(data_root))
    assert data("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["cadata"]["state"] == "ready"
    assert rows["cadata"]["rows"] == 20640
    assert rows["cadata"]["folders"] == [str(data_root / "cadata")]
    assert rows.keys() == set(dataset_names())


def test_list_on_a_terminal(tmp_path, toy, monkeypatch, capsys):
    toy()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "[red]" / "toy").mkdir(parents=True)
    (tmp_path / "[red]" / "toy" / "toy.dat").write_bytes(TABLE)
    assert data("list", "--data-root", str(tmp_path / "[red]")) == 0
    out = capsys.readouterr().out
    assert "ready" in out
    assert "[red]" in out


def test_fetch_then_nothing_to_fetch(tmp_path, toy, capsys):
    with serving(Behaviour(body=TABLE)) as url:
        toy(url=url)
        assert data("fetch", "toy", "--data-root", str(tmp_path)) == 0
        assert str(tmp_path / "toy" / "toy.dat") in capsys.readouterr().out
        assert data("fetch", "toy", "--data-root", str(tmp_path)) == 0
    assert "nothing to fetch" in capsys.readouterr().out


def test_fetch_shows_a_bar_on_a_terminal(tmp_path, toy, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with serving(Behaviour(body=TABLE)) as url:
        toy(url=url)
        data("fetch", "toy", "--data-root", str(tmp_path))
    assert "toy/toy.dat" in capsys.readouterr().err


def test_import_and_check(tmp_path, toy, capsys):
    toy()
    (tmp_path / "toy.dat").write_bytes(TABLE)
    root = str(tmp_path / "root")
    assert data("import", "toy", str(tmp_path / "toy.dat"), "--data-root", root) == 0
    assert "toy is ready" in capsys.readouterr().out
    assert data("check", "--data-root", root) == 0
    assert "2 x 1 parsed, checks pass" in capsys.readouterr().out
    (tmp_path / "root" / "toy" / "toy.dat").write_text("1,9\n")
    assert data("check", "toy", "--data-root", root) == 1
    assert "FAILED" in (out := capsys.readouterr().out)
    assert "1 dataset checked in" in out
    assert "1 failed" in out


def test_unknown_names_are_refused_before_anything_happens(tmp_path):
    for action in (["fetch", "cadata", "sonng"], ["import", "sonng", "x"], ["check", "sonng"]):
        with pytest.raises(UserError, match="unknown dataset 'sonng': did you mean song"):
            data(*action, "--data-root", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_help_loads_nothing_heavy():
    code = (
        "import argparse, sys; from dlmexp.cli import data\n"
        "data.add_parser(argparse.ArgumentParser().add_subparsers())\n"
        "print({'numpy', 'pandas', 'scipy', 'rich', 'omegaconf', 'torch', 'pyarrow'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@pytest.mark.parametrize("name", ["afile", "nowhere"])
def test_check_refuses_a_data_root_that_is_not_a_folder(tmp_path, toy, name):
    toy()
    (tmp_path / "afile").write_text("")
    with pytest.raises(UserError, match=f"{name}' is not a folder: give the one with your datasets with --data-root"):
        data("check", "--data-root", str(tmp_path / name))


def test_check_reports_the_number_of_datasets(tmp_path, toy, capsys):
    toy()
    assert data("check", "--data-root", str(tmp_path)) == 0
    assert "0 datasets checked in" in (out := capsys.readouterr().out)
    assert "; 1 other without files there" in out
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.dat").write_bytes(TABLE)
    assert data("check", "--data-root", str(tmp_path)) == 0
    assert f"1 dataset checked in {tmp_path}, all passed\n" in capsys.readouterr().out
