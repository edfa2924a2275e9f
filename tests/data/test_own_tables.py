"""A user's own table: what can be said about it, what is refused with what to type, and what is warned of."""

import gzip
import shlex
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.options import setting
from dlmexp.data.spec import DatasetSpec
from dlmexp.data.splits import prepare, split
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.plan.overrides import spelled_out

ROWS = 60
RNG = np.random.default_rng(0)
VALUES = {
    "a": RNG.normal(size=ROWS).round(3), "b": RNG.normal(size=ROWS).round(3), "house": np.repeat(np.arange(12), 5),
    "day": RNG.permutation(ROWS), "y": RNG.normal(size=ROWS).round(3),
}  # fmt: skip
DATES = [f"2020-{1 + k // 28:02d}-{1 + k % 28:02d}" for k in range(ROWS)]


def written(path, sep: Any = ",", **replaced: Any):
    """The columns as a text file; `replaced` gives other columns, or lists of texts."""
    columns = {**VALUES, **replaced}
    lines = [sep.join(columns), *(sep.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def loaded(path, task: Any = "regression", kind: str = "regression", **options: Any):
    options = {"path": str(path), "target": "y", **options}
    return load(DatasetSpec("mine", "table", task, kind, options=options), "data")


def refused(*words: str, path, **options: Any) -> str:
    """What is said, in which all words are."""
    with pytest.raises(UserError) as found:
        loaded(path, **options)
    said = str(found.value)
    assert all(word in said for word in words), said
    return said


def lacking(name: str, *rows: int, word: str = "") -> dict[str, list[str]]:
    return {name: [word if k in rows else str(value) for k, value in enumerate(VALUES[name])]}


def test_the_same_data_in_every_format(tmp_path):
    plain = loaded(written(tmp_path / "t.csv")).checksum
    for name, sep, word in (("t.tsv", "\t", None), ("t.csv.gz", ",", None), ("t.tsv.gz", "\t", None),
                            ("u.csv", ";", "semicolon"), ("v.csv", "|", "pipe"), ("w.csv", " ", "space")):  # fmt: skip
        assert loaded(written(tmp_path / name, sep), sep=word).checksum == plain, name
    text = (tmp_path / "t.csv").read_text()
    for other in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), "\ufeff" + text, text + "\n\n"):
        (tmp_path / "t.csv").write_bytes(other.encode())
        assert loaded(tmp_path / "t.csv").checksum == plain
    pd.DataFrame(VALUES).to_parquet(tmp_path / "t.parquet")
    assert loaded(tmp_path / "t.parquet").checksum == plain


@pytest.mark.parametrize(("content", "words"), [
    ("a,y\n1,2\n".encode("utf-16"), ["UTF-16"]), ("größe,y\n1,2\n".encode("latin-1"), ["UTF-8"]),
    ("a,y\nü,2\nö,4\n".encode("latin-1"), ["UTF-8"]), (b"a;b;y\n1;2;3\n", ["csv.sep=semicolon"]),
    (b"a,y\n", ["no rows"]), (b"a,y\n1,2\n3\n", ["Expected 2 columns, got 1"]), (b"", ["t.csv"]),
    (b"a,a,y\n1,2,3\n", ["called a"]), (b"y\n1\n2\n", ["no feature"]), (b"0.5,1,2\n1,2,3\n", ["first line", "0.5"]),
    (b"x" * 3 + b"," * 20_001 + b"\n", ["20002 columns"]),
])  # fmt: skip
def test_files_that_are_no_tables_are_refused(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    refused("t.csv", *words, path=tmp_path / "t.csv")


def test_damaged_files_and_other_endings_are_refused(tmp_path):
    path = written(tmp_path / "t.csv.gz")
    path.write_bytes(path.read_bytes()[:-40])
    refused("t.csv.gz", "damaged", path=path)
    for name in ("t.parquet", "t.xlsx"):
        (tmp_path / name).write_bytes(b"PAR1 not really")
        refused(name, path=tmp_path / name)
    refused("none.csv", path=tmp_path / "none.csv")
    refused("csv.path=FILE", path="")
    refused("csv.test=none.csv", path=written(tmp_path / "t.csv"), test="none.csv")


@pytest.mark.parametrize(("options", "words"), [
    ({"drop": ["hose"]}, ["csv.drop", "'hose'", "house"]), ({"columns": ["c"]}, ["csv.columns", "'c'"]),
    ({"columns": ["a", "y"]}, ["'y' is the target"]), ({"columns": ["a"], "drop": ["b"]}, ["not both"]),
    ({"dropp": ["a"]}, ["'dropp'", "drop"]), ({"target": "z"}, ["csv.target=z"]), ({"target": None}, ["csv.target"]),
    ({"sep": ";;"}, ["csv.sep=;;"]), ({"missing": "zero"}, ["csv.missing=zero", "level"]),
    ({"split": "tmie"}, ["csv.split=tmie"]), ({"split": "group"}, ["csv.by"]), ({"by": "house"}, ["csv.split"]),
    ({"split": "group", "by": "haus"}, ["'haus'", "house"]),
    ({"levels": 1}, ["csv.levels=1"]), ({"log": "yes"}, ["csv.log=yes"]), ({"target": ["a", "b"]}, ["csv.target"]),
    ({"log": True}, ["csv.log", "row"]),
])  # fmt: skip
def test_mistakes_in_the_options_are_named(tmp_path, options, words):
    refused(*words, path=written(tmp_path / "t.csv"), **options)


def test_columns_drop_and_categories(tmp_path):
    path = written(tmp_path / "t.csv", month=np.arange(ROWS) % 6 + 1, name=[f"n{k % 7}" for k in range(ROWS)])
    assert loaded(path, columns=["b", "a"]).facts["features"] == ["b", "a"]
    refused("'name'", "7 distinct", "csv.drop=[name]", "csv.levels=7", path=path)
    assert loaded(path, levels=7).X.shape[1] == 5 + 6
    data = loaded(path, drop=["name"], categories=["month"])
    assert data.facts["features"][-5:] == [f"month={k}" for k in range(2, 7)]
    assert data.facts["left_out"] == ["column 'name'"]
    code = np.resize([10000001, 10000002, 2000000], ROWS)
    large = written(path, code=code, y=np.resize([1000000, 1000001], ROWS))
    data = loaded(large, "binary", "counts", categories=["code"])
    assert data.facts["features"][-2:] == ["code=10000002", "code=2000000"]
    assert data.schema.labels == (1000000, 1000001)


def test_missing_values(tmp_path):
    path = written(
        tmp_path / "t.csv", **lacking("a", 3, 7), kind=["" if k % 9 == 0 else "uv"[k % 2] for k in range(ROWS)]
    )
    refused("row 1", "'kind'", "9 in all", "csv.missing=drop", "csv.missing=mean", path=path)
    dropped = loaded(path, missing="drop")
    assert len(dropped.y) == ROWS - 9
    assert "9 rows" in dropped.facts["left_out"][0]
    filled = loaded(path, missing="mean")
    assert np.isnan(filled.X[[3, 7], 0]).all()
    assert filled.facts["filled"] == 9
    level = loaded(path, missing="level")
    assert level.schema.columns[-1].levels == ("u", "v", "(missing)")
    assert level.X[0, -2:].tolist() == [0, 1]
    assert level.facts["filled"] == 2
    refused("row 6", "'y'", "csv.missing=drop", path=written(path, **lacking("y", 5, word="NA")), missing="mean")
    refused("'b' is empty", "csv.drop=[b]", path=written(path, b=[""] * ROWS))


def test_the_mean_is_that_of_the_training_rows(tmp_path):
    """A missing value is 0 after normalisation: what it would be if the mean of the n training rows stood there."""
    data = loaded(written(tmp_path / "t.csv", **lacking("a", *range(0, ROWS, 4))), missing="mean")
    for seed in range(3):
        rows = split(ROWS, "regression", seed).train_pool[:20]
        known = VALUES["a"][[row for row in rows if row % 4]]
        column = np.where(np.arange(ROWS) % 4 == 0, known.mean(), VALUES["a"])
        prepared = prepare(data, DatasetSpec("m", "table", "regression", "regression"), seed, 20)
        np.testing.assert_allclose(prepared.X_train[:, 0], (column[rows] - known.mean()) / known.std(), atol=1e-12)


def test_all_problems_are_in_one_list_with_what_to_type(tmp_path):
    dollars = [f"${1000 + k:,}.50" for k in range(ROWS)]
    german = [f"{1 + k % 28:02d}.{1 + k // 28:02d}.2020" for k in range(ROWS)]
    changed = {
        **lacking("a", 3),
        **lacking("b", 5, 9, word="n.a."),
        "id": [f"n{k}" for k in range(ROWS)],
        "sold": german,
    }
    path = written(tmp_path / "t.csv", ";", y=dollars, **changed)
    said = refused("4 problems", "'a'", "'b'", "'id'", "'sold'", path=path, sep=";")
    assert [word in said for word in ("csv.missing=mean", "csv.na=[n.a.]", "csv.drop=[id]", "%d.%m.%Y")] == [True] * 4
    options = {"missing": "mean", "na": ["n.a."], "drop": ["id"], "date_format": "%d.%m.%Y", "sep": ";"}
    data = loaded(path, **options)
    assert (data.y[0], data.X[0, -1]) == (1000.5, 18262)
    assert data.facts["kinds"]["sold"] == "date"
    logs = loaded(path, **options, log=True)
    np.testing.assert_array_equal(logs.y, np.log(data.y))
    assert logs.schema.log
    assert logs.checksum != data.checksum


def test_stray_words_among_numbers(tmp_path):
    path = written(tmp_path / "t.csv", **lacking("a", *range(8, 29), word="-"))
    refused("'-' in 21 rows", "row 9", "39", "csv.na", "csv.categories=[a]", path=path)
    assert loaded(path, na=["-"], missing="drop").X.shape == (39, 4)
    refused("csv.target=y", "'n.a.'", path=written(path, **lacking("y", 0, word="n.a.")))
    pd.DataFrame({**VALUES, "a": VALUES["a"].astype(str)}).to_parquet(tmp_path / "t.parquet")
    refused("'a' is text", "csv.categories=[a]", path=tmp_path / "t.parquet")
    infinite = written(path, b=["1"] * (ROWS - 1) + ["inf"], **lacking("a", 3, word="-"))
    refused("2 problems", "infinite in row 60, column 'b'", "'a'", path=infinite)
    refused("e+150", path=written(path, b=[f"{k + 1}e150" for k in range(ROWS)]))


def test_binary_targets_become_zero_and_one(tmp_path):
    for values, codes, labels in (("-1 1 1", [0, 1, 1], (-1, 1)), ("2 1 2", [1, 0, 1], (1, 2)),
                                  ("yes no yes", [1, 0, 1], ("no", "yes")), ("--5 5 --5", [0, 1, 0], ("--5", 5)),
                                  ("true false true", [1, 0, 1], ("False", "True"))):  # fmt: skip
        data = loaded(written(tmp_path / "t.csv", y=np.resize(values.split(), ROWS)), "binary", "counts")
        assert data.y.tolist() == np.resize(codes, ROWS).tolist()
        assert data.schema.labels == labels


@pytest.mark.parametrize(("values", "task", "words"), [
    ("1 2 3", "binary", "has 3 (1.0, 2.0, 3.0)"), ("1 1 1", "binary", "has 1"), ("1 2.5 3", "count", "2.5 in row 2"),
    ("1 -2 3", "count", "-2 in row 2"), ("a b c", "count", "e.g. 'a'"), ("a b c", "regression", "csv.target=y"),
    ("3 3 3", "regression", "it is 3 in all"), ("2020-01-01 2020-01-02", "regression", "dates"),
])  # fmt: skip
def test_targets_that_do_not_fit_the_task(tmp_path, values, task, words):
    refused(words, path=written(tmp_path / "t.csv", y=np.resize(values.split(), ROWS)), task=task)


def test_a_column_that_gives_the_target_away(tmp_path):
    y, path = VALUES["y"], tmp_path / "t.csv"
    written(path, cents=(100 * y + 5).round(1))
    refused("'cents'", "0.01 times it plus -0.05", "csv.drop=[cents]", path=path)
    assert "'cents'" in loaded(path, columns=["a", "cents"]).facts["warnings"][0]
    assert not loaded(path, drop=["cents"]).facts["warnings"]
    assert "rises or only falls" in loaded(written(path, cube=y**3)).facts["warnings"][0]
    assert "of its variance" in loaded(written(path, tax=(y / y.std()).round(1))).facts["warnings"][0]
    label = np.where(y > 0, "yes", "no")
    for column in (np.where(y > 0, 7, 2), np.where(y > 0, "u", "v")):
        refused("'flag'", "away", path=written(path, y=label, flag=column), task="binary", kind="counts")
    assert "rises or only falls" in loaded(written(path, y=label, score=y), "binary", "counts").facts["warnings"][0]


def test_warnings(tmp_path):
    path = tmp_path / "t.csv"
    found = loaded(written(path, id=np.arange(1, ROWS + 1), same=[1] * ROWS)).facts["warnings"]
    assert [any(word in one for one in found) for word in ("'id' numbers", "'same'")] == [True] * 2
    copies = loaded(written(path, **{name: np.resize(column[:20], ROWS) for name, column in VALUES.items()}))
    assert "40 of 60 rows are copies" in copies.facts["warnings"][-1]
    rare = loaded(written(path, y=["b" if k == 7 else "a" for k in range(ROWS)]), "binary", "counts")
    assert any("'b' has 1 row" in one for one in rare.facts["warnings"])
    assert "numbers the rows" in loaded(written(path, **{"": np.arange(ROWS)})).facts["left_out"][0]
    refused("column 6 has no name", path=written(path, **{"": np.arange(ROWS)[::-1]}))


def test_dates_are_recognised(tmp_path):
    pd.DataFrame({**VALUES, "when": DATES, "at": pd.to_datetime(DATES)}).to_parquet(tmp_path / "t.parquet")
    for path in (written(tmp_path / "t.csv", when=DATES, at=DATES), tmp_path / "t.parquet"):
        data = loaded(path)
        assert data.X[0, -2:].tolist() == [18262, 18262]
        refused("60 distinct", "'when'", path=path, categories=["when"])
    pd.DataFrame({**VALUES, "t": pd.to_timedelta(VALUES["a"])}).to_parquet(tmp_path / "t.parquet")
    refused("'t' holds duration", path=tmp_path / "t.parquet")


def test_own_test_rows(tmp_path):
    path, other = written(tmp_path / "t.csv"), tmp_path / "other.csv"
    pd.DataFrame({name: column[:25] + 0.5 for name, column in VALUES.items()}).to_csv(other, index=False)
    data = loaded(path, test=str(other))
    for seed in (0, 1):
        parts = split(len(data.y), "regression", seed, None, data.arrangement)
        assert parts.test.tolist() == list(range(ROWS, ROWS + 25))
        assert sorted([*parts.train_pool, *parts.validation]) == list(range(ROWS))
    assert data.checksum != loaded(path).checksum
    other.write_text("a,b,day,y\n1,2,3,4\n")
    refused("'house'", "csv.drop=[house]", path=path, test=str(other))
    assert len(loaded(path, test=str(other), drop=["house"]).y) == ROWS + 1
    other.write_text("a,b,house,day,y\nx,2,3,4,5\n")
    refused("'a' holds numbers", "text", path=path, test=str(other))


def test_division_by_time_and_by_groups(tmp_path):
    path = written(tmp_path / "t.csv", when=[DATES[k] for k in VALUES["day"]])
    for by in ("day", "when"):
        data = loaded(path, split="time", by=by)
        assert by not in data.facts["features"]
        parts = split(ROWS, "regression", 0, None, data.arrangement)
        days = [VALUES["day"][rows] for rows in (parts.train_pool, parts.validation, parts.test)]
        assert days[0].max() < days[1].min() <= days[1].max() < days[2].min()
    house = np.sort(RNG.integers(0, 15, ROWS))  # of different sizes
    data = loaded(written(tmp_path / "h.csv", house=house), split="group", by="house")
    for seed in range(10):
        parts = split(ROWS, "regression", seed, None, data.arrangement)
        houses = [set(house[rows]) for rows in (parts.train_pool, parts.validation, parts.test)]
        assert sum(map(len, houses)) == len(set.union(*houses))
    two = loaded(written(path, house=np.arange(ROWS) % 2), split="group", by="house")
    with pytest.raises(UserError, match="2 groups"):
        split(ROWS, "regression", 0, None, two.arrangement)
    refused("'x' is no time", path=written(path, house=["x"] * ROWS), split="time", by="house")
    reversed_days = written(tmp_path / "u.csv", day=VALUES["day"][::-1])
    options = {"split": "time", "by": "day", "drop": ["house"]}
    assert loaded(reversed_days, **options).checksum != loaded(written(path), **options).checksum


@pytest.mark.parametrize(
    "name", ["age", "the age, in years (est.)", "it's", "null", "1e3", "$x", "end\\", " b", "a'\"!"]
)
def test_advised_settings_are_read_as_they_are(name):
    (override,) = shlex.split(setting("drop", name, "other"))
    assert list(compose(spelled_out([override])).csv.drop) == [name, "other"]
    assert compose(spelled_out([f"csv.target={name} (b"])).csv.target == f"{name} (b".strip()
