"""Opens the tables that users bring: CSV and TSV (also gzipped), Parquet, Feather. One function, one kind of error."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlmexp.data.archives import GIB, open_raw, read_npz
from dlmexp.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".npz")
MAX_BYTES = 8 * GIB
MAX_COLUMNS = 20_000
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "-NaN", "-nan", "n/a", "<NA>")


def table_suffix(path: Path) -> str:
    """The ending that says how to read a file; UserError for one that nobody here reads."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return suffix
    raise UserError(f"csv.path={path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}")


def separator(given: str | None, suffix: str = ".csv") -> str:
    """One character, from what the user typed (itself, or its name) or from the ending of the file."""
    if given is None:
        return "\t" if suffix.startswith(".tsv") else ","
    found = SEPARATORS.get(given, given)
    if len(found) != 1 or not found.isascii() or found in '\r\n"':
        raise UserError(f"csv.sep={given}: give one character, or one of {', '.join(SEPARATORS)}")
    return found


def read_table(path: Path, sep: str | None = None, missing: Sequence[str] = ()) -> "pa.Table":
    """The file as a table of columns; `missing` are further words that stand for a missing value in text files."""
    import pyarrow as pa

    suffix = table_suffix(path)
    try:
        if suffix == ".parquet":
            found = _parquet(path)
        elif suffix == ".feather":
            found = _feather(path)
        else:
            found = _text(path, suffix, sep, missing)
    except pa.ArrowInvalid as error:
        kind = {".parquet": "a Parquet file", ".feather": "a Feather file"}.get(suffix, "a CSV file with a header")
        raise UserError(f"{path} is not {kind}: {_first_line(error)}") from error
    names = found.column_names
    if len(names) > MAX_COLUMNS:
        raise UserError(f"{path.name} has {len(names)} columns, more than {MAX_COLUMNS}: choose some in a smaller file")
    if duplicates := sorted(name for name, times in Counter(names).items() if times > 1):
        which = ", ".join(f"'{name}'" if not name.strip() else name for name in duplicates[:5])
        raise UserError(f"{path.name}: several columns are called {which}: rename them")
    if found.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    return found


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name."""
    return read_npz(path)


def _text(path: Path, suffix: str, sep: str | None, missing: Sequence[str]) -> "pa.Table":
    from pyarrow import csv

    options: dict[str, Any] = {
        "parse_options": csv.ParseOptions(delimiter=separator(sep, suffix), newlines_in_values=True),
        "convert_options": csv.ConvertOptions(strings_can_be_null=True, null_values=[*MISSING, *missing]),
    }
    with open_raw(path, limit=MAX_BYTES) as stream:
        found = csv.read_csv(stream, **options)
    if not _is_utf8(found):
        raise UserError(f"{path} is not text in UTF-8 (perhaps in Latin-1): save it as UTF-8")
    if found.num_columns == 1:
        (name,) = found.column_names
        if likely := [word for word in ("semicolon", "tab", "comma", "pipe") if SEPARATORS[word] in name]:
            raise UserError(f"{path.name} has a single column '{name[:60]}': give its separator, csv.sep={likely[0]}")
    return found


def _is_utf8(table: "pa.Table") -> bool:
    """pyarrow accepts column names in any encoding, and returns a column of text that is not UTF-8 as bytes."""
    import pyarrow as pa

    try:
        "".join(table.column_names)
    except UnicodeDecodeError:
        return False
    return not any(map(pa.types.is_binary, table.schema.types))


def _parquet(path: Path) -> "pa.Table":
    from pyarrow import parquet

    try:
        return parquet.read_table(path)
    except OSError as error:
        raise UserError(f"{path} is not a Parquet file: {_first_line(error)}") from error


def _feather(path: Path) -> "pa.Table":
    from pyarrow import feather

    try:
        return feather.read_table(path)
    except OSError as error:
        raise UserError(f"{path} is not a Feather file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
