"""Arrays: npz files, read by numpy without pickles, rows of text, and MATLAB 5 files, read by SciPy in a process of its
own: SciPy allocates what a file claims, and a damaged one can end the process that reads it. There the memory and the
time are limited, and what is left is plain arrays."""

import io
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB, MAX_MEMBERS, MIB, open_raw, reading

NO_ARRAYS = "can't be read as an npz file without pickles"
MAX_MATLAB_BYTES = 256 * MIB  # of the file, or of the member of an archive
MAX_MATLAB_MEMORY = 2048 * MIB  # address space of the process that reads it
MAX_MATLAB_SECONDS = 120
PROGRAM = """
import io, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
warnings.simplefilter("ignore")
import numpy as np
from scipy.io import loadmat

def flat(name, value):
    if value.dtype.names:
        for field in value.dtype.names:
            yield from flat(f"{name}.{field}", value[field].ravel()[0])
    elif value.dtype == object:
        for number, cell in enumerate(value.ravel(), start=1):
            yield from flat(f"{name}.{number}", cell)
    elif value.dtype.kind in "biuf":
        yield name, value

names = sys.argv[2:]
read = loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names=names)
arrays = dict(pair for name in names if name in read for pair in flat(name, read[name]))
np.savez(sys.stdout.buffer, **arrays)
"""


def read_npz(path: Path, limit: int = 8 * GIB, only: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of an npz file, or `only` one of them. Refused if the file holds anything but numbers, or more than
    `limit` bytes."""
    with reading(path, NO_ARRAYS, limit), path.open("rb") as file:
        return _arrays(file, str(path), limit, only)


def unpack_arrays(content: bytes, label: str = "it", limit: int = GIB) -> dict[str, np.ndarray]:
    """The arrays of an npz file's bytes."""
    with reading(label, NO_ARRAYS):
        return _arrays(io.BytesIO(content), label, limit)


def parse_rows(rows: list[str], path: Path, columns: int | None = None) -> np.ndarray:
    """Rows of text with blanks between numbers, from the file `path`, as float64 [rows, columns]."""
    kind = f"table of {columns} numbers per line" if columns else "table of numbers"
    with reading(path, f"is not a {kind}"):
        if not rows:
            raise ValueError("it has no rows")
        table = np.loadtxt(rows, dtype=np.float64, comments=None, ndmin=2)
        if table.shape[1] != (columns or table.shape[1]):
            raise ValueError(f"it has {table.shape[1]}")
        return table


def _arrays(file: IO[bytes], label: str, limit: int, only: str | None = None) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if len(archive.infolist()) > min(MAX_MEMBERS, len(sizes)):
            raise Unreadable(f"{label} has {len(archive.infolist())} arrays, too many or two of one name: refused")
    if (total := sum(sizes.values())) > limit:
        raise Unreadable(f"{label} decompresses to {total} bytes, more than {limit}: refused")
    file.seek(0)
    # numpy allocates what the header of an array claims, but fills only as much as the file has.
    found = {}
    with warnings.catch_warnings(action="ignore"), np.load(file, allow_pickle=False) as arrays:
        for name in (name for name in arrays.files if only in (None, name)):
            with reading(f"{label}: array '{name}'", "is damaged or holds Python objects: refused"):
                found[name] = arrays[name]
                if getattr(found[name], "dtype", np.dtype(object)).kind not in "biufc":
                    raise ValueError("it holds no numbers")
    return found


def read_variables(path: Path, *names: str, member: str | None = None) -> dict[str, np.ndarray]:
    """The named variables of a MATLAB 5 file, or of the member of an archive that is one, as arrays of numbers by name:
    a field of a struct is `variable.field`, an entry of a cell array is `variable.NUMBER`, counted from 1."""
    with open_raw(path, member, MAX_MATLAB_BYTES) as stream:
        data = stream.read(MAX_MATLAB_BYTES + 1)
    if len(data) > MAX_MATLAB_BYTES:
        raise Unreadable(f"{path} has more than {MAX_MATLAB_BYTES} bytes: refused")
    command = [sys.executable, "-P", "-c", PROGRAM, str(MAX_MATLAB_MEMORY), *names]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with reading(path, "is not a sound MATLAB 5 file"):
        done = subprocess.run(command, input=data, capture_output=True, timeout=MAX_MATLAB_SECONDS, env=environment)
        if done.returncode:
            raise ValueError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it ends its reader")
    return unpack_arrays(done.stdout, str(path))
