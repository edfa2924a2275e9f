"""A user's own table."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlmexp.data.dataset import load
from dlmexp.data.spec import DatasetSpec, Task
from dlmexp.errors import UserError


def loaded(path, target: str | None = "y", task: Task = "regression"):
    return load(DatasetSpec("mine", "table", task, "counts", options={"path": str(path), "target": target}), "data")


def from_text(tmp_path, text: str, target="y", task: Task = "regression"):
    (tmp_path / "t.csv").write_text(text)
    return loaded(tmp_path / "t.csv", target, task)


def test_header_quotes_text_and_booleans(tmp_path):
    header, rows = '\ufeff"a, with comma",colour,flag,y\n', '1,"red, dark",true,10\n2.5,blue,false,-3e2\n'
    rows += '3,"say ""hi""\nthere",true,0\n'
    dataset = from_text(tmp_path, header + 9 * rows + rows.replace(",10\n", ",11\n"))
    levels = ["colour=red, dark", 'colour=say "hi"\nthere']
    assert dataset.facts["features"] == ["a, with comma", *levels, "flag"]
    assert dataset.X.tolist() == 10 * [[1, 1, 0, 1], [2.5, 0, 0, 0], [3, 0, 1, 1]]
    assert dataset.y.tolist() == [*(9 * [10, -300, 0]), 11, -300, 0]


def test_a_text_column_with_k_values_becomes_k_minus_one_columns(tmp_path):
    rows = "".join(f"{'abc'[k % 3]},k,{k}\n" for k in range(30))
    dataset = from_text(tmp_path, "x,same,y\n" + rows)
    assert dataset.facts["features"] == ["x=b", "x=c"]
    assert dataset.facts["kinds"] == {"x": "category of 3 levels, base 'a'", "same": "category of 1 level, base 'k'"}


@pytest.mark.parametrize("missing", ["", "NA", "NaN", '""'])
@pytest.mark.parametrize("column", ["number", "text", "y"])
def test_missing_values_are_refused_with_row_and_column(tmp_path, missing, column):
    rows = [{"number": "1", "text": "a", "y": "3"}, {"number": "2", "text": "b", "y": "4"}]
    rows[1][column] = missing
    text = "number,text,y\n" + "".join(f"{r['number']},{r['text']},{r['y']}\n" for r in rows)
    with pytest.raises(UserError, match=f"missing in row 2, column '{column}'"):
        from_text(tmp_path, text)


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"t.csv has columns but no rows"):
        from_text(tmp_path, "a,y\n")


def test_a_short_row_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"not a CSV file with a header.*Expected 2 columns, got 1"):
        from_text(tmp_path, "a,y\n1,2\n3\n")


@pytest.mark.parametrize(
    ("values", "codes"),
    [("-1 1 1", [0, 1, 1]), ("2 1 2", [1, 0, 1]), ("yes no yes", [1, 0, 1]), ("true false true", [1, 0, 1])],
)
def test_binary_targets_become_zero_and_one(tmp_path, values, codes):
    text = "a,y\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values.split()))
    assert from_text(tmp_path, text, task="binary").y.tolist() == codes


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ("1 2 3", "binary", "two values, this one has 3 \\(1.0, 2.0, 3.0\\)"),
        ("1 1 1", "binary", "has 1"),
        ("1 2.5 3", "count", "check 'counts' failed: .*found 2.5 in row 2"),
        ("1 -2 3", "count", "found -2 in row 2"),
        ("a b c", "count", "csv.target=y is text \\(e.g. 'a'\\): a count target is a number"),
        ("a b c", "regression", "csv.target=y is text"),
        ("1 inf 2", "regression", "row 2, column 'y'"),
    ],
)
def test_targets_that_do_not_fit_the_task_are_refused(tmp_path, values, task, message):
    text = "a,y\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values.split()))
    with pytest.raises(UserError, match=message):
        from_text(tmp_path, text, task=task)


def test_mistakes_in_the_options_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("alpha,yield\n1,2\n3,4\n")
    with pytest.raises(UserError, match=r"csv.target=yeild: t.csv has no such column: did you mean yield"):
        loaded(tmp_path / "t.csv", "yeild")
    with pytest.raises(UserError, match=r"csv.target is not set: .*alpha, yield"):
        loaded(tmp_path / "t.csv", None)
    with pytest.raises(UserError, match="there is no such file"):
        loaded(tmp_path / "other.csv")
    with pytest.raises(UserError, match=r"csv.path=FILE"):
        loaded("")
    (tmp_path / "t.xlsx").write_text("")
    with pytest.raises(UserError, match=r"'.xlsx' is not one of .csv, .*, .parquet, .feather, .npz"):
        loaded(tmp_path / "t.xlsx")


def test_unusable_columns_are_refused(tmp_path):
    with pytest.raises(UserError, match="several columns are called a"):
        from_text(tmp_path, "a,a,y\n1,2,3\n")
    with pytest.raises(UserError, match="no feature besides"):
        from_text(tmp_path, "y\n1\n2\n")
    with pytest.raises(UserError, match="'name' is a category with 101 distinct values"):
        from_text(tmp_path, "name,y\n" + "".join(f"n{k},{k}\n" for k in range(101)))
    with pytest.raises(UserError, match=r"column 'when' holds dates: csv.dates=\[when\]"):
        from_text(tmp_path, "when,y\n2020-01-01,1\n2020-01-02,2\n")


def test_parquet_gives_the_same_as_csv(tmp_path):
    table = pa.table(
        {
            "a": pa.array([1, 2, 3], pa.int32()),
            "c": pa.array(["u", "v", "u"]).dictionary_encode(),
            "b": pa.array([True, False, True]),
            "y": pa.array([0.5, 1.5, 2.5]),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    dataset = loaded(tmp_path / "t.parquet")
    other = from_text(tmp_path, "a,c,b,y\n1,u,true,0.5\n2,v,false,1.5\n3,u,true,2.5\n")
    assert dataset.checksum == other.checksum
    assert dataset.facts["features"] == other.facts["features"] == ["a", "c=v", "b"]
    assert dataset.facts["kinds"] == other.facts["kinds"]


def test_invalid_parquet_files_are_refused(tmp_path):
    table = pa.table({"a": [1.0, None], "y": [1.0, 2.0]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(UserError, match="row 2, column 'a'"):
        loaded(tmp_path / "t.parquet")
    parquet.write_table(pa.table({"a": [float("nan"), 1.0], "y": [1.0, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="row 1, column 'a'"):
        loaded(tmp_path / "t.parquet")
    parquet.write_table(pa.table({"a": [datetime.time(1)], "y": [1.0]}), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="column 'a' holds time"):
        loaded(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match="not a Parquet file"):
        loaded(tmp_path / "t.parquet")


def test_npz_arrays_are_one_or_several_columns(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), z=np.array([7, 8, 9]), y=np.array([[1.0], [2.0], [3.0]]))
    dataset = loaded(tmp_path / "t.npz")
    assert dataset.facts["features"] == ["X[0]", "X[1]", "X[2]", "z"]
    assert dataset.X[1].tolist() == [0, 1, 0, 8]
    assert dataset.y.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.eye(3), "y": np.ones(2)}, "different lengths"),
        ({"X": np.ones((2, 2, 2)), "y": np.ones(2)}, "3 dimensions"),
        ({"X": np.ones((2, 2)), "y": np.ones((2, 3))}, "a target is one column"),
        ({"X": np.ones((2, 2), dtype=complex), "y": np.ones(2)}, "type complex128"),
        ({"X": np.array([[1.0, np.nan]]), "y": np.ones(1)}, "row 1, column 'X\\[1\\]'"),
        ({"X": np.ones((2, 2)), "y": np.array(1.0)}, "array 'y' has 0 dimensions"),
        ({"X": np.array(1.0), "y": np.ones(2)}, "0 dimensions"),
    ],
)
def test_invalid_npz_arrays_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(UserError, match=message):
        loaded(tmp_path / "t.npz")


def test_a_missing_label_is_not_a_class(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(4), y=np.array([0.0, 0.0, np.nan, 0.0]))
    with pytest.raises(UserError, match="missing in row 3, column 'y'"):
        loaded(tmp_path / "t.npz", task="binary")


@pytest.mark.parametrize("text", ["größe,y\n1,2\n3,4\n", "a,y\nü,2\nö,4\n"])
def test_text_in_another_encoding_is_refused(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"t\.csv is not text in UTF-8 .*: save it as UTF-8"):
        loaded(tmp_path / "t.csv")


def test_nothing_is_written_next_to_the_users_file(tmp_path):
    from_text(tmp_path, "a,y\n1,2\n3,4\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_the_checksum_does_not_depend_on_the_path(tmp_path):
    first = from_text(tmp_path, "a,y\n1,2\n3,4\n")
    (tmp_path / "elsewhere").mkdir()
    assert from_text(tmp_path / "elsewhere", "a,y\n1,2\n3,4\n").checksum == first.checksum
