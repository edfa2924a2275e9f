"""The registry of loaders, filled by the decorator `parser`; and the checks of what they return against the spec, which
name the expected and the actual value."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float

from dlmexp.config import DatasetConfig
from dlmexp.data.splits import Arrangement
from dlmexp.errors import UserError, shortened
from dlmexp.registry import Registry

T = TypeVar("T", bound=Callable[..., Any])
MAX_ABS_VALUE = 1e100  # the squares of larger values would overflow in the normalisation
SAME = 1e-3  # means and deviations of features that differ by less, in deviations, are those of the same data


@dataclass(frozen=True)
class Parsed:
    """Arrays as parsed from the raw files, before any check; `facts` is extra information to show, as JSON values."""

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]  # one for each row, which is checked later
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrangement: Arrangement | None = None  # of the rows, where a user wants one


MODULES = ("dlmexp.data.parsers.own_table", "dlmexp.data.parsers.published")
LOADERS: Registry[Callable[[DatasetConfig, Mapping[str, Path]], Parsed]] = Registry("loader", *MODULES)


def parser(name: str) -> Callable[[T], T]:
    """Register a function that parses raw files, as a decorator: (spec, paths by the `name` in the spec) -> `Parsed`.
    One for a dataset without files draws its data from the `options` of the spec.

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
    return LOADERS.register(name)


class Checks(msgspec.Struct, forbid_unknown_fields=True):
    """The `options.checks` of a spec, which tell the data from any other: `positives` is a number of rows, `x_mean` and
    `x_std` are of all columns."""

    positives: float | None = None
    y_mean: float | None = None
    x_mean: list[float] | None = None
    x_std: list[float] | None = None


def parse(spec: DatasetConfig, files: Mapping[str, Path]) -> Parsed:
    """The arrays of a dataset from its raw files, by name, checked: shape, finite values, targets that fit the task,
    then the `options.checks` of the spec. UserError with the first check that fails."""
    parsed = LOADERS[spec.loader](spec, files)
    try:
        checks = msgspec.convert(spec.options.get("checks") or {}, Checks, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"dataset '{spec.name}': options.checks: {error}") from None
    for name, fine, expected, actual in _checked(parsed, spec, checks):
        if not fine:
            raise UserError(f"dataset '{spec.name}': check '{name}' failed: expected {expected}, found {actual}")
    return parsed


def _checked(parsed: Parsed, spec: DatasetConfig, checks: Checks) -> Iterator[tuple[str, Any, object, object]]:
    """Checks by name: whether the data passes it, what was expected and what is there."""
    X, y = parsed.X, parsed.y
    fits = X.ndim == 2 and y.shape == X.shape[:1]
    yield "shape", fits, "X [rows, features] and y [rows]", f"{X.shape} and {y.shape}"
    for name, wanted, actual in (("rows", spec.rows, len(y)), ("features", spec.features, X.shape[1])):
        yield name, actual and actual == (wanted or actual), wanted or "some", actual or "none"
    filled = spec.options.get("missing") in ("mean", "level")
    for column, values in enumerate((y, *X.T)):
        # Comparisons with NaN are false, so this one test catches NaN, infinities and values that would overflow.
        fine = (np.abs(values) < MAX_ABS_VALUE) | (np.isnan(values) & (filled and column > 0))
        row, what = int(np.argmin(fine)), f"feature {column}" if column else "target"
        wanted = f"numbers below {MAX_ABS_VALUE:g} (choose larger units)"
        yield "finite", fine.all(), wanted, f"that in row {row + 1}, {what} is {values[row]}"
    if spec.task == "binary":
        wrong = (y != 0.0) & (y != 1.0)
        yield "labels", not wrong.any(), "0 and 1", f"{y[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}"
        yield "labels", y.min() < y.max(), "two classes", f"only {y[0]:g}"
    elif spec.task == "count":
        wrong = (y < 0.0) | (y != np.floor(y))
        yield "counts", not wrong.any(), "integers >= 0", f"{y[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}"
    spread = X.std(axis=0)
    measured = {"positives": (y.sum(), 1e-6 * y.sum()), "y_mean": (y.mean(), 1e-6 * abs(y.mean()))}
    measured |= {"x_mean": (X.mean(axis=0), SAME * spread), "x_std": (spread, SAME * spread)}
    for name, (actual, tolerance) in measured.items():
        if (wanted := getattr(checks, name)) is not None:
            same = np.shape(wanted) == np.shape(actual) and (np.abs(actual - wanted) <= tolerance).all()
            yield name, same, shortened(wanted), f"{shortened(actual)}: these are other data"
