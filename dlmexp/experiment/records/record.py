"""A record: a cell, what came out of it, and how it was made.

It is sealed JSON on disk, and flat as a row of a table.

A field may be added here with a default, which then stands for all records without it. Fields that
this version does not know are ignored, except in a cell: there an unknown field changes what the
record is about.
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

FORMAT = 3  # raised when a record must be read differently
WARNING = "warning: "  # begins what is wrong with a result, in its note
SEAL = b',"sha256":"%s"'
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came out of a cell: of a fit, of a gradient measurement, or of a failure."""

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
    y_mean: float | None = None  # with y_std: what undoes the normalisation of the targets
    y_std: float | None = None
    reason: str | None = None  # of a failure
    traceback: str | None = None  # of an exception that a plugin raised
    note: str | None = None  # what a reader of the result must know
    # Of a fold: its NLL at a grid of recalibrating factors. Of a fit to all rows that folds have
    # selected: the factor that all folds together give.
    profile: list[float] = []
    recalibration_factor: float | None = None
    # Measured gradients: their number, and their bias against two estimates G of the true gradient.
    draws: Count | None = None
    bias: float | None = None
    bias_quadrature: float | None = None
    norm2_G: float | None = None  # noqa: N815 -- G as in the paper; published records have it
    norm2_G_quadrature: float | None = None  # noqa: N815 -- as above


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A cell and its result.

    `arrays` is the SHA-256 of the arrays beside it, `model` that of the trained model that was
    written with it (and may have been dropped since), `sha256` that of the record itself.
    `dataset_spec` has the fields of the `DatasetConfig` that the data was loaded by; records before
    version 0.4 and packed records lack it.
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
    """The field that says which version of dlmexp reads a record."""

    format: int | None = None


class OtherFormat(Unreadable):
    """A record in a format that another version of dlmexp reads."""


JSON_FIELDS = ("options", "initial", "objective_options")  # dictionaries of a cell
# Fields of a result with several values, or many lines; all others have a single one.
SEVERAL = ("validation", "test", "trivial", "hyperparameters", "profile", "traceback")


def sealed(content: bytes) -> bytes:
    """Return a JSON object with its own checksum as the last field.

    The checksum is the SHA-256 of the object without that field.
    """
    checksum = hashlib.sha256(content).hexdigest()
    return content[:-1] + SEAL % checksum.encode() + b"}"


def encoded(record: Record) -> bytes:
    """Return a record as one line of JSON."""
    values = msgspec.to_builtins(record, enc_hook=np.generic.item)  # NumPy's numbers as Python's
    values["format"] = FORMAT
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
    unsealed = text.replace(SEAL % str(record.sha256).encode(), b"", 1)
    if hashlib.sha256(unsealed).hexdigest() != record.sha256:
        raise Unreadable("its checksum does not fit")
    return record


@dataclass(frozen=True)
class _Measured:
    """Where a metric or hyperparameter stands in a result, and the name of its column."""

    column: str
    part: str
    name: str
    is_trivial: bool = False

    def values(self, results: Iterable[Result]) -> list[float | None]:
        """Return the value of each result, None where it has none."""
        if self.is_trivial:
            return [result.trivial.get(self.part, {}).get(self.name) for result in results]
        part_of = attrgetter(self.part)
        return [part_of(result).get(self.name) for result in results]


def columns_of(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return records as columns of a table, with one value for each record.

    The dictionaries of a cell (`JSON_FIELDS`) are JSON. Metrics are `test_nll`, `validation_mse`,
    `trivial_test_nll` and the like, hyperparameters `hyper_noise`. The spec of the dataset and the
    profile of a fold are left out, and tracebacks.
    """
    cells = [record.cell for record in records]
    results = [record.result for record in records]
    columns: dict[str, list[Any]] = {}
    for name in ("key", "status", "model", "arrays"):
        columns[name] = list(map(attrgetter(name), records))
    for name in Cell.__struct_fields__:
        values = list(map(attrgetter(name), cells))
        columns[name] = _as_json(values) if name in JSON_FIELDS else values
    for name in Result.__struct_fields__:
        if name not in SEVERAL:
            columns[name] = list(map(attrgetter(name), results))
    made = [record.made for record in records]
    for name in Provenance.__struct_fields__:
        columns[name] = list(map(attrgetter(name), made))
    for measured in _measured(results):
        columns[measured.column] = measured.values(results)
    return columns


def _as_json(values: Sequence[dict[str, Any]]) -> list[str]:
    """Return dictionaries as JSON with sorted names; few of them are distinct."""
    texts: dict[str, str] = {}
    for value in values:
        # Equal dictionaries may differ in their JSON: 1 and 1.0 are equal.
        literal = repr(value)
        if literal not in texts:
            texts[literal] = json.dumps(value, sort_keys=True)
    return [texts[repr(value)] for value in values]


def _measured(results: Iterable[Result]) -> list[_Measured]:
    """Return the metrics and hyperparameters that any result has, in their order."""
    measured: dict[_Measured, None] = {}
    seen: set[tuple[Any, ...]] = set()
    for result in results:
        names = _names_in(result)
        if names not in seen:
            seen.add(names)
            measured |= dict.fromkeys(_measured_in(result))
    return list(measured)


def _names_in(result: Result) -> tuple[Any, ...]:
    """Return the names of all metrics and hyperparameters of a result."""
    trivial = [(part, tuple(metrics)) for part, metrics in result.trivial.items()]
    return (
        tuple(result.validation),
        tuple(result.test),
        tuple(trivial),
        tuple(result.hyperparameters),
    )


def _measured_in(result: Result) -> Iterator[_Measured]:
    for part, metrics in (("validation", result.validation), ("test", result.test)):
        for name in metrics:
            yield _Measured(f"{part}_{name}", part, name)
    for part, metrics in result.trivial.items():
        for name in metrics:
            yield _Measured(f"trivial_{part}_{name}", part, name, is_trivial=True)
    for name in result.hyperparameters:
        yield _Measured(f"hyper_{name}", "hyperparameters", name)
