"""Tables of any size and origin, whole and in pieces."""

import gzip
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlmexp.common.errors import Unreadable
from dlmexp.common.reading import tables
from dlmexp.common.reading.tables import read_table, stream_table


def test_further_words_for_a_missing_value(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,NA\n?,x\n"))
    (piece,) = stream_table(tmp_path / "t.csv.gz", missing=["?"])[1]
    assert piece.to_pydict() == {"a": ["1", None], "b": [None, "x"]}
    assert read_table(tmp_path / "t.csv.gz", missing=["?"]).to_pydict() == {
        "a": [1, None],
        "b": [None, "x"],
    }


def test_a_table_that_unfolds_to_too_much(tmp_path, monkeypatch):
    parquet.write_table(pa.table({"a": np.zeros(2_000_000)}), tmp_path / "t.parquet")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\n" + b"0" * 2_000_000))
    for limit in ("MAX_BYTES", "ALWAYS_ALLOWED_BYTES"):
        monkeypatch.setattr(f"dlmexp.common.reading.tables.{limit}", 1 << 20)
    for name in ("t.parquet", "t.csv.gz"):
        with pytest.raises(Unreadable, match=name):
            read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "encoding"),
    [("t.csv", "utf-8"), ("t.csv", "latin-1"), ("t.csv.gz", "utf-8"), ("t.zip", "utf-8")],
)
def test_arrow_reads_no_file_of_python(tmp_path, monkeypatch, name, encoding):
    """Its threads may release one while the program ends, which aborts the program."""
    text = "a,größe\n1,x\n2,y\n".encode(encoding)
    path = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("t.csv", text)
    else:
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    sources = []

    def watched(read):
        def call(source, *args, **options):
            sources.append(source)
            return read(source, *args, **options)

        return call

    monkeypatch.setattr(tables.csv, "read_csv", watched(tables.csv.read_csv))
    monkeypatch.setattr(tables.csv, "open_csv", watched(tables.csv.open_csv))
    typed = None if encoding == "utf-8" else encoding
    whole = tables.read_table(path, encoding=typed)
    names, pieces = tables.stream_table(path, encoding=typed)
    assert whole.column_names == names == ["a", "größe"]
    assert sum(piece.num_rows for piece in pieces) == whole.num_rows == 2
    assert {type(source) for source in sources} <= {
        pa.OSFile,
        pa.CompressedInputStream,
        pa.BufferReader,
    }
    assert len(sources) >= 2
