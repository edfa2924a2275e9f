"""MATLAB 5 files."""

import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, FileSpec, Task
from dlmexp.errors import UserError
from dlmexp.reading.matlab import read_variables


def spec(loader: str, *names: str, task: Task = "regression", **options) -> DatasetSpec:
    return DatasetSpec("m", loader, task, "counts", options=options, files=tuple(FileSpec(name) for name in names))


def test_sarcos_pools_its_files_in_order(tmp_path):
    train, test = np.arange(56.0).reshape(2, 28), -np.arange(28.0).reshape(1, 28)
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": train})
    savemat(tmp_path / "sarcos_inv_test.mat", {"sarcos_inv_test": test})
    dataset = load(spec("sarcos", "sarcos_inv.mat", "sarcos_inv_test.mat"), tmp_path)
    assert dataset.X.shape == (3, 21)
    assert dataset.y.tolist() == [21, 49, -21]
    assert load(spec("sarcos", "sarcos_inv_test.mat"), tmp_path).y.tolist() == [-21]
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": train[:, :21]})
    with pytest.raises(UserError, match=r"at least 22 columns, found shape \(2, 21\)"):
        load(spec("sarcos", "sarcos_inv.mat"), tmp_path)


def test_thyroid(tmp_path):
    savemat(tmp_path / "t.mat", {"X": np.ones((3, 6)), "y": np.array([[0], [1], [0]], dtype=np.uint8)})
    dataset = load(spec("thyroid", "t.mat", task="binary"), tmp_path)
    assert dataset.y.tolist() == [0, 1, 0]
    assert dataset.X.shape == (3, 6)


def peds1_file() -> bytes:
    def cells(*values):
        array = np.empty((1, len(values)), dtype=object)
        for k, value in enumerate(values):
            array[0, k] = value
        return array

    rng = np.random.default_rng(0)
    buffer = io.BytesIO()
    arrays = {
        "dirs": cells("right", "left", "all"),
        "fv": cells(*(rng.normal(size=(30, 50)) for _ in range(3))),
        "cnt": cells(*(np.full((1, 50), k, dtype=np.uint8) for k in (4, 5, 9))),
    }
    savemat(buffer, arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("packed", [True, False])
def test_peds1_reads_the_direction_of_options_cell(tmp_path, packed):
    name = "ucsdpeds_feats.zip" if packed else "Peds1_feats.mat"
    if packed:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("ucsdpeds_feats/features/Peds1_feats.mat", peds1_file())
    else:
        (tmp_path / name).write_bytes(peds1_file())
    for cell, count, direction in ((1, 4, "right"), (2, 5, "left"), (3, 9, "all")):
        dataset = load(spec("peds1", name, task="count", cell=cell), tmp_path)
        assert dataset.X.shape == (50, 30)
        assert (dataset.y == count).all()
        assert dataset.facts == {"direction": direction, "dirs": ["right", "left", "all"]}
    with pytest.raises(UserError, match=r"options\.cell=4, but the file has 3 dirs"):
        load(spec("peds1", name, task="count", cell=4), tmp_path)
    rng = np.random.default_rng(0)
    first = rng.normal(size=(30, 50))
    assert np.array_equal(load(spec("peds1", name, task="count", cell=1), tmp_path).X, first.T)


def test_peds1_left_reads_the_struct(tmp_path):
    savemat(tmp_path / "g.mat", {"data": {"xt": np.eye(4), "yt": np.array([[4], [5], [6], [20]])}})
    assert load(spec("peds1_left", "g.mat", task="count"), tmp_path).y.tolist() == [4, 5, 6, 20]
    savemat(tmp_path / "g.mat", {"data": {"xt": np.eye(4)}})
    with pytest.raises(UserError, match="no field 'yt'"):
        load(spec("peds1_left", "g.mat", task="count"), tmp_path)


def test_invalid_files_are_refused(tmp_path):
    (tmp_path / "t.mat").write_bytes(b"MATLAB 7.3 MAT-file, but no: " + bytes(200))
    with pytest.raises(UserError, match=r"t.mat is not a MATLAB 5 file"):
        load(spec("thyroid", "t.mat", task="binary"), tmp_path)
    (tmp_path / "t.mat").write_bytes(b"")
    with pytest.raises(UserError, match=r"t.mat is not a MATLAB 5 file"):
        load(spec("thyroid", "t.mat", task="binary"), tmp_path)
    savemat(tmp_path / "t.mat", {"X": np.eye(2)})
    with pytest.raises(UserError, match="no variable 'y'"):
        read_variables(tmp_path / "t.mat", "X", "y")


def test_cell_arrays_instead_of_numbers_are_refused(tmp_path):
    savemat(tmp_path / "t.mat", {"X": np.array([["a"], ["b"]], dtype=object), "y": np.ones(2)})
    with pytest.raises(UserError, match="expected numbers, found object"):
        load(spec("thyroid", "t.mat", task="binary"), tmp_path)


def test_options_are_part_of_the_cache_entry(tmp_path):
    (tmp_path / "Peds1_feats.mat").write_bytes(peds1_file())
    one = spec("peds1", "Peds1_feats.mat", task="count", cell=1)
    assert load(one, tmp_path).checksum != load(replace(one, options={"cell": 2}), tmp_path).checksum
