"""Tables as people have them: made on other systems, with other habits of writing, with copies of rows."""

import numpy as np
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, Task
from dlmexp.data.traps import rare_class, repeated_rows
from dlmexp.errors import UserError

ROWS = 60
RNG = np.random.default_rng(1)
A, Y = RNG.normal(size=ROWS).round(3), RNG.normal(size=ROWS).round(3)


def text(column: list[str] | None = None, sep: str = ",", name: str = "b") -> str:
    """Columns a and y, and one of texts between them."""
    names, columns = ["a", name, "y"], [A, column or ["x", "z"] * (ROWS // 2), Y]
    lines = [sep.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([sep.join(names), *lines]) + "\n"


def loaded(path, task: Task = "regression", **options):
    options = {"path": str(path), "target": "y", **options}
    return load(DatasetSpec("mine", "table", task, "regression", options=options), "data")


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (text().replace("\n", "\r\n").encode(), ["a", "b=z"]),
        (text().replace("\n", "\r").encode(), ["a", "b=z"]),
        (text().encode("utf-8-sig"), ["a", "b=z"]),
        ((text() + "\n\n").encode(), ["a", "b=z"]),
        (text(name="size of house").encode(), ["a", "size of house=z"]),
        (text(name="größe").encode(), ["a", "größe=z"]),
        (text(['"x, or ""u"""', "z"] * (ROWS // 2)).encode(), ["a", "b=z"]),
        (text(["True", "False"] * (ROWS // 2)).encode(), ["a", "b"]),
    ],
    ids=["Windows", "old Mac", "BOM", "empty lines", "spaces", "umlauts", "quotes", "booleans"],
)
def test_read_as_it_is(tmp_path, content, columns):
    path = tmp_path / "my table (1).csv"
    path.write_bytes(content)
    found = loaded(path)
    assert found.facts["features"] == columns
    assert (found.X[:, 0] == A).all()
    assert (found.y == Y).all()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (text().encode("utf-16"), {}, "UTF-16: save it as UTF-8"),
        (text(["é", "z"] * (ROWS // 2)).encode("latin-1"), {}, "not text in UTF-8"),
        (text(sep=";").replace(".", ",").encode(), {}, "give its separator, csv.sep=semicolon"),
        (text(sep=";").replace(".", ",").encode(), {"sep": ";"}, "with a decimal point"),
        (text().partition("\n")[2].replace("x", "1").replace("z", "2").encode(), {}, "first line holds numbers"),
        (text([f"{k + 1}.01.2020" for k in range(ROWS)]).encode(), {}, "dates, write them as 2020-12-31"),
        (text([f"{k + 1}.01.2020" for k in range(ROWS)]).encode(), {"dates": ["b"]}, "'1.01.2020': write dates"),
        (text().encode(), {"dates": ["a"]}, "'a' holds numbers such as"),
        (text([f'"{k + 1},000"' for k in range(ROWS)]).encode(), {}, "without commas between thousands"),
        (text([f"{k}.5%" for k in range(ROWS)]).encode(), {}, "without signs and units"),
        (text([f"$ {k}" for k in range(ROWS)]).encode(), {}, "without signs and units"),
        (text([""] * ROWS).encode(), {}, "column 'b' is empty: csv.drop=\\[b\\]"),
        (text([f"{k}e150" for k in range(1, ROWS + 1)]).encode(), {}, "feature 2 is 1e[+]150, above 1e[+]100"),
    ],
    ids=[
        "UTF-16", "Latin-1", "semicolons", "decimal commas", "no header", "German dates", "German dates as dates",
        "numbers as dates", "thousands", "percent", "dollars", "empty column", "huge",
    ],
)  # fmt: skip
def test_refused_with_what_to_do(tmp_path, content, options, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as found:
        loaded(path, **options)
    assert "\n" not in str(found.value)


def test_columns_with_numbers_for_names_are_no_missing_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text().replace("a,b,y", "0,1,2"))
    assert loaded(path, target="2").facts["features"] == ["0", "1=z"]


def test_text_under_another_ending_is_told_to_be_renamed(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(text())
    with pytest.raises(UserError, match=r"'.txt' is not one of .* rename it to .csv"):
        loaded(path)


def test_copies_of_rows():
    X, y = RNG.normal(size=(50, 2)), RNG.normal(size=50)
    assert repeated_rows(X, y, own_test=False) is None
    copied = np.concatenate([X, X[:6]]), np.concatenate([y, y[:6]])
    warnings = [repeated_rows(*copied, own_test=own) or "" for own in (False, True)]
    assert all(warning.startswith("6 of 56 rows are copies of others") for warning in warnings)
    assert ["csv.split=group" in warning for warning in warnings] == [True, False], "no division moves own test rows"
    assert repeated_rows(copied[0], np.arange(56.0), own_test=False) is None, "the targets differ"


def test_a_class_of_hardly_any_rows():
    y = np.r_[np.zeros(40), np.ones(3)]
    assert (rare_class(("no", "yes"), y) or "").startswith("class 'yes' has 3 rows")
    assert rare_class(("no", "yes"), np.r_[np.zeros(40), np.ones(10)]) is None
