"""Where things lie."""

from pathlib import Path

from dlmexp.paths import conf_dir, data_root, in_folder


def test_the_configuration_travels_with_the_package():
    assert (conf_dir() / "run.yaml").is_file()
    assert (conf_dir() / "dataset" / "banana.yaml").is_file()


def test_the_data_root(monkeypatch):
    monkeypatch.delenv("DLMEXP_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("DLMEXP_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere")
    assert data_root("mine") == Path("mine")


def test_commands_go_on_with_a_folder():
    assert in_folder("dlmexp run experiment=bias", "results") == "dlmexp run experiment=bias"
    assert in_folder("dlmexp run experiment=bias", Path("./results")) == "dlmexp run experiment=bias"
    assert in_folder("dlmexp run experiment=bias", "my own") == "dlmexp run experiment=bias 'results=my own'"
    assert in_folder("dlmexp plot bias", Path("/a/b")) == "dlmexp plot bias --results /a/b"
    assert in_folder("unknown", "elsewhere") == "unknown"
    assert in_folder("dlmexp --plugins own run", "elsewhere") == "dlmexp --plugins own run results=elsewhere"
    for without in ("dlmexp", "dlmexp data list", ""):
        assert in_folder(without, "elsewhere") == without
