"""Claims 13, 15 and 16, both ways."""

import numpy as np
import pytest

from dlmexp.claims.judge import PAPER
from dlmexp.claims.rules import Verdict
from dlmexp.records.schema import Record, Result
from tests.support.levels import ends, fits, on
from tests.support.made_up import fit, method_cell, record

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN
UNDECIDABLE = Verdict.UNDECIDABLE


def counts(bmc: float, ups: float, smooth: float) -> dict:
    levels = {"bmc": bmc, "ups": ups, "smooth_bmc": smooth}
    return {("joint_log_dlm", 0.1, name, L): level for name, level in levels.items() for L in (1, 10, 100)}


def test_13_no_difference(judged) -> None:
    elbo = fits("abalone", "nll", {"elbo": 2.3}, n=2000)
    assert judged(13, ends("abalone", counts(2.2, 2.205, 2.195)) + elbo, trivial=3.0).verdict is HOLDS
    assert judged(13, ends("abalone", counts(2.2, 2.5, 2.0)) + elbo, trivial=3.0).verdict is FAILS
    assert judged(13, ends("abalone", counts(2.2, 2.5, 2.2)) + elbo, trivial=3.0).verdict is MIXED
    assert judged(13, ends("abalone", counts(2.2, 2.205, 2.195)) + elbo).verdict is UNDECIDABLE
    ends_apart = judged(13, ends("abalone", counts(2.2, 2.23, 2.17)) + elbo, trivial=3.0)
    assert {one.verdict for one in on(ends_apart, "abalone", "smooth-bMC-10 and uPS-10")} == {FAILS, NOT_RUN}


def gradients(
    bias: dict[str, float], noise: dict[tuple[str, int], float], centre: float = 1.0, spread: float = 0.1, **changes
) -> list:
    """Gradient statistics with a given bias per estimator, scatter of condition (i), and spread of |g - G|^2."""
    made = []
    for name in ("bmc", "ups", "smooth_bmc"):
        for samples in (1, 10, 100):
            for seed in range(5):
                random = np.random.default_rng([seed, samples, *name.encode()])
                of = method_cell(
                    "fixed_log_dlm", "abalone", kind="gradient", n=2000, beta=0.1, seed=seed, estimator=name,
                    samples=samples, **changes,
                )  # fmt: skip
                draws = centre + noise.get((name, samples), 0.02) * random.normal(size=100)
                value = bias[name] / samples * (1 + 0.01 * seed)
                error = value + spread * random.uniform(0.9, 1.1, size=100)
                made.append(
                    (record(of, Result(bias=value, bias_quadrature=value)), {"condition_i": draws, "error": error})
                )
    return made


def test_15_gradient_statistics(judged) -> None:
    good = judged(15, gradients({"bmc": 1.0, "ups": 0.01, "smooth_bmc": 0.5}, {("bmc", 1): 0.5}, spread=1e-4))
    assert good.verdict is HOLDS
    bad = gradients({"bmc": 0.01, "ups": 1.0, "smooth_bmc": 0.5}, {("ups", 1): 0.5}, centre=1.6, spread=1e-4)
    assert judged(15, bad).verdict is FAILS
    partly = judged(15, gradients({"bmc": 1.0, "ups": 0.01, "smooth_bmc": 3.0}, {("bmc", 1): 0.5}, spread=1e-4))
    assert partly.verdict is MIXED
    assert {found.verdict for found in on(partly, "abalone", "smooth-bMC-1 is less biased")} >= {FAILS}


def test_15_a_narrow_interval_is_not_undecided(judged) -> None:
    """Errors that scatter by a few per mille about the same mean: a difference of 5 % would be seen."""
    same = judged(15, gradients(dict.fromkeys(("bmc", "ups", "smooth_bmc"), 1e-9), {}))
    (found,) = on(same, "abalone", "uPS-1 has a smaller", how="whitened")
    assert found.verdict is MIXED
    assert found.sizes is not None
    assert "neither at 1" in found.sizes.words


def test_15_the_error_mixes_variance_with_bias(judged) -> None:
    """Where the spread of the draws is large, uPS is less biased and yet no closer to G."""
    judgement = judged(15, gradients({"bmc": 1e-3, "ups": 1e-6, "smooth_bmc": 1e-4}, {("bmc", 1): 0.5}, spread=5.0))
    biased, closer = (on(judgement, "abalone", about, "whitened") for about in ("uPS-1 is less", "uPS-1 has a smaller"))
    assert [found.verdict for found in biased] == [HOLDS]
    assert [found.verdict for found in closer] != [HOLDS]


def test_15_both_coordinates_of_q(judged) -> None:
    levels = {"bmc": 1.0, "ups": 0.01, "smooth_bmc": 0.5}
    whitened = gradients(levels, {("bmc", 1): 0.5}, spread=1e-4)
    turned = gradients({"bmc": 0.01, "ups": 1.0, "smooth_bmc": 0.5}, {}, spread=1e-4, parameterisation="unwhitened")
    judgement = judged(15, whitened + turned)
    assert judgement.by_basis[PAPER]["whitened"] is HOLDS
    assert judgement.by_basis[PAPER]["unwhitened"] is not HOLDS


def test_15_condition_i_of_bmc_1_is_not_asked(judged) -> None:
    judgement = judged(15, gradients({"bmc": 1.0, "ups": 0.01, "smooth_bmc": 0.5}, {("bmc", 1): 0.5}))
    assert not on(judgement, "abalone", "bMC-1: condition (i)", how="whitened")[1:]
    assert len(on(judgement, "abalone", "condition (i)", how="whitened")) == 8


def rejecting(acceptance: float, sampler: str = "rejection") -> list[Record]:
    made = []
    for seed in range(5):
        of = method_cell(
            "joint_log_dlm", "abalone", n=1000, beta=0.1, seed=seed, estimator="ups", samples=10, sampler=sampler
        )
        one = fit(of, nll=2.0, mre=0.1)
        one.result.acceptance = acceptance
        made.append(one)
    return made


def test_16_rejections(judged) -> None:
    holds = judged(16, rejecting(1 / 3))
    assert holds.verdict is HOLDS
    assert holds.findings[0].figures["rejected_per_accepted"] == pytest.approx(2.0)
    assert "the first ones included" in holds.findings[0].words  # records have one rate for the whole run
    assert judged(16, rejecting(0.1)).verdict is FAILS
    assert judged(16, rejecting(0.9)).verdict is FAILS
    assert judged(16, rejecting(1.0, "auto")).verdict is NOT_RUN  # our sampler says nothing about the paper's
