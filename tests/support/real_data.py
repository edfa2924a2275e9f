"""Where the real raw files are, which are not in the repository."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MISSING = "no real data files: set DLMEXP_DATA to a folder that holds them"


def real_data() -> Path | None:
    """Return `DLMEXP_DATA`, or `../shared/data` beside the checkout; None where neither is there."""
    for candidate in (os.environ.get("DLMEXP_DATA"), REPOSITORY.parent / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate).resolve()
    return None
