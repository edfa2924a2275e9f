"""A record: a cell, its result, and its provenance.

On disk it is JSON with its own checksum (`with_checksum`); in a table it is a row (`columns_of`).

Fields may be added to a record with a default, which older records then have. Unknown fields are
ignored when a record is read, except in a cell: an unknown field there would mean another cell.
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
WARNING = "warning: "  # in the note of a result, before what is wrong with the result
CHECKSUM_FIELD = b',"sha256":"%s"'  # the end of the JSON of a record, before the last brace
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of a cell: of a fit, of a gradient measurement, or of a failure."""

    validation: dict[str, float] = {}
    test: dict[str, float] = {}
    # The metrics of a predictor that knows only the training targets, by part (validation, test).
    trivial: dict[str, dict[str, float]] = {}
    hyperparameters: dict[str, float] = {}
    iterations: Count | None = None
    converged: bool | None = None
    stopped: str | None = None
    seconds: float | None = None
    alone: bool | None = None  # whether no other batch of the run shared the device
    acceptance: float | None = None  # share of accepted proposals of a product sampler
    objective_value: float | None = None
    jitter: float | None = None  # added to the diagonal of Kuu, relative to its mean
    # An upper bound of what a larger M could gain, in nats per row; None: not known.
    evidence_gap: float | None = None
    # With restarts: the number of the start with the lowest final objective, where 0 is the start
    # that was not perturbed; and how much lower than with start 0 the objective is, per row.
    best_start: Count | None = None
    restart_gain: float | None = None
    # Mean and standard deviation by which the training targets were normalised.
    y_mean: float | None = None
    y_std: float | None = None
    reason: str | None = None  # of a failure
    traceback: str | None = None  # of an exception that a plugin raised
    note: str | None = None  # what a reader of the result must know
    # Of a fit that leaves out a fold: its NLL on the fold by recalibration factor, for a grid of
    # factors.
    profile: list[float] = []
    # Of a fit to all rows that folds have selected: the factor with the least NLL over all folds.
    recalibration_factor: float | None = None
    # Of a gradient measurement: the number of sampled gradients, then their bias and the squared
    # norm of G for two estimates of the true gradient G (by many samples, and by quadrature).
    draws: Count | None = None
    bias: float | None = None
    bias_quadrature: float | None = None
    norm2_G: float | None = None  # noqa: N815 -- G as in the paper; published records have it
    norm2_G_quadrature: float | None = None  # noqa: N815 -- as for norm2_G


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


class FormatOnly(msgspec.Struct):
    """The only field of a record that can be read from records of every format."""

    format: int | None = None


class OtherFormat(Unreadable):
    """A record in a format that another version of dlmexp reads."""


JSON_FIELDS = ("options", "initial", "objective_options")  # dictionaries of a cell
# Fields of a result that are not columns of tables: they have several values, or many lines.
NON_COLUMN_FIELDS = ("validation", "test", "trivial", "hyperparameters", "profile", "traceback")
RESULT_COLUMNS = tuple(name for name in Result.__struct_fields__ if name not in NON_COLUMN_FIELDS)


def with_checksum(content: bytes) -> bytes:
    """Return a JSON object with its checksum as a last field.

    The checksum is the SHA-256 of the object without this field.
    """
    checksum = hashlib.sha256(content).hexdigest()
    without_brace = content[:-1]
    return without_brace + CHECKSUM_FIELD % checksum.encode() + b"}"


def encoded(record: Record) -> bytes:
    """Return a record as one line of JSON."""
    values = msgspec.to_builtins(record, enc_hook=np.generic.item)  # NumPy's numbers as Python's
    values["format"] = FORMAT  # which msgspec leaves out, as it is the default
    # Python's writer keeps NaN and infinity; msgspec would write both as null.
    return json.dumps(values, separators=(",", ":")).encode()


def decoded(text: bytes) -> Record:
    """Return the record of a JSON text with its checksum.

    Raises:
        OtherFormat: Another version of dlmexp wrote the record.
        Unreadable: The text is not a record, or does not match its checksum.
    """
    try:
        record: Record = json_value(text, Record)
    except Unreadable:
        # Is it a sound record of another format, or damaged?
        version = json_value(text, FormatOnly).format
        if version not in (None, FORMAT):
            raise OtherFormat(f"it has format {version}, and this dlmexp reads {FORMAT}") from None
        raise
    checksum_field = CHECKSUM_FIELD % str(record.sha256).encode()
    without_checksum = text.replace(checksum_field, b"", 1)
    if hashlib.sha256(without_checksum).hexdigest() != record.sha256:
        raise Unreadable("its checksum does not fit")
    return record


@dataclass(frozen=True)
class _NumberColumn:
    """A column of metrics or hyperparameters, and where its numbers are in a result.

    Attributes:
        column: The name of the column.
        part: The name of the dictionary with the number, which is a field of the result or, for the
            trivial predictor, an entry of its field `trivial`.
        name: The name of the number in this dictionary.
        is_trivial: Whether it is a metric of the trivial predictor.
    """

    column: str
    part: str
    name: str
    is_trivial: bool = False

    def values(self, results: Iterable[Result]) -> list[float | None]:
        """Return the number of each result, or None for a result without it."""
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
    provenances = [record.made for record in records]
    columns = _attributes(records, ("key", "status", "model", "arrays"))
    columns |= _attributes(cells, Cell.__struct_fields__)
    for name in JSON_FIELDS:
        columns[name] = _as_json(columns[name])
    columns |= _attributes(results, RESULT_COLUMNS)
    columns |= _attributes(provenances, Provenance.__struct_fields__)
    for number_column in _number_columns(results):
        columns[number_column.column] = number_column.values(results)
    return columns


def _attributes(items: Sequence[object], names: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of attributes of all items, by the name of the attribute."""
    return {name: list(map(attrgetter(name), items)) for name in names}


def _as_json(dictionaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return dictionaries as JSON with sorted names.

    Few of many dictionaries are distinct, and each distinct dictionary is encoded once.
    """
    json_by_repr: dict[str, str] = {}
    texts: list[str] = []
    for dictionary in dictionaries:
        # A dictionary can't be a key. Its repr can, and dictionaries of equal repr have equal JSON.
        representation = repr(dictionary)
        if representation not in json_by_repr:
            json_by_repr[representation] = json.dumps(dictionary, sort_keys=True)
        texts.append(json_by_repr[representation])
    return texts


def _number_columns(results: Iterable[Result]) -> list[_NumberColumn]:
    """Return the columns of all metrics and hyperparameters in results, in their order."""
    columns: dict[_NumberColumn, None] = {}  # as an ordered set
    # Most results have the same names: the columns of each combination of names are added once.
    combinations: set[tuple[Any, ...]] = set()
    for result in results:
        names = _number_names(result)
        if names not in combinations:
            combinations.add(names)
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
    """Yield the columns of the metrics and hyperparameters of one result."""
    for part, metrics in (("validation", result.validation), ("test", result.test)):
        for name in metrics:
            yield _NumberColumn(f"{part}_{name}", part, name)
    for part, metrics in result.trivial.items():
        for name in metrics:
            yield _NumberColumn(f"trivial_{part}_{name}", part, name, is_trivial=True)
    for name in result.hyperparameters:
        yield _NumberColumn(f"hyper_{name}", "hyperparameters", name)
