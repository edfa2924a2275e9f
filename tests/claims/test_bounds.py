"""Claim 17: derivatives against finite differences, bounds against what breaks them."""

from dataclasses import replace

import numpy as np
import pytest

from dlmexp.claims import bounds
from dlmexp.claims.bounds import Row, excess, rows, table_1
from dlmexp.claims.rules import Verdict

ROWS = {row.name: row for row in rows()}


@pytest.mark.parametrize("name", ROWS)
def test_derivatives_are_those_of_the_function(name: str) -> None:
    f = np.linspace(-6.0, 4.0, 41)
    h = 1e-5
    p, first, second = ROWS[name].derivatives(f)
    above, below = ROWS[name].derivatives(f + h), ROWS[name].derivatives(f - h)
    scale = max(np.abs(second).max(), 1e-3)
    np.testing.assert_allclose(first, (above[0] - below[0]) / (2 * h), atol=1e-7 * max(scale, 1))
    np.testing.assert_allclose(second, (above[1] - below[1]) / (2 * h), atol=1e-6 * max(scale, 1))
    assert (p >= 0).all()


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_table_1_holds(name: str) -> None:
    assert excess(ROWS[name]) <= 1e-9


def test_all_six_likelihoods_are_judged_to_hold() -> None:
    findings = list(table_1())
    assert len(findings) == 6
    assert {found.verdict for found in findings} == {Verdict.HOLDS}


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("name", ["gaussian, σ=1", "student t, σ=1, ν=3"])
def test_tight_bounds_fail_when_a_hundredth_tighter(name: str, position: int) -> None:
    tighter = list(ROWS[name].bounds)
    tighter[position] *= 0.99
    assert excess(replace(ROWS[name], bounds=tuple(tighter))) > 1e-6


def test_a_broken_bound_makes_the_claim_fail(monkeypatch) -> None:
    wrong = Row("logistic", bounds.logistic, (1, -0.25, 0.2, -0.25, 0.25))
    monkeypatch.setattr(bounds, "rows", lambda: iter([wrong]))
    (found,) = table_1()
    assert found.verdict is Verdict.FAILS
    assert "leaves a bound by 0.05" in found.words
