"""Checks of parsed data against the spec; an error names the check, the expected and the actual value."""

from collections.abc import Iterator

import msgspec
import numpy as np

from dlmexp.data.parsers.registry import Parsed
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError

MAX_ABS_VALUE = 1e100
"""The squares of larger values would overflow in the normalisation."""
SAME = 1e-3
"""Means and deviations of features that differ by less, in deviations, are those of the same data."""
Range = tuple[float, float]


class Checks(msgspec.Struct, forbid_unknown_fields=True):
    """The `options.checks` of a spec: `positives` is a number of rows, `x_range` is by column number (from 1), `x_mean`
    and `x_std` are of all columns, which tell the data from any other."""

    positives: float | None = None
    positive_share: Range | None = None
    y_range: Range | None = None
    y_mean: float | None = None
    x_mean: list[float] | None = None
    x_std: list[float] | None = None
    x_range: dict[int, Range] = {}


class DataMismatch(UserError):
    """The parsed data differs from the spec of the dataset."""


def check(parsed: Parsed, spec: DatasetSpec) -> None:
    """Raises DataMismatch with the first check that fails: shape, finite values, targets that fit the task, then the
    `options.checks` of the spec."""
    try:
        expected = msgspec.convert(spec.options.get("checks") or {}, Checks, strict=False)
        if odd := [k for k in expected.x_range if not 1 <= k <= (spec.features or k)]:
            raise msgspec.ValidationError(f"x_range: there is no feature number '{odd[0]}'")
    except msgspec.ValidationError as error:
        known = ", ".join(Checks.__struct_fields__)
        raise UserError(f"dataset '{spec.name}': options.checks: {error}; checks are {known}") from None
    for name, problem in _problems(parsed.X, parsed.y, spec, expected):
        raise DataMismatch(f"dataset '{spec.name}': check '{name}' failed: {problem}")


def _problems(X: np.ndarray, y: np.ndarray, spec: DatasetSpec, expected: Checks) -> Iterator[tuple[str, str]]:
    if X.ndim != 2 or y.shape != X.shape[:1]:
        yield "shape", f"expected X [rows, features] and y [rows], found {X.shape} and {y.shape}"
    for name, wanted, found in (("rows", spec.rows, len(y)), ("features", spec.features, X.shape[1])):
        if found == 0 or found != (wanted or found):
            yield name, f"expected {wanted or 'some'}, found {found or 'none'}"
    # Comparisons with NaN are false, so this one test catches NaN, infinities and values that would overflow.
    fine = np.abs(y) < MAX_ABS_VALUE
    if not fine.all():
        yield "finite", f"the target of row {np.argmin(fine) + 1} is {_value(y[np.argmin(fine)])}"
    filled = spec.options.get("missing") in ("mean", "level")
    for column in range(X.shape[1]):
        values = np.nan_to_num(X[:, column]) if filled else X[:, column]
        if not -MAX_ABS_VALUE < values.min() <= values.max() < MAX_ABS_VALUE:
            row = int(np.argmin(np.abs(values) < MAX_ABS_VALUE))
            yield "finite", f"row {row + 1}, feature {column + 1} is {_value(values[row])}"
    if spec.task != "regression":
        name, words = ("labels", "0 and 1") if spec.task == "binary" else ("counts", "integers >= 0")
        wrong = (y != 0.0) & (y != 1.0) if spec.task == "binary" else (y < 0.0) | (y != np.floor(y))
        if wrong.any():
            yield name, f"expected {words}, found {y[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}"
        elif spec.task == "binary" and y.min() == y.max():
            yield name, f"expected two classes, found only {y[0]:g}"
    yield from _other_data(X, y, expected)


def _value(value: float) -> str:
    return f"{value}" + (f", above {MAX_ABS_VALUE:g}: choose larger units" if np.isfinite(value) else "")


def _other_data(X: np.ndarray, y: np.ndarray, expected: Checks) -> Iterator[tuple[str, str]]:
    if expected.positives is not None and y.sum() != expected.positives:
        yield "class balance", f"expected {expected.positives:g} positive rows, found {y.sum():g}"
    if (mean := expected.y_mean) is not None and abs(y.mean() - mean) > 1e-6 * abs(mean):
        yield "target mean", f"expected {mean}, found {y.mean():.8g}"
    spread = np.array(expected.x_std or X.std(axis=0))
    for name, known, found in (("means", expected.x_mean, X.mean(axis=0)), ("spreads", expected.x_std, X.std(axis=0))):
        if known and (not len(known) == len(found) == len(spread) or (np.abs(found - known) > SAME * spread).any()):
            said, shown = (", ".join(f"{value:.4g}" for value in some[:3]) for some in (known, found))
            yield "content", f"these are other data: the {name} of the features are {said}, ..., found {shown}, ..."
    ranges = [("target range", y, expected.y_range), ("class balance", y.mean(), expected.positive_share)]
    ranges += [(f"range of feature {k}", X[:, k - 1], bounds) for k, bounds in expected.x_range.items()]
    for name, values, bounds in ranges:
        if bounds is not None and not bounds[0] <= np.min(values) <= np.max(values) <= bounds[1]:
            found = f"{np.min(values):.4g} to {np.max(values):.4g}"
            yield name, f"expected {bounds[0]:g} to {bounds[1]:g}, found {found}"
