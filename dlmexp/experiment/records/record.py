"""A record: a cell, what came out of it, and how it was made.

It is sealed JSON on disk, and flat as the row of a table.

A field may be added here with a default, which then stands for all records without it. Fields that
this version does not know are ignored, except in a cell: there an unknown field changes what the
record is about.
"""

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


def flat(record: Record) -> dict[str, Any]:
    """Return a record as a row of a table: one value for each of its columns.

    The dictionaries of a cell (`JSON_FIELDS`) are JSON. Metrics are `test_nll`, `validation_mse`,
    `trivial_test_nll` and the like, hyperparameters `hyper_noise`. The spec of the dataset and the
    profile of a fold are left out, and tracebacks.
    """
    row: dict[str, Any] = {}
    for name in ("key", "status", "model", "arrays"):
        row[name] = getattr(record, name)
    row |= msgspec.structs.asdict(record.cell)
    for name in JSON_FIELDS:
        row[name] = json.dumps(row[name], sort_keys=True)
    row |= _measured(record.result)
    for name, value in msgspec.structs.asdict(record.result).items():
        if name not in SEVERAL:
            row[name] = value
    return row | msgspec.structs.asdict(record.made)


def _measured(result: Result) -> dict[str, float]:
    """Return metrics and hyperparameters by the names of their columns."""
    parts = {"validation": result.validation, "test": result.test}
    for part, metrics in result.trivial.items():
        parts[f"trivial_{part}"] = metrics
    parts["hyper"] = result.hyperparameters
    columns = {}
    for part, values in parts.items():
        for name, value in values.items():
            columns[f"{part}_{name}"] = float(value)
    return columns
