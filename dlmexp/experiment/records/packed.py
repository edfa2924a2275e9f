"""Packed records: many cells in one Parquet file, to be carried from machine to machine or kept in
a repository.

One row per cell, learning curves and the like as columns of lists. The file's metadata holds what
was asked for. Such a file in a results folder (`*.parquet`) is a read-only layer under the folder's
own records: a folder with it reads like one with the same records as JSON, and a run goes on from
both. Trained models are not packed."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dlmexp.common.atomic import write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.provenance import Provenance
from dlmexp.common.reading.files import json_value, reading
from dlmexp.experiment.plan.cell import Asked, Cell
from dlmexp.experiment.records.record import FORMAT, MAPPINGS, Result

PATTERN = "*.parquet"
TABLE = "table.parquet"  # what `collect` writes beside packed records
ARRAY = "array_"  # how the names of columns of lists begin
NUMBERS = (
    "validation_",
    "test_",
    "trivial_",
    "hyper_",
)  # how the names of metrics and hyperparameters begin
ORDER = (
    "dataset",
    "objective",
    "variant",
    "estimator",
    "options",
    "parameterisation",
    "n",
    "seed",
    "beta",
)
BROKEN = "can't be read as packed records: restore it, or move it away"
MAX_ROWS = 5_000_000
MAX_ASKED = 1 << 28  # bytes of what was asked for
MAX_BYTES = 8 << 30  # of a file's columns before compression
TEXT = pa.dictionary(pa.int32(), pa.string())
ARROW = {
    "FloatType": pa.float64(),
    "IntType": pa.int64(),
    "BoolType": pa.bool_(),
}  # all else is text


def _arrow(kind: Any) -> pa.DataType:
    """The Arrow type of a field; that of the other member where it may be None."""
    members = [type(member).__name__ for member in getattr(kind, "types", [kind])]
    return next((ARROW[name] for name in members if name in ARROW), TEXT)


TYPES = {"key": pa.string(), "status": TEXT} | {
    field.name: _arrow(field.type)
    for struct in (Cell, Result, Provenance)
    for field in msgspec.inspect.type_info(struct).fields  # pyright: ignore[reportAttributeAccessIssue]
    if field.name not in MAPPINGS
}


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Flat records (`record.flat`) as an Arrow table."""
    names = dict.fromkeys([*TYPES, *(name for row in rows for name in row)])
    kinds = {
        name: TYPES.get(name, pa.float64() if name.startswith(NUMBERS) else pa.string())
        for name in names
    }
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    )


class Packed:
    """One file of packed records, of which each part is read when first asked for."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def _file(self) -> pq.ParquetFile:  # noqa: TID251
        with reading(self.path, BROKEN):
            texts = [
                field.name for field in pq.read_schema(self.path) if TYPES.get(field.name) == TEXT
            ]
            file = pq.ParquetFile(  # noqa: TID251
                self.path, read_dictionary=texts, pre_buffer=True, page_checksum_verification=True
            )
            about = file.metadata
            size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            if about.num_rows > MAX_ROWS or size > MAX_BYTES:
                raise ValueError(
                    f"it has {about.num_rows} rows and {size} bytes: more than {MAX_ROWS} or {MAX_BYTES}"
                )
            if (version := (about.metadata or {}).get(b"dlmexp", b"0").decode()) != str(FORMAT):
                raise ValueError(
                    f"it has format {version}, and this dlmexp reads {FORMAT}: another version wrote it"
                )
            if missing := {"key", "status", "asked", "beta"} - {*file.schema_arrow.names}:
                raise ValueError(f"it has no column {' or '.join(sorted(missing))}")
            return file

    def _read(self, columns: Sequence[str]) -> pa.Table:
        with reading(self.path, BROKEN):
            return self._file.read(columns)

    @cached_property
    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells."""
        table = self._read(["key", "status"])
        keys, status = table["key"].to_pylist(), table["status"].cast(pa.string()).to_pylist()
        done = {key for key, each in zip(keys, status, strict=True) if each == "done"}
        return done, {*keys} - done

    @cached_property
    def asked(self) -> list[Asked]:
        """What was asked for; the keys of a group are those that have rows here."""
        with reading(self.path, BROKEN):
            text = base64.b64decode((self._file.metadata.metadata or {})[b"asked"])
            try:
                groups = json_value(zlib.decompressobj().decompress(text, MAX_ASKED), list[Asked])
            except Unreadable as why:  # which does not name the file
                raise ValueError(str(why)) from None
            table = self._read(["key", "beta", "asked"])
            lists = table["asked"].combine_chunks()
            group, row = lists.flatten().to_numpy(), lists.value_parent_indices().to_numpy()
            if len(group) and not 0 <= group.min() <= group.max() < len(groups):
                raise ValueError("it names groups that it does not have")
            order = np.lexsort((-table["beta"].to_numpy()[row], group))  # the largest beta first
            keys = table["key"].to_numpy()[row[order]]
            ends = np.cumsum(np.bincount(group, minlength=len(groups)))
        return [
            msgspec.structs.replace(each, keys=tuple(own))
            for each, own in zip(groups, np.split(keys, ends[:-1]), strict=True)
        ]

    def cells(self, columns: tuple[str, ...] = ("",)) -> pa.Table:
        """One row per cell, with the columns whose names begin like one of `columns`; none of them
        are of lists."""
        names = [name for name in self._file.schema_arrow.names if name.startswith(columns)]
        return self._read(
            [name for name in names if name != "asked" and not name.startswith(ARRAY)]
        )

    @cached_property
    def _lists(self) -> Any:
        """The columns of lists, by key, as a DataFrame: pandas is loaded where they are drawn."""
        names = [name for name in self._file.schema_arrow.names if name.startswith(ARRAY)]
        lists = self._read(["key", *names]).to_pandas().set_index("key").dropna(how="all")
        return lists.rename(columns=lambda name: name.removeprefix(ARRAY))

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The arrays of a cell by name; empty for one without any."""
        return self._lists.loc[key].dropna().to_dict() if key in self._lists.index else {}


def write_packed(
    path: Path,
    cells: pa.Table,
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    asked: Sequence[Asked],
) -> None:
    """Write cells (`Store.cells`) with their arrays by key and name, and what was asked for."""
    plain = pa.schema(
        [field.with_type(pa.string()) if field.type == TEXT else field for field in cells.schema]
    )
    cells = cells.cast(plain).drop_columns(
        [name for name in ("model", "arrays") if name in cells.column_names]
    )
    cells = cells.sort_by([(name, "ascending") for name in ORDER])
    keys = cells["key"].to_pylist()
    groups: dict[str, list[int]] = {key: [] for key in keys}
    for index, group in enumerate(asked):
        for key in groups.keys() & {*group.keys}:
            groups[key].append(index)
    cells = cells.append_column(
        "asked", pa.array([groups[key] for key in keys], pa.list_(pa.int32()))
    )
    for name in sorted({name for named in arrays.values() for name in named}):
        values = [arrays.get(key, {}).get(name) for key in keys]
        kind = (
            pa.float32()
            if all(v is None or v.dtype == np.float32 for v in values)
            else pa.float64()
        )
        cells = cells.append_column(ARRAY + name, pa.array(values, pa.list_(kind)))
    bare = [msgspec.structs.replace(group, keys=()) for group in asked]
    text = base64.b64encode(zlib.compress(msgspec.json.encode(bare), 9))
    cells = cells.replace_schema_metadata({b"dlmexp": str(FORMAT).encode(), b"asked": text})
    texts: Any = [
        field.name for field in cells.schema if field.type == pa.string()
    ]  # numbers are smaller without
    sink = pa.BufferOutputStream()
    pq.write_table(
        cells,
        sink,
        compression="zstd",
        compression_level=19,
        write_page_checksum=True,
        use_dictionary=texts,
    )
    write_atomically(path, sink.getvalue().to_pybytes())
