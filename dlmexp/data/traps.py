"""What makes results on a table look better than they are: features that give the target away, copies of rows."""

from typing import NamedTuple

import numpy as np

from dlmexp.console import counted
from dlmexp.data.advice import setting
from dlmexp.data.schema import Column, Label, days, kind_of, missing

ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
RARE = 10  # rows of a class
NEARLY = 1e-3  # of the target's variance: what is left beside another copy of the target, rounded or with its own noise


class Leak(NamedTuple):
    """How a column gives the target away; `exact`: it is the target in other units or words."""

    exact: bool
    sentence: str


def counts_rows(values: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    if kind_of(values) != "numbers" or len(values) < 2 or values[0] not in (0.0, 1.0):
        return False
    return bool((values == np.arange(len(values)) + values[0]).all())


def warnings(name: str, values: np.ndarray, column: Column) -> list[str]:
    """What looks wrong with a column of features."""
    found = []
    if counts_rows(values):
        found.append(f"column '{name}' numbers the rows: {setting('drop', name)} leaves it out")
    elif len(values) and ((values == values[0]).all() or (column.kind == "category" and len(column.levels) < 2)):
        found.append(f"column '{name}' is the same in all rows")
    first: dict[str, str] = {}
    for level in column.levels:
        if (other := first.setdefault(" ".join(level.split()).casefold(), level)) != level:
            alike = f"column '{name}' has the levels '{other}' and '{level}', which count as different"
            return [*found, f"{alike}; write them in one way if they are the same"]
    return found


def repeated_rows(X: np.ndarray, y: np.ndarray, own_test: bool) -> list[str]:
    """A warning if many rows occur more than once: of copies, some are trained on and others tested on."""
    rows = np.column_stack([X, y])
    repeated = len(rows) - len({hash(row.tobytes()) for row in rows})
    if len(rows) < ENOUGH or repeated <= len(rows) * MANY:
        return []
    copies = f"{repeated} of {len(rows)} rows are copies of others"
    if own_test:  # which no division moves
        return [f"{copies}: leave out those of test rows, or they are trained on"]
    advice = "leave copies out or keep them together with csv.split=group csv.by=COLUMN"
    return [f"{copies}, so that some test rows are trained on; {advice}"]


def rare_class(labels: tuple[Label, Label], y: np.ndarray) -> list[str]:
    """A warning if there are hardly any rows of a class."""
    counts = [(label, int((y == value).sum())) for value, label in enumerate(labels)]
    rare = [f"class '{label}' has {counted(rows, 'row')}" for label, rows in counts if rows < RARE]
    return [f"{rare[0]}: not every training, validation and test set has some"] if rare else []


def leaks(name: str, values: np.ndarray, column: Column, target: str, y: np.ndarray, task: str) -> Leak | None:
    """How a column of features gives the target away; None if it does not."""
    known = ~missing(values) & ~np.isnan(y)
    x, y = (days(values) if column.kind == "date" else values)[known], y[known]
    if len(y) < ENOUGH or (y == y[0]).all():
        return None
    kind = kind_of(x)
    if kind == "text" or task == "binary":
        how = _one_value_per_level(x, y) or (_threshold(x, y) if kind == "numbers" else None)
    else:
        how = _same_up_to_units(x, y) if kind == "numbers" else None
    return how and Leak(how[0], f"column '{name}' gives the target '{target}' away: {how[1]}")


def _one_value_per_level(x: np.ndarray, y: np.ndarray) -> tuple[bool, str] | None:
    """Whether each value of `x` occurs with one value of `y` only, with more than a row to a value."""
    _, codes = np.unique(x.astype(str) if x.dtype == object else x, return_inverse=True)
    count = int(codes.max()) + 1
    if count < 2 or count > len(y) // 5:
        return None
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, codes, y)
    np.maximum.at(high, codes, y)
    if not (low == high).all():
        return None
    return count == len(np.unique(y)), "each of its values occurs with one value of the target only"


def _threshold(x: np.ndarray, y: np.ndarray) -> tuple[bool, str] | None:
    ones, zeros = x[y == 1.0], x[y == 0.0]
    if not len(ones) or not len(zeros) or (ones.max() >= zeros.min() and zeros.max() >= ones.min()):
        return None
    return False, "a threshold on it separates the classes without an error"


def _same_up_to_units(x: np.ndarray, y: np.ndarray) -> tuple[bool, str] | None:
    if (x == x[0]).all():
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # values so large are refused for that
        slope = np.dot(x - x.mean(), y - y.mean()) / np.dot(x - x.mean(), x - x.mean())
        offset = y.mean() - slope * x.mean()
        residual = slope * x + offset - y
    if np.abs(residual).max() <= 1e-9 * np.abs(y - y.mean()).max():
        return True, f"the target is {slope:.6g} times it" + (f" plus {offset:.6g}" if abs(offset) > 1e-9 else "")
    order = np.lexsort((y, x))
    steps, ties = np.diff(y[order]), np.diff(x[order]) == 0
    if (steps[ties] == 0).all() and ((steps >= 0).all() or (steps <= 0).all()):
        return False, "sorted by it, the target only rises or only falls"
    with np.errstate(over="ignore", invalid="ignore"):
        rest = np.var(residual) / np.var(y)
    if rest < NEARLY:
        return False, f"the target is about {slope:.4g} times it, which leaves {100 * rest:.2g} % of its variance"
    return None
