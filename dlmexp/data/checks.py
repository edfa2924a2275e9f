"""Checks of parsed data against the spec; an error names the check, the expected and the actual value."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dlmexp.data.parsers.registry import Parsed
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError

MAX_ABS_VALUE = 1e100
"""The squares of larger values would overflow in the normalisation."""


SAME = 1e-3
"""Means and deviations of features that differ by less, in deviations, are those of the same data."""


class DataMismatch(UserError):
    """The parsed data differs from the spec of the dataset."""


def check(parsed: Parsed, spec: DatasetSpec) -> None:
    """Raises DataMismatch with the first check that fails: shape, finite values, targets that fit the task, then the
    `options.checks` of the spec: `y_range`, `y_mean`, `positives` (a number of rows), `positive_share`, `x_range`
    by column number (from 1), and `x_mean` and `x_std` of all columns, which tell the data from any other."""
    for name, problem in _problems(parsed.X, parsed.y, spec):
        raise DataMismatch(f"dataset '{spec.name}': check '{name}' failed: {problem}")


def _problems(X: np.ndarray, y: np.ndarray, spec: DatasetSpec) -> Iterator[tuple[str, str]]:
    if X.ndim != 2 or y.shape != X.shape[:1]:
        yield "shape", f"expected X [rows, features] and y [rows], found {X.shape} and {y.shape}"
    if len(y) == 0:
        yield "rows", f"expected {spec.rows or 'some'}, found none"
    if spec.rows is not None and len(y) != spec.rows:
        yield "rows", f"expected {spec.rows}, found {len(y)}"
    if spec.features is not None and X.shape[1] != spec.features:
        yield "features", f"expected {spec.features}, found {X.shape[1]}"
    if X.shape[1] == 0:
        yield "features", "expected at least one, found none"
    yield from _not_finite(np.nan_to_num(X) if spec.options.get("missing") == "mean" else X, y)
    yield from _wrong_targets(y, spec.task)
    yield from _spec_checks(X, y, _expected(spec))


def _expected(spec: DatasetSpec) -> Mapping[str, Any]:
    """The `options.checks` of a spec, whose values have the form that they should have."""
    given = spec.options.get("checks") or {}
    forms: dict[str, Callable[[Any], bool]] = {
        "positives": _is_number,
        "y_mean": _is_number,
        "positive_share": _is_range,
        "y_range": _is_range,
        "x_mean": _are_numbers,
        "x_std": _are_numbers,
        "x_range": lambda value: isinstance(value, Mapping) and all(map(_is_range, value.values())),
    }
    for name, value in given.items() if isinstance(given, Mapping) else [("", given)]:
        if name not in forms or (value is not None and not forms[name](value)):
            what = f"options.checks.{name}" if name else "options.checks"
            raise UserError(f"dataset '{spec.name}': {what}={value}: checks are {', '.join(forms)}; ranges are [a,b]")
    columns = (given.get("x_range") or {}) if isinstance(given, Mapping) else {}
    for column in columns:
        if not str(column).isdigit() or (spec.features is not None and not 1 <= int(column) <= spec.features):
            raise UserError(f"dataset '{spec.name}': options.checks.x_range: there is no feature number '{column}'")
    return given


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_number, value))


def _is_range(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))


def _not_finite(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, str]]:
    # Comparisons with NaN are false, so this one test catches NaN, infinities and values that would overflow.
    if not (np.abs(y) < MAX_ABS_VALUE).all():
        row = int(np.argmin(np.abs(y) < MAX_ABS_VALUE))
        yield "finite", f"the target of row {row + 1} is {y[row]}{_too_large(y[row])}"
    low, high = X.min(axis=0, initial=0.0), X.max(axis=0, initial=0.0)
    bad = ~((low > -MAX_ABS_VALUE) & (high < MAX_ABS_VALUE))
    if bad.any():
        column = int(np.argmax(bad))
        row = int(np.argmin(np.abs(X[:, column]) < MAX_ABS_VALUE))
        yield "finite", f"row {row + 1}, feature {column + 1} is {X[row, column]}{_too_large(X[row, column])}"


def _too_large(value: float) -> str:
    return f", above {MAX_ABS_VALUE:g}: choose larger units" if np.isfinite(value) else ""


def _wrong_targets(y: np.ndarray, task: str) -> Iterator[tuple[str, str]]:
    if task == "binary":
        wrong = (y != 0.0) & (y != 1.0)
        if wrong.any():
            yield "labels", f"expected 0 and 1, found {y[np.argmax(wrong)]:g} in row {int(np.argmax(wrong)) + 1}"
        elif y.min() == y.max():
            yield "labels", f"expected two classes, found only {y[0]:g}"
    if task == "count":
        wrong = (y < 0.0) | (y != np.floor(y))
        if wrong.any():
            row = int(np.argmax(wrong))
            yield "counts", f"expected integers >= 0, found {y[row]:g} in row {row + 1}"


def _spec_checks(X: np.ndarray, y: np.ndarray, expected: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if (positives := expected.get("positives")) is not None and y.sum() != positives:
        yield "class balance", f"expected {positives} positive rows, found {y.sum():g}"
    if (share := expected.get("positive_share")) is not None and not share[0] <= y.mean() <= share[1]:
        yield "class balance", f"expected a share of {share[0]} to {share[1]} positive rows, found {y.mean():.4g}"
    if (bounds := expected.get("y_range")) is not None and (y.min() < bounds[0] or y.max() > bounds[1]):
        yield "target range", f"expected {bounds[0]} to {bounds[1]}, found {y.min():g} to {y.max():g}"
    if (mean := expected.get("y_mean")) is not None and abs(y.mean() - mean) > 1e-6 * abs(mean):
        yield "target mean", f"expected {mean}, found {y.mean():.8g}"
    for name, found, of in (("x_mean", X.mean(axis=0), "means"), ("x_std", X.std(axis=0), "standard deviations")):
        if (known := expected.get(name)) is not None:
            spread = np.array(expected.get("x_std") or X.std(axis=0))
            if len(known) != len(found) or len(spread) != len(found) or (np.abs(found - known) > SAME * spread).any():
                shown = ", ".join(f"{value:.4g}" for value in found[:3])
                said = ", ".join(f"{value:.4g}" for value in known[:3])
                yield "content", f"these are other data: the {of} of the features are {said}, ..., found {shown}, ..."
    for column, (low, high) in (expected.get("x_range") or {}).items():
        found = X[:, int(column) - 1].min(), X[:, int(column) - 1].max()
        if found[0] < low or found[1] > high:
            yield f"range of feature {column}", f"expected {low} to {high}, found {found[0]:g} to {found[1]:g}"
