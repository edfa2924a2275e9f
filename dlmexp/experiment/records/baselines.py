"""Scores of methods that others trained, on the same splits: `baselines.parquet` in a folder.

Leaderboards list these methods beside our own results. The scores belong to no cell and have no
key, so only leaderboards read them.
"""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from dlmexp.common.errors import UserError
from dlmexp.common.reading.tables import read_table
from dlmexp.experiment.records.packed import BASELINES

IDENTITY_TYPES = {"method": str, "dataset": str, "seed": "int64", "n": "int64", "trained_by": str}
METRICS = ("test_nll", "test_crps", "test_mse", "test_error", "coverage_95", "seconds")
COLUMNS = (*IDENTITY_TYPES, *METRICS)
"""Columns of a table of baselines; a metric that does not apply is missing."""
TYPES = IDENTITY_TYPES | dict.fromkeys(METRICS, "float64")


def read_baselines(folders: Iterable[str | Path]) -> pd.DataFrame:
    """Return the baselines of folders; if several folders have a row, that of the first is taken.

    Raises:
        UserError: A table lacks one of the columns in `IDENTITY_TYPES`.
    """
    parts = [_empty()]  # so that the columns have their types even without any baselines
    for folder in folders:
        path = Path(folder, BASELINES)
        if path.is_file():
            parts.append(_read(path))
    table = pd.concat(parts, ignore_index=True)
    return table.drop_duplicates(["method", "dataset", "seed", "n"], ignore_index=True)


def _empty() -> pd.DataFrame:
    """Return a table of baselines without rows."""
    return pd.DataFrame(columns=list(COLUMNS)).astype(TYPES)


def _read(path: Path) -> pd.DataFrame:
    """Return the table of baselines in a file, with all `COLUMNS` and no further ones."""
    table = read_table(path).to_pandas()
    missing = [name for name in IDENTITY_TYPES if name not in table]
    if missing:
        raise UserError(
            f"{path}: it has no column {' or '.join(missing)}; "
            f"a table of baselines has {', '.join(COLUMNS)}"
        )
    return table.reindex(columns=list(COLUMNS)).astype(TYPES)
