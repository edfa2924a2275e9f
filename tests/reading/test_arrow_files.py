"""Parquet and Feather files of which a few bytes stand for very many."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dlmexp.data.table_files import read_table
from dlmexp.reading.arrow_files import open_feather
from dlmexp.reading.streams import feather_pieces, parquet_pieces
from pyarrow import feather, parquet

from dlmexp.errors import Unreadable

REFUSED = r"unfolds to \d+ bytes, more than \d+: refused"


def _word_often(path: Path) -> None:
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * (1 << 20)]))
    (parquet.write_table if path.suffix == ".parquet" else feather.write_feather)(pa.table({"a": word}), path)


def _zeros(path: Path) -> None:
    table = pa.table({"a": np.zeros(1_000_000)})
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path, compression="zstd")


@pytest.mark.parametrize("make", [_word_often, _zeros])
@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_table_that_unfolds_without_end_is_refused(make, suffix, tmp_path, monkeypatch):
    path = tmp_path / f"a{suffix}"
    make(path)
    if make is _zeros:
        assert read_table(path).num_rows == 1_000_000
        monkeypatch.setattr("dlmexp.reading.arrow_files.SMALL", 1000)
    with pytest.raises(Unreadable, match=REFUSED):
        read_table(path)
    if make is _word_often:
        pieces = (parquet_pieces if suffix == ".parquet" else feather_pieces)(path, ["a"])[1]
        with pytest.raises(Unreadable, match=REFUSED):
            next(pieces)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
def test_what_a_feather_file_claims_is_what_it_takes(compression, tmp_path, monkeypatch):
    claims = []
    monkeypatch.setattr("dlmexp.reading.arrow_files.check_claim", lambda path, claimed: claims.append(claimed))
    table = pa.table({"a": np.arange(5000.0), "b": ["some", "words"] * 2500, "c": [True, None] * 2500})
    feather.write_feather(table, tmp_path / "a.feather", compression=compression, chunksize=1000)
    found = open_feather(tmp_path / "a.feather", whole=True).read_all()
    assert found.equals(table)
    assert table.nbytes <= max(claims) <= 1.1 * table.nbytes  # buffers end at multiples of 8 or 64 bytes
