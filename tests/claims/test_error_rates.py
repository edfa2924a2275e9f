"""How often a claim is falsely said to hold where there is no effect, and how often an effect is found.

Run with `-s` to see the rates. Sizes of a repetition share rows, so their differences are drawn correlated."""

from collections.abc import Callable

import numpy as np
import pytest

from dlmexp.claims import evidence
from dlmexp.claims.evidence import Margins, finding
from dlmexp.claims.finding import Measured
from dlmexp.claims.judge import claims, judge_one
from dlmexp.claims.rules import AtSize, Verdict, any_of, better, by_size, comparable, every, no_worse
from dlmexp.claims.statistics import Comparison, compare
from dlmexp.records.results import Results
from dlmexp.records.store import Store
from tests.support.made_up import asked, fit, method_cell

DRAWS = 1000
MARGIN = 1.0  # in standard deviations of a difference


def drawn(random: np.random.Generator, shift: float, sizes: int, repetitions: int, rivals: int = 1) -> np.ndarray:
    """Differences [size, rival, repetition] of mean `shift` and deviation 1, correlated over sizes and rivals."""
    shared = random.normal(size=(1, 1, repetitions))
    own = random.normal(size=(sizes, rivals, repetitions))
    return shift + np.sqrt(0.5) * (shared + own)


def judged(differences: np.ndarray, rule: Callable[[list[Comparison]], AtSize]) -> Verdict:
    zeros = np.zeros(differences.shape[-1])
    return by_size(
        {n: rule([compare(zeros, one) for one in rivals]) for n, rivals in enumerate(differences)}
    ).verdict  # fmt: skip


def rate(
    verdict: Verdict, rule: Callable[[list[Comparison]], AtSize], shift: float, sizes: int, repetitions: int,
    rivals: int = 1, draws: int = DRAWS,
) -> float:  # fmt: skip
    random = np.random.default_rng([sizes, repetitions, rivals])
    found = (judged(drawn(random, shift, sizes, repetitions, rivals), rule) for _ in range(draws))
    return sum(one is verdict for one in found) / draws


def each(relation: Callable[[Comparison, float | None], AtSize]) -> Callable[[list[Comparison]], AtSize]:
    return lambda several: every(relation(one, MARGIN) for one in several)


def either(several: list[Comparison]) -> AtSize:
    return any_of([every(no_worse(one, MARGIN) for one in several[i : i + 2]) for i in (0, 2)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule", "shift", "rivals"),
    [
        ("better, no effect", each(better), 0.0, 1),
        ("lowest of five, no effect", each(better), 0.0, 4),
        ("comparable, a margin apart", each(comparable), MARGIN, 1),
        ("no worse, a margin worse", each(no_worse), -MARGIN, 1),
        ("either of two, both a margin worse", either, -MARGIN, 4),
    ],
)
@pytest.mark.parametrize("sizes", [1, 6])
@pytest.mark.parametrize("repetitions", [5, 20])
def test_false_verdicts(name: str, rule, shift: float, rivals: int, sizes: int, repetitions: int) -> None:
    holds = rate(Verdict.HOLDS, rule, shift, sizes, repetitions, rivals)
    print(f"{name}: {sizes} sizes, {repetitions} repetitions: false holds {holds:.1%}")
    sampling_error = 2 * np.sqrt(0.05 * 0.95 / DRAWS)
    assert holds <= 0.05 + (sampling_error if sizes == 1 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [1, 6])
def test_no_effect_is_not_said_to_fail_either(sizes: int) -> None:
    assert rate(Verdict.FAILS, each(better), 0.0, sizes, 5) <= 0.05
    assert rate(Verdict.FAILS, each(comparable), 0.0, sizes, 5) <= 0.05
    assert rate(Verdict.FAILS, each(no_worse), 0.0, sizes, 5) <= 0.05


@pytest.mark.slow
def test_power() -> None:
    """Printed, and held to what a paired t-test can do: large effects are found with 20 repetitions."""
    found = {}
    for effect in (0.5, 1.0):
        for repetitions in (5, 20):
            for sizes in (1, 6):
                power = rate(Verdict.HOLDS, each(better), effect, sizes, repetitions)
                found[effect, repetitions, sizes] = power
                print(f"better by {effect} deviations, {repetitions} repetitions, {sizes} sizes: holds {power:.0%}")
    assert found[1.0, 20, 1] > 0.95
    assert found[1.0, 20, 6] > 0.9
    assert found[0.5, 20, 1] > found[0.5, 5, 1]


@pytest.mark.slow
def test_false_holds_from_records_to_verdict() -> None:
    """Claim 5 on made-up records in which beta-ELBO and ELBO differ by chance alone; and where they do not."""
    claim = next(claim for claim in claims() if claim.number == 5)
    random = np.random.default_rng(5)
    methods = ("elbo", "beta_elbo")
    cells = {
        (method, n, seed): method_cell(
            method, "sarcos", n=n, seed=seed, **({} if method == "elbo" else {"beta": 2.0})
        )
        for method in methods for n in (100, 200, 400, 800) for seed in range(5)
    }  # fmt: skip
    records = {place: fit(cell, nll=0.0, mse=0.0) for place, cell in cells.items()}
    wanted, store = asked(records.values()), Store("nowhere")
    counts = {0.0: 0, 3.0: 0}
    for effect in counts:
        for _ in range(DRAWS // 2):
            level = random.normal(size=1000)
            for (method, n, seed), record in records.items():
                value = level[n + seed] + random.normal() - (effect if method == "beta_elbo" else 0.0)
                record.result.test.update(nll=value, mse=value)
            verdict = judge_one(claim, Results(store, records.values(), wanted)).verdict
            counts[effect] += verdict is Verdict.HOLDS
    print(f"claim 5 on records: false holds {counts[0.0]} of {DRAWS // 2}, power at 3 deviations {counts[3.0]}")
    assert counts[0.0] <= 0.05 * DRAWS / 2
    assert counts[3.0] > 0.5 * DRAWS / 2


def test_margins_and_rules_meet_at_each_size() -> None:
    """The rule sees the margin of its own size."""
    differences = 0.05 + 0.001 * np.arange(5)
    measured = [Measured("a vs b", compare(differences, np.zeros(5)), n) for n in (100, 200)]
    found = finding("no worse", "pol", [], measured, evidence.each(no_worse), Margins({100: 0.1, 200: 0.01}, "unknown"))
    assert found.sizes is not None
    assert [str(state) for state in found.sizes.states.values()] == ["supported", "contradicted"]
