"""Tables in other encodings and formats are the same tables."""

import gzip
import io
import json
import sys
import zipfile
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from dlmexp.common.errors import UserError
from dlmexp.common.reading.tables import read_table, stream_table

FRAME = pd.DataFrame(
    {"größe": [1.5, 2.0, None], "stadt": ["Köln", "Jülich", "Ulm"], "n": [1, 2, 3]}
)
TEXT = FRAME.to_csv(index=False)


def zipped(**members: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("_", ".").replace("..MACOSX", "__MACOSX/."), text)
    return file.getvalue()


def json_lines() -> bytes:
    rows = FRAME.astype(object).where(FRAME.notna(), None).to_dict("records")
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


CONTENTS = {
    "t.csv": (TEXT.encode("utf-16"), None),
    "latin.csv": (TEXT.encode("latin-1"), "latin-1"),
    "packed.csv.gz": (gzip.compress(TEXT.encode("latin-1")), "latin-1"),
    "t.zip": (zipped(t_csv=TEXT, readme_md="about"), None),
    "tabs.zip": (zipped(t_tsv=TEXT.replace(",", "\t")), None),
    "t.jsonl": (json_lines(), None),
    "t.ndjson.gz": (gzip.compress(json_lines()), None),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_table_is_the_same_in_every_format(tmp_path, name):
    content, encoding = CONTENTS[name]
    path = tmp_path / name
    path.write_bytes(content)
    pd.testing.assert_frame_equal(read_table(path, encoding=encoding).to_pandas(), FRAME)
    names, pieces = stream_table(path, encoding=encoding)
    assert names == list(FRAME)
    assert pa.Table.from_batches(list(pieces)).column("stadt").to_pylist() == list(FRAME["stadt"])


def test_feather_and_its_damage(tmp_path):
    path = tmp_path / "t.feather"
    feather.write_feather(FRAME, path)
    pd.testing.assert_frame_equal(read_table(path).to_pandas(), FRAME)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="is not a Feather file"):
        read_table(path)


def test_workbook_with_one_sheet_of_values(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "t.xlsx"
    FRAME.to_excel(path, index=False)
    pd.testing.assert_frame_equal(read_table(path).to_pandas(), FRAME)
    with pd.ExcelWriter(path) as writer:
        for sheet in ("2023", "2024"):
            FRAME.to_excel(writer, sheet_name=sheet, index=False)
    with pytest.raises(UserError, match=r"2 sheets \(2023, 2024\)"):
        read_table(path)


class Sheet:
    title = "Sheet"

    def __init__(self, rows):
        self.rows = rows

    def iter_rows(self, values_only):
        assert values_only
        return iter(self.rows)


class Workbook(list):
    def close(self):
        pass


def read_workbook(tmp_path, monkeypatch, rows) -> pa.Table:
    """Return the table of a workbook with one sheet, as read without openpyxl."""
    path = tmp_path / "t.xlsx"
    path.write_bytes(zipped())
    book = Workbook([Sheet(rows)])
    openpyxl = SimpleNamespace(load_workbook=lambda path, **options: book)
    monkeypatch.setitem(sys.modules, "openpyxl", openpyxl)
    return read_table(path)


COLUMNS_OF_WORKBOOKS = {
    "truth values": ([True, False, None], pa.bool_(), [True, False, None]),
    "truth values among integers": ([True, 2, None], pa.int64(), [1, 2, None]),
    "truth values among numbers": ([True, 2.5, 3], pa.float64(), [1.0, 2.5, 3.0]),
    "integers of more than 64 bits": ([1, 10**20], pa.float64(), [1.0, 1e20]),
    "numbers among texts": ([1, "x"], pa.string(), ["1", "x"]),
}


@pytest.mark.parametrize("kind", COLUMNS_OF_WORKBOOKS)
def test_column_of_a_workbook_has_a_type_that_fits_all_values(tmp_path, monkeypatch, kind):
    values, expected_type, expected = COLUMNS_OF_WORKBOOKS[kind]
    # Rows without any value are left out: the column `row` has a value everywhere.
    rows = [("row", "a"), *enumerate(values)]
    column = read_workbook(tmp_path, monkeypatch, rows).column("a")
    assert column.type == expected_type
    assert column.to_pylist() == expected


def test_workbook_without_values_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no sheet with values"):
        read_workbook(tmp_path, monkeypatch, rows=[(None, None)])


def test_table_in_a_folder_of_an_archive_is_read(tmp_path):
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/t.csv", TEXT)
    pd.testing.assert_frame_equal(read_table(path).to_pandas(), FRAME)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/t.csv", TEXT)
    with pytest.raises(UserError, match=r"it has folder/t\.csv, other/t\.csv"):
        read_table(path)


def test_named_encoding_is_for_files_that_are_not_in_utf_8(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TEXT, encoding="utf-8")
    pd.testing.assert_frame_equal(read_table(path, encoding="latin-1").to_pandas(), FRAME)


@pytest.mark.parametrize(("encoding", "words"), [
    (None, "csv.encoding=latin-1"), ("latin-eins", "csv.encoding=latin-eins: give one"),
])  # fmt: skip
def test_encoding_that_is_not_known_is_asked_for(tmp_path, encoding, words):
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        read_table(path, encoding=encoding)


@pytest.mark.parametrize(("members", "listed"), [
    ({"a_csv": TEXT, "b_csv": TEXT}, "it has a.csv, b.csv"), ({"notes_md": "x"}, "it has none"),
])  # fmt: skip
def test_archive_needs_a_single_table(tmp_path, members, listed):
    path = tmp_path / "t.zip"
    path.write_bytes(zipped(**members))
    with pytest.raises(UserError, match=listed):
        read_table(path)


def test_lines_that_are_no_json_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(UserError, match="JSON lines"):
        read_table(path)
