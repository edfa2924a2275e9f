"""What a record is: one typed value per cell, with defaults for everything that was added later.

Records are decoded into these types wherever they are read, and validated on the way. A field may be added here with a
default, which then stands for all records without it. Fields that this version does not know are ignored, except in a
cell: there an unknown field changes what the record is about.
"""

import contextlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS, Cell, Count
from dlmexp.reading.json_text import json_value, typed_json, typed_value

FORMAT = 2  # raised when a record must be read differently; `UPGRADES` says how the older ones are read
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{20}$")]
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[str, msgspec.Meta(pattern=r"^[12]\d{3}(-\d\d){2}T\d\d(:\d\d){2}(Z|[+-]\d\d:\d\d)$")]
MAX_NUMBER = 2**53  # as of Count
MAX_NAME = 200  # bytes: the name of a dataset is that of a folder
COLUMNS = frozenset(
    (*FIELDS, "key", "status", "method", "selected_by", "candidates", "failed", "betas", "protocol")
)  # of tables; options have columns beside them


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came out of a cell: of a fit, of a gradient measurement, or of a failure."""

    validation: dict[str, float] = {}
    test: dict[str, float] = {}
    trivial: dict[str, dict[str, float]] = {}  # by part: the metrics of a predictor that knows only training targets
    iterations: Count | None = None
    converged: bool | None = None
    stopped: str | None = None
    seconds: float | None = None
    alone: bool | None = None  # no other batch of the process shared the device; None: of a version that did not say
    acceptance: float | None = None  # share of accepted proposals of a product sampler
    objective_value: float | None = None
    y_mean: float | None = None  # with y_std: what undoes the normalisation of the targets
    y_std: float | None = None
    hyperparameters: dict[str, float] = {}
    reason: str | None = None  # of a failure
    note: str | None = None  # what a reader of the result must know
    draws: Count | None = None  # gradients: how many, and their bias against two estimates G of the true one
    bias: float | None = None
    bias_quadrature: float | None = None
    norm2_G: float | None = None
    norm2_G_quadrature: float | None = None


class Made(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a record came about: versions, machine, command."""

    version: str | None = None
    commit: str | None = None
    python: str | None = None
    torch: str | None = None
    gpytorch: str | None = None
    numpy: str | None = None
    device: str | None = None
    host: str | None = None
    experiment: str | None = None
    command: str | None = None
    job: str | None = None  # of a cluster's scheduler
    time: Moment | None = None


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A cell and its result. `arrays` is the SHA-256 of the arrays beside it, `model` that of the trained model that
    was written with it (and may have been dropped since), `sha256` that of the record itself."""

    key: Key
    status: Literal["done", "failed"]
    cell: Cell
    result: Result
    made: Made
    format: int = 0
    arrays: Checksum | None = None
    model: Checksum | None = None
    sha256: Checksum | None = None

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def part(self) -> str:
        """`fits` evaluated at their end, `curves` (fits with learning curves), or `gradients`."""
        if self.cell.kind == "gradient":
            return "gradients"
        return "fits" if self.cell.evaluate == "end" else "curves"


class TooNew(Unreadable):
    """A record in a format that only a newer dlmexp can read."""


def encoded(record: Record) -> bytes:
    """A record as one line of JSON. NaN and infinity stay what they are (msgspec would write both as null)."""
    return json.dumps(msgspec.to_builtins(record, enc_hook=plain), separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a record can't hold {value!r}")


def decoded(text: bytes) -> Record:
    """The record of a JSON text of any known format; one of the present format takes half the time of others."""
    with contextlib.suppress(Unreadable, ValueError):  # what is wrong with it is said below
        record = typed_json(text, Record)
        if record.format == FORMAT:
            _check(record)
            return record
    return upgraded(json_value(text))


def upgraded(values: Any) -> Record:
    """The record of a decoded JSON object of any known format."""
    version = values.get("format", 1) if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise Unreadable("it is not a record")
    if version > FORMAT:
        raise TooNew(f"it has format {version}, from a newer dlmexp (this one reads up to {FORMAT}): upgrade dlmexp")
    try:
        for step in range(version, FORMAT):
            values = UPGRADES[step](values)
        record = typed_value(values, Record)
        _check(record)
        return record
    except (Unreadable, KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable(f"it does not fit the schema of a record: {error}") from None


def _check(record: Record) -> None:
    """What types alone do not say."""
    if len(record.cell.dataset.encode()) > MAX_NAME:
        raise Unreadable(f"the name of its dataset has more than {MAX_NAME} bytes")
    if record.made.time is not None:
        datetime.fromisoformat(record.made.time)
    for name, value in record.cell.options.items():
        if name in COLUMNS:
            raise Unreadable(f"an option of its estimator is called '{name}'")
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise Unreadable(f"its option '{name}' is beyond {MAX_NUMBER}")
    if not isinstance(record.cell.options.get("samples", 0), int):
        raise Unreadable(f"a number of samples is {record.cell.options['samples']!r}")


def _options_as_mapping(values: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had a field for each option of an estimator."""
    cell = values["cell"]
    options = {name: cell[name] for name in FIRST_OPTIONS if cell.get(name) is not None}
    rest = {name: value for name, value in cell.items() if name not in FIRST_OPTIONS}
    return {**values, "format": 2, "cell": {**rest, "options": options}}


UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _options_as_mapping}
