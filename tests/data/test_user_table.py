"""A user's own table: what can be said about it, what is refused with what to type, and what is
warned of."""

import gzip
import shlex
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dlmexp.common.errors import UserError
from dlmexp.common.literals import setting
from dlmexp.data.config import DatasetConfig
from dlmexp.data.raw_files import load
from dlmexp.data.splits import prepare, split
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.overrides import spelled_out

ROWS = 60
RNG = np.random.default_rng(0)
VALUES = {
    "a": RNG.normal(size=ROWS).round(3), "b": RNG.normal(size=ROWS).round(3), "house": np.repeat(np.arange(12), 5),
    "day": RNG.permutation(ROWS), "y": RNG.normal(size=ROWS).round(3),
}  # fmt: skip
Y = VALUES["y"]
LABEL = np.where(Y > 0, "yes", "no")
DATES = [f"2020-{1 + k // 28:02d}-{1 + k % 28:02d}" for k in range(ROWS)]
BINARY = {"task": "binary", "kind": "counts"}


def written(path, sep: Any = ",", **replaced: Any):
    """The columns as a file; `replaced` gives other columns, or lists of texts, which begin again
    when they end."""
    columns = {
        name: np.resize(np.array(column, object), ROWS)
        for name, column in {**VALUES, **replaced}.items()
    }
    if path.suffix == ".parquet":
        pd.DataFrame(columns).infer_objects().to_parquet(path)
        return path
    text = (
        "\n".join(
            sep.join(map(str, row)) for row in [list(columns), *zip(*columns.values(), strict=True)]
        )
        + "\n"
    )
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def loaded(path, task: Any = "regression", kind: str = "regression", **options: Any):
    options = {"path": str(path), "target": "y", **options}
    return load(DatasetConfig("mine", "table", task, split=kind, options=options), "data")


def refused(*words: str, path, **options: Any) -> UserError:
    """The error, in which all words are."""
    with pytest.raises(UserError) as caught:
        loaded(path, **options)
    assert all(word in str(caught.value) for word in words), caught.value
    return caught.value


def lacking(name: str, *rows: int, word: str = "") -> dict[str, list[str]]:
    return {name: [word if k in rows else str(value) for k, value in enumerate(VALUES[name])]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def test_the_same_data_in_every_format(tmp_path, path):
    plain = loaded(written(path)).checksum
    for name, sep, word in (("t.tsv", "\t", None), ("t.tsv.gz", "\t", None), ("t.parquet", "", None),
                            ("u.csv", ";", "semicolon"), ("w.csv", " ", "space")):  # fmt: skip
        assert loaded(written(tmp_path / name, sep), sep=word).checksum == plain, name
    text = path.read_text()
    for other in (text.replace("\n", "\r\n"), "\ufeff" + text + "\n\n"):
        path.write_bytes(other.encode())
        assert loaded(path).checksum == plain


@pytest.mark.parametrize(("content", "word"), [
    ("a,y\n1,2\n".encode("utf-16"), "UTF-8"), ("größe,y\n1,2\n".encode("latin-1"), "UTF-8"),
    ("a,y\nü,2\nö,4\n".encode("latin-1"), "UTF-8"), (b"a;b;y\n1;2;3\n", "csv.sep=semicolon"),
    (b"a,y\n", "no rows"), (b"a,y\n1,2\n3\n", "Expected 2 columns, got 1"), (b"", "t.csv"),
    (b"a,a,y\n1,2,3\n", "called a"), (b"y\n1\n2\n", "no feature"), (b"0.5,1,2\n1,2,3\n", "'y': valid: 0.5, 1, 2"),
    (b"x" * 3 + b"," * 20_001 + b"\n", "20002 columns"),
])  # fmt: skip
def test_files_that_are_no_tables_are_refused(path, content, word):
    path.write_bytes(content)
    refused("t.csv", word, path=path)


def test_damaged_files_and_other_endings_are_refused(tmp_path):
    packed = written(tmp_path / "t.csv.gz")
    packed.write_bytes(packed.read_bytes()[:-40])
    refused("t.csv.gz", "damaged", path=packed)
    for name in ("t.parquet", "t.xlsx"):
        (tmp_path / name).write_bytes(b"PAR1 not really")
        refused(name, path=tmp_path / name)
    refused("none.csv", path=tmp_path / "none.csv")
    refused("csv.path=FILE", path="")
    refused("csv.test=none.csv", path=written(tmp_path / "t.csv"), test="none.csv")


@pytest.mark.parametrize(("options", "words"), [
    ({"drop": ["hose"]}, ["csv.drop", "'hose'", "house"]), ({"columns": ["c"]}, ["csv.columns", "'c'"]),
    ({"dropp": ["a"]}, ["'dropp'", "drop"]), ({"target": "z"}, ["csv.target=z"]), ({"target": None}, ["csv.target"]),
    ({"sep": ";;"}, ["csv.sep=;;"]), ({"missing": "zero"}, ["csv.missing=zero", "level"]),
    ({"split": "group"}, ["csv.by"]), ({"by": "house"}, ["csv.split"]), ({"log": "maybe"}, ["log"]),
    ({"split": "group", "by": "haus"}, ["'haus'", "house"]), ({"log": True}, ["csv.log", "row"]),
])  # fmt: skip
def test_mistakes_in_the_options_are_named(path, options, words):
    refused(*words, path=written(path), **options)


def test_columns_drop_and_categories(path):
    written(path, month=np.arange(1, 7), name=[f"n{k}" for k in range(7)])
    assert loaded(path, columns=["b", "a", "y", "day"], drop=["day"]).schema.features == ("b", "a")
    refused("'name'", "7 distinct", "csv.drop=[name]", "csv.categories=[name]", path=path)
    assert loaded(path, categories=["name"]).X.shape[1] == 5 + 6
    data = loaded(path, drop=["name"], categories=["month"])
    assert data.schema.features[-5:] == tuple(f"month={k}" for k in range(2, 7))
    assert data.facts["left_out"] == ["column 'name'"]
    large = written(path, code=[10000001, 10000002, 2000000], y=[1000000, 1000001])
    data = loaded(large, **BINARY, categories=["code"])
    assert data.schema.features[-2:] == ("code=10000002", "code=2000000")
    assert data.schema.labels == (1000000, 1000001)


def test_missing_values(path):
    gaps = {**lacking("a", 3, 7), "kind": ["" if k % 9 == 0 else "uv"[k % 2] for k in range(ROWS)]}
    refused(
        "row 1",
        "'kind'",
        "9 in all",
        "csv.missing=drop",
        "csv.missing=mean",
        path=written(path, **gaps),
    )
    dropped = loaded(path, missing="drop")
    assert len(dropped.y) == ROWS - 9
    assert "9 rows" in dropped.facts["left_out"][0]
    filled, level = loaded(path, missing="mean"), loaded(path, missing="level")
    assert np.isnan(filled.X[[3, 7], 0]).all()
    assert [np.isnan(data.X).any(axis=1).sum() for data in (filled, level)] == [9, 2]
    assert level.schema.columns[-1].levels == ("u", "v", "(missing)")
    assert level.X[0, -2:].tolist() == [0, 1]
    no_target = written(path, **lacking("y", 5, word="NA"))
    refused("row 6", "'y'", "All of it: csv.missing=drop", path=no_target, missing="mean")
    refused("row 1", "'b'", "60 in all", path=written(path, b=[""]))
    assert "'b' is the same" in loaded(path, missing="mean").facts["warnings"][0]


def test_the_mean_is_that_of_the_training_rows(path):
    """A missing value is 0 after normalisation: what it would be if the mean of the n training rows
    stood there."""
    data = loaded(written(path, **lacking("a", *range(0, ROWS, 4))), missing="mean")
    rows = split(ROWS, "regression", 1).train[:20]
    known = VALUES["a"][[row for row in rows if row % 4]]
    column = np.where(np.arange(ROWS) % 4 == 0, known.mean(), VALUES["a"])
    prepared = prepare(data, DatasetConfig("m", "table", "regression", split="regression"), 1, 20)
    np.testing.assert_allclose(
        prepared.X_train[:, 0], (column[rows] - known.mean()) / known.std(), atol=1e-12
    )


def test_all_problems_are_in_one_list_with_the_settings_to_add(path):
    """What is advised is read by `dlmexp run`, keeps what was typed, and does away with all
    problems."""
    changed = {
        **lacking("a", 3), **lacking("b", 5, 9, word="n.a."), "id": [f"n{k}" for k in range(ROWS)],
        "sold": [f"{1 + k % 28:02d}.{1 + k // 28:02d}.2020" for k in range(ROWS)],
        "y": [k * k + 1 for k in range(ROWS)], "cents": [100 * k * k for k in range(ROWS)],
    }  # fmt: skip
    written(path, ";", **changed)
    said = refused(
        "5 problems", "'a'", "'b'", "'id'", "'sold'", "'cents'", path=path, sep=";", drop=["day"]
    )
    assert "csv.date_format=%d.%m.%Y" in str(said)
    dates = {"date_format": "%d.%m.%Y"}
    said = refused(
        "4 problems", "'a'", "'b'", "'id'", "'cents'", path=path, sep=";", drop=["day"], **dates
    )
    typed = f"dataset=csv csv.path={path} csv.target=y csv.task=regression csv.sep=; csv.drop=[day]".split()
    overrides = [
        *typed,
        "csv.date_format=%d.%m.%Y",
        *shlex.split(str(said).rpartition("All of it: ")[2]),
    ]
    node = compose(spelled_out(overrides)).dataset["csv"]
    data = load(node, "data")
    assert node.options["drop"] == ["day", "id", "cents"]
    assert (data.X[0, -1], data.schema.columns[-1].words) == (18262, "date")
    logs = load(compose(spelled_out([*overrides, "csv.log=true"])).dataset["csv"], "data")
    np.testing.assert_array_equal(logs.y, np.log(data.y))
    assert logs.schema.log
    assert logs.checksum != data.checksum


def test_stray_words_and_other_types_among_numbers(tmp_path, path):
    written(path, **lacking("a", *range(8, 29), word="-"))
    refused("'-' in 21 rows", "row 9", "39", "csv.na", "csv.categories=[a]", path=path)
    assert loaded(path, na=["-"], missing="drop").X.shape == (39, 4)
    refused("csv.target=y", "'n.a.'", path=written(path, **lacking("y", 0, word="n.a.")))
    refused(
        "'t' holds duration",
        path=written(tmp_path / "u.parquet", t=pd.to_timedelta(VALUES["day"], "D")),
    )
    text = written(tmp_path / "t.parquet", a=VALUES["a"].astype(str))
    refused("'a' is text", "All of it: csv.categories=[a]", path=text)
    refused("row 60, column 'b'", "infinite", path=written(path, b=["1"] * (ROWS - 1) + ["inf"]))
    refused("t.csv", "inf in row 60, column 'y'", path=written(path, y=[*range(ROWS - 1), "inf"]))
    refused("e+150", path=written(path, b=[f"{k + 1}e150" for k in range(ROWS)]))


def test_binary_targets_become_zero_and_one(path):
    for values, codes, labels in (("-1 1 1", [0, 1, 1], (-1, 1)), ("10 9 10", [1, 0, 1], (9, 10)),
                                  ("yes no yes", [1, 0, 1], ("no", "yes")), ("--5 5 --5", [0, 1, 0], ("--5", 5)),
                                  ("true false true", [1, 0, 1], ("False", "True"))):  # fmt: skip
        data = loaded(written(path, y=values.split()), **BINARY)
        assert data.y.tolist() == np.resize(codes, ROWS).tolist()
        assert data.schema.labels == labels


@pytest.mark.parametrize(("values", "task", "words"), [
    ("1 2 3", "binary", "has 3 (1.0, 2.0, 3.0)"), ("1", "binary", "has 1"), ("1 2.5 3", "count", "2.5 in row 2"),
    ("1 -2 3", "count", "-2 in row 2"), ("a b c", "count", "text (a, b, c)"), ("a b c", "regression", "csv.target=y"),
    ("3", "regression", "it is 3 in all"), ("2020-01-01 2020-01-02", "regression", "dates"),
])  # fmt: skip
def test_targets_that_do_not_fit_the_task(path, values, task, words):
    refused(words, path=written(path, y=values.split()), task=task)


def test_a_column_that_gives_the_target_away(path):
    written(path, cents=(100 * Y + 5).round(1))
    refused("'cents'", "0.01 times it plus -0.05", "csv.drop=[cents]", path=path)
    assert "'cents'" in loaded(path, columns=["a", "cents"]).facts["warnings"][0]
    assert not loaded(path, drop=["cents"]).facts["warnings"]
    assert (
        "of its variance" in loaded(written(path, tax=(Y / Y.std()).round(1))).facts["warnings"][0]
    )
    for column in (np.where(Y > 0, 7, 2), np.where(Y > 0, "u", "v")):
        refused("'flag'", "away", path=written(path, y=LABEL, flag=column), **BINARY)


@pytest.mark.parametrize(("changed", "task", "word"), [
    ({"id": range(1, ROWS + 1)}, "regression", "'id' numbers"), ({"same": [1]}, "regression", "'same'"),
    ({"word": ["x"]}, "regression", "'word'"), ({"id": 1001 + Y.argsort().argsort()}, "regression", "'id'"),
    ({name: column[:20] for name, column in VALUES.items()}, "regression", "40 of 60 rows are copies"),
])  # fmt: skip
def test_what_looks_wrong_is_warned_of(path, changed, task, word):
    assert word in " ".join(loaded(written(path, **changed), task, "counts").facts["warnings"])


@pytest.mark.parametrize(
    ("name", "file"), [("", "t.csv"), ("Unnamed: 0", "t.csv"), ("__index_level_0__", "t.parquet")]
)
def test_a_column_without_a_name_is_no_feature_unless_asked_for(tmp_path, name, file):
    path = written(tmp_path / file, **{name: VALUES["day"]})
    refused(setting("drop", ["a", name]), path=path, drop=["a"])
    assert name not in loaded(path, drop=[name]).schema.features
    assert loaded(path, columns=["a", name]).schema.features == ("a", name)
    path = written(tmp_path / file, **{name: range(ROWS)})
    assert "numbers the rows" in loaded(path).facts["left_out"][0]
    assert name not in loaded(path, split="time", by=name).schema.features


def test_dollars_and_thousands_in_the_target(path):
    for texts, numbers in ((["$1,200", "-$7", "€ 950"], [1200, -7, 950]), (["1,234.50", " 950.00 "], [1234.5, 950]),
                           (["1,000,000", "7"], [1e6, 7])):  # fmt: skip
        assert (
            loaded(written(path, ";", y=texts), sep=";").y.tolist()
            == np.resize(numbers, ROWS).tolist()
        )
    for doubtful in (["0,054", "1"], ["1,234", "950"], ["1.234,50", "1"], ["12 apples", "3"]):
        refused("csv.target=y", path=written(path, ";", y=doubtful), sep=";")
    refused(
        "csv.na=[unknown]", path=written(path, ";", y=["1,234.50", "950.00", "unknown"]), sep=";"
    )


def test_own_test_rows(tmp_path, path):
    written(path)
    other = tmp_path / "other.csv"
    pd.DataFrame({name: column[:25] + 0.5 for name, column in VALUES.items()}).to_csv(
        other, index=False
    )
    data = loaded(path, test=str(other))
    parts = split(len(data.y), "regression", 1, None, data.arrangement)
    assert parts.test.tolist() == list(range(ROWS, ROWS + 25))
    assert sorted([*parts.train, *parts.validation]) == list(range(ROWS))
    assert data.checksum != loaded(path).checksum
    other.write_text("a,b,day,y\n1,2,3,4\n")
    refused("csv.test", "'house'", path=path, test=str(other))
    assert len(loaded(path, test=str(other), drop=["house"]).y) == ROWS + 1
    other.write_text("a,b,house,day,y\nx,2,3,4,5\n")
    refused("'a' holds numbers", "text", path=path, test=str(other))


def test_division_by_time_and_by_groups(tmp_path, path):
    written(path, when=[DATES[k] for k in VALUES["day"]])
    for by in ("day", "when"):
        data = loaded(path, split="time", by=by)
        assert by not in data.schema.features
        parts = split(ROWS, "regression", 0, None, data.arrangement)
        days = [VALUES["day"][rows] for rows in (parts.train, parts.validation, parts.test)]
        assert days[0].max() < days[1].min() <= days[1].max() < days[2].min()
    house = np.sort(RNG.integers(0, 15, ROWS))  # of different sizes
    data = loaded(written(path, house=house), split="group", by="house")
    for seed in range(10):
        parts = split(ROWS, "regression", seed, None, data.arrangement)
        houses = [set(house[rows]) for rows in (parts.train, parts.validation, parts.test)]
        assert sum(map(len, houses)) == len(set.union(*houses))
    two = loaded(written(path, house=[0, 1]), split="group", by="house")
    with pytest.raises(UserError, match="2 groups"):
        split(ROWS, "regression", 0, None, two.arrangement)
    refused("'x' is no time", path=written(path, house=["x"]), split="time", by="house")
    options = {"split": "time", "by": "day", "drop": ["house"]}
    reversed_days = written(tmp_path / "u.csv", day=VALUES["day"][::-1])
    assert loaded(reversed_days, **options).checksum != loaded(written(path), **options).checksum


def test_advised_settings_are_read_as_they_are():
    names = ["age", "the age, in years (est.)", "it's", "null", "1e3", "$x", "end\\", " b", "a'\"!"]
    table = ["dataset=csv", "csv.path=a.csv", "csv.task=count", "csv.target=it's $x (b"]
    own = compose(spelled_out([*table, *shlex.split(setting("drop", names))])).csv
    assert (list(own.drop), own.target) == (names, "it's $x (b")
