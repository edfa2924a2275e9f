"""The program that reads a MATLAB file: `python -P matlab_process.py MAX_BYTES NAME...`.

It reads the file from standard input and writes the named variables as an npz file to standard
output, for `dlmexp.common.reading.matlab`. It imports nothing of dlmexp, so that it starts quickly.
"""

import io
import sys
import warnings
from collections.abc import Mapping
from typing import Any


def limit_memory(n_bytes: int) -> None:
    """Limit the address space of this process, and write no core dump if it crashes."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def variable(variables: Mapping[str, Any], name: str) -> Any:
    """Return a variable, a field of a struct or an entry of a cell array as float64.

    Args:
        variables: The variables by name, as SciPy returns them.
        name: `a`, field `a.b` of a struct, or entry `a.2` of a cell array, counted from 1.
    """
    import numpy as np

    variable_name, *parts = name.split(".")
    value = variables[variable_name]
    for part in parts:
        # SciPy reads a struct as an array of one record, and a cell array as an array of objects.
        is_struct = bool(value.dtype.names)
        value = value[part].ravel()[0] if is_struct else value.ravel()[int(part) - 1]
    if value.dtype.kind not in "biuf":
        raise TypeError(f"{name} holds no numbers")
    return value.astype(np.float64)


def main() -> None:
    """Read the file, and write the named variables."""
    limit_memory(int(sys.argv[1]))
    warnings.simplefilter("ignore")
    import numpy as np
    from scipy.io import loadmat

    names = sys.argv[2:]
    variable_names = [name.partition(".")[0] for name in names]
    file = io.BytesIO(sys.stdin.buffer.read())
    variables = loadmat(file, variable_names=variable_names)
    arrays = {name: variable(variables, name) for name in names}
    np.savez(sys.stdout.buffer, **arrays)


if __name__ == "__main__":
    main()
