"""Packs: many records in one Parquet file, to carry between machines or to keep in a repository.

A pack has a row per cell. Arrays, such as learning curves, are columns of lists. The groups of
candidates that runs requested are in the metadata of the file. A pack in a results folder
(`*.parquet`) is never changed: its records are read like those in JSON files, and runs do not train
their cells again. Trained models are not packed.
"""

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from dlmexp.experiment.plan.cell import FIELDS, LATER_DEFAULTS, CandidateGroup
from dlmexp.experiment.records.columns import (
    BY_NAME,
    ColumnFilter,
    chosen_names,
    column_named,
    every_column,
)
from dlmexp.experiment.records.record import (
    FORMAT,
    RESULT_COLUMNS,
    Record,
    Result,
    columns_of,
)

PACK_PATTERN = "*.parquet"
# Parquet files in a results folder that are not packs.
TABLE = "table.parquet"  # the tidy table (`dlmexp collect`)
BASELINES = "baselines.parquet"  # scores of methods that others trained (`baselines`)
SCORES = "scores.parquet"  # scores of methods (`dlmexp collect --as scores`)
BENCHOPT = "benchopt.parquet"  # results for benchopt (`dlmexp collect --as benchopt`)
NOT_PACKS = (TABLE, BASELINES, SCORES, BENCHOPT)
ARRAY_PREFIX = "array_"  # of the names of columns of lists
VALIDATION_PREFIX = "validation_"  # of the names of columns with validation metrics
PROFILE = "profile"  # the array of a fold by which a selection is recalibrated
# The name of the column with the numbers of a row's groups, and of the metadata with the groups.
GROUPS = "asked"
# Rows of a pack are sorted by these columns, so that neighbours are alike and compress well.
SORT_COLUMNS = (
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
UNREADABLE_PACK = "can't be read as packed records: restore it, or move it away"
# Limits of what is read, as packs may come from strangers.
MAX_ROWS = 5_000_000
MAX_GROUP_BYTES = 1 << 28  # of the groups of candidates before compression
MAX_BYTES = 8 << 30  # of the columns before compression

TEXT = pa.dictionary(pa.int32(), pa.string())
ARROW_TYPES = {str: TEXT, int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
# Columns with a different text in each row, which an Arrow dictionary would not make smaller.
DISTINCT_TEXTS = ("key", "model", "arrays")
NEEDED_COLUMNS = {"key", "status", GROUPS, "beta"}
RECORD_COLUMNS = (
    "key",
    "status",
    *FIELDS,
    *RESULT_COLUMNS,
    *Provenance.__struct_fields__,
)
"""The first columns of every table of records."""
PERMANENT_COLUMNS = {*RECORD_COLUMNS, "model", "arrays"}
"""The columns that a table of records keeps even if no record has a value in them."""


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a column of records."""
    if name in DISTINCT_TEXTS:
        return pa.string()
    return ARROW_TYPES[column_named(name).type]


def arrow_table(records: Sequence[Record]) -> pa.Table:
    """Return records as an Arrow table (`record.columns_of`)."""
    columns = columns_of(records)
    in_order = dict.fromkeys([*RECORD_COLUMNS, *columns])
    arrow_columns: dict[str, pa.Array] = {}
    for name in in_order:
        arrow_columns[name] = pa.array(columns[name], arrow_type(name))
    return pa.table(arrow_columns)


def without_empty_columns(table: pa.Table) -> pa.Table:
    """Return a table of records without the metrics and hyperparameters that no record has."""
    empty = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name not in PERMANENT_COLUMNS and column.null_count == len(column):
            empty.append(name)
    return table.drop_columns(empty)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables of records as one.

    Packs of earlier versions lack the fields of `Cell` that were added later (`LATER`). If a table
    with rows has such a field, records without the field get its default. If only tables without
    rows have the field, it is left out.
    """
    present: dict[str, None] = {}  # the columns of tables with rows, as an ordered set
    for table in tables:
        if len(table):
            present |= dict.fromkeys(table.column_names)
    aligned: list[pa.Table] = []
    for table in tables:
        if present:
            table = _without_absent_fields(table, present)
        aligned.append(_with_defaults(table, present))
    return pa.concat_tables(aligned, promote_options="permissive")


def _without_absent_fields(table: pa.Table, present: Collection[str]) -> pa.Table:
    """Return the table without the later fields of `Cell` that are not in `present`."""
    later_fields = LATER_DEFAULTS.keys() & set(table.column_names)
    absent = later_fields.difference(present)
    return table.drop_columns(sorted(absent))


def _with_defaults(table: pa.Table, present: Iterable[str]) -> pa.Table:
    """Return the table with the later fields in `present` that it lacks, at their defaults."""
    for name in present:
        default = LATER_DEFAULTS.get(name)
        # A field that is None by default needs no column: concatenation fills it with None.
        if name in table.column_names or default is None:
            continue
        value = json.dumps(default) if isinstance(default, dict) else default
        column = pa.array([value] * len(table), arrow_type(name))
        table = table.append_column(name, column)
    return table


class Pack:
    """A pack, each part of which is read from the file when it is first needed."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def _file(self) -> pq.ParquetFile:  # noqa: TID251 -- this module is the one place for packs
        with reading(self.path, UNREADABLE_PACK):
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
        with reading(self.path, UNREADABLE_PACK):
            return self._file.read(columns)

    @cached_property
    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells."""
        table = self._read(["key", "status"])
        keys = table["key"].to_pylist()
        statuses = table["status"].cast(pa.string()).to_pylist()
        done: set[str] = set()
        for key, status in zip(keys, statuses, strict=True):
            if status == "done":
                done.add(key)
        return done, set(keys) - done

    @cached_property
    def groups(self) -> list[CandidateGroup]:
        """The groups of candidates that runs requested, with the keys that have a row in the pack.

        A group with folds, whose selection is therefore not complete, has all of its keys.
        """
        with reading(self.path, UNREADABLE_PACK):
            groups = self._groups_in_metadata()
            keys_of_groups = self._keys_of_groups(len(groups))
        groups_with_keys: list[CandidateGroup] = []
        for group, keys in zip(groups, keys_of_groups, strict=True):
            if not group.folds:
                group = msgspec.structs.replace(group, keys=tuple(keys))
            groups_with_keys.append(group)
        return groups_with_keys

    def _groups_in_metadata(self) -> list[CandidateGroup]:
        """Return the groups as they are stored, most of them without keys (`_compressed`)."""
        metadata = self._file.metadata.metadata or {}
        compressed = base64.b64decode(metadata[GROUPS.encode()])
        try:
            text = zlib.decompressobj().decompress(compressed, MAX_GROUP_BYTES)
            return json_value(text, list[CandidateGroup])
        except Unreadable as error:
            # The caller is inside of `reading`, which adds the name of the file to a ValueError.
            raise ValueError(str(error)) from None

    def _keys_of_groups(self, count: int) -> list[np.ndarray]:
        """Return the keys of each of `count` groups, in the order of its candidates.

        The largest beta comes first, and of equal betas the fewest components.
        """
        columns = ["key", GROUPS, "beta"]
        has_components = "components" in self._column_names()
        if has_components:
            columns.append("components")
        table = self._read(columns)
        # A row lists the numbers of its groups. Flattened, the lists are pairs of group and row.
        lists = table[GROUPS].combine_chunks()
        group_numbers = lists.flatten().to_numpy()
        row_numbers = lists.value_parent_indices().to_numpy()
        if len(group_numbers) and not 0 <= group_numbers.min() <= group_numbers.max() < count:
            raise ValueError("it names groups that it does not have")
        beta = table["beta"].to_numpy()[row_numbers]
        components = np.zeros(len(row_numbers))
        if has_components:
            components = table["components"].to_numpy()[row_numbers]
        # `lexsort` sorts by its last argument first.
        order = np.lexsort((components, -beta, group_numbers))
        keys = table["key"].to_numpy()[row_numbers[order]]
        # Where each group ends in the sorted keys.
        ends = np.cumsum(np.bincount(group_numbers, minlength=count))
        return np.split(keys, ends[:-1])

    def cells(self, columns: ColumnFilter = every_column) -> pa.Table:
        """Return one row per cell with the chosen columns, but without columns of lists."""
        names = [name for name in self._column_names() if not name.startswith(ARRAY_PREFIX)]
        names.remove(GROUPS)
        return self._read(chosen_names(names, columns))

    def _column_names(self) -> list[str]:
        return self._file.schema_arrow.names

    @cached_property
    def _lists(self) -> Any:
        """The columns of lists as a DataFrame whose index is the key.

        pandas, which takes long to import, is loaded only here.
        """
        names = [name for name in self._column_names() if name.startswith(ARRAY_PREFIX)]
        lists = self._read(["key", *names]).to_pandas().set_index("key").dropna(how="all")
        return lists.rename(columns=lambda name: name.removeprefix(ARRAY_PREFIX))

    def fold_result(self, key: str) -> Result | None:
        """Return those parts of the result of a fold that the fit to all rows needs.

        They are its validation metrics, `y_std` and its profile. None means that the pack has no
        result of this fold.
        """
        row = self._folds.get(key)
        if row is None:
            return None
        validation = {}
        for name, value in row.items():
            if name.startswith(VALIDATION_PREFIX) and value is not None:
                validation[name.removeprefix(VALIDATION_PREFIX)] = value
        profile = self.arrays(key).get(PROFILE, np.zeros(0))
        return Result(validation=validation, y_std=row["y_std"], profile=profile.tolist())

    @cached_property
    def _folds(self) -> dict[str, dict[str, Any]]:
        """The validation metrics and `y_std` of done folds by key."""
        if "fold" not in self._column_names():
            return {}
        metrics = [name for name in self._column_names() if name.startswith(VALIDATION_PREFIX)]
        table = self._read(["key", "status", "fold", "y_std", *metrics])
        rows_of_folds = table.filter(table["fold"].is_valid()).to_pylist()
        return {row["key"]: row for row in rows_of_folds if row["status"] == "done"}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a cell by name; empty for a cell without any."""
        if key not in self._lists.index:
            return {}
        return self._lists.loc[key].dropna().to_dict()


def _is_category(name: str) -> bool:
    """Return whether a column has few distinct texts, so that it is read as an Arrow dictionary."""
    return name in BY_NAME and arrow_type(name) == TEXT


def _check(file: pq.ParquetFile) -> None:  # noqa: TID251 -- a type, nothing is opened
    """Raise ValueError for a file that is too large, has another format, or is not a pack."""
    metadata = file.metadata
    size = 0
    for number in range(metadata.num_row_groups):
        size += metadata.row_group(number).total_byte_size
    if metadata.num_rows > MAX_ROWS or size > MAX_BYTES:
        limits = f"more than {MAX_ROWS} or {MAX_BYTES}"
        raise ValueError(f"it has {metadata.num_rows} rows and {size} bytes: {limits}")
    version = (metadata.metadata or {}).get(b"dlmexp", b"0").decode()
    if version != str(FORMAT):
        raise ValueError(
            f"it has format {version}, and this dlmexp reads {FORMAT}: another version wrote it"
        )
    _check_columns(file.schema_arrow)


def _check_columns(schema: pa.Schema) -> None:
    """Raise ValueError if a needed column is missing, or a declared one has another type."""
    missing = NEEDED_COLUMNS.difference(schema.names)
    if missing:
        raise ValueError(f"it has no column {' or '.join(sorted(missing))}")
    for field in schema:
        if field.name in BY_NAME and not _fits(field.type, BY_NAME[field.name].type):
            raise ValueError(f"its column {field.name} holds {field.type}")


def _fits(arrow: pa.DataType, declared: type) -> bool:
    """Return whether an Arrow type fits the declared type of a column.

    A column whose values are all missing fits any type.
    """
    if pa.types.is_null(arrow):
        return True
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    is_type = {
        str: pa.types.is_string,
        int: pa.types.is_integer,
        float: pa.types.is_floating,
        bool: pa.types.is_boolean,
    }
    return is_type[declared](arrow)


def write_pack(
    path: Path,
    cells: pa.Table,
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    groups: Sequence[CandidateGroup],
) -> None:
    """Write a pack.

    Args:
        path: The Parquet file.
        cells: The records as a table (`Store.cells`).
        arrays: For the key of a cell, its arrays by name.
        groups: The groups of candidates that runs requested.
    """
    table = _with_plain_texts(cells)
    # The files of models and arrays are not packed, so their checksums are left out.
    checksums = {"model", "arrays"}.intersection(table.column_names)
    table = table.drop_columns(sorted(checksums))
    table = table.sort_by([(name, "ascending") for name in SORT_COLUMNS])
    keys = table["key"].to_pylist()
    table = table.append_column(GROUPS, _groups_of_rows(keys, groups))
    array_names: set[str] = set()
    for arrays_of_cell in arrays.values():
        array_names.update(arrays_of_cell)
    for name in sorted(array_names):
        values = [arrays.get(key, {}).get(name) for key in keys]
        table = table.append_column(ARRAY_PREFIX + name, _lists(values))
    metadata = {b"dlmexp": str(FORMAT).encode(), GROUPS.encode(): _compressed(groups)}
    table = table.replace_schema_metadata(metadata)
    write_atomically(path, _as_parquet(table))


def _with_plain_texts(table: pa.Table) -> pa.Table:
    """Return a table with plain strings in place of Arrow dictionaries."""
    schema = table.schema
    for position, field in enumerate(schema):
        if field.type == TEXT:
            schema = schema.set(position, field.with_type(pa.string()))
    return table.cast(schema)


def _groups_of_rows(keys: Sequence[str], groups: Iterable[CandidateGroup]) -> pa.Array:
    """Return, for each key, the numbers of the groups that it belongs to."""
    numbers: dict[str, list[int]] = {key: [] for key in keys}
    for number, group in enumerate(groups):
        for key in numbers.keys() & set(group.keys):
            numbers[key].append(number)
    return pa.array([numbers[key] for key in keys], pa.list_(pa.int32()))


def _lists(values: Sequence[np.ndarray | None]) -> pa.Array:
    """Return arrays as a column of lists: of float32 if all arrays are float32, else of float64."""
    dtypes = {value.dtype for value in values if value is not None}
    is_single_precision = dtypes <= {np.dtype(np.float32)}
    number_type = pa.float32() if is_single_precision else pa.float64()
    return pa.array(values, pa.list_(number_type))


def _compressed(groups: Iterable[CandidateGroup]) -> bytes:
    """Return groups of candidates as compressed JSON in base64.

    Keys are left out, since each row lists its groups (`_groups_of_rows`). Groups with folds keep
    their keys, since candidates that are not selected have no rows.
    """
    stored: list[CandidateGroup] = []
    for group in groups:
        if not group.folds:
            group = msgspec.structs.replace(group, keys=())
        stored.append(group)
    return base64.b64encode(zlib.compress(msgspec.json.encode(stored), 9))


def _as_parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
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
