"""MATLAB 5 files: sarcos, thyroid, peds1."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.matlab import read_variables


@parser("sarcos")
def sarcos(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Columns 1-21 are the features, column 22 (the first torque) is the target; all files are concatenated."""
    parts = []
    for name, path in files.items():
        (part,) = _numbers(path, Path(name).stem)
        if part.ndim != 2 or part.shape[1] < 22:
            raise UserError(f"{path}: expected a matrix of at least 22 columns, found shape {part.shape}")
        parts.append(part)
    table = np.concatenate(parts)
    return Parsed(table[:, :21], table[:, 21])


@parser("thyroid")
def thyroid(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """The file of ODDS: variables X and y, with y = 1 for outliers."""
    (path,) = files.values()
    X, y = _numbers(path, "X", "y")
    return Parsed(X, y.ravel())


@parser("peds1_left")
def peds1_left(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Struct `data` with `xt` (frames x features, standardised) and `yt` (counts): one walking direction."""
    (path,) = files.values()
    X, y = _numbers(path, "data.xt", "data.yt")
    return Parsed(X, y.ravel())


@parser("peds1")
def peds1(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """`Peds1_feats.mat`, or `ucsdpeds_feats.zip` with it: cell arrays `fv` (features x frames) and `cnt`
    (counts), one entry per walking direction; `options.cell` is the number of the entry, from 1."""
    (path,) = files.values()
    found = read_variables(path, "fv", "cnt", member="Peds1_feats.mat" if path.suffix == ".zip" else None)
    X, y = _checked(found, path, f"fv.{spec.options['cell']}", f"cnt.{spec.options['cell']}")
    return Parsed(X.T, y.ravel())


def _numbers(path: Path, *names: str) -> list[np.ndarray]:
    return _checked(read_variables(path, *{name.partition(".")[0] for name in names}), path, *names)


def _checked(found: Mapping[str, np.ndarray], path: Path, *names: str) -> list[np.ndarray]:
    """The named arrays as float64; UserError if one is missing or holds anything but numbers."""
    for name in names:
        if name not in found or found[name].dtype.kind not in "biuf":
            has = ", ".join(f"{name} ({value.dtype})" for name, value in sorted(found.items())[:8])
            raise UserError(f"{path} has no variable '{name}' of numbers; it has {has or 'none'}")
    return [found[name].astype(np.float64) for name in names]
