"""Packed records: many cells in one Parquet file, to be carried from machine to machine or kept in a repository.

One row per cell, learning curves and the like as columns of lists. The file's metadata holds what was asked for. Such
a file in a results folder (`*.parquet`) is a read-only layer under the folder's own records: a folder with it reads
like one with the same records as JSON, and a run goes on from both. Trained models are not packed.
"""

# pyarrow makes its functions when it is imported: types can't know them.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlmexp.errors import Unreadable, UserError
from dlmexp.plan.cell import Cell
from dlmexp.reading.json_text import typed_json
from dlmexp.records.files import write_atomically
from dlmexp.records.manifest import Asked
from dlmexp.records.provenance import portable_command
from dlmexp.records.record import FORMAT, METRICS, Made, Result, check_format

PATTERN = "*.parquet"
TABLE = "table.parquet"  # what `collect` writes beside packed records
ARRAY = "array_"  # how the names of columns of lists begin
MAX_ROWS = 5_000_000
MAX_ASKED = 1 << 28  # bytes of what was asked for
MAX_BYTES = 8 << 30  # of a file's columns before compression
KINDS = {"FloatType": pa.float64(), "IntType": pa.int64(), "BoolType": pa.bool_(), "DictType": pa.string()}


def _arrow(kind: Any) -> pa.DataType:
    """The Arrow type of a field; that of the other member where it may be None."""
    if isinstance(kind, msgspec.inspect.UnionType):
        (kind,) = (one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
    return KINDS.get(type(kind).__name__, pa.string())


TYPES = {
    field.name: _arrow(field.type)
    for struct in (Cell, Result, Made)
    for field in msgspec.inspect.type_info(struct).fields  # pyright: ignore[reportAttributeAccessIssue]
    if field.name not in ("validation", "test", "trivial", "hyperparameters")
}


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Flat records (`record.flat`) as an Arrow table."""
    names = dict.fromkeys(["key", "status", *TYPES, *(name for row in rows for name in row)])
    metric = (*(f"{part}_" for part in METRICS), "hyper_")
    kinds = {name: TYPES.get(name, pa.float64() if name.startswith(metric) else pa.string()) for name in names}
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()})


class Packed:
    """One file of packed records, of which each part is read when first asked for."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def _file(self) -> pq.ParquetFile:
        try:
            file = pq.ParquetFile(self.path, page_checksum_verification=True)
            about = file.metadata
            size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            if about.num_rows > MAX_ROWS or size > MAX_BYTES:
                raise Unreadable(f"it has {about.num_rows} rows and {size} bytes: more than {MAX_ROWS} or {MAX_BYTES}")
            check_format(int((about.metadata or {}).get(b"dlmexp", b"0")))
            missing = {"key", "status", "asked", "beta"} - {*file.schema_arrow.names}
            if missing:
                raise Unreadable(f"it has no column {' or '.join(sorted(missing))}")
            return file
        except (pa.ArrowException, OSError, ValueError, Unreadable) as error:
            raise self._error(error) from None

    def _error(self, error: Exception) -> UserError:
        said = " ".join(str(error).split())[:300]
        return UserError(f"'{self.path}' can't be read as packed records ({said}): restore it, or move it away")

    def _read(self, columns: list[str]) -> pa.Table:
        try:
            return self._file.read(columns)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._error(error) from None

    @cached_property
    def _status(self) -> pa.Table:
        return self._read(["key", "status", "asked", "beta"])

    @cached_property
    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells."""
        done = pc.equal(self._status["status"], "done")
        keys = self._status["key"]
        return {*keys.filter(done).to_pylist()}, {*keys.filter(pc.invert(done)).to_pylist()}

    @cached_property
    def asked(self) -> list[Asked]:
        """What was asked for; a candidate without a row has '' for its key."""
        try:
            packed = base64.b64decode((self._file.metadata.metadata or {})[b"asked"])
            groups = typed_json(zlib.decompressobj().decompress(packed, MAX_ASKED), list[Asked])
        except (KeyError, ValueError, zlib.error, Unreadable) as error:
            raise self._error(error) from None
        column = self._status["asked"].combine_chunks()
        index = column.flatten().to_numpy()
        row = np.repeat(np.arange(len(column)), pc.list_value_length(column).to_numpy())
        if len(index) and not 0 <= index.min() <= index.max() < len(groups):
            raise self._error(Unreadable("it names groups that it does not have"))
        keys, betas = self._status["key"].to_pylist(), self._status["beta"].to_pylist()
        members: list[dict[float | None, str]] = [{} for _ in groups]
        for group, place in zip(index.tolist(), row.tolist(), strict=True):
            members[group][betas[place]] = keys[place]
        return [
            msgspec.structs.replace(group, keys=tuple([known.get(beta, "") for beta in group.betas]))
            for group, known in zip(groups, members, strict=True)
        ]

    def cells(self) -> pa.Table:
        """One row per cell, without columns of lists."""
        names = self._file.schema_arrow.names
        return self._read([name for name in names if name != "asked" and not name.startswith(ARRAY)])

    @cached_property
    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """The arrays of all cells that have some, by key and name."""
        names = [name for name in self._file.schema_arrow.names if name.startswith(ARRAY)]
        table = self._read(["key", *names])
        arrays: dict[str, dict[str, np.ndarray]] = {}
        for name in names:
            column = table[name].combine_chunks()
            rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            keys = table["key"].take(rows).to_pylist()
            kept = column.take(pa.array(rows))
            ends = np.cumsum(pc.list_value_length(kept).to_numpy())
            parts = np.split(kept.flatten().to_numpy(zero_copy_only=False), ends[:-1]) if len(rows) else []
            for key, values in zip(keys, parts, strict=True):
                arrays.setdefault(key, {})[name.removeprefix(ARRAY)] = values
        return arrays


def packs(root: Path) -> Iterator[Packed]:
    """The packed records of a results folder."""
    for path in sorted(root.glob(PATTERN)):
        if path.name != TABLE and path.is_file():
            yield Packed(path)


def write_packed(
    path: Path, cells: pa.Table, arrays: Mapping[str, Mapping[str, np.ndarray]], asked: Sequence[Asked]
) -> int:
    """Write cells (`Store.cells`) with their arrays and what was asked for; returns the number of cells."""
    order = ["dataset", "objective", "variant", "estimator", "options", "parameterisation", "n", "seed", "beta"]
    cells = cells.drop_columns([name for name in ("model", "arrays") if name in cells.column_names])
    cells = cells.sort_by([(name, "ascending") for name in order])
    commands = {text: portable_command(text) for text in cells["command"].unique().to_pylist() if text}
    texts = [commands.get(text, text) for text in cells["command"].to_pylist()]
    cells = cells.set_column(cells.column_names.index("command"), "command", pa.array(texts, pa.string()))
    keys = cells["key"].to_pylist()
    groups: dict[str, list[int]] = {key: [] for key in keys}
    kept = [group for group in asked if any(key in groups for key in group.keys)]
    for index, group in enumerate(kept):
        for key in group.keys:
            if key in groups:
                groups[key].append(index)
    cells = cells.append_column("asked", pa.array([groups[key] for key in keys], pa.list_(pa.int32())))
    for name in sorted({name for some in arrays.values() for name in some}):
        values = [arrays.get(key, {}).get(name) for key in keys]
        kind = pa.float32() if all(v is None or v.dtype == np.float32 for v in values) else pa.float64()
        cells = cells.append_column(ARRAY + name, pa.array(values, pa.list_(kind)))
    bare = [msgspec.structs.replace(group, keys=()) for group in kept]
    text = base64.b64encode(zlib.compress(msgspec.json.encode(bare), 9))
    cells = cells.replace_schema_metadata({b"dlmexp": str(FORMAT).encode(), b"asked": text})
    split = [f.name for f in cells.schema if f.type == pa.float64() and f.name.startswith(("test_", "validation_"))]
    sink = pa.BufferOutputStream()
    pq.write_table(
        cells, sink, compression="zstd", compression_level=19, write_page_checksum=True,
        use_byte_stream_split=split,  # pyright: ignore[reportArgumentType]
        use_dictionary=[name for name in cells.column_names if name not in split],
    )  # fmt: skip
    write_atomically(path, sink.getvalue().to_pybytes())
    return len(keys)
