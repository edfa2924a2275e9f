"""Tables of numbers in the formats in which collections publish them: ARFF (OpenML, Weka), KEEL's .dat, DELVE's
Dataset.data in a tar file, PMLB's .tsv.gz, plain text with commas, tabs or blanks."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dlmexp.errors import UserError
from dlmexp.reading.archives import gunzipped, open_raw
from dlmexp.reading.files import GIB

DELVE = "Dataset.data.gz"
MAX_BYTES = GIB // 4


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row with the number of its line; headers, comments and empty lines are left out."""
    in_header = False
    for number, line in enumerate(_lines(path), start=1):
        text = line.strip()
        if text.startswith("@"):  # ARFF and KEEL: @relation, @attribute, ..., @data
            in_header = not text.lower().startswith("@data")
        elif text and not text.startswith("%") and not in_header:
            fields = text.split(",") if "," in text else text.split()
            yield number, [field.strip().strip("'\"") for field in fields]


def numbers_of(path: Path, columns: int) -> np.ndarray:
    """float64 [rows, columns]; a first row of names is left out."""
    found: list[list[float]] = []
    for number, fields in rows_of(path):
        try:
            row = [float(field) for field in fields]
        except ValueError:
            if found:
                raise UserError(f"{path}, line {number}: '{','.join(fields)[:60]}' is not a row of numbers") from None
            continue
        if len(row) != columns:
            raise UserError(f"{path}, line {number}: {len(row)} numbers, where {columns} are expected")
        found.append(row)
    if not found:
        raise UserError(f"{path} is not a table of {columns} numbers per line")
    return np.array(found)


def _lines(path: Path) -> list[str]:
    delve = path.name.endswith((".tar.gz", ".tgz"))
    with open_raw(path, DELVE if delve else None, MAX_BYTES) as stream:
        content = stream.read()
    if delve:
        content = gunzipped(content, MAX_BYTES, f"{path}: {DELVE}")
    return content.decode("utf-8", errors="replace").splitlines()
