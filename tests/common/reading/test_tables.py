"""Tables of any size and origin, whole and in pieces."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlmexp.common.errors import Unreadable
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
    for limit in ("MAX_BYTES", "SMALL"):
        monkeypatch.setattr(f"dlmexp.common.reading.tables.{limit}", 1 << 20)
    for name in ("t.parquet", "t.csv.gz"):
        with pytest.raises(Unreadable, match=name):
            read_table(tmp_path / name)
