"""What is refused about a user's own table, with what to type, and what is warned of."""

import shlex

import numpy as np
import pandas as pd
import pytest

from dlmexp.common.literals import csv_setting
from dlmexp.data.config import CsvConfig
from dlmexp.data.raw_files import load
from dlmexp.data.schema import Column
from dlmexp.data.table_checks import (
    _duplicates,
    _leak,
    _linear_leak,
    _odd_category,
    _stray_words,
    is_row_numbering,
)
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.overrides import expand_shorthand
from tests.support.user_tables import (
    BINARY,
    LABEL,
    ROWS,
    VALUES,
    Y,
    lacking,
    loaded,
    refused,
    written,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def test_all_problems_are_in_one_list_with_the_settings_to_add(path):
    """What is advised is read by `dlmexp run`, keeps what was typed, and does away with all
    problems."""
    changed = {
        **lacking("a", 3), **lacking("b", 5, 9, word="n.a."), "id": [f"n{k}" for k in range(ROWS)],
        "sold": [f"{1 + k % 28:02d}_{1 + k // 28:02d}_2020" for k in range(ROWS)],
        "y": [k * k + 1 for k in range(ROWS)], "cents": [100 * k * k for k in range(ROWS)],
    }  # fmt: skip
    written(path, ";", **changed)
    said = refused(
        "5 problems", "'a'", "'b'", "'id'", "'sold'", "'cents'", path=path, sep=";", drop=["day"]
    )
    assert "csv.date_format=%d.%m.%Y" in str(said)
    dates = {"date_format": "%d_%m_%Y"}
    said = refused(
        "4 problems", "'a'", "'b'", "'id'", "'cents'", path=path, sep=";", drop=["day"], **dates
    )
    typed = f"dataset=csv csv.path={path} csv.target=y csv.task=regression csv.sep=; csv.drop=[day]".split()
    overrides = [
        *typed,
        "csv.date_format=%d_%m_%Y",
        *shlex.split(str(said).rpartition("Remedy: ")[2]),
    ]
    node = compose(expand_shorthand(overrides)).dataset["csv"]
    data = load(node, "data")
    assert node.options["drop"] == ["day", "id", "cents"]
    assert (data.X[0, -1], data.schema.columns[-1].description) == (18262, "date as %d_%m_%Y")
    logs = load(compose(expand_shorthand([*overrides, "csv.log=true"])).dataset["csv"], "data")
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
    refused("'a' is text", "Remedy: csv.categories=[a]", path=text)
    refused("row 60, column 'b'", "infinite", path=written(path, b=["1"] * (ROWS - 1) + ["inf"]))
    refused("t.csv", "inf in row 60, column 'y'", path=written(path, y=[*range(ROWS - 1), "inf"]))
    refused("e+150", path=written(path, b=[f"{k + 1}e150" for k in range(ROWS)]))


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


def test_advised_settings_are_read_as_they_are():
    names = ["age", "the age, in years (est.)", "it's", "null", "1e3", "$x", "end\\", " b", "a'\"!"]
    table = ["dataset=csv", "csv.path=a.csv", "csv.task=count", "csv.target=it's $x (b"]
    own = compose(expand_shorthand([*table, *shlex.split(csv_setting("drop", names))])).csv
    assert (list(own.drop), own.target) == (names, "it's $x (b")


@pytest.mark.parametrize(("n_rows", "most"), [(60, 6), (2000, 100)])
def test_category_has_at_most_a_tenth_of_the_rows_or_a_hundred_levels(n_rows, most):
    for n_levels in (most, most + 1):
        texts = np.array([f"n{k % n_levels}" for k in range(n_rows)], dtype=object)
        levels = tuple(sorted(set(texts)))
        column = Column("name", "category", levels)
        findings = list(_odd_category(column, texts, CsvConfig()))
        assert len(findings) == (n_levels > most)


def test_copies_are_warned_of_above_a_tenth_of_the_rows():
    for n_copies in (10, 11):
        rows = np.arange(100.0)
        rows[:n_copies] = 99
        warnings = list(_duplicates({"a": rows}, CsvConfig()))
        assert len(warnings) == (n_copies > 10)


def test_rows_of_a_group_may_be_copies_but_for_the_group():
    values = {"a": np.zeros(40), "house": np.arange(40.0)}
    assert not list(_duplicates(values, CsvConfig()))
    (finding,) = _duplicates(values, CsvConfig(split="group", by="house"))
    assert "39 of 40 rows are copies" in finding.message
    assert "csv.split" not in finding.warning, "rows are kept together already"


def test_nothing_is_inferred_from_few_rows():
    assert not list(_duplicates({"a": np.zeros(19)}, CsvConfig()))
    y = np.arange(20.0)
    assert _leak(2 * y, Column("a"), y) is not None
    assert _leak(2 * y[:19], Column("a"), y[:19]) is None


def numbers_with_words(n_words: int, n_distinct: int, n_rows: int = 100) -> np.ndarray:
    """Texts, of which the first are words."""
    words = [f"word{k % n_distinct}" for k in range(n_words)]
    return np.array([*words, *map(str, range(n_rows - n_words))], dtype=object)


def test_up_to_ten_words_among_numbers_may_mark_missing_values():
    for n_distinct in (10, 11):
        texts = numbers_with_words(22, n_distinct)
        column = Column("a", "category", tuple(sorted(set(texts))))
        (finding,) = _odd_category(column, texts, CsvConfig())
        assert ("makes them missing values" in finding.message) == (n_distinct == 10)
        assert set(finding.remedy) == ({"na", "missing"} if n_distinct == 10 else {"categories"})


def test_advice_keeps_how_missing_values_are_treated():
    texts = numbers_with_words(5, 1)
    column = Column("a", "category", tuple(sorted(set(texts))))
    (finding,) = _odd_category(column, texts, CsvConfig(missing="drop"))
    assert finding.remedy == {"na": ["word0"]}


def test_column_of_which_more_than_half_is_words_is_a_category():
    assert _stray_words(numbers_with_words(50, 3)) is not None
    assert _stray_words(numbers_with_words(51, 3)) is None


def test_decimal_commas_are_words_but_commas_between_thousands_are_not():
    assert _stray_words(np.array(["1,234.5", "2.5", "?"], dtype=object)).words == ["?"]  # pyright: ignore[reportOptionalMemberAccess]
    assert _stray_words(np.array(["1,5", "2", "3"], dtype=object)).words == ["1,5"]  # pyright: ignore[reportOptionalMemberAccess]


def test_leak_is_exact_only_if_it_is_the_target_in_other_words():
    y = np.repeat([1.0, 2.0, 1.0], 20)
    codes = np.repeat(["a", "b", "c"], 20).astype(object)
    column = Column("code", "category", ("a", "b", "c"))
    leak = _leak(codes, column, y)
    assert leak is not None
    assert not leak.is_exact  # a and c are both 1
    same = _leak(codes[:40], column, y[:40])
    assert same is not None
    assert same.is_exact


def test_linear_leak_is_exact_to_rounding_and_counts_to_a_thousandth():
    rng = np.random.default_rng(0)
    x = rng.normal(size=10_000)
    noise = rng.normal(size=len(x))
    for share, is_leak, is_exact in ((0, True, True), (1e-4, True, False), (1e-2, False, False)):
        leak = _linear_leak(x, 3 * x + 3 * np.sqrt(share) * noise + 1)
        assert (leak is not None) == is_leak
        if leak is not None:
            assert leak.is_exact == is_exact


def test_one_value_per_level_is_chance_in_small_levels():
    """A category with more levels than a fifth of the rows may determine the target by chance."""
    y = np.tile([0.0, 1.0], 20)
    for n_levels, is_leak in ((8, True), (10, False)):
        codes = np.array([f"c{k % n_levels}" for k in range(40)], dtype=object)
        leak = _leak(codes, Column("c", "category", tuple(sorted(set(codes)))), y)
        assert (leak is not None) == is_leak


@pytest.mark.parametrize(("values", "expected"), [
    ([0, 1, 2], True), ([1, 2, 3], True), ([2, 3, 4], False), ([0], False), ([1, 0, 2], False),
])  # fmt: skip
def test_rows_are_numbered_from_0_or_1(values, expected):
    assert is_row_numbering(np.array(values, dtype=float)) == expected
