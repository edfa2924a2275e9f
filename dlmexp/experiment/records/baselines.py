"""Scores of methods that others trained, on the same splits: `baselines.parquet` in a folder.

Leaderboards list them beside our own results. They have no cell and no key, so nothing else reads
them.
"""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from dlmexp.common.errors import UserError
from dlmexp.common.reading.tables import read_table
from dlmexp.experiment.records.packed import BASELINES

IDENTITY = {"method": str, "dataset": str, "seed": "int64", "n": "int64", "trained_by": str}
METRICS = ("test_nll", "test_crps", "test_mse", "test_error", "coverage_95", "seconds")
COLUMNS = (*IDENTITY, *METRICS)
"""Columns of a table of baselines; a metric that does not apply is missing."""
TYPES = IDENTITY | dict.fromkeys(METRICS, "float64")


def read_baselines(folders: Iterable[str | Path]) -> pd.DataFrame:
    """Return the baselines of folders; of a row in several folders, the first one is taken.

    Raises:
        UserError: A table lacks one of the `IDENTITY` columns.
    """
    parts = [_empty()]  # so that the columns have their types even without any baselines
    for folder in folders:
        path = Path(folder, BASELINES)
        if path.is_file():
            parts.append(_read(path))
    table = pd.concat(parts, ignore_index=True)
    return table.drop_duplicates(["method", "dataset", "seed", "n"], ignore_index=True)


def _empty() -> pd.DataFrame:
    return pd.DataFrame(columns=list(COLUMNS)).astype(TYPES)


def _read(path: Path) -> pd.DataFrame:
    table = read_table(path).to_pandas()
    missing = [name for name in IDENTITY if name not in table]
    if missing:
        raise UserError(
            f"{path}: it has no column {' or '.join(missing)}; "
            f"a table of baselines has {', '.join(COLUMNS)}"
        )
    return table.reindex(columns=list(COLUMNS)).astype(TYPES)
