"""The tables that users bring: CSV and TSV (also gzipped), Parquet, Feather."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.errors import Unreadable, UserError
from dlmexp.reading.tables import first_line, read_csv, read_feather, read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".npz")
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}


def table_suffix(path: Path) -> str:
    """The ending that says how to read a file; UserError for one that nobody here reads."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return suffix
    raise UserError(
        f"csv.path={path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}; save the table as one of these, or "
        "rename it to .csv if it is text already"
    )


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
        found = _read_text(path, separator(sep, suffix), missing)
    if duplicates := sorted(name for name, times in Counter(found.column_names).items() if times > 1):
        which = ", ".join(f"'{name}'" if not name.strip() else name for name in duplicates[:5])
        raise UserError(f"{path.name}: several columns are called {which}: rename them")
    if found.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    return found


def _read_text(path: Path, sep: str, missing: Sequence[str]) -> "pa.Table":
    """A text file, whose first line must name the columns, with this character between them."""
    try:
        found = read_csv(path, sep, missing)
    except Unreadable:
        _check_separator(path, sep)
        raise
    if found.num_columns == 1:
        _check_separator(path, sep)
    elif all(map(_is_number, found.column_names)) and not all(name.isdecimal() for name in found.column_names):
        shown = ", ".join(found.column_names[:3])
        raise UserError(
            f"{path.name}: its first line holds numbers ({shown}, ...): write the names of the columns above it"
        )
    return found


def _check_separator(path: Path, sep: str) -> None:
    """UserError if the first line has another separator and not the one that it was read with."""
    header = first_line(path).decode("utf-8-sig", errors="replace").strip()
    likely = [word for word in ("semicolon", "tab", "comma", "pipe") if SEPARATORS[word] in header]
    if sep not in header and likely:
        raise UserError(f"{path.name} has a single column '{header[:60]}': give its separator, csv.sep={likely[0]}")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
