"""A record: a cell, what came out of it, and how it was made. As sealed JSON, or flat, as a row of
a table.

A field may be added here with a default, which then stands for all records without it. Fields that
this version does not know are ignored, except in a cell: there an unknown field changes what the
record is about."""

import hashlib
import json
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from dlmexp.common.errors import Unreadable
from dlmexp.common.provenance import Provenance
from dlmexp.common.reading.files import json_value
from dlmexp.experiment.plan.cell import Cell, Count

FORMAT = 3  # raised when a record must be read differently
SEAL = b',"sha256":"%s"'
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came out of a cell: of a fit, of a gradient measurement, or of a failure."""

    validation: dict[str, float] = {}
    test: dict[str, float] = {}
    trivial: dict[
        str, dict[str, float]
    ] = {}  # by part: the metrics of a predictor that knows only training targets
    hyperparameters: dict[str, float] = {}
    iterations: Count | None = None
    converged: bool | None = None
    stopped: str | None = None
    seconds: float | None = None
    alone: bool | None = None  # no other batch of the run shared the device
    acceptance: float | None = None  # share of accepted proposals of a product sampler
    objective_value: float | None = None
    y_mean: float | None = None  # with y_std: what undoes the normalisation of the targets
    y_std: float | None = None
    reason: str | None = None  # of a failure
    note: str | None = None  # what a reader of the result must know
    draws: Count | None = (
        None  # gradients: how many, and their bias against two estimates G of the true one
    )
    bias: float | None = None
    bias_quadrature: float | None = None
    norm2_G: float | None = None
    norm2_G_quadrature: float | None = None


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
        return self.status == "done"


class OtherFormat(Unreadable):
    """A record in a format that another version of dlmexp reads."""


MAPPINGS = (
    "validation",
    "test",
    "trivial",
    "hyperparameters",
)  # of a result; all else are single values


def sealed(content: bytes) -> bytes:
    """A JSON object with its own checksum as the last field: the SHA-256 of the object as it was
    without that field."""
    return content[:-1] + SEAL % hashlib.sha256(content).hexdigest().encode() + b"}"


def encoded(record: Record) -> bytes:
    """A record as one line of JSON. NaN and infinity stay what they are (msgspec would write both
    as null)."""
    values = msgspec.to_builtins(record, enc_hook=np.generic.item) | {
        "format": FORMAT
    }  # NumPy's numbers as Python's
    return json.dumps(values, separators=(",", ":")).encode()


def decoded(text: bytes) -> Record:
    """The record of a sealed JSON text; `Unreadable` says what is wrong with one that is not
    sound."""
    values = json_value(text)
    version = values.get("format") if isinstance(values, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise OtherFormat(f"it has format {version}, and this dlmexp reads {FORMAT}")
    record: Record = json_value(text, Record)
    body = text.replace(SEAL % str(record.sha256).encode(), b"", 1)
    if hashlib.sha256(body).hexdigest() != record.sha256:
        raise Unreadable("its checksum does not fit")
    return record


def flat(record: Record) -> dict[str, Any]:
    """A record as a row: `key`, `status`, `model`, `arrays`, the cell's fields (`options` and
    `initial` as JSON), metrics as `test_nll`, `validation_mse`, `trivial_test_nll`, hyperparameters
    as `hyper_noise`, the result's other values, and how it was made."""
    result, cell = record.result, record.cell
    row: dict[str, Any] = {
        name: getattr(record, name) for name in ("key", "status", "model", "arrays")
    }
    row |= msgspec.structs.asdict(cell)
    row |= {name: json.dumps(row[name], sort_keys=True) for name in ("options", "initial")}
    measured = {"validation": result.validation, "test": result.test}
    measured |= {f"trivial_{part}": metrics for part, metrics in result.trivial.items()}
    measured |= {"hyper": result.hyperparameters}
    row |= {
        f"{part}_{name}": float(value)
        for part, values in measured.items()
        for name, value in values.items()
    }
    row |= {
        name: value
        for name, value in msgspec.structs.asdict(result).items()
        if name not in MAPPINGS
    }
    return row | msgspec.structs.asdict(record.made)
