"""cadata: StatLib's California housing, from StatLib's or LIBSVM's file, with the columns in StatLib's order."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.arrays import read_whitespace_separated
from dlmexp.reading.tables import read_numbers

FEATURES = ("longitude", "latitude", "age", "rooms", "bedrooms", "population", "households", "income")
# LIBSVM's file has income first and the position last.
LIBSVM_ORDER = ("income", "age", "rooms", "bedrooms", "population", "households", "latitude", "longitude")


@parser("california")
def california(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """`cal_housing.data`, or `cal_housing.tgz` with it: comma-separated, target last. `cadata`: LIBSVM text format,
    `target 1:value 2:value ...` with all eight values in each line."""
    ((_, path),) = files.items()
    if path.name == "cadata":
        table = read_whitespace_separated(path, ":")  # target, 1, value, 2, value, ...
        if table.shape[1] != 17 or not (table[:, 1::2] == np.arange(1, len(FEATURES) + 1)).all():
            raise UserError(f"{path} is not in LIBSVM's format with features 1 to 8")
        y, X = table[:, 0], table[:, 2::2][:, [LIBSVM_ORDER.index(name) for name in FEATURES]]
    else:
        table = read_numbers(path, len(FEATURES) + 1, member="cal_housing.data" if path.suffix == ".tgz" else None)
        X, y = table[:, :-1], table[:, -1]
    return Parsed(X, y, {"features": list(FEATURES)})
