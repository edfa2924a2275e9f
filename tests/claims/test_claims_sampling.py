"""Claims 13, 15, 16 and 19, both ways."""

import numpy as np
import pytest

from dlmexp.claims.rules import Verdict
from dlmexp.records.schema import Record, Result
from tests.support.levels import ends, on
from tests.support.made_up import failed, fit, method_cell, record

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN


def counts(bmc: float, ups: float, smooth: float) -> dict:
    levels = {"bmc": bmc, "ups": ups, "smooth_bmc": smooth}
    return {("joint_log_dlm", 0.1, name, L): level for name, level in levels.items() for L in (1, 10, 100)}


def test_13_no_difference(judged) -> None:
    assert judged(13, ends("abalone", counts(2.2, 2.205, 2.195))).verdict is HOLDS
    assert judged(13, ends("abalone", counts(2.2, 2.5, 2.0))).verdict is FAILS
    assert judged(13, ends("abalone", counts(2.2, 2.5, 2.2))).verdict is MIXED


def gradients(bias: dict[str, float], noise: dict[tuple[str, int], float], centre: float = 1.0) -> list:
    """Gradient statistics with a given bias per estimator and scatter of condition (i)."""
    made = []
    for name in ("bmc", "ups", "smooth_bmc"):
        for samples in (1, 10, 100):
            for seed in range(5):
                random = np.random.default_rng([seed, samples, len(name)])
                of = method_cell(
                    "fixed_log_dlm", "abalone", kind="gradient", n=2000, beta=0.1, seed=seed, estimator=name,
                    samples=samples,
                )  # fmt: skip
                draws = centre + noise.get((name, samples), 0.02) * random.normal(size=100)
                value = bias[name] / samples * (1 + 0.01 * seed)
                made.append((record(of, Result(bias=value, bias_quadrature=value)), {"condition_i": draws}))
    return made


def test_15_gradient_statistics(judged) -> None:
    good = judged(15, gradients({"bmc": 1.0, "ups": 0.01, "smooth_bmc": 0.5}, {("bmc", 1): 0.5}))
    assert good.verdict is HOLDS
    bad = gradients({"bmc": 0.01, "ups": 1.0, "smooth_bmc": 0.5}, {("ups", 1): 0.5}, centre=1.6)
    assert judged(15, bad).verdict is FAILS
    partly = judged(15, gradients({"bmc": 1.0, "ups": 0.01, "smooth_bmc": 3.0}, {("bmc", 1): 0.5}))
    assert partly.verdict is MIXED
    assert {found.verdict for found in on(partly, "abalone", "smooth-bMC-1 is less biased")} >= {FAILS}


def test_15_condition_i_of_bmc_1_is_not_asked(judged) -> None:
    judgement = judged(15, gradients({"bmc": 1.0, "ups": 0.01, "smooth_bmc": 0.5}, {("bmc", 1): 0.5}))
    assert not on(judgement, "abalone", "bMC-1: condition (i)", how="whitened")[1:]
    assert len(on(judgement, "abalone", "condition (i)", how="whitened")) == 8


def sampled(acceptance: float | None, sampler: str, seconds: float = 1.0, estimator: str = "ups") -> list[Record]:
    made = []
    for seed in range(5):
        of = method_cell(
            "joint_log_dlm", "abalone", n=1000, beta=0.1, seed=seed, estimator=estimator, samples=10, sampler=sampler
        )
        one = fit(of, nll=2.0, mre=0.1)
        one.result.seconds, one.result.iterations = seconds * (1 + 0.01 * seed), 100
        one.result.acceptance = acceptance
        made.append(one)
    return made


def test_16_rejections(judged) -> None:
    holds = judged(16, sampled(1 / 3, "rejection"))
    assert holds.verdict is HOLDS
    assert holds.findings[0].figures["rejected_per_accepted"] == pytest.approx(2.0)
    assert judged(16, sampled(0.1, "rejection")).verdict is FAILS
    assert judged(16, sampled(0.9, "rejection")).verdict is FAILS
    assert judged(16, sampled(1.0, "auto")).verdict is NOT_RUN  # our sampler says nothing about the paper's


def test_19_cost(judged) -> None:
    bmc = sampled(None, "none", 1.0, "bmc")
    holds = judged(19, bmc + sampled(1.0, "auto", 0.98))
    assert holds.verdict is HOLDS
    assert holds.findings[0].figures["ratio"] == pytest.approx(0.98)
    assert judged(19, bmc + sampled(1.0, "auto", 3.0)).verdict is FAILS
    assert judged(19, bmc + sampled(0.3, "rejection", 0.5)).verdict is NOT_RUN
    failures = [failed(method_cell("joint_log_dlm", "abalone", seed=s, estimator="ups", samples=10)) for s in range(5)]
    assert judged(19, bmc + failures).verdict is NOT_RUN


@pytest.mark.parametrize("what", ["host", "device", "commit"])
def test_19_only_the_same_machine_and_version_are_compared(judged, what) -> None:
    ours = sampled(1.0, "auto", 0.5)
    for one in ours:
        setattr(one.made, what, "another")
    assert judged(19, sampled(None, "none", 1.0, "bmc") + ours).verdict is NOT_RUN
