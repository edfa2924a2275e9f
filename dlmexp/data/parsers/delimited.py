"""Text files of numbers without a header: banana, twonorm, ringnorm, abalone, song (commas), pol (whitespace)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlmexp.data.parsers.published import numbers_of, rows_of
from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.arrays import read_whitespace_separated
from dlmexp.reading.tables import read_numbers

LABELS = ([0.0, 1.0], [-1.0, 1.0], [1.0, 2.0])  # how collections name two classes


@parser("label_last")
def label_last(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Features, then a class label: 0/1, -1/1 or 1/2, in any of the formats of `published`. Class 1 is the larger
    label or, where the spec says how many rows it has, the one with so many."""
    table = numbers_of(one_of(spec, files), _features(spec) + 1)
    label = table[:, -1]
    labels = np.unique(label)
    if labels.tolist() not in LABELS:
        return Parsed(table[:, :-1], label)  # which the checks refuse
    first = labels[1]
    expected = (spec.options.get("checks") or {}).get("positives")
    if expected is not None and (label == first).sum() != expected == (label == labels[0]).sum():
        first = labels[0]
    return Parsed(table[:, :-1], (label == first).astype(np.float64))


def one_of(spec: DatasetSpec, files: Mapping[str, Path]) -> Path:
    """The file of a dataset that one file holds; UserError if there are several."""
    if len(files) > 1:
        raise UserError(f"dataset '{spec.name}': there are {' and '.join(sorted(files))}: remove all but one")
    return next(iter(files.values()))


@parser("abalone")
def abalone(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """UCI's file, or the same rows as ARFF or in KEEL's format: sex M/F/I, seven measurements, rings. Sex becomes two
    binary columns, both 0 for M."""
    path = one_of(spec, files)
    rows = []
    for number, row in rows_of(path):
        rows.append(row)
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
