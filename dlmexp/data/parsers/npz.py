"""numpy's `.npz` from somebody else: no pickles, no unbounded sizes."""

import zipfile
from pathlib import Path

import numpy as np

from dlmexp.data.archives import GIB
from dlmexp.errors import UserError


def read_npz(path: Path, limit: int = 8 * GIB) -> dict[str, np.ndarray]:
    """All arrays of an npz file; one that holds Python objects, or unfolds to more than `limit` bytes, is refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            # zipfile never reads more of a member than the size declared for it, so the declared sizes are a bound.
            if (total := sum(info.file_size for info in archive.infolist())) > limit:
                raise UserError(f"{path} unfolds to {total} bytes, more than {limit}: refused")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as an npz file without pickles: {error}") from error
