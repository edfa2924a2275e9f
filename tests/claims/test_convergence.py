"""Claim 18, both ways."""

from dlmexp.claims.rules import Verdict
from dlmexp.records.schema import Record
from tests.support.made_up import cell, failed, fit


def runs(dataset: str, converged: int, limit: int = 0, broken: int = 0, **changes) -> list[Record]:
    made = []
    for seed in range(converged + limit + broken):
        of = cell(dataset, seed=seed, **changes)
        if seed >= converged + limit:
            made.append(failed(of))
            continue
        one = fit(of, nll=0.1, error=0.1)
        one.result.converged = seed < converged
        made.append(one)
    return made


def test_18_holds_and_fails(judged) -> None:
    assert judged(18, runs("banana", 39, limit=1)).verdict is Verdict.HOLDS
    assert judged(18, runs("banana", 30, limit=10)).verdict is Verdict.FAILS
    assert judged(18, runs("banana", 37, limit=3)).verdict is Verdict.MIXED


def test_18_a_failed_run_has_not_converged(judged) -> None:
    judgement = judged(18, runs("banana", 30, broken=10))
    assert judgement.verdict is Verdict.FAILS
    assert "10 failed" in judgement.findings[0].words


def test_18_a_bad_dataset_is_not_hidden_by_large_ones(judged) -> None:
    assert judged(18, runs("banana", 400) + runs("thyroid", 1, limit=4)).verdict is Verdict.MIXED


def test_18_runs_for_a_number_of_epochs_do_not_count(judged) -> None:
    records = runs("banana", 20) + runs("airline", 0, limit=20, max_iterations=None, epochs=20)
    assert judged(18, records).verdict is Verdict.HOLDS


def test_18_parameterisations_are_judged_apart(judged) -> None:
    judgement = judged(18, runs("banana", 20) + runs("banana", 2, limit=18, parameterisation="unwhitened"))
    assert judgement.verdict is Verdict.MIXED
    assert "holds with q whitened, fails with q unwhitened" in judgement.difference


def test_18_sampled_and_minibatch_objectives_are_counted_apart(judged) -> None:
    bmc = runs("banana", 0, limit=50, estimator="bmc", samples=10)
    minibatches = runs("banana", 0, limit=50, minibatch=20)
    judgement = judged(18, runs("banana", 20) + bmc + minibatches)
    assert judgement.verdict is Verdict.HOLDS
    apart = next(found for found in judgement.findings if found.about.startswith("(counted apart)"))
    assert apart.words == "0 of 100 runs converged"
    assert judged(18, bmc).verdict is Verdict.NOT_RUN  # nothing deterministic was run
