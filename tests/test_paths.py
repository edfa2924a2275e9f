"""Where things lie."""

from pathlib import Path

from dlmexp.paths import conf_dir, data_root


def test_the_configuration_travels_with_the_package():
    assert (conf_dir() / "run.yaml").is_file()
    assert (conf_dir() / "dataset" / "banana.yaml").is_file()


def test_the_data_root(monkeypatch):
    monkeypatch.delenv("DLMEXP_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("DLMEXP_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere")
    assert data_root("mine") == Path("mine")
