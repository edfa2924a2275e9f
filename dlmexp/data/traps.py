"""What makes results on a table look better than they are: targets without variation, features that give them away."""

import numpy as np

from dlmexp.console import counted
from dlmexp.data.advice import setting
from dlmexp.data.table_columns import kind_of, missing
from dlmexp.errors import UserError

ENOUGH = 20  # rows: with fewer, a column agrees with the target by chance
MANY = 0.1  # as a share of the rows: so many copies are no coincidence
RARE = 10  # rows of a class
NEARLY = 1e-3  # of the target's variance: what is left beside another copy of the target, rounded or with its own noise


def counts_rows(column: np.ndarray) -> bool:
    """Whether a column numbers the rows, from 0 or 1."""
    if kind_of(column) != "numbers" or len(column) < 2 or column[0] not in (0.0, 1.0):
        return False
    return bool((column == np.arange(len(column)) + column[0]).all())


def check_target(name: str, y: np.ndarray) -> None:
    """Refuse a target that is the same everywhere."""
    if len(y) > 1 and (y == y[0]).all():
        raise UserError(f"csv.target={name}: it is {y[0]:g} in all {len(y)} rows, so there is nothing to predict")


def repeated_rows(X: np.ndarray, y: np.ndarray, own_test: bool) -> str | None:
    """A warning if many rows occur several times: of copies, some are trained on and others tested on."""
    rows = np.column_stack([X, y])
    repeated = len(rows) - len({hash(row.tobytes()) for row in rows})
    if len(rows) < ENOUGH or repeated <= len(rows) * MANY:
        return None
    if own_test:  # which no division moves
        return (
            f"{repeated} of {len(rows)} rows are copies of others: leave out those of test rows, or they are trained on"
        )
    return (
        f"{repeated} of {len(rows)} rows are copies of others, so that some test rows are trained on; leave copies out "
        "or keep them together with csv.split=group csv.by=COLUMN"
    )


def rare_class(labels: tuple[str, str], y: np.ndarray) -> str | None:
    """A warning if there are hardly any rows of a class."""
    for label, rows in zip(labels, (int((y == 0).sum()), int((y == 1).sum())), strict=True):
        if rows < RARE:
            return f"class '{label}' has {counted(rows, 'row')}: not every training, validation and test set has some"
    return None


def alike_levels(name: str, levels: tuple[str, ...]) -> str | None:
    """A warning if two levels of a category differ in capitals and spaces alone."""
    first: dict[str, str] = {}
    for level in levels:
        if (other := first.setdefault(" ".join(level.split()).casefold(), level)) != level:
            return (
                f"column '{name}' has the levels '{other}' and '{level}', which count as different; write them in one "
                "way if they are the same"
            )
    return None


def leaks(name: str, column: np.ndarray, target: str, y: np.ndarray, task: str, insisted: bool) -> str | None:
    """A warning about a column that gives the target away. One that is the target in other units or words is refused,
    unless the user insists on it by naming it among the features."""
    known = ~missing(column)
    x, y = column[known], y[known]
    if len(y) < ENOUGH or (y == y[0]).all():
        return None
    if kind_of(column) == "text" or task == "binary":
        how = _one_value_per_level(x, y) or (_threshold(x, y) if kind_of(column) == "numbers" else None)
    else:
        how = _same_up_to_units(x, y) if kind_of(column) == "numbers" else None
    if how is None:
        return None
    exact, words = how
    sentence = f"column '{name}' gives the target '{target}' away: {words}"
    if exact and not insisted:
        raise UserError(
            f"{sentence}; {setting('drop', name)} leaves it out, naming it in csv.columns=[...] takes it all the same"
        )
    return f"{sentence}; is it known when you predict? {setting('drop', name)} leaves it out"


def _one_value_per_level(x: np.ndarray, y: np.ndarray) -> tuple[bool, str] | None:
    """Whether each value of `x` occurs with one value of `y` only, with several rows to a value."""
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
    if np.abs(slope * x + offset - y).max() <= 1e-9 * np.abs(y - y.mean()).max():
        return True, f"the target is {slope:.6g} times it" + (f" plus {offset:.6g}" if abs(offset) > 1e-9 else "")
    order = np.lexsort((y, x))
    steps, ties = np.diff(y[order]), np.diff(x[order]) == 0
    if (steps[ties] == 0).all() and ((steps >= 0).all() or (steps <= 0).all()):
        return False, "sorted by it, the target only rises or only falls"
    rest = np.var(slope * x + offset - y) / np.var(y)
    if rest < NEARLY:
        return False, f"the target is about {slope:.4g} times it, which leaves {100 * rest:.2g} % of its variance"
    return None
