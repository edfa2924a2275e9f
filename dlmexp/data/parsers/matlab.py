"""MATLAB 5 files: sarcos, thyroid, peds1."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.reading.files import reading
from dlmexp.reading.matlab import read_variables


@parser("sarcos")
def sarcos(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Columns 1-21 are the features, column 22 (the first torque) is the target; all files are concatenated."""
    parts = [_numbers(path, Path(name).stem)[0] for name, path in files.items()]
    with reading(" and ".join(map(str, files.values())), "have other columns"):
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
    cell, member = spec.options["cell"], "Peds1_feats.mat" if path.suffix == ".zip" else None
    X, y = _numbers(path, f"fv.{cell}", f"cnt.{cell}", member=member)
    return Parsed(X.T, y.ravel())


def _numbers(path: Path, *names: str, member: str | None = None) -> list[np.ndarray]:
    """The named arrays as float64."""
    found = read_variables(path, *{name.partition(".")[0] for name in names}, member=member)
    with reading(path, f"has not the variables {', '.join(names)} of numbers"):
        return [found[name].astype(np.float64) for name in names]
