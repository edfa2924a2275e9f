"""A user's own table with nothing wrong, as a file in any format; and what loading it gives."""

import gzip
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dlmexp.common.errors import UserError
from dlmexp.data.config import DatasetConfig
from dlmexp.data.raw_files import load

ROWS = 60


RNG = np.random.default_rng(0)


VALUES = {
    "a": RNG.normal(size=ROWS).round(3), "b": RNG.normal(size=ROWS).round(3), "house": np.repeat(np.arange(12), 5),
    "day": RNG.permutation(ROWS), "y": RNG.normal(size=ROWS).round(3),
}  # fmt: skip


Y = VALUES["y"]


LABEL = np.where(Y > 0, "yes", "no")


DATES = [f"2020-{1 + k // 28:02d}-{1 + k % 28:02d}" for k in range(ROWS)]


BINARY = {"task": "binary", "kind": "counts"}


def written(path, sep: Any = ",", **replaced: Any):
    """The columns as a file; `replaced` gives other columns, or lists of texts, which begin again
    when they end."""
    columns = {
        name: np.resize(np.array(column, object), ROWS)
        for name, column in {**VALUES, **replaced}.items()
    }
    if path.suffix == ".parquet":
        pd.DataFrame(columns).infer_objects().to_parquet(path)
        return path
    text = (
        "\n".join(
            sep.join(map(str, row)) for row in [list(columns), *zip(*columns.values(), strict=True)]
        )
        + "\n"
    )
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def loaded(path, task: Any = "regression", kind: str = "regression", **options: Any):
    options = {"path": str(path), "target": "y", **options}
    return load(DatasetConfig("mine", "table", task, split=kind, options=options), "data")


def refused(*words: str, path, **options: Any) -> UserError:
    """The error, in which all words are."""
    with pytest.raises(UserError) as caught:
        loaded(path, **options)
    assert all(word in str(caught.value) for word in words), caught.value
    return caught.value


def lacking(name: str, *rows: int, word: str = "") -> dict[str, list[str]]:
    return {name: [word if k in rows else str(value) for k, value in enumerate(VALUES[name])]}
