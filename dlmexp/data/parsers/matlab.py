"""MATLAB 5 files: sarcos, thyroid, peds1."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.matlab import read_variables


@parser("sarcos")
def sarcos(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Columns 1-21 are the features, column 22 (the first torque) is the target; all files are concatenated."""
    parts = [_numbers(read_variables(path, Path(name).stem)[0], path) for name, path in files.items()]
    for part, path in zip(parts, files.values(), strict=True):
        if part.ndim != 2 or part.shape[1] < 22:
            raise UserError(f"{path}: expected a matrix of at least 22 columns, found shape {part.shape}")
    table = np.concatenate(parts)
    return Parsed(table[:, :21], table[:, 21])


@parser("thyroid")
def thyroid(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """The file of ODDS: variables X and y, with y = 1 for outliers."""
    ((_, path),) = files.items()
    X, y = read_variables(path, "X", "y")
    return Parsed(_numbers(X, path), _numbers(y, path).ravel())


@parser("peds1_left")
def peds1_left(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Struct `data` with `xt` (frames x features, standardised) and `yt` (counts): one walking direction."""
    ((_, path),) = files.items()
    (data,) = read_variables(path, "data")
    X, y = _field(data, "xt", path), _field(data, "yt", path)
    return Parsed(_numbers(X, path), _numbers(y, path).ravel(), {"direction": "left (ucsdpeds1l)"})


@parser("peds1")
def peds1(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """`Peds1_feats.mat`, or `ucsdpeds_feats.zip` with it: cell arrays `dirs` (names), `fv` (features x frames) and
    `cnt` (counts), one entry per walking direction; `options.cell` is the number of the entry, from 1."""
    ((_, path),) = files.items()
    member = "Peds1_feats.mat" if path.suffix == ".zip" else None
    dirs, features, counts = (cell.ravel() for cell in read_variables(path, "dirs", "fv", "cnt", member=member))
    cell = int(spec.options["cell"])
    if not len(features) == len(counts) == len(dirs) or cell > len(dirs):
        raise UserError(
            f"{path}: options.cell={cell}, but the file has {len(dirs)} dirs, {len(features)} fv, {len(counts)} cnt"
        )
    X, y = _numbers(features[cell - 1], path).T, _numbers(counts[cell - 1], path).ravel()
    names = [_text(entry) for entry in dirs]
    return Parsed(X, y, {"direction": names[cell - 1], "dirs": names})


def _numbers(array: np.ndarray, path: Path) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise UserError(f"{path}: expected numbers, found {array.dtype} of shape {array.shape}")
    return array.astype(np.float64)


def _field(struct: np.ndarray, name: str, path: Path) -> np.ndarray:
    if struct.dtype.names is None or name not in struct.dtype.names:
        raise UserError(f"{path}: struct has no field '{name}', only {struct.dtype.names}")
    return struct[name].ravel()[0]


def _text(entry: Any) -> str:
    return str(np.asarray(entry).ravel()[0]) if np.asarray(entry).size else ""
