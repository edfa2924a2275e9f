"""cadata: StatLib's California housing, from StatLib's or LIBSVM's file, with the columns in StatLib's order."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.files import content
from dlmexp.reading.tables import read_numbers

FEATURES = ("longitude", "latitude", "age", "rooms", "bedrooms", "population", "households", "income")
# LIBSVM's file has income first and the position last.
LIBSVM_ORDER = ("income", "age", "rooms", "bedrooms", "population", "households", "latitude", "longitude")


@parser("california")
def california(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """`cal_housing.data`, or `cal_housing.tgz` with it: comma-separated, target last. `cadata`: LIBSVM text format."""
    ((_, path),) = files.items()
    if path.name == "cadata":
        X, y = read_libsvm(path, len(FEATURES))
        return Parsed(X[:, [LIBSVM_ORDER.index(name) for name in FEATURES]], y, {"features": list(FEATURES)})
    table = read_numbers(path, len(FEATURES) + 1, member="cal_housing.data" if path.suffix == ".tgz" else None)
    return Parsed(table[:, :-1], table[:, -1], {"features": list(FEATURES)})


def read_libsvm(path: Path, features: int) -> tuple[np.ndarray, np.ndarray]:
    """X [rows, features] and y of a file in LIBSVM's text format: `target index:value ...`, indices from 1."""
    targets: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for number, line in enumerate(content(path).decode("ascii", errors="replace").splitlines(), start=1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        try:
            pairs = [field.split(":") for field in fields[1:]]
            found = [int(index) for index, _ in pairs]
            values.extend(float(value) for _, value in pairs)
            targets.append(float(fields[0]))
        except ValueError:
            raise UserError(f"{path}, line {number}: '{line.strip()[:60]}' is not in LIBSVM format") from None
        if any(not 1 <= index <= features for index in found):
            raise UserError(f"{path}, line {number}: an index is not in 1..{features}")
        rows.extend([len(targets) - 1] * len(found))
        columns.extend(index - 1 for index in found)
    X = np.zeros((len(targets), features))
    X[rows, columns] = values
    return X, np.array(targets)
