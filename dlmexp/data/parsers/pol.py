"""pol: features and labels in separate files, numbers between blanks."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError


@parser("pol")
def pol(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """The published training and test parts pooled, in this order; each `*_data` file goes with its `*_labels`."""
    X, y = [], []
    for part in ("train", "test"):
        data = blank_separated(files[f"pol/pol_{part}_data.asc"])
        labels = blank_separated(files[f"pol/pol_{part}_labels.asc"])
        if labels.shape != (len(data), 1):
            raise UserError(f"pol, {part} part: {len(data)} rows of features but labels of shape {labels.shape}")
        X.append(data)
        y.append(labels[:, 0])
    return Parsed(np.concatenate(X), np.concatenate(y))


def blank_separated(path: Path) -> np.ndarray:
    """An `.asc` file as float64 [rows, columns]."""
    try:
        return np.loadtxt(path, dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise UserError(f"{path} is not a table of numbers: {error}") from error
