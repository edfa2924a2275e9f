"""Packs: many records in one Parquet file, to carry between machines or to keep in a repository.

A pack has a row per cell; learning curves and the like are columns of lists. What was asked for is
in the metadata of the file. A pack in a results folder (`*.parquet`) is a read-only layer under the
folder's own records: a folder with it reads like one with the same records as JSON, and a run goes
on from both. Trained models are not packed.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
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
from dlmexp.experiment.plan.cell import FIELDS, LATER, Asked
from dlmexp.experiment.records.columns import (
    BY_NAME,
    ColumnFilter,
    chosen_names,
    column_named,
    every_column,
)
from dlmexp.experiment.records.record import FORMAT, SEVERAL, Record, Result, columns_of

PATTERN = "*.parquet"
TABLE = "table.parquet"  # what `collect` writes into the same folder as packs
BASELINES = "baselines.parquet"  # scores of methods that others trained (`baselines`)
SCORES = "scores.parquet"  # what `collect --as scores` writes
BENCHOPT = "benchopt.parquet"  # what `collect --as benchopt` writes
NO_PACKS = (TABLE, BASELINES, SCORES, BENCHOPT)
ARRAY = "array_"  # how the names of columns of lists begin
# Rows of a pack are in this order, in which neighbours are alike and compress well.
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
ARROW_TYPES = {str: TEXT, int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
DISTINCT_TEXTS = ("key", "model", "arrays")  # which a dictionary would not make smaller
NEEDED_COLUMNS = {"key", "status", "asked", "beta"}
RECORD_COLUMNS = (
    "key",
    "status",
    *FIELDS,
    *(name for name in Result.__struct_fields__ if name not in SEVERAL),
    *Provenance.__struct_fields__,
)
"""The columns that every table of records begins with."""
COLUMNS_OF_ALL = {*RECORD_COLUMNS, "model", "arrays"}
"""The columns that every table of records has."""


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a column of records."""
    if name in DISTINCT_TEXTS:
        return pa.string()
    return ARROW_TYPES[column_named(name).type]


def arrow_table(records: Sequence[Record]) -> pa.Table:
    """Return records as an Arrow table (`record.columns_of`)."""
    columns = columns_of(records)
    names = dict.fromkeys([*RECORD_COLUMNS, *columns])
    return pa.table({name: pa.array(columns[name], arrow_type(name)) for name in names})


def without_empty_columns(table: pa.Table) -> pa.Table:
    """Return a table of records without metrics and hyperparameters that no record has."""
    empty = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name not in COLUMNS_OF_ALL and column.null_count == len(column):
            empty.append(name)
    return table.drop_columns(empty)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables of records as one.

    Where one of them has a later field of `Cell`, it is the field's default in those without it; a
    field that no record has is left out.
    """
    present: dict[str, None] = {}
    for table in tables:
        if len(table):
            present |= dict.fromkeys(table.column_names)
    aligned = []
    for table in tables:
        absent = [name for name in LATER if name in table.column_names and name not in present]
        if present and absent:
            table = table.drop_columns(absent)
        aligned.append(_with_defaults(table, present))
    return pa.concat_tables(aligned, promote_options="permissive")


def _with_defaults(table: pa.Table, present: Iterable[str]) -> pa.Table:
    """Return the table with those `present` later fields that it lacks, at their defaults."""
    for name in present:
        default = LATER.get(name)
        if name in table.column_names or default is None:
            continue
        value = json.dumps(default) if isinstance(default, dict) else default
        table = table.append_column(name, pa.array([value] * len(table), arrow_type(name)))
    return table


class Pack:
    """One pack; each part of the file is read when it is first needed."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def _file(self) -> pq.ParquetFile:  # noqa: TID251 -- this module is the one place for packs
        with reading(self.path, BROKEN):
            schema = pq.read_schema(self.path)
            file = pq.ParquetFile(  # noqa: TID251 -- inside of `reading`
                self.path,
                read_dictionary=[name for name in schema.names if _is_category(name)],
                pre_buffer=True,
                page_checksum_verification=True,
            )
            _check(file)
            return file

    def _read(self, columns: Sequence[str]) -> pa.Table:
        with reading(self.path, BROKEN):
            return self._file.read(columns)

    @cached_property
    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells."""
        table = self._read(["key", "status"])
        keys = table["key"].to_pylist()
        statuses = table["status"].cast(pa.string()).to_pylist()
        done = {key for key, status in zip(keys, statuses, strict=True) if status == "done"}
        return done, set(keys) - done

    @cached_property
    def asked(self) -> list[Asked]:
        """What was asked for; the keys of a group are those that have rows here.

        A selection by folds that is not complete keeps all of its keys.
        """
        with reading(self.path, BROKEN):
            groups = self._groups()
            keys = self._keys_of_groups(len(groups))
        asked = []
        for group, own_keys in zip(groups, keys, strict=True):
            if not group.folds:
                group = msgspec.structs.replace(group, keys=tuple(own_keys))
            asked.append(group)
        return asked

    def _groups(self) -> list[Asked]:
        """Return what was asked for, still without keys, from the metadata of the file."""
        metadata = self._file.metadata.metadata or {}
        compressed = base64.b64decode(metadata[b"asked"])
        try:
            text = zlib.decompressobj().decompress(compressed, MAX_ASKED)
            return json_value(text, list[Asked])
        except Unreadable as why:  # which does not name the file
            raise ValueError(str(why)) from None

    def _keys_of_groups(self, count: int) -> list[np.ndarray]:
        """Return the keys of each of `count` groups, in the order of its candidates.

        The largest beta and of equal betas the fewest components come first.
        """
        ranks = [name for name in ("beta", "components") if name in self._names()]
        table = self._read(["key", "asked", *ranks])
        # Each row lists the numbers of its groups: one entry per row and group.
        lists = table["asked"].combine_chunks()
        group = lists.flatten().to_numpy()
        row = lists.value_parent_indices().to_numpy()
        if len(group) and not 0 <= group.min() <= group.max() < count:
            raise ValueError("it names groups that it does not have")
        beta = table["beta"].to_numpy()[row]
        components = np.zeros(len(row))
        if "components" in ranks:
            components = table["components"].to_numpy()[row]
        order = np.lexsort((components, -beta, group))
        keys = table["key"].to_numpy()[row[order]]
        ends = np.cumsum(np.bincount(group, minlength=count))
        return np.split(keys, ends[:-1])

    def cells(self, columns: ColumnFilter = every_column) -> pa.Table:
        """Return one row per cell with these columns; none of them are of lists."""
        names = [name for name in self._names() if name != "asked" and not _is_of_lists(name)]
        return self._read(chosen_names(names, columns))

    def _names(self) -> list[str]:
        return self._file.schema_arrow.names

    @cached_property
    def _lists(self) -> Any:
        """The columns of lists by key, as a DataFrame; pandas is loaded only for them."""
        names = [name for name in self._names() if _is_of_lists(name)]
        lists = self._read(["key", *names]).to_pandas().set_index("key").dropna(how="all")
        return lists.rename(columns=lambda name: name.removeprefix(ARRAY))

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a cell by name; empty for a cell without any."""
        if key not in self._lists.index:
            return {}
        return self._lists.loc[key].dropna().to_dict()


def _is_of_lists(name: str) -> bool:
    return name.startswith(ARRAY)


def _is_category(name: str) -> bool:
    return name in BY_NAME and arrow_type(name) == TEXT


def _check(file: pq.ParquetFile) -> None:  # noqa: TID251 -- a type, nothing is opened
    """Raise ValueError for a file that is too large, of another version, or no pack."""
    about = file.metadata
    size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if about.num_rows > MAX_ROWS or size > MAX_BYTES:
        limits = f"more than {MAX_ROWS} or {MAX_BYTES}"
        raise ValueError(f"it has {about.num_rows} rows and {size} bytes: {limits}")
    version = (about.metadata or {}).get(b"dlmexp", b"0").decode()
    if version != str(FORMAT):
        raise ValueError(
            f"it has format {version}, and this dlmexp reads {FORMAT}: another version wrote it"
        )
    if missing := NEEDED_COLUMNS - set(file.schema_arrow.names):
        raise ValueError(f"it has no column {' or '.join(sorted(missing))}")
    for field in file.schema_arrow:
        if field.name in BY_NAME and not _holds(field.type, BY_NAME[field.name].type):
            raise ValueError(f"its column {field.name} holds {field.type}")


def _holds(arrow: pa.DataType, declared: type) -> bool:
    """Return whether an Arrow type fits the declared type of a column; all may be missing."""
    if pa.types.is_null(arrow):
        return True
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    fits = {
        str: pa.types.is_string,
        int: pa.types.is_integer,
        float: pa.types.is_floating,
        bool: pa.types.is_boolean,
    }
    return fits[declared](arrow)


def write_pack(
    path: Path,
    cells: pa.Table,
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    asked: Sequence[Asked],
) -> None:
    """Write cells (`Store.cells`) with their arrays by key and name, and what was asked for."""
    table = _with_plain_texts(cells)
    beside = [name for name in ("model", "arrays") if name in table.column_names]
    table = table.drop_columns(beside)
    table = table.sort_by([(name, "ascending") for name in ORDER])
    keys = table["key"].to_pylist()
    table = table.append_column("asked", _groups_of_rows(keys, asked))
    for name in sorted({name for own_arrays in arrays.values() for name in own_arrays}):
        values = [arrays.get(key, {}).get(name) for key in keys]
        table = table.append_column(ARRAY + name, _lists(values))
    metadata = {b"dlmexp": str(FORMAT).encode(), b"asked": _compressed(asked)}
    table = table.replace_schema_metadata(metadata)
    write_atomically(path, _as_parquet(table))


def _with_plain_texts(table: pa.Table) -> pa.Table:
    """Return a table with strings in place of categories."""
    schema = table.schema
    for position, field in enumerate(schema):
        if field.type == TEXT:
            schema = schema.set(position, field.with_type(pa.string()))
    return table.cast(schema)


def _groups_of_rows(keys: Sequence[str], asked: Iterable[Asked]) -> pa.Array:
    """Return, for each key, the numbers of the groups of `asked` that it belongs to."""
    groups: dict[str, list[int]] = {key: [] for key in keys}
    for number, group in enumerate(asked):
        for key in groups.keys() & set(group.keys):
            groups[key].append(number)
    return pa.array([groups[key] for key in keys], pa.list_(pa.int32()))


def _lists(values: Sequence[np.ndarray | None]) -> pa.Array:
    """Return arrays as a column of lists, in the precision that they have."""
    known = [value for value in values if value is not None]
    single = all(value.dtype == np.float32 for value in known)
    return pa.array(values, pa.list_(pa.float32() if single else pa.float64()))


def _compressed(asked: Iterable[Asked]) -> bytes:
    """Return what was asked for as text; keys are those of the rows, but where folds select."""
    groups = [group if group.folds else msgspec.structs.replace(group, keys=()) for group in asked]
    return base64.b64encode(zlib.compress(msgspec.json.encode(groups), 9))


def _as_parquet(table: pa.Table) -> bytes:
    # Texts compress better with a dictionary, numbers without one.
    texts: Any = [field.name for field in table.schema if field.type == pa.string()]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=19,
        write_page_checksum=True,
        use_dictionary=texts,
    )
    return sink.getvalue().to_pybytes()
