"""Claim 19, both ways, and only from runs that had their device to themselves."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from dlmexp.claims.cost import alone
from dlmexp.claims.rules import Verdict
from dlmexp.records.schema import Record
from tests.support.levels import on
from tests.support.made_up import failed, fit, method_cell

HOLDS, FAILS, NOT_RUN, UNDECIDABLE = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_RUN, Verdict.UNDECIDABLE
START = datetime(2000, 1, 1, tzinfo=UTC)
HOURS = count(1)


def batch(estimator: str, seconds: float, sampler: str | None = None, end: float | None = None) -> list[Record]:
    """Five seeds trained together: each has a fifth of the batch's time. By default at an hour of its own."""
    made, end = [], 3600.0 * next(HOURS) if end is None else end
    for seed in range(5):
        of = method_cell(
            "joint_log_dlm", "abalone", n=1000, beta=0.1, seed=seed, estimator=estimator, samples=10, sampler=sampler
        )
        one = fit(of, nll=2.0, mre=0.1)
        one.result.seconds, one.result.iterations = seconds / 5, 100
        one.made.time = (START + timedelta(seconds=int(end))).isoformat()
        made.append(one)
    return made


def test_19_cost(judged) -> None:
    bmc = batch("bmc", 10.0)
    holds = judged(19, bmc + batch("ups", 9.8, "auto") + batch("ups", 100.0, "rejection"))
    assert holds.verdict is HOLDS
    paper, ours = holds.findings
    assert paper.figures["ratio"] == pytest.approx(10.0)
    assert ours.figures["ratio"] == pytest.approx(0.98)
    assert "alone on the device by their times" in ours.words
    assert judged(19, bmc + batch("ups", 30.0, "auto") + batch("ups", 9.0, "rejection")).verdict is FAILS
    both_slow = judged(19, bmc + batch("ups", 15.0, "auto") + batch("ups", 100.0, "rejection"))
    assert both_slow.verdict is HOLDS, "what we say beside the paper is no part of its claim"
    assert [(found.verdict, found.ours) for found in both_slow.findings] == [(HOLDS, False), (FAILS, True)]


def test_19_devices_are_told_apart(judged) -> None:
    there = [*batch("bmc", 10.0), *batch("ups", 15.0, "auto")]
    for one in there:
        one.made.device = "cuda"
        one.key = f"{one.key}-there"
    here = [*batch("bmc", 10.0), *batch("ups", 20.0, "auto")]
    found = {one.about.split()[-1]: one.figures["ratio"] for one in judged(19, here + there).findings}
    assert found == {here[0].made.device: pytest.approx(2.0), "cuda": pytest.approx(1.5)}


def test_19_runs_that_share_the_device_say_nothing(judged) -> None:
    ups = batch("ups", 20.0, "rejection", end=50.0)
    together = batch("bmc", 10.0, end=45.0) + ups
    judgement = judged(19, together)
    assert judgement.verdict is UNDECIDABLE
    assert "to themselves" in on(judgement, "abalone", "by rejection")[0].words
    other = fit(method_cell("elbo", "banana"), nll=0.1, error=0.1)
    other.result.seconds, other.made.time = 30.0, (START + timedelta(seconds=60)).isoformat()
    assert judged(19, [*batch("bmc", 10.0), *ups, other]).verdict is UNDECIDABLE
    other.made.device = "another"
    assert judged(19, [*batch("bmc", 10.0), *ups, other]).verdict is HOLDS


def test_19_repetitions_are_those_of_the_papers_sentence(judged) -> None:
    """Where the steps of our sampler can't be timed, nothing is missing in the claim."""
    ours = batch("ups", 20.0, "auto")
    other = fit(method_cell("elbo", "banana"), nll=0.1, error=0.1)
    other.result.seconds, other.made.time = 30.0, ours[0].made.time
    judgement = judged(19, [*batch("bmc", 10.0), *batch("ups", 100.0, "rejection"), *ours, other])
    assert [(found.verdict, found.repetitions) for found in judgement.findings if found.ours] == [(UNDECIDABLE, 0)]
    assert (judgement.verdict, judgement.repetitions) == (HOLDS, (5, 5))


def test_19_nothing_to_compare(judged) -> None:
    bmc = batch("bmc", 10.0)
    assert judged(19, bmc).verdict is NOT_RUN
    failures = [failed(method_cell("joint_log_dlm", "abalone", seed=s, estimator="ups", samples=10)) for s in range(5)]
    assert judged(19, bmc + failures).verdict is NOT_RUN
    assert judged(19, bmc + failures).missing  # says what to run


@pytest.mark.parametrize("what", ["host", "device", "commit"])
def test_19_only_the_same_machine_and_version_are_compared(judged, what) -> None:
    ups = batch("ups", 50.0, "rejection")
    for one in ups:
        setattr(one.made, what, "another")
    assert judged(19, batch("bmc", 10.0) + ups).verdict is UNDECIDABLE


def test_runs_one_after_the_other_are_alone() -> None:
    """Ends are given in whole seconds: the second run seems to begin up to a second before the first has ended."""
    first, second = batch("bmc", 10.0, end=100.9), batch("ups", 9.5, "auto", end=110.4)
    assert alone(first + second) == {record.key for record in first + second}
    overlapping = batch("ups", 12.0, "auto", end=110.4)
    assert alone(first + overlapping) == set()
    for record in first:
        record.made.time = None
    assert alone(first + second) == {record.key for record in second}  # without a time nobody knows
