"""The selection of beta among the candidates that were asked for, against brute force."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.records.selection import Choice, choices, lowest, on_test, on_validation
from tests.support.cells import ELBO, PLAIN, asked, candidates, scored

SCORES = st.one_of(st.sampled_from([0.1, 0.2, 0.3]), st.just(math.nan), st.just(math.inf), st.just("failed"))
BETAS = [50.0, 10.0, 1.0, 0.1]


def _choices(of, records):
    return choices(of, {record.key: record for record in records})


def _choice(cells, *scores, method="fixed_log_dlm", betas="some betas"):
    """The choice among `cells`; a score for each: a number (NLL), 'failed', or None where there is no record."""
    records = [
        scored(cell, "failed") if score == "failed" else scored(cell, nll=score)
        for cell, score in zip(cells, scores, strict=True)
        if score is not None
    ]
    (found,) = _choices(asked(candidates(method, cells, betas)), records)
    return found


def _at(*betas, of=PLAIN):
    return [replace(of, beta=beta) for beta in betas]


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from(BETAS)), SCORES, min_size=1),
    st.sets(st.sampled_from(BETAS), min_size=1),
)
def test_against_brute_force(scores, betas):
    cells = {(seed, beta): replace(PLAIN, seed=seed, beta=beta) for seed in range(3) for beta in BETAS}
    records = [
        scored(cells[place], "failed") if score == "failed" else scored(cells[place], nll=score)
        for place, score in scores.items()
    ]
    groups = [candidates("fixed_log_dlm", [cells[seed, beta] for beta in betas]) for seed in range(3)]
    found = {one.cell.seed: one for one in _choices(asked(*groups), records)}
    for seed in range(3):
        there = [beta for beta in BETAS if beta in betas and (seed, beta) in scores]
        if not there:
            assert seed not in found
            continue
        one = found[seed]
        assert [record.cell.beta for record in one.records] == there, "only what was asked for, the largest first"
        assert one.missing == len(betas) - len(there)
        assert one.failed == sum(scores[seed, beta] == "failed" for beta in there)
        best = None
        for beta in there:  # the largest first: only a lower score displaces it
            score = scores[seed, beta]
            if score != "failed" and math.isfinite(score) and (best is None or score < best[0]):
                best = (score, beta)
        chosen = one.selected()
        if one.missing or best is None:
            assert chosen is None
        else:
            assert chosen is not None
            assert (chosen.result.validation["nll"], chosen.cell.beta) == best


def test_of_equals_the_larger_beta():
    for cells in (_at(10.0, 1.0, 0.1), _at(0.1, 1.0, 10.0)):
        chosen = _choice(cells, 0.5, 0.5, 0.5).selected()
        assert chosen is not None
        assert chosen.cell.beta == 10.0


@pytest.mark.parametrize("bad", ["failed", math.nan, math.inf, -math.inf])
def test_what_failed_or_is_not_finite_is_never_chosen(bad):
    chosen = _choice(_at(10.0, 1.0, 0.1), bad, 0.7, bad).selected()
    assert chosen is not None
    assert chosen.cell.beta == 1.0
    assert _choice(_at(10.0, 1.0), bad, bad).selected() is None


def test_a_failed_record_with_metrics_is_not_chosen_either():
    good, bad = scored(replace(PLAIN, beta=1.0), nll=0.5), replace(scored(PLAIN, nll=0.1), status="failed")
    assert lowest([good, bad], "nll") is good
    assert lowest([bad], "nll") is None


@pytest.mark.parametrize("lacking", range(4))
def test_while_one_candidate_has_no_record_nothing_is_chosen(lacking):
    """The best of those run so far is not the best."""
    scores = [None if i == lacking else 0.1 * i for i in range(4)]
    found = _choice(_at(*BETAS), *scores)
    assert found.missing == 1
    assert found.selected() is None


def test_failed_candidates_are_not_missing():
    found = _choice(_at(10.0, 1.0), "failed", 0.5)
    assert (found.missing, found.failed) == (0, 1)
    assert found.selected() is not None


def test_what_nobody_asked_for_is_no_candidate():
    """Records at other betas in the same folder, such as those of another grid, do not take part."""
    cells = _at(10.0, 1.0)
    records = [scored(cells[0], nll=0.2), scored(cells[1], nll=0.3), scored(replace(PLAIN, beta=5.0), nll=0.0)]
    (found,) = _choices(asked(candidates("fixed_log_dlm", cells)), records)
    assert found.selected() is records[0]
    assert _choices([], records) == []


def test_the_elbo_is_a_candidate_of_beta_elbo_only_where_beta_one_was_asked_for():
    one, grid = replace(ELBO, beta=1.0), _at(4.0, 2.0, of=ELBO)
    records = [scored(cell, nll=score) for cell, score in zip([one, *grid], (0.1, 0.3, 0.2), strict=True)]
    elbo, without, with_one = _choices(
        asked(
            candidates("elbo", [one], "1"),
            candidates("beta_elbo", grid, "4, 2"),
            candidates("beta_elbo", [*grid, one], "4, 2, 1"),
        ),
        records,
    )
    assert elbo.selected() is records[0]
    assert (len(without.records), without.selected()) == (2, records[2])
    assert (len(with_one.records), with_one.selected()) == (3, records[0])


def test_one_record_can_be_a_candidate_in_two_grids():
    cells = _at(10.0, 5.0, 1.0)
    records = [scored(cell, nll=nll) for cell, nll in zip(cells, (0.3, 0.1, 0.2), strict=True)]
    groups = [candidates("fixed_log_dlm", cells, "all"), candidates("fixed_log_dlm", [cells[0], cells[2]], "two")]
    chosen = {one.betas: one.selected() for one in _choices(asked(*groups), records)}
    assert chosen == {"all": records[1], "two": records[2]}


def test_what_was_asked_for_twice_is_one_choice():
    of = asked(candidates("fixed_log_dlm", _at(10.0, 1.0)))
    assert len(_choices([*of, *of], [scored(replace(PLAIN, beta=1.0), nll=0.1)])) == 1


def test_square_loss_is_selected_by_its_only_metric_and_fitc_has_no_beta():
    square = _at(10.0, 1.0, of=replace(ELBO, objective="sq_dlm"))
    fitc = replace(ELBO, objective="fitc", beta=None)
    records = [scored(square[0], mse=0.5), scored(square[1], mse=0.4), scored(fitc, nll=1.0)]
    found = _choices(asked(candidates("joint_sq_dlm", square), candidates("fitc", [fitc], "")), records)
    for metric in ("nll", "mse"):
        assert found[0].selected_by(metric) == "mse"
        assert found[0].selected(metric) is records[1]
    assert found[1].selected() is records[2]


def test_mse_selects_what_is_reported_as_mse_and_nll_all_else():
    cells = _at(1.0, 0.1)
    records = [scored(cells[0], nll=1.0, mse=0.2, error=0.2), scored(cells[1], nll=2.0, mse=0.1, error=0.1)]
    (found,) = _choices(asked(candidates("fixed_log_dlm", cells)), records)
    chosen = {metric: found.selected(metric) for metric in ("nll", "error", "mre", "mse")}
    assert chosen == {"nll": records[0], "error": records[0], "mre": records[0], "mse": records[1]}


def test_a_metric_that_a_record_lacks_is_nan():
    record = scored(PLAIN, "failed")
    assert math.isnan(on_test(record, "nll"))
    assert math.isnan(on_validation(record, "nll"))
    assert math.isnan(on_test(scored(PLAIN, nll=1.0), "mse"))


def test_nothing_to_choose_from():
    assert Choice("fixed_log_dlm", "1", (scored(PLAIN, "failed"),), 0).selected() is None
    assert lowest([], "nll") is None
