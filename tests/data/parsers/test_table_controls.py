"""What a user can say about an own table, and the traps in one that are caught."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, Task
from dlmexp.data.splits import prepare, split
from dlmexp.errors import UserError

ROWS = 60


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    """Two features, a group, a day and a target that none of them gives away."""
    rng = np.random.default_rng(0)
    return {
        "a": rng.normal(size=ROWS).round(3),
        "b": rng.normal(size=ROWS).round(3),
        "house": np.repeat(np.arange(12), 5),
        "day": rng.permutation(ROWS),
        "y": rng.normal(size=ROWS).round(3),
    }


def written(path, values, sep=",", **replaced):
    """The columns as a text file; `replaced` gives other columns, or lists of texts."""
    columns = {**values, **replaced}
    lines = [sep.join(columns), *(sep.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def loaded(path, task: Task = "regression", kind: str = "regression", **options):
    options = {"path": str(path), "target": "y", **options}
    return load(DatasetSpec("mine", "table", task, kind, options=options), "data")


def refused(message: str, *args, **options):
    with pytest.raises(UserError, match=message) as found:
        loaded(*args, **options)
    assert "\n" not in str(found.value)


def test_columns_and_drop(tmp_path, values):
    path = written(tmp_path / "t.csv", values)
    assert loaded(path, drop=["day", "house"]).facts["features"] == ["a", "b"]
    assert loaded(path, columns=["b", "a"]).facts["features"] == ["b", "a"]
    refused(r"csv.drop: t.csv has no column 'hose': did you mean house", path, drop=["hose"])
    refused(r"csv.columns: t.csv has no column 'c'", path, columns=["c"])
    refused("'y' is the target", path, columns=["a", "y"])
    refused("not both", path, columns=["a"], drop=["b"])
    refused("a table has no option 'dropp': did you mean drop", path, dropp=["a"])


@pytest.mark.parametrize(("name", "sep"), [("t.tsv", "\t"), ("t.csv.gz", ","), ("t.tsv.gz", "\t")])
def test_other_text_formats_are_the_same_data(tmp_path, values, name, sep):
    assert (
        loaded(written(tmp_path / name, values, sep)).checksum == loaded(written(tmp_path / "t.csv", values)).checksum
    )


@pytest.mark.parametrize(
    ("sep", "word"), [(";", ";"), (";", "semicolon"), ("|", "pipe"), ("\t", "tab"), (" ", "space")]
)
def test_separators(tmp_path, values, sep, word):
    plain = loaded(written(tmp_path / "t.csv", values))
    assert loaded(written(tmp_path / "u.csv", values, sep), sep=word).checksum == plain.checksum


def test_a_separator_that_was_not_named(tmp_path, values):
    path = written(tmp_path / "t.csv", values, ";")
    refused("t.csv has a single column 'a;b;house;day;y': give its separator, csv.sep=semicolon", path)
    refused("csv.sep=;;: give one character", path, sep=";;")


def test_feather(tmp_path, values):
    feather.write_feather(pa.table(values), tmp_path / "t.feather")
    assert loaded(tmp_path / "t.feather").checksum == loaded(written(tmp_path / "t.csv", values)).checksum
    (tmp_path / "u.feather").write_bytes(b"nothing of the kind")
    refused("is not a Feather file", tmp_path / "u.feather")


def test_damaged_gzip(tmp_path, values):
    path = written(tmp_path / "t.csv.gz", values)
    path.write_bytes(path.read_bytes()[:-40])
    refused("t.csv.gz is damaged", path)


def test_missing_values(tmp_path, values):
    a = [*values["a"].astype(str)]
    a[3] = a[7] = ""
    path = written(tmp_path / "t.csv", values, a=a)
    refused(r"missing in row 4, column 'a' \(2 in all\); csv.missing=drop .* csv.missing=mean", path)
    dropped = loaded(path, missing="drop")
    assert dropped.X[:, 1].tolist() == np.delete(values["b"], [3, 7]).tolist()
    assert dropped.facts["left_out"] == ["2 rows with missing values (csv.missing=drop)"]
    filled = loaded(path, missing="mean")
    assert np.isnan(filled.X[[3, 7], 0]).all()
    assert filled.facts["filled"] == 2
    refused("csv.missing=zero: give one of refuse, drop, mean", path, missing="zero")
    y = [*values["y"].astype(str)]
    y[5] = "NA"
    refused(
        "missing in row 6, column 'y'; csv.missing=drop leaves such rows out$",
        written(path, values, y=y),
        missing="mean",
    )


def test_the_mean_is_that_of_the_training_rows(tmp_path, values):
    """A missing value is 0 after normalisation: what it would be if the mean of the n training rows stood there."""
    a = [*values["a"].astype(str)]
    for row in range(0, ROWS, 4):
        a[row] = ""
    dataset = loaded(written(tmp_path / "t.csv", values, a=a), missing="mean")
    spec = DatasetSpec("mine", "table", "regression", "regression")
    for seed in range(3):
        rows = split(ROWS, "regression", seed).train_pool[:20]
        known = [row for row in rows if row % 4]
        mean, std = values["a"][known].mean(), values["a"][known].std()
        column = np.where(np.arange(ROWS) % 4 == 0, mean, values["a"])
        prepared = prepare(dataset, spec, seed, 20)
        np.testing.assert_allclose(prepared.X_train[:, 0], (column[rows] - mean) / std, atol=1e-12)
        assert np.isfinite(prepared.X_test).all()


def test_a_stray_word_among_numbers(tmp_path, values):
    a = [*values["a"].astype(str)]
    for row in range(8, 29):
        a[row] = "-"
    path = written(tmp_path / "t.csv", values, a=a)
    refused(r"column 'a' is text because of '-' in 21 rows \(the first: row 9\); its other 39 values are numbers", path)
    assert loaded(path, na=["-"], missing="drop").X.shape == (39, 4)
    refused("is a category with .* distinct values", path, categories=["a"])
    y = [*values["y"].astype(str)]
    y[0] = "n.a."
    refused("column 'y' is text because of 'n.a.' in 1 row ", written(path, values, y=y))


def test_an_index_of_pandas(tmp_path, values):
    indexed = {"": np.arange(ROWS), **values}
    dataset = loaded(written(tmp_path / "t.csv", indexed))
    assert dataset.facts["features"] == ["a", "b", "house", "day"]
    assert "numbers the rows" in dataset.facts["left_out"][0]
    path = written(tmp_path / "u.csv", {"": np.arange(ROWS)[::-1], **values})
    refused(r"u.csv: column 1 has no name .*csv.drop=\[''\]", path)
    assert loaded(path, drop=[""]).facts["features"] == ["a", "b", "house", "day"]
    named = loaded(written(tmp_path / "v.csv", {"id": np.arange(1, ROWS + 1), **values}))
    assert named.facts["warnings"] == ["column 'id' numbers the rows: csv.drop=[id] leaves it out"]


@pytest.mark.parametrize("task", ["regression", "count"])
def test_a_constant_target(tmp_path, values, task):
    path = written(tmp_path / "t.csv", values, y=[3] * ROWS)
    refused("csv.target=y: it is 3 in all 60 rows, so there is nothing to predict", path, task)


def test_a_column_that_gives_the_target_away(tmp_path, values):
    y = values["y"]
    path = written(tmp_path / "t.csv", values, cents=(100 * y + 5).round(1))
    refused(
        r"column 'cents' gives the target 'y' away: the target is 0.01 times it plus -0.05; csv.drop=\[cents\]", path
    )
    assert loaded(path, columns=["a", "cents"]).facts["warnings"][0].startswith("column 'cents' gives")
    assert not loaded(path, drop=["cents"]).facts["warnings"]
    cube = loaded(written(path, values, cube=y**3))
    assert "the target only rises or only falls" in cube.facts["warnings"][0]
    rounded = loaded(written(path, values, tax=(y / y.std()).round(1)))
    assert "which leaves 0.0" in rounded.facts["warnings"][0]
    assert not loaded(written(path, values, tax=(y / y.std()).round(0))).facts["warnings"]
    label = np.where(y > 0, "yes", "no")
    refused("column 'flag' gives", written(path, values, y=label, flag=np.where(y > 0, 7, 2)), "binary", "counts")
    refused("column 'word' gives", written(path, values, y=label, word=np.where(y > 0, "u", "v")), "binary", "counts")
    score = loaded(written(path, values, y=label, score=y), "binary", "counts")
    assert "a threshold on it separates the classes" in score.facts["warnings"][0]
    assert score.facts["classes"] == ["no", "yes"]


def test_categories(tmp_path, values):
    path = written(tmp_path / "t.csv", values, month=np.arange(ROWS) % 6 + 1, name=[f"n{k % 7}" for k in range(ROWS)])
    refused(r"column 'name' is a category with 7 distinct values \(e.g. 'n0'\) in 60 rows, more than 6", path)
    dataset = loaded(path, drop=["name"], categories=["month"])
    assert dataset.facts["features"][-5:] == [f"month={k}" for k in range(2, 7)]
    assert dataset.facts["kinds"]["month"] == "category of 6 levels, base '1'"


def test_levels_that_differ_in_capitals_or_spaces(tmp_path, values):
    path = written(tmp_path / "t.csv", values, kind=np.resize(["flat", "House", "house "], ROWS))
    (warning,) = loaded(path).facts["warnings"]
    assert warning.startswith("column 'kind' has the levels 'House' and 'house ', which count as different")


def test_large_numbers_as_categories_and_labels_stay_apart(tmp_path, values):
    code = np.resize([10000001, 10000002, 2000000], ROWS)
    path = written(tmp_path / "t.csv", values, code=code, y=np.resize([1000000, 1000001], ROWS))
    dataset = loaded(path, "binary", "counts", categories=["code"])
    assert dataset.facts["features"][-2:] == ["code=10000002", "code=2000000"]
    assert dataset.schema.labels == (1000000, 1000001)


@pytest.mark.parametrize("label", ["--5", "-", "5" * 5000, "\u0665", "-0", "05"])
def test_a_label_that_is_no_number_stays_text(tmp_path, values, label):
    path = written(tmp_path / "t.csv", values, y=np.resize([label, "no"], ROWS))
    assert set(loaded(path, "binary", "counts").schema.labels) == {label, "no"}


def test_a_target_of_truth_values_keeps_its_words(tmp_path, values):
    truth = np.resize([True, False, False], ROWS)
    path = written(tmp_path / "t.csv", values, a=truth, y=truth[::-1])
    dataset = loaded(path, "binary", "counts")
    assert dataset.schema.labels == ("False", "True")
    assert (dataset.y == truth[::-1]).all()
    assert dataset.facts["kinds"]["a"] == "number"
    refused(r"csv.target=y is text \(e.g. 'False'\): a regression target is a number", path)
    lacking = ["" if k == 7 else value for k, value in enumerate(truth)]
    refused(r"row 8, column 'y'", written(path, values, y=lacking), "binary", "counts")


def test_dates_become_numbers_when_asked(tmp_path, values):
    when = [f"2020-{1 + k // 28:02d}-{1 + k % 28:02d}" for k in range(ROWS)]
    path = written(tmp_path / "t.csv", values, when=when)
    refused(r"column 'when' holds dates: csv.dates=\[when\] turns", path)
    assert loaded(path, dates=["when"]).X[0, -1] == 18262
    assert loaded(path, drop=["when"]).facts["features"] == ["a", "b", "house", "day"]


def test_dates_as_text_of_a_parquet_file_are_dates(tmp_path, values):
    when = np.array([f"2020-{1 + k // 28:02d}-{1 + k % 28:02d}" for k in range(ROWS)], dtype=object)
    path = tmp_path / "t.parquet"
    pd.DataFrame({**values, "when": when, "nothing": np.full(ROWS, None, dtype=object)}).to_parquet(path)
    refused(r"column 'when' holds dates: csv.dates=\[when\] turns", path, drop=["nothing"])
    assert loaded(path, dates=["when"], drop=["nothing"]).X[0, -1] == 18262
    refused(r"column 'when' is a category with .* distinct values", path, drop=["nothing"], categories=["when"])


def test_own_test_rows(tmp_path, values):
    path = written(tmp_path / "t.csv", values)
    other = written(tmp_path / "other.csv", {name: column[:25] + 0.5 for name, column in values.items()})
    dataset = loaded(path, test=str(other))
    assert len(dataset.y) == ROWS + 25
    for seed in (0, 1):
        parts = split(len(dataset.y), "regression", seed, None, dataset.arrangement)
        assert parts.test.tolist() == list(range(ROWS, ROWS + 25))
        assert sorted([*parts.train_pool, *parts.validation]) == list(range(ROWS))
        assert len(parts.validation) == 6  # 8 of 75 parts
    assert dataset.checksum != loaded(path).checksum
    other.write_text("a,b,day,y\n1,2,3,4\n")
    refused(r"csv.test=.*other.csv: it has no column 'house'; csv.drop=\[house\] leaves it", path, test=str(other))
    assert len(loaded(path, test=str(other), drop=["house"]).y) == ROWS + 1
    refused("csv.test=none.csv: there is no such file", path, test="none.csv")


def test_division_by_time(tmp_path, values):
    dataset = loaded(written(tmp_path / "t.csv", values), split="time", by="day")
    assert dataset.facts["features"] == ["a", "b", "house"]
    plain = split(ROWS, "regression", 0)
    pools = []
    for seed in (0, 1):
        parts = split(ROWS, "regression", seed, None, dataset.arrangement)
        pools.append(parts.train_pool.tolist())
        assert [len(p) for p in (parts.train_pool, parts.validation, parts.test)] == [
            len(p) for p in (plain.train_pool, plain.validation, plain.test)
        ]
        days = [values["day"][rows] for rows in (parts.train_pool, parts.validation, parts.test)]
        assert days[0].max() < days[1].min()
        assert days[1].max() < days[2].min()
    assert pools[0] != pools[1]
    assert sorted(pools[0]) == sorted(pools[1])


@pytest.mark.parametrize("kind", ["regression", "counts"])
def test_division_by_groups(tmp_path, values, kind):
    dataset = loaded(written(tmp_path / "t.csv", values), split="group", by="house")
    size = len(split(ROWS, kind, 0).train_pool)
    seen = set()
    for seed in range(20):
        parts = split(ROWS, kind, seed, None, dataset.arrangement)
        houses = [set(values["house"][rows]) for rows in (parts.train_pool, parts.validation, parts.test)]
        assert sum(map(len, houses)) == len(set.union(*houses))
        assert len(parts.train_pool) == size  # whatever the seed: sizes mean the same everywhere
        assert len(set(parts.train_pool.tolist())) == size
        assert len(parts.test)
        seen.add(frozenset(houses[2]))
    assert len(seen) > 10


def test_groups_that_can_not_be_divided(tmp_path, values):
    two = loaded(written(tmp_path / "t.csv", values, house=np.arange(ROWS) % 2), split="group", by="house")
    with pytest.raises(UserError, match=r"csv.by=house: its 2 groups are too few or too large"):
        split(ROWS, "regression", 0, None, two.arrangement)
    path = written(tmp_path / "t.csv", values)
    refused(r"csv.split=group: say csv.by=COLUMN as well", path, split="group")
    refused(r"csv.by=house: say csv.split=time or csv.split=group as well", path, by="house")
    refused(r"csv.split=tmie: give one of random, time, group", path, split="tmie")
    refused("has no column 'haus'", path, split="group", by="haus")


def test_the_column_that_divides_is_part_of_the_data(tmp_path, values):
    """Rows in another order of time are other data, though features and targets are the same."""
    path = written(tmp_path / "t.csv", values)
    first = loaded(path, split="time", by="day", drop=["house"])
    other = loaded(written(tmp_path / "u.csv", values, day=values["day"][::-1]), split="time", by="day", drop=["house"])
    assert np.array_equal(first.X, other.X)
    assert first.checksum != other.checksum


def test_arrays_of_an_npz_file(tmp_path):
    rng = np.random.default_rng(1)
    arrays = {"X_train": rng.normal(size=(40, 3)), "y_train": rng.normal(size=40), "X_held": rng.normal(size=(9, 3)),
              "y_held": rng.normal(size=9), "note": np.arange(5)}  # fmt: skip
    np.savez(tmp_path / "t.npz", **arrays)
    chosen = {"X": "X_train", "y": "y_train"}
    dataset = loaded(tmp_path / "t.npz", target=None, arrays=chosen)
    assert np.array_equal(dataset.X, arrays["X_train"])
    both = loaded(tmp_path / "t.npz", target=None, arrays=chosen | {"X_test": "X_held", "y_test": "y_held"})
    assert both.arrangement is not None
    assert both.arrangement.test == 9
    assert np.array_equal(both.y[-9:], arrays["y_held"])
    refused("arrays of different lengths", tmp_path / "t.npz", target="y_train")
    refused("has no array 'Z'", tmp_path / "t.npz", target=None, arrays=chosen | {"X": "Z"})
    refused("say which array is X and which is y", tmp_path / "t.npz", target=None, arrays={"X": "X_train"})
    refused("'Q' is not one of X, y, X_test, y_test", tmp_path / "t.npz", target=None, arrays={"Q": "X_train"})
    refused("write it as 'csv.arrays=", tmp_path / "t.npz", target=None, arrays=["X"])


def test_bytes_in_an_npz_file_are_refused(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([b"\xff", b"a"]), y=np.arange(2.0))
    refused("array 'X' is not text in UTF-8", tmp_path / "t.npz")
