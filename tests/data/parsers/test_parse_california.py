"""cadata: the same dataset in three file formats."""

import io
import tarfile

import numpy as np
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.parsers.california import FEATURES, LIBSVM_ORDER, read_libsvm
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError

ROWS = [
    [-122.23, 37.88, 41, 880, 129, 322, 126, 8.3252, 452600],
    [-122.22, 37.86, 21, 7099, 1106, 2401, 1138, 8.3, 1.5],
]


def california(name: str) -> DatasetSpec:
    files = (FileSpec(f"cadata/{name}"),)
    return DatasetSpec("cadata", "california", "regression", "regression", rows=2, features=8, files=files)


def test_all_formats_give_the_same_values_and_checksum(tmp_path):
    folder = tmp_path / "cadata"
    folder.mkdir()
    text = "\n".join(",".join(f"{v:f}" for v in row) for row in ROWS).encode()
    (folder / "cal_housing.data").write_bytes(text)
    with tarfile.open(folder / "cal_housing.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("CaliforniaHousing/cal_housing.data")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    lines = []
    for row in ROWS:
        values = dict(zip(FEATURES, row, strict=False))
        lines.append(f"{row[-1]} " + " ".join(f"{k}:{values[name]}" for k, name in enumerate(LIBSVM_ORDER, start=1)))
    (folder / "cadata").write_text("\n".join(lines) + "\n")
    forms = [load(california(name), tmp_path) for name in ("cal_housing.data", "cal_housing.tgz", "cadata")]
    for dataset in forms:
        np.testing.assert_array_equal(dataset.X, np.array(ROWS)[:, :-1])
        np.testing.assert_array_equal(dataset.y, [452600, 1.5])
        assert dataset.checksum == forms[0].checksum


def test_libsvm_text_may_be_sparse_and_commented(tmp_path):
    (tmp_path / "f").write_text("1 2:5 # a comment\n\n-1.5 1:1e3 3:-2\n")
    X, y = read_libsvm(tmp_path / "f", 3)
    assert X.tolist() == [[0, 5, 0], [1000, 0, -2]]
    assert y.tolist() == [1, -1.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2:5\n1 x:5\n", "line 2: '1 x:5'"),
        ("1 4:5\n", "line 1: an index is not in 1..3"),
        ("1 0:5\n", "1..3"),
        ("\xe9\n", "line 1"),
    ],
)
def test_bad_libsvm_text_is_named(tmp_path, text, message):
    (tmp_path / "f").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        read_libsvm(tmp_path / "f", 3)
