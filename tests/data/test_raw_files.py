"""Which raw files are present, and the dataset in them."""

import pytest

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import FileSpec, dataset_names, read_spec
from dlmexp.data.raw_files import find_files, how_to_get, load
from tests.support.toy_data import TABLE, toy


def test_groups_of_files_are_alternatives(tmp_path):
    files = [
        FileSpec("t/a", group="i"),
        FileSpec("t/b", group="i", page="http://x.org"),
        FileSpec("t/*.z", group="j"),
    ]
    spec = DatasetConfig("t", "pol", "regression", split="regression", files=files)
    assert find_files(spec, tmp_path).state == "missing"
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").touch()
    found = find_files(spec, tmp_path)
    assert (found.state, [entry.name for entry in found.best.missing]) == ("partial", ["t/b"])
    said = how_to_get(spec, found, tmp_path)
    assert all(
        word in said
        for word in ("has no t/b", "dlmexp data import t", "http://x.org", str(tmp_path))
    )
    (tmp_path / "t" / "k.z").touch()
    assert list(find_files(spec, tmp_path).best.files) == ["t/k.z"]


@pytest.fixture
def root(tmp_path):
    """A data root with the toy data."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.dat").write_bytes(TABLE)
    return tmp_path


def test_what_is_loaded_is_verified_and_read_only(root):
    first = load(toy(), root)
    with pytest.raises(ValueError, match="read-only"):
        first.X[0, 0] = 1.0
    (root / "toy" / "toy.dat").write_bytes(TABLE + b"7,8,1\n")
    assert load(toy(), root).checksum != first.checksum
    with pytest.raises(UserError, match="0" * 64):
        load(toy(sha256="0" * 64), root)
    assert len(load(toy(sha256="0" * 64, pinned=False), root).y) == 51


def test_the_command(root, monkeypatch, capsys):
    assert main(["data", "list", "--data-root", str(root)]) == 0
    assert {*dataset_names()} <= {*capsys.readouterr().out.split()}
    monkeypatch.setattr("dlmexp.data.dataset.read_spec", lambda name: toy())
    monkeypatch.setattr("dlmexp.data.dataset.dataset_names", lambda: ["toy"])
    there = ["--data-root", str(root / "[red]")]
    assert main(["data", "list", *there]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["toy", "binary", "2", "missing"]
    for action, word in ((["import", "toy", str(root / "toy" / "toy.dat")], "toy is ready"), (["fetch", "toy"], "toy"),
                         (["check"], "50 x 2 parsed")):  # fmt: skip
        assert main(["data", *action, *there]) == 0
        assert word in capsys.readouterr().out
    (root / "[red]" / "toy" / "toy.dat").write_text("1,2,9\n")
    assert main(["data", "check", "toy", *there]) == 1
    assert main(["data", "check", "--data-root", str(root / "nowhere")]) == 2


# of the values, whatever the format of the file: part of the keys of published results
CHECKSUMS = {
    "abalone": "51502a0c4cdf", "banana": "3db3221ec108", "cadata": "c1321452dee9", "flights": "7b472808b380",
    "peds1_left": "ef11ba3e6199", "pol": "a420adce2a89", "ringnorm": "192a12c663fd", "sarcos_test": "ab0379a883eb",
    "thyroid": "1a90e3a78b55", "twonorm": "c6f9fd4c4e1a",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKSUMS)
def test_real_data_has_the_published_checksum(data_root, name):
    if name == "flights" and len(list((data_root / "flights").glob("*.npz"))) != 4:
        pytest.skip("not all four parts of flights are there")
    assert load(read_spec(name), data_root).checksum.startswith(CHECKSUMS[name])
