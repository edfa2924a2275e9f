"""Claim 17: derivatives against numerical ones, and bounds that would be wrong."""

from dataclasses import replace

import numpy as np
import pytest

from dlmexp.presentation.claims import bounds
from dlmexp.presentation.claims.bounds import GRID, TableRow, excess, table_rows
from tests.support.tidy import fits
from tests.support.verdicts import outcomes, parts, words

ROWS = list(table_rows())
ANY = fits("banana", "elbo", 0.5)


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_derivatives_are_those_of_the_likelihood(name: str, row: TableRow):
    step = GRID[1] - GRID[0]
    for values, derivative in ((row.p, row.first), (row.first, row.second)):
        error = np.abs(np.gradient(values, step) - derivative)[1:-1].max()
        assert error < 0.03 * np.abs(derivative).max() + 1e-9


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_bounds_hold(name: str, row: TableRow):
    assert excess(row) <= 1e-9


# The bounds that are attained: a smaller one would be wrong. `first low` is b', and so on.
BOTH = ["first low", "first high", "second low", "second high"]
ATTAINED = {
    "logistic": ["first high"],
    "gaussian": ["B", *BOTH],
    "probit": ["first high", "second low", "second high"],
    "student t": ["B", *BOTH],
}
CASES = [
    pytest.param(row, bound, id=f"{name} {bound}")
    for name, row in ROWS
    for bound in ATTAINED.get(name, ())
]


@pytest.mark.parametrize(("row", "bound"), CASES)
def test_bounds_are_attained(row: TableRow, bound: str):
    name, _, side = bound.partition(" ")
    limit = getattr(row.bounds, name)
    if side == "low":
        limit = (0.99 * limit[0], limit[1])
    elif side == "high":
        limit = (limit[0], 0.99 * limit[1])
    else:
        limit = 0.99 * limit
    wrong = replace(row, bounds=replace(row.bounds, **{name: limit}))
    assert excess(wrong) > 1e-4 * row.p.max()


def test_a_negative_likelihood_leaves_its_bounds():
    _, row = ROWS[0]
    assert excess(replace(row, p=row.p - 0.1)) == pytest.approx(0.1)


@pytest.mark.slow
def test_table_1_holds():
    assert words(ANY, 17) == "reproduced (6 of 6 tests)"
    assert {part.statement.split(":")[0] for part in parts(ANY, 17)} == {name for name, _ in ROWS}


@pytest.mark.parametrize(("largest", "verdict"), [(1e-9, "supported"), (2e-9, "contradicted")])
def test_a_bound_may_be_left_by_rounding_errors(monkeypatch, largest, verdict):
    monkeypatch.setattr(bounds, "largest_excess", lambda: {"logistic": largest})
    (part,) = parts(ANY, 17)
    assert outcomes(part) == [verdict]
    assert part.figures == {"largest_excess": largest}
