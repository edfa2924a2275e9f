"""What `dlmexp collect` writes: the tidy table, and packed records."""

# pyarrow makes its functions when it is imported: types can't know them.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import io
import shlex
from pathlib import Path

import pyarrow.compute as pc

from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.records.files import write_atomically
from dlmexp.records.packed import TABLE, write_packed
from dlmexp.records.results import Results
from dlmexp.records.store import FIGURES


def collect_table(results: str, csv: bool = False) -> tuple[Path, int]:
    """Write the tidy table of a folder into it; returns the file and its number of rows."""
    table = _read(results).table.drop(columns=["group", "model", "arrays"], errors="ignore")
    path = Path(results) / (TABLE if not csv else Path(TABLE).with_suffix(".csv").name)
    if csv:
        write_atomically(path, table.to_csv(index=False, float_format="%.8g").encode())
    else:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False, compression="zstd")
        write_atomically(path, buffer.getvalue())
    return path, len(table)


def collect_packed(results: str, path: str, new: bool = False, protocol: str | None = None) -> int:
    """All records of a folder, packed ones included, as one Parquet file; returns their number. `new`: only those that
    no pack in it has. `protocol`: only what was asked for under it, without changes of its values. Of reliability
    diagrams, those that a selection may show are kept."""
    if not path.endswith(".parquet") or Path(path).name == TABLE:
        raise UserError(f"--pack '{path}': end the name in .parquet, and not in {TABLE}, as in records.parquet")
    if Path(path).is_dir():
        raise UserError(f"--pack '{path}' is a folder: name a file, such as {Path(path) / 'records.parquet'}")
    read = _read(results)
    asked = read.asked
    if protocol is not None:
        asked = [group for group in asked if group.setting.protocol == protocol]
        asked = [group for group in asked if not group.setting.changes or group.role not in ("fit", "curve")]
    if protocol is not None and not asked:
        known = ", ".join(dict.fromkeys(group.setting.protocol for group in read.asked))
        raise UserError(f"--protocol {protocol}: no record was made under it as it stands; there are {known}")
    keys = {key for group in asked for key in group.keys} - (read.store.packed if new else set())
    cells = read.store.cells(keys)
    if not len(cells):
        raise UserError(f"--pack {path}: the packed records in {results} have all; there is nothing new")
    selected = read.table[read.table["status"] == "done"]
    shown = set(selected["key"]) | set(read.candidates.loc[~read.candidates["group"].isin(selected["group"]), "key"])
    arrays = {}
    done = cells.filter(pc.equal(cells["status"], "done"))
    checksums = done["arrays"].to_pylist() if "arrays" in done.column_names else [None] * len(done)
    for key, dataset, checksum in zip(done["key"].to_pylist(), done["dataset"].to_pylist(), checksums, strict=True):
        kept = {
            name: values
            for name, values in read.store.arrays(dataset, key, checksum).items()
            if name.startswith(FIGURES) and (key in shown or not name.startswith("reliability_"))
        }
        if kept:
            arrays[key] = kept
    return write_packed(Path(path), cells, arrays, asked)


def _read(results: str) -> Results:
    read = Results(results)
    if read.candidates.empty:
        start = in_folder("dlmexp run", results)
        raise UserError(f"--results {shlex.quote(results)}: there are no records; `{start}` makes some")
    return read
