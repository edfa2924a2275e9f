"""pol's four files."""

import pytest

from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, FileSpec
from dlmexp.errors import UserError

NAMES = [f"pol/pol_{part}_{kind}.asc" for part in ("train", "test") for kind in ("data", "labels")]
SPEC = DatasetSpec("pol", "pol", "regression", "regression", files=tuple(FileSpec(name) for name in NAMES))


def write(root, *texts):
    (root / "pol").mkdir(exist_ok=True)
    for name, text in zip(NAMES, texts, strict=True):
        (root / name).write_text(text)


def test_parts_are_pooled_training_first(tmp_path):
    write(tmp_path, "   1.0e+00   2.0e+00\n  3 4\n", "  10\n  20\n", " 5 6\n", " 30\n")
    dataset = load(SPEC, tmp_path)
    assert dataset.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert dataset.y.tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("1 2\n3 4\n", "10\n", "5 6\n", "30\n"), "train part: 2 rows of features but labels of shape"),
        (("1 2\n3 4\n", "10\n20\n", "5 x\n", "30\n"), "pol_test_data.asc is not a table of numbers"),
        (("1 2\n3\n", "10\n20\n", "5 6\n", "30\n"), "pol_train_data.asc is not a table of numbers"),
    ],
)
def test_bad_files_are_named(tmp_path, texts, message):
    write(tmp_path, *texts)
    with pytest.raises(UserError, match=message):
        load(SPEC, tmp_path)
