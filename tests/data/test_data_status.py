"""The rows of `dlmexp data list`."""

import numpy as np
import pytest
from scipy.io import savemat

from dlmexp.data import status as module
from dlmexp.data.spec import DatasetSpec, FileSpec, read_spec
from dlmexp.data.status import dataset_status

READY = {"pol", "cadata", "banana", "thyroid", "twonorm", "ringnorm", "abalone", "sarcos_test", "peds1_left", "flights"}


def toy(tmp_path, text: str = "1,0\n2,1\n") -> DatasetSpec:
    (tmp_path / "toy").mkdir(exist_ok=True)
    (tmp_path / "toy" / "toy.dat").write_text(text)
    return DatasetSpec(
        "toy", "label_last", "binary", "counts", features=1, files=(FileSpec("toy/toy.dat"),), note="a note"
    )


def test_real_data_is_ready(data_root):
    states = {
        name: dataset_status(read_spec(name), data_root).state for name in READY | {"ringnorm_drawn", "song_like"}
    }
    assert states == dict.fromkeys(READY, "ready") | {"ringnorm_drawn": "drawn", "song_like": "drawn"}


def test_flights_lists_its_parts(data_root):
    row = dataset_status(read_spec("flights"), data_root)
    assert row.rows == 1022684
    assert "nyc13 273853" in row.detail


def test_ready_and_missing_datasets(tmp_path):
    spec = toy(tmp_path)
    row = dataset_status(spec, tmp_path)
    assert (row.state, row.rows, row.features, row.detail) == ("ready", 2, 1, "a note")
    assert row.folders == (str(tmp_path / "toy"),)
    for name in ("song", "airline", "peds1_dir0", "peds1_dir1", "peds1_dir2", "nycflights13", "sarcos"):
        row = dataset_status(read_spec(name), tmp_path)
        assert row.state in ("missing", "ready" if name == "nycflights13" else "missing")
        assert "dlmexp data" in row.detail or row.state == "ready"
    assert "sarcos_test may stand in" in dataset_status(read_spec("sarcos"), tmp_path).detail


def test_a_file_that_fails_its_checks_is_not_ready(tmp_path):
    row = dataset_status(toy(tmp_path, "1,0\n2,5\n"), tmp_path)
    assert row.state == "partial"
    assert "check 'labels' failed" in row.detail


def test_large_files_are_not_parsed_for_the_list(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PARSED_BYTES", 3)
    spec = toy(tmp_path)
    assert "not read yet" in dataset_status(spec, tmp_path).detail
    module.load(spec, tmp_path)
    assert dataset_status(spec, tmp_path).rows == 2


def test_names_of_directions_are_shown(tmp_path):
    cells = np.empty((3, 3), dtype=object)
    for k, name in enumerate(("right", "left", "total")):
        cells[0, k], cells[1, k], cells[2, k] = name, np.ones((30, 4000)), np.full((1, 4000), k)
    (tmp_path / "peds1").mkdir()
    names = {"dirs": cells[:1], "fv": cells[1:2], "cnt": cells[2:]}
    savemat(tmp_path / "peds1" / "Peds1_feats.mat", names, do_compression=True)
    row = dataset_status(read_spec("peds1_dir2"), tmp_path)
    assert row.state == "ready"
    assert "direction total; dirs: right, left, total" in row.detail


@pytest.mark.parametrize("name", ["twonorm_drawn", "airline_like"])
def test_drawn_data_is_not_drawn_for_the_list(name, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "load", lambda *args: pytest.fail("drawn"))
    assert dataset_status(read_spec(name), tmp_path).state == "drawn"
