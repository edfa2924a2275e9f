"""How many iterations are expected of a fit."""

import numpy as np
from msgspec.structs import replace

from dlmexp.estimators import ESTIMATORS
from dlmexp.running.iterations import (
    ASSUMED,
    HERE,
    OTHER,
    RULE,
    SAME,
    Curve,
    Expected,
    Iterations,
    condensed,
    is_drawn,
    kind_of,
    shipped_curves,
)  # fmt: skip
from tests.support.banana import record
from tests.support.cells import ELBO, PLAIN

KIND = kind_of(ELBO)
CURVE = Curve("banana", 100, ELBO.M, 3000, [0.0, 2.0], [100.0, 300.0])


def fit(cell, iterations):
    found = record(cell)
    return replace(found, result=replace(found.result, iterations=iterations))


def test_linear_in_the_logarithm_of_beta_and_constant_beyond():
    assert [CURVE.at(beta) for beta in (1.0, 2.0, 4.0, 1000.0, 1e-9, None, 0.0)] == [
        100.0, 200.0, 300.0, 300.0, 100.0, 100.0, 100.0,
    ]  # fmt: skip


def test_fits_done_here_come_before_those_of_the_paper_and_these_before_others():
    shipped = {KIND: [CURVE, Curve("ringnorm", 100, ELBO.M, 3000, [0.0], [900.0])]}
    ours = replace(ELBO, beta=1.0)
    known, other = Iterations(shipped=shipped), replace(ours, dataset="mine")
    assert known.expected(ours) == Expected(100, SAME)
    assert known.expected(other) == Expected(500, OTHER)
    here = Iterations([fit(replace(other, seed=seed), 40 + seed) for seed in range(3)], shipped)
    assert here.expected(other) == Expected(41, HERE)
    assert here.expected(ours) == Expected(100, SAME)


def test_fits_with_another_M_are_similar_and_no_more():
    """They take the place of the same fits only where there are none, here or in the paper's."""
    shipped, ours = {KIND: [CURVE]}, replace(ELBO, beta=1.0)
    larger = replace(ours, M=2 * ours.M)
    assert Iterations(shipped=shipped).expected(larger) == Expected(100, OTHER)
    here = Iterations([fit(larger, 40)], shipped)
    assert here.expected(larger) == Expected(40, HERE)
    assert here.expected(ours) == Expected(100, SAME)
    assert Iterations([fit(larger, 40)], {}).expected(ours) == Expected(40, OTHER)


def test_an_estimator_says_itself_whether_it_is_sampled(monkeypatch):
    assert [is_drawn(replace(ELBO, estimator=name)) for name in ("exact", "quadrature", "bmc", "ups")] == [
        False, False, True, True,
    ]  # fmt: skip
    monkeypatch.setattr(ESTIMATORS["quadrature"], "sampled", True)
    assert is_drawn(replace(ELBO, estimator="quadrature", options={"nodes": 3}))
    assert is_drawn(replace(ELBO, minibatch=10))


def test_the_nearest_size_counts():
    shipped = {KIND: [CURVE, replace(CURVE, n=1000, iterations=[7.0, 7.0])]}
    assert Iterations(shipped=shipped).expected(replace(ELBO, n=900, beta=1.0)).iterations == 7


def test_the_limit_of_this_run_applies():
    shipped = {KIND: [replace(CURVE, iterations=[100.0, 2990.0])]}
    iterations = Iterations(shipped=shipped)
    assert iterations.expected(replace(ELBO, beta=1.0, max_iterations=50)).iterations == 50
    # Fits that ran to their limit would run to a higher one.
    assert iterations.expected(replace(ELBO, beta=4.0, max_iterations=9000)).iterations == 9000


def test_what_needs_no_experience():
    iterations = Iterations(shipped={})
    assert iterations.expected(replace(PLAIN, epochs=20, minibatch=10, max_iterations=None)) == Expected(200, RULE)
    assert iterations.expected(PLAIN) == Expected(3000, RULE)  # drawn anew at every step: it never comes to rest
    assert iterations.expected(replace(ELBO, minibatch=50)) == Expected(3000, RULE)
    solved = replace(PLAIN, task="regression", objective="sq_dlm")
    assert iterations.expected(solved).iterations == 1
    assert iterations.expected(replace(ELBO, kind="gradient")).iterations == 1


def test_what_is_not_known_is_assumed():
    decaying = replace(ELBO, decay=1000, final_lr=1e-4, window=100)
    assert Iterations(shipped={}).expected(decaying) == Expected(1600, ASSUMED)
    assert Iterations(shipped={}).expected(ELBO) == Expected(1500, ASSUMED)
    another_rule = replace(ELBO, beta=1.0, criterion="sum")
    assert Iterations(shipped={KIND: [CURVE]}).expected(another_rule) == Expected(100, ASSUMED)


def test_condensed_records_are_means_over_seeds_and_near_betas():
    cells = [replace(ELBO, seed=seed, beta=beta) for seed in (0, 1) for beta in (1.0, 1.5, 16.0)]
    (curve,) = condensed([fit(cell, 10 * (i + 1)) for i, cell in enumerate(cells)])[KIND]
    assert curve == Curve("banana", 100, ELBO.M, 3000, [0.0, 4.0], [30.0, 45.0])
    assert condensed([record(ELBO, "failed"), fit(replace(ELBO, window=None), 3)]) == {}


def test_what_is_shipped_is_plausible():
    for kind, curves in shipped_curves().items():
        assert "|" in kind
        for curve in curves:
            assert curve.log2_beta == sorted(curve.log2_beta)
            assert 0 < min(curve.iterations) <= max(curve.iterations) <= curve.limit
            assert len(curve.iterations) == len(curve.log2_beta)
            assert np.isfinite(curve.at(1.0))
