"""cadata: StatLib's California housing, from StatLib's or LIBSVM's file, with the columns in StatLib's order."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.reading.files import content, reading
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
        with reading(path, "is not in LIBSVM's format with 8 features"):
            lines = content(path).decode("ascii").replace(":", " ").splitlines()
            table = np.loadtxt(lines, dtype=np.float64, ndmin=2)  # target, 1, value, 2, value, ...
            if not np.array_equal(table[:, 1::2], np.tile(np.arange(1, len(FEATURES) + 1), (len(table), 1))):
                raise ValueError("features are not numbered 1 to 8")
        y, X = table[:, 0], table[:, 2::2][:, [LIBSVM_ORDER.index(name) for name in FEATURES]]
    else:
        table = read_numbers(path, len(FEATURES) + 1, member="cal_housing.data" if path.suffix == ".tgz" else None)
        X, y = table[:, :-1], table[:, -1]
    return Parsed(X, y, {"features": list(FEATURES)})
