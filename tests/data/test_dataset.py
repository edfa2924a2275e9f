"""Loading datasets: from real files where available, and from the cache."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dlmexp.data import dataset as module
from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, FileSpec, read_spec
from dlmexp.data.splits import prepare, resolve_sizes, split
from dlmexp.errors import UserError

TOY = DatasetSpec("toy", "label_last", "binary", "counts", features=1, files=(FileSpec("toy/toy.dat"),))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.dat").write_text("".join(f"{k},{k % 2}\n" for k in range(40)))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "mean"),
    [
        ("pol", (15000, 26), 28.9453),
        ("cadata", (20640, 8), 206855.8169),
        ("sarcos_test", (4449, 21), 13.6921),
        ("banana", (5300, 2), 2376 / 5300),
        ("thyroid", (3772, 6), 93 / 3772),
        ("twonorm", (7400, 20), 3697 / 7400),
        ("ringnorm", (7400, 20), 3736 / 7400),
        ("abalone", (4177, 9), 9.93368),
        ("peds1_left", (4000, 30), 11.921),
        ("flights", (1022684, 8), 0.387676),
    ],
)
def test_real_data_has_the_expected_shape_and_mean(data_root, name, shape, mean):
    spec = read_spec(name)
    dataset = load(spec, data_root)
    if name == "flights" and len(dataset.facts["parts"]) != 4:
        pytest.skip("not all four parts of flights are there")
    assert dataset.X.shape == shape
    assert dataset.X.dtype == dataset.y.dtype == np.float64
    assert dataset.y.mean() == pytest.approx(mean, rel=1e-4)
    assert (dataset.name, dataset.task) == (name, spec.task)
    pool = len(split(len(dataset.y), spec.split, 0, spec.test_cap).train_pool)
    sizes = resolve_sizes(spec.sizes, pool)
    assert len(sizes) == len(spec.sizes)
    prepared = prepare(dataset, spec, 0, sizes[0])
    assert prepared.X_train.shape == (sizes[0], shape[1])
    assert np.isfinite(prepared.X_test).all()


def test_the_real_ringnorm_agrees_with_its_definition(data_root):
    dataset = load(read_spec("ringnorm"), data_root)
    zero, one = dataset.X[dataset.y == 0], dataset.X[dataset.y == 1]
    assert (one.mean(), one.var(), zero.var()) == pytest.approx((0.454, 1.006, 3.995), abs=1e-3)


def test_sarcos_needs_both_of_its_files(data_root):
    if (data_root / "sarcos" / "sarcos_inv.mat").exists():
        assert len(load(read_spec("sarcos"), data_root).y) == 48933
    else:
        with pytest.raises(UserError, match=r"'sarcos' is partial: .*but not sarcos/sarcos_inv.mat"):
            load(read_spec("sarcos"), data_root)


def test_the_real_data_folder_is_never_written_to(data_root):
    def listing():
        return sorted(str(path) for path in data_root.rglob("*"))

    if os.access(data_root, os.W_OK) and data_root.stat().st_mode & 0o222:
        pytest.skip("the data root is writable: caches may live there")
    before = listing()
    load(read_spec("banana"), data_root)
    assert listing() == before


def test_the_second_load_does_not_parse(root, monkeypatch):
    first = load(TOY, root)
    monkeypatch.setattr(module, "parse", lambda *args: pytest.fail("parsed again"))
    second = load(TOY, root)
    assert np.array_equal(first.X, second.X)
    assert first.checksum == second.checksum
    assert type(second.X) is np.ndarray


def test_arrays_are_read_only(root):
    for dataset in (load(TOY, root), load(read_spec("twonorm_drawn"), root)):
        with pytest.raises(ValueError, match="read-only"):
            dataset.X[0, 0] = 1.0


def test_a_changed_file_is_parsed_again_under_another_checksum(root):
    first = load(TOY, root)
    path = root / "toy" / "toy.dat"
    path.write_text(path.read_text().replace("7,1", "8,1"))
    assert load(TOY, root).checksum != first.checksum


def test_a_changed_spec_is_checked_again(root):
    load(TOY, root)
    strict = DatasetSpec("toy", "label_last", "binary", "counts", rows=41, features=1, files=TOY.files)
    with pytest.raises(UserError, match="'rows' failed: expected 41, found 40"):
        load(strict, root)


def test_pinned_files_must_be_the_published_ones(root):
    def toy(pinned: bool) -> DatasetSpec:
        files = (FileSpec("toy/toy.dat", sha256="0" * 64, pinned=pinned),)
        return DatasetSpec("toy", "label_last", "binary", "counts", features=1, files=files)

    with pytest.raises(UserError, match=f"SHA-256 [0-9a-f]{{64}}, the published file has {'0' * 64}"):
        load(toy(True), root)
    assert len(load(toy(False), root).y) == 40


def test_the_error_for_missing_data_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"'song' is missing: .*dlmexp data fetch song"):
        load(read_spec("song"), tmp_path)


LOAD_AT_ONCE = """
import sys
from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, FileSpec
toy = DatasetSpec("toy", "label_last", "binary", "counts", features=1, files=(FileSpec("toy/toy.dat"),))
print(load(toy, sys.argv[1]).checksum)
"""


@pytest.mark.processes
def test_several_processes_can_load_at_once(root):
    environment = os.environ | {"DLMEXP_CACHE": str(root / "cache")}
    command = [sys.executable, "-c", LOAD_AT_ONCE, str(root)]
    children = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    checksums = {child.communicate()[0] for child in children}
    assert [child.returncode for child in children] == [0, 0, 0]
    assert checksums == {load(TOY, root).checksum + "\n"}
    assert not list((root / "cache").rglob(".toy*"))


@pytest.mark.processes
def test_loading_imports_no_torch_hydra_or_pandas():
    code = "import sys; from dlmexp.data import dataset, splits; print({'torch', 'hydra', 'pandas'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
