"""MATLAB 5 files, which SciPy reads in a separate process with limited memory and time.

SciPy allocates as much memory as a file claims to need, and a damaged file can crash its process.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dlmexp.common.reading.files import MIB, open_raw, read_npz, reading

MAX_BYTES = 256 * MIB
"""The largest size of a file, or of a member of an archive."""
MAX_MEMORY = 2048 * MIB
"""The largest address space of the reading process."""
MAX_SECONDS = 120
PROGRAM = Path(__file__).with_name("matlab_process.py")


def read_variables(path: Path, *names: str, member: str | None = None) -> list[np.ndarray]:
    """Return variables of a MATLAB 5 file as arrays of float64.

    Args:
        path: The file, or a `.zip` or `.tgz` archive.
        names: The variables. `a.b` is field b of the struct a, and `a.2` is the second entry of the
            cell array a.
        member: The name of the file in the archive.

    Raises:
        Unreadable: the file is damaged, too large, or has no such variables.
    """
    with open_raw(path, member, MAX_BYTES) as stream:
        data = stream.read()
    # With -P, Python does not import modules from the program's folder or the working directory.
    command = [sys.executable, "-P", str(PROGRAM), str(MAX_MEMORY), *names]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with reading(path, f"is not a sound MATLAB 5 file with the variables {', '.join(names)}"):
        process = subprocess.run(
            command, input=data, capture_output=True, timeout=MAX_SECONDS, env=environment
        )
        if process.returncode:
            errors = process.stderr.decode(errors="replace").strip()
            last_line = errors.rpartition("\n")[2]
            raise ValueError(last_line or "the process that read it crashed")
    arrays = read_npz(process.stdout, str(path))
    return [arrays[name] for name in names]
