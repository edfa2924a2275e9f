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
    x_range: dict[int, Range] | None = None


class DataMismatch(UserError):
    """The parsed data differs from the spec of the dataset."""


def check(parsed: Parsed, spec: DatasetSpec) -> None:
    """Raises DataMismatch with the first check that fails: shape, finite values, targets that fit the task, then the
    `options.checks` of the spec."""
    for name, problem in _problems(parsed.X, parsed.y, spec):
        raise DataMismatch(f"dataset '{spec.name}': check '{name}' failed: {problem}")


def _problems(X: np.ndarray, y: np.ndarray, spec: DatasetSpec) -> Iterator[tuple[str, str]]:
    if X.ndim != 2 or y.shape != X.shape[:1]:
        yield "shape", f"expected X [rows, features] and y [rows], found {X.shape} and {y.shape}"
    if len(y) != (len(y) if spec.rows is None else spec.rows) or len(y) == 0:
        yield "rows", f"expected {spec.rows or 'some'}, found {len(y) or 'none'}"
    if X.shape[1] != (spec.features or X.shape[1]) or X.shape[1] == 0:
        yield "features", f"expected {spec.features or 'at least one'}, found {X.shape[1] or 'none'}"
    filled = spec.options.get("missing") in ("mean", "level")
    yield from _not_finite(np.nan_to_num(X) if filled else X, y)
    yield from _wrong_targets(y, spec.task)
    yield from _other_data(X, y, _expected(spec))


def _expected(spec: DatasetSpec) -> Checks:
    try:
        expected = msgspec.convert(spec.options.get("checks") or {}, Checks, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(Checks.__struct_fields__)
        raise UserError(
            f"dataset '{spec.name}': options.checks: {error}; checks are {known}; ranges are [a,b]"
        ) from None
    for column in expected.x_range or ():
        if column < 1 or (spec.features is not None and column > spec.features):
            raise UserError(f"dataset '{spec.name}': options.checks.x_range: there is no feature number '{column}'")
    return expected


def _not_finite(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, str]]:
    def said(value: float) -> str:
        return f"{value}" + (f", above {MAX_ABS_VALUE:g}: choose larger units" if np.isfinite(value) else "")

    # Comparisons with NaN are false, so this one test catches NaN, infinities and values that would overflow.
    if not (np.abs(y) < MAX_ABS_VALUE).all():
        row = int(np.argmin(np.abs(y) < MAX_ABS_VALUE))
        yield "finite", f"the target of row {row + 1} is {said(y[row])}"
    low, high = X.min(axis=0, initial=0.0), X.max(axis=0, initial=0.0)
    bad = ~((low > -MAX_ABS_VALUE) & (high < MAX_ABS_VALUE))
    if bad.any():
        column = int(np.argmax(bad))
        row = int(np.argmin(np.abs(X[:, column]) < MAX_ABS_VALUE))
        yield "finite", f"row {row + 1}, feature {column + 1} is {said(X[row, column])}"


def _wrong_targets(y: np.ndarray, task: str) -> Iterator[tuple[str, str]]:
    if task == "regression":
        return
    wrong = (y != 0.0) & (y != 1.0) if task == "binary" else (y < 0.0) | (y != np.floor(y))
    if wrong.any():
        row = int(np.argmax(wrong))
        name, expected = ("labels", "0 and 1") if task == "binary" else ("counts", "integers >= 0")
        yield name, f"expected {expected}, found {y[row]:g} in row {row + 1}"
    elif task == "binary" and y.min() == y.max():
        yield "labels", f"expected two classes, found only {y[0]:g}"


def _other_data(X: np.ndarray, y: np.ndarray, expected: Checks) -> Iterator[tuple[str, str]]:
    if expected.positives is not None and y.sum() != expected.positives:
        yield "class balance", f"expected {expected.positives:g} positive rows, found {y.sum():g}"
    if (share := expected.positive_share) is not None and not share[0] <= y.mean() <= share[1]:
        yield "class balance", f"expected a share of {share[0]} to {share[1]} positive rows, found {y.mean():.4g}"
    if (mean := expected.y_mean) is not None and abs(y.mean() - mean) > 1e-6 * abs(mean):
        yield "target mean", f"expected {mean}, found {y.mean():.8g}"
    spread = np.array(expected.x_std or X.std(axis=0))
    for known, found, of in (
        (expected.x_mean, X.mean(axis=0), "means"),
        (expected.x_std, X.std(axis=0), "standard deviations"),
    ):
        if known is None:
            continue
        if not len(known) == len(found) == len(spread) or (np.abs(found - known) > SAME * spread).any():
            said, shown = (", ".join(f"{value:.4g}" for value in some[:3]) for some in (known, found))
            yield "content", f"these are other data: the {of} of the features are {said}, ..., found {shown}, ..."
    ranges = {f"range of feature {k}": (X[:, k - 1], bounds) for k, bounds in (expected.x_range or {}).items()}
    if expected.y_range is not None:
        ranges = {"target range": (y, expected.y_range)} | ranges
    for name, (values, (low, high)) in ranges.items():
        if values.min() < low or values.max() > high:
            yield name, f"expected {low:g} to {high:g}, found {values.min():g} to {values.max():g}"
