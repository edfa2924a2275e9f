"""MATLAB 5 files, read by SciPy in a process of its own: SciPy allocates what a file claims, and a damaged one can end
the process that reads it. There the memory and the time are limited, and what is left is plain arrays."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import open_raw
from dlmexp.reading.arrays import unpack_arrays
from dlmexp.reading.files import MIB, reading

MAX_BYTES = 256 * MIB  # of the file, or of the member of an archive
MAX_MEMORY = 2048 * MIB  # address space of the process that reads it
MAX_SECONDS = 120
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
    else:
        yield name, value

names = sys.argv[2:]
read = loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names=names)
arrays = dict(pair for name in names if name in read for pair in flat(name, read[name]))
np.savez(sys.stdout.buffer, **arrays)
"""


def read_variables(path: Path, *names: str, member: str | None = None) -> dict[str, np.ndarray]:
    """The named variables of a MATLAB 5 file, or of the member of an archive that is one, as plain arrays by name: a
    field of a struct is `variable.field`, an entry of a cell array is `variable.NUMBER`, counted from 1."""
    with open_raw(path, member, MAX_BYTES) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable(f"{path} has more than {MAX_BYTES} bytes: refused")
    command = [sys.executable, "-P", "-c", PROGRAM, str(MAX_MEMORY), *names]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with reading(path, "is not a sound MATLAB 5 file"):
        done = subprocess.run(command, input=data, capture_output=True, timeout=MAX_SECONDS, env=environment)
        if done.returncode:
            raise ValueError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it ends its reader")
    return unpack_arrays(done.stdout, str(path))
