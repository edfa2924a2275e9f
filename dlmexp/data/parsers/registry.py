"""The registry of loaders, filled by the decorators `parser` (reads files) and `generator` (draws data); and the checks
of what they return against the spec, which name the expected and the actual value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.data.spec import DatasetSpec
from dlmexp.data.splits import Arrangement
from dlmexp.errors import UserError
from dlmexp.registry import Registry

T = TypeVar("T", bound=Callable[..., Any])
MAX_ABS_VALUE = 1e100  # the squares of larger values would overflow in the normalisation
SAME = 1e-3  # means and deviations of features that differ by less, in deviations, are those of the same data
Range = tuple[float, float]


@dataclass(frozen=True)
class Parsed:
    """Arrays as parsed from the raw files, before any check; `facts` is extra information to show, as JSON values."""

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]  # one for each row, which is checked later
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrangement: Arrangement | None = None  # of the rows, where a user wants one


@dataclass(frozen=True)
class Loader:
    """A function that returns the arrays of a dataset. `drawn`: it needs no files; `version` is part of the checksum of
    what it draws."""

    read: Callable[[DatasetSpec, Mapping[str, Path]], Parsed]
    drawn: bool = False
    version: int = 1


LOADERS: Registry[Loader] = Registry("loader", "dlmexp.data.parsers")


def parser(name: str) -> Callable[[T], T]:
    """Register a function that parses raw files, as a decorator: (spec, paths by the `name` in the spec) -> `Parsed`.

    Args:
        name: The `loader` in the YAML file of a dataset.

    Example:
        ```python
        @parser("waves")
        def waves(spec, files):
            table = np.loadtxt(files["waves/waves.txt"])
            return Parsed(table[:, :-1], table[:, -1])
        ```
    """

    def register(read: T) -> T:
        LOADERS.add(name, Loader(read))
        return read

    return register


def generator(name: str, version: int = 1) -> Callable[[T], T]:
    """Registers a function that draws a dataset from the `options` of its spec. Increase `version` when it draws other
    values than before."""

    def register(draw: T) -> T:
        LOADERS.add(name, Loader(lambda spec, _: draw(spec), True, version))
        return draw

    return register


def loader_of(spec: DatasetSpec) -> Loader:
    """The loader with the name in `spec.loader`."""
    try:
        return LOADERS[spec.loader]
    except UserError as error:
        raise UserError(f"dataset '{spec.name}': {error}") from None


class Checks(msgspec.Struct, forbid_unknown_fields=True):
    """The `options.checks` of a spec: `positives` is a number of rows, `x_range` is by column number (from 1), `x_mean`
    and `x_std` are of all columns, which tell the data from any other."""

    positives: float | None = None
    y_range: Range | None = None
    y_mean: float | None = None
    x_mean: list[float] | None = None
    x_std: list[float] | None = None
    x_range: dict[int, Range] = {}


def parse(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """The arrays of a dataset from its raw files, by name, checked."""
    parsed = loader_of(spec).read(spec, files)
    check(parsed, spec)
    return parsed


def check(parsed: Parsed, spec: DatasetSpec) -> None:
    """UserError with the first check that fails: shape, finite values, targets that fit the task, then the
    `options.checks` of the spec."""
    try:
        expected = msgspec.convert(spec.options.get("checks") or {}, Checks, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(Checks.__struct_fields__)
        raise UserError(f"dataset '{spec.name}': options.checks: {error}; checks are {known}") from None

    def require(fine: Any, name: str, wanted: object, actual: object) -> None:
        if not fine:
            raise UserError(f"dataset '{spec.name}': check '{name}' failed: expected {wanted}, found {actual}")

    X, y, task = parsed.X, parsed.y, spec.task
    fits = X.ndim == 2 and y.shape == X.shape[:1]
    require(fits, "shape", "X [rows, features] and y [rows]", f"{X.shape} and {y.shape}")
    for name, wanted, actual in (("rows", spec.rows, len(y)), ("features", spec.features, X.shape[1])):
        require(actual and actual == (wanted or actual), name, wanted or "some", actual or "none")
    filled = spec.options.get("missing") in ("mean", "level")
    for column, values in enumerate((y, *X.T)):
        # Comparisons with NaN are false, so this one test catches NaN, infinities and values that would overflow.
        fine = (np.abs(values) < MAX_ABS_VALUE) | (np.isnan(values) & (filled and column > 0))
        row, what = int(np.argmin(fine)), f"feature {column}" if column else "target"
        wanted = f"numbers below {MAX_ABS_VALUE:g} (choose larger units)"
        require(fine.all(), "finite", wanted, f"that in row {row + 1}, {what} is {values[row]}")
    if task != "regression":
        name, words = ("labels", "0 and 1") if task == "binary" else ("counts", "integers >= 0")
        wrong = (y != 0.0) & (y != 1.0) if task == "binary" else (y < 0.0) | (y != np.floor(y))
        require(not wrong.any(), name, words, f"{y[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}")
        require(task == "count" or y.min() < y.max(), name, "two classes", f"only {y[0]:g}")
    for name, wanted, actual in (("positives", expected.positives, y.sum()), ("y_mean", expected.y_mean, y.mean())):
        require(wanted is None or abs(actual - wanted) <= 1e-6 * abs(wanted), name, wanted, f"{actual:.8g}")
    spread = X.std(axis=0)
    for name, wanted, actual in (("x_mean", expected.x_mean, X.mean(axis=0)), ("x_std", expected.x_std, spread)):
        same = not wanted or (len(wanted) == len(spread) and not (np.abs(actual - wanted) > SAME * spread).any())
        said, shown = (", ".join(f"{value:.4g}" for value in some[:3]) for some in (wanted or (), actual))
        require(same, name, f"{said}, ...", f"{shown}, ...: these are other data")
    ranges = {"y_range": (y, expected.y_range)}
    ranges |= {f"x_range {k}": (X[:, k - 1 : k], bounds) for k, bounds in expected.x_range.items()}
    for name, (values, bounds) in ranges.items():
        if bounds is not None:
            actual = f"{values.min():.4g} to {values.max():.4g}" if values.size else "no such feature"
            fine = values.size and bounds[0] <= values.min() and values.max() <= bounds[1]
            require(fine, name, f"{bounds[0]:g} to {bounds[1]:g}", actual)
