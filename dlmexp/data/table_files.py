"""The tables that users bring: CSV and TSV (also gzipped), Parquet, Feather."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.errors import UserError
from dlmexp.reading.tables import read_csv, read_feather, read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".npz")
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}


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
    suffix = table_suffix(path)
    if suffix in (".parquet", ".feather"):
        found = read_parquet(path) if suffix == ".parquet" else read_feather(path)
    else:
        found = read_csv(path, separator(sep, suffix), missing)
        if found.num_columns == 1:
            (name,) = found.column_names
            if likely := [word for word in ("semicolon", "tab", "comma", "pipe") if SEPARATORS[word] in name]:
                raise UserError(
                    f"{path.name} has a single column '{name[:60]}': give its separator, csv.sep={likely[0]}"
                )
    if duplicates := sorted(name for name, times in Counter(found.column_names).items() if times > 1):
        which = ", ".join(f"'{name}'" if not name.strip() else name for name in duplicates[:5])
        raise UserError(f"{path.name}: several columns are called {which}: rename them")
    if found.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    return found
