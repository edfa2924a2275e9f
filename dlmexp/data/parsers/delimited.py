"""Text files of numbers without a header: banana, twonorm, ringnorm, abalone, song (commas), pol (whitespace)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.files import lines
from dlmexp.reading.tables import read_numbers, read_whitespace_separated


@parser("label_last")
def label_last(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Features, then a class label: 0/1, or -1/1 where -1 becomes 0 (banana)."""
    ((_, path),) = files.items()
    table = read_numbers(path, _features(spec) + 1)
    label = table[:, -1]
    return Parsed(table[:, :-1], np.where(label == -1.0, 0.0, label))


@parser("abalone")
def abalone(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """UCI's file: sex M/F/I, seven measurements, rings. Sex becomes two binary columns, both 0 for M."""
    ((_, path),) = files.items()
    rows = [line.split(",") for line in " ".join(lines(path)).split()]
    for number, row in enumerate(rows, start=1):
        if len(row) != 9 or row[0] not in ("M", "F", "I"):
            raise UserError(f"{path}, line {number}: expected sex M, F or I and 8 numbers, found '{','.join(row)}'")
    try:
        values = np.array([row[1:] for row in rows], dtype=np.float64)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    sex = np.array([row[0] for row in rows])
    X = np.column_stack([sex == "F", sex == "I", values[:, :-1]]).astype(np.float64)
    return Parsed(X, values[:, -1])


@parser("song")
def song(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """YearPredictionMSD, the published zip file or the text file in it: the year (the target), then 90 features."""
    ((_, path),) = files.items()
    table = read_numbers(path, _features(spec) + 1, member="YearPredictionMSD.txt" if path.suffix == ".zip" else None)
    return Parsed(table[:, 1:], table[:, 0])


@parser("pol")
def pol(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """The published training rows, then the test rows; features and targets are in separate files."""
    X, y = [], []
    for part in ("train", "test"):
        data = read_whitespace_separated(files[f"pol/pol_{part}_data.asc"])
        labels = read_whitespace_separated(files[f"pol/pol_{part}_labels.asc"])
        if labels.shape != (len(data), 1):
            raise UserError(f"pol, {part} part: {len(data)} rows of features but labels of shape {labels.shape}")
        X.append(data)
        y.append(labels[:, 0])
    return Parsed(np.concatenate(X), np.concatenate(y))


def _features(spec: DatasetSpec) -> int:
    if spec.features is None:
        raise UserError(f"dataset '{spec.name}': loader {spec.loader} needs 'features' in its YAML file")
    return spec.features
