"""A record: a cell, its result, and its provenance.

On disk it is JSON with its own checksum (`with_checksum`); in a table it is a row (`columns_of`).

A field may be added here with a default, which is its value in records without it. Unknown fields
are ignored when a record is read, except in a cell: an unknown field there would mean another cell.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from dlmexp.common.errors import Unreadable
from dlmexp.common.provenance import Provenance
from dlmexp.common.reading.files import json_value
from dlmexp.experiment.plan.cell import Cell, Count

FORMAT = 3  # increased when a record must be read differently
WARNING = "warning: "  # in the note of a result: what is wrong with it follows
SEAL = b',"sha256":"%s"'
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of a cell: of a fit, of a gradient measurement, or of a failure."""

    validation: dict[str, float] = {}
    test: dict[str, float] = {}
    # By part: the metrics of a predictor that knows only the training targets.
    trivial: dict[str, dict[str, float]] = {}
    hyperparameters: dict[str, float] = {}
    iterations: Count | None = None
    converged: bool | None = None
    stopped: str | None = None
    seconds: float | None = None
    alone: bool | None = None  # no other batch of the run shared the device
    acceptance: float | None = None  # share of accepted proposals of a product sampler
    objective_value: float | None = None
    jitter: float | None = None  # added to the diagonal of Kuu, relative to its mean
    # How much a larger M could gain at most, per row; None: not known.
    evidence_gap: float | None = None
    # With restarts: the number of the start that ended lowest, and by how much it ended below the
    # start that was not perturbed (0), per row.
    best_start: Count | None = None
    restart_gain: float | None = None
    # Mean and standard deviation by which the training targets were normalised.
    y_mean: float | None = None
    y_std: float | None = None
    reason: str | None = None  # of a failure
    traceback: str | None = None  # of an exception that a plugin raised
    note: str | None = None  # what a reader of the result must know
    # Of a fit that leaves out a fold: its NLL on the fold for each of a grid of factors by which
    # predictions may be recalibrated.
    profile: list[float] = []
    # Of a fit to all rows that folds have selected: the factor with the least NLL over all folds.
    recalibration_factor: float | None = None
    # Of a gradient measurement: the number of sampled gradients, then their bias and the squared
    # norm of G for two estimates of the true gradient G (by many samples, and by quadrature).
    draws: Count | None = None
    bias: float | None = None
    bias_quadrature: float | None = None
    norm2_G: float | None = None  # noqa: N815 -- G as in the paper; published records have it
    norm2_G_quadrature: float | None = None  # noqa: N815 -- as above


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A cell and its result.

    Attributes:
        key: The key of the cell.
        status: Whether the cell has a result or failed.
        cell: The cell.
        result: The result.
        made: The provenance of the result.
        format: The version of this format.
        dataset_spec: The fields of the `DatasetConfig` that the data was loaded by. Records before
            version 0.4 and packed records lack it.
        arrays: The SHA-256 of the file of arrays.
        model: The SHA-256 of the file of the trained model, which may have been deleted since.
        sha256: The SHA-256 of the record itself without this field.
    """

    key: Key
    status: Literal["done", "failed"]
    cell: Cell
    result: Result
    made: Provenance
    format: Literal[3] = FORMAT
    dataset_spec: dict[str, Any] | None = None
    arrays: Checksum | None = None
    model: Checksum | None = None
    sha256: Checksum | None = None

    @property
    def done(self) -> bool:
        """Whether the cell has a result; otherwise it failed."""
        return self.status == "done"


class Version(msgspec.Struct):
    """The format of a record, which can be read from a record of any format."""

    format: int | None = None


class OtherFormat(Unreadable):
    """A record in a format that another version of dlmexp reads."""


JSON_FIELDS = ("options", "initial", "objective_options")  # dictionaries of a cell
# Fields of a result that are no columns of tables: they have several values, or many lines.
NON_COLUMN_FIELDS = ("validation", "test", "trivial", "hyperparameters", "profile", "traceback")
RESULT_COLUMNS = tuple(name for name in Result.__struct_fields__ if name not in NON_COLUMN_FIELDS)


def with_checksum(content: bytes) -> bytes:
    """Return a JSON object with its own checksum as the last field.

    The checksum is the SHA-256 of the object without that field.
    """
    checksum = hashlib.sha256(content).hexdigest()
    return content[:-1] + SEAL % checksum.encode() + b"}"


def encoded(record: Record) -> bytes:
    """Return a record as one line of JSON."""
    values = msgspec.to_builtins(record, enc_hook=np.generic.item)  # NumPy's numbers as Python's
    values["format"] = FORMAT  # which msgspec leaves out, as it is the default
    # Python's writer keeps NaN and infinity; msgspec would write both as null.
    return json.dumps(values, separators=(",", ":")).encode()


def decoded(text: bytes) -> Record:
    """Return the record of a sealed JSON text.

    Raises:
        OtherFormat: Another version of dlmexp reads it.
        Unreadable: It is no record, or its checksum does not fit.
    """
    try:
        record: Record = json_value(text, Record)
    except Unreadable:
        version = json_value(text, Version).format
        if version not in (None, FORMAT):
            raise OtherFormat(f"it has format {version}, and this dlmexp reads {FORMAT}") from None
        raise
    seal = SEAL % str(record.sha256).encode()
    unsealed = text.replace(seal, b"", 1)
    if hashlib.sha256(unsealed).hexdigest() != record.sha256:
        raise Unreadable("its checksum does not fit")
    return record


@dataclass(frozen=True)
class _NumberColumn:
    """A column of metrics or hyperparameters, and where its numbers are in a result.

    Attributes:
        column: The name of the column.
        part: The dictionary with the number: a field of the result, or of its `trivial`.
        name: The name of the number there.
        is_trivial: Whether it is a metric of the trivial predictor.
    """

    column: str
    part: str
    name: str
    is_trivial: bool = False

    def values(self, results: Iterable[Result]) -> list[float | None]:
        """Return the number in each result, None if it is not there."""
        if self.is_trivial:
            return [result.trivial.get(self.part, {}).get(self.name) for result in results]
        part_of = attrgetter(self.part)
        return [part_of(result).get(self.name) for result in results]


def columns_of(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return records as columns of a table, with one value for each record.

    The dictionaries of a cell (`JSON_FIELDS`) are JSON. Metrics have columns such as `test_nll`,
    `validation_mse` and `trivial_test_nll`, hyperparameters such as `hyper_noise`. The spec of the
    dataset, the profile of a fold and tracebacks are left out.
    """
    cells = [record.cell for record in records]
    results = [record.result for record in records]
    made = [record.made for record in records]
    columns = _attributes(records, ("key", "status", "model", "arrays"))
    columns |= _attributes(cells, Cell.__struct_fields__)
    for name in JSON_FIELDS:
        columns[name] = _as_json(columns[name])
    columns |= _attributes(results, RESULT_COLUMNS)
    columns |= _attributes(made, Provenance.__struct_fields__)
    for numbers in _number_columns(results):
        columns[numbers.column] = numbers.values(results)
    return columns


def _attributes(items: Sequence[object], names: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of attributes of all items, by the name of the attribute."""
    return {name: list(map(attrgetter(name), items)) for name in names}


def _as_json(dictionaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return dictionaries as JSON with sorted names.

    As few of them are distinct, each distinct one is written once.
    """
    json_by_repr: dict[str, str] = {}
    texts: list[str] = []
    for dictionary in dictionaries:
        # Equal dictionaries may differ in their JSON, since 1 == 1.0, but then their repr differs.
        literal = repr(dictionary)
        if literal not in json_by_repr:
            json_by_repr[literal] = json.dumps(dictionary, sort_keys=True)
        texts.append(json_by_repr[literal])
    return texts


def _number_columns(results: Iterable[Result]) -> list[_NumberColumn]:
    """Return the columns of all metrics and hyperparameters in results, in their order."""
    columns: dict[_NumberColumn, None] = {}  # as an ordered set
    # Most results have the same names, whose columns are added once.
    seen: set[tuple[Any, ...]] = set()
    for result in results:
        names = _number_names(result)
        if names not in seen:
            seen.add(names)
            columns |= dict.fromkeys(_number_columns_of(result))
    return list(columns)


def _number_names(result: Result) -> tuple[Any, ...]:
    """Return the names of all metrics and hyperparameters of a result, in hashable form."""
    trivial_names: list[tuple[str, ...]] = []
    for part, metrics in result.trivial.items():
        trivial_names.append((part, *metrics))
    return (
        tuple(result.validation),
        tuple(result.test),
        tuple(trivial_names),
        tuple(result.hyperparameters),
    )


def _number_columns_of(result: Result) -> Iterator[_NumberColumn]:
    for part, metrics in (("validation", result.validation), ("test", result.test)):
        for name in metrics:
            yield _NumberColumn(f"{part}_{name}", part, name)
    for part, metrics in result.trivial.items():
        for name in metrics:
            yield _NumberColumn(f"trivial_{part}_{name}", part, name, is_trivial=True)
    for name in result.hyperparameters:
        yield _NumberColumn(f"hyper_{name}", "hyperparameters", name)
