"""A small published dataset: its spec, and its file in two formats."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import FileSpec

TABLE = "".join(f"{k / 10},{k % 7},{2 * (k % 2) - 1}\n" for k in range(50)).encode()


OTHER = TABLE.replace(b",3,", b",4,")


X = np.loadtxt(io.BytesIO(TABLE), delimiter=",")[:, :2]


CHECKS = {"checks": {"x_mean": X.mean(0).tolist(), "x_std": X.std(0).tolist()}}


ARFF = b"@relation toy\n@attribute a real\n@data\n" + TABLE


SHA = hashlib.sha256(TABLE).hexdigest()


def toy(*files: FileSpec, **file) -> DatasetConfig:
    how: Any = (
        {"files": [*files], "options": CHECKS}
        if files
        else {"files": [FileSpec("toy/toy.dat", **file)]}
    )
    return DatasetConfig(
        "toy", "label_last", "binary", split="counts", features=2, note="a note", **how
    )


def all_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
