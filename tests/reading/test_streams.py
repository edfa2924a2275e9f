"""Tables in pieces: the rows that the whole table has, within the same limits, and one exception for what is wrong."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dlmexp.reading.streams import Pieces, csv_pieces, feather_pieces, parquet_pieces

from dlmexp.errors import Unreadable
from dlmexp.reading import streams, tables

ROWS = 300
WANTED = ["b", "a", "not there"]


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    names = rng.choice(["x", "y, with comma", "é"], ROWS)
    return pd.DataFrame({"a": rng.integers(0, 9, ROWS), "b": names, "c": rng.normal(size=ROWS)})


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=70)
    elif path.suffix == ".feather":
        frame.to_feather(path, chunksize=70)
    else:
        text = frame.to_csv(index=False).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


READERS: dict[str, Callable[..., Pieces]] = {
    "a.csv": csv_pieces, "a.csv.gz": csv_pieces, "a.parquet": parquet_pieces, "a.feather": feather_pieces,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_the_pieces_are_the_table(frame, tmp_path, monkeypatch, name):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 500)
    monkeypatch.setattr(streams, "BLOCK_ROWS", 40)
    names, pieces = READERS[name](write(frame, tmp_path / name), WANTED)
    assert names == ["a", "b", "c"]
    found = list(pieces)
    assert len(found) > 4
    whole = pa.Table.from_batches(found)
    assert set(whole.column_names) == {"a", "b"}
    assert whole["b"].to_pylist() == frame["b"].tolist()
    assert [int(value) for value in whole["a"].to_pylist()] == frame["a"].tolist()


@pytest.mark.parametrize("name", READERS)
def test_too_many_columns_are_refused_before_any_row(frame, tmp_path, monkeypatch, name):
    monkeypatch.setattr(tables, "MAX_COLUMNS", 2)
    with pytest.raises(Unreadable, match="has 3 columns, more than 2"):
        READERS[name](write(frame, tmp_path / name), WANTED)


def test_a_gzipped_file_that_unfolds_without_end_stops_at_the_limit(frame, tmp_path, monkeypatch):
    path = write(pd.concat([frame] * 900), tmp_path / "a.csv.gz")
    monkeypatch.setattr(streams, "MAX_STREAM_BYTES", 3 << 20)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 1 << 18)
    found: list[pa.RecordBatch] = []
    with pytest.raises(Unreadable, match="decompresses to more than 3145728 bytes: refused"):
        found.extend(csv_pieces(path, WANTED)[1])  # pyarrow reads ahead, and may stop before the first piece
    assert sum(piece.num_rows for piece in found) < 900 * ROWS


def test_rows_of_parquet_that_claim_too_much_are_not_unfolded(frame, tmp_path, monkeypatch):
    path = write(frame, tmp_path / "a.parquet")
    monkeypatch.setattr("dlmexp.reading.arrow_files.MAX_TABLE_BYTES", 100)
    with pytest.raises(Unreadable, match=r"unfolds to .* bytes, more than 100: refused"):
        parquet_pieces(path, WANTED)


@pytest.mark.parametrize("name", READERS)
def test_a_file_cut_anywhere_or_with_a_bit_flipped_is_read_or_refused(frame, tmp_path, name):
    path = write(frame.head(40), tmp_path / name)
    sound, said = path.read_bytes(), []
    for k in range(0, len(sound), max(1, len(sound) // 60)):
        flipped = bytearray(sound)
        flipped[k] ^= 1 << (k % 8)
        for damaged in (sound[:k], bytes(flipped)):
            path.write_bytes(damaged)
            try:
                list(READERS[name](path, WANTED)[1])
            except Unreadable as error:
                said.append(str(error))
    assert said
    assert all(name in text and "\n" not in text for text in said)


@pytest.mark.parametrize(("content", "said"), [(b"", "not a csv file"), (b"a,b\n1\n", "Expected 2 columns"),
                                               (b"a,\xe9\n1,2\n", "UTF-8"), (b"a,b\n1,\xe9\n", "UTF8")])  # fmt: skip
def test_text_that_is_no_table(tmp_path, content, said):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(Unreadable, match=said):
        list(csv_pieces(tmp_path / "a.csv", WANTED)[1])


def test_threads_that_read_ahead_need_no_python(tmp_path, monkeypatch):
    """A thread of Arrow's in a read of a Python stream aborts the interpreter that ends meanwhile."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    monkeypatch.setattr(streams, "open_raw", None)
    names, pieces = streams.csv_pieces(path, ["a"])
    assert names == ["a", "b"]
    assert [piece.to_pydict() for piece in pieces] == [{"a": ["1"]}]
