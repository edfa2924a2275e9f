"""Records as a table, and the selection of beta against brute force."""

import math
from dataclasses import asdict, replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cell import PLAIN

from dlmexp.catalogue import methods
from dlmexp.records.table import flatten, select, table

MADE = {"device": "cpu", "host": "h", "time": "t", "version": "0", "commit": "c", "command": "dlmexp run"}
ELBO = replace(PLAIN, objective="elbo", variant="joint", estimator="exact", samples=None, base=None)


def record(cell, status="done", **validation):
    test = {name: value + 0.5 for name, value in validation.items()}
    result = {"validation": validation, "test": test, "iterations": 5, "hyperparameters": {"noise": 0.1}}
    if status == "failed":
        result = {"reason": "no reason", "iterations": 3}
    return {"key": cell.key, "status": status, "cell": asdict(cell), "result": result, "made": MADE}


SCORES = st.one_of(st.sampled_from([0.1, 0.2, 0.3]), st.just(math.nan), st.just(math.inf), st.just("failed"))
SEEDS = st.integers(0, 2)
BETAS = [50.0, 10.0, 1.0, 0.1]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["elbo", "log_dlm"]), st.integers(0, 2), st.sampled_from(BETAS)), SCORES, min_size=1
    )
)
def test_against_brute_force(scores):
    records = []
    for (objective, seed, beta), score in scores.items():
        cell = replace(ELBO if objective == "elbo" else PLAIN, seed=seed, beta=beta)
        records.append(record(cell, "failed") if score == "failed" else record(cell, nll=score))
    chosen = select(table(records), methods())
    found = {(row["method"], row["seed"]): row for _, row in chosen.iterrows()}
    assert len(found) == len(chosen)
    expected = {}
    for method, objective, only in (
        ("elbo", "elbo", [1.0]),
        ("beta_elbo", "elbo", BETAS),
        ("fixed_log_dlm", "log_dlm", BETAS),
    ):
        for seed in range(3):
            there = [b for b in only if (objective, seed, b) in scores]
            if method == "beta_elbo" and there == [1.0]:
                continue  # that is the ELBO: no beta was tried
            best = None
            for beta in there:  # the largest first: only a lower score displaces it
                score = scores[objective, seed, beta]
                if score != "failed" and math.isfinite(score) and (best is None or score < best[0]):
                    best = (score, beta)
            if best:
                expected[method, seed] = best
                failed = sum(scores[objective, seed, b] == "failed" for b in there)
                row = found[method, seed]
                assert (row["validation_nll"], row["beta"]) == best
                assert row["candidates"] == len(there)
                assert row["failed"] == failed
    assert found.keys() == expected.keys()


def test_selection_does_not_depend_on_the_order_of_records():
    records = [record(replace(PLAIN, seed=s, beta=b), nll=abs(math.log(b)) % 1) for s in range(3) for b in BETAS]
    forth, back = (select(table(r), methods()).reset_index(drop=True) for r in (records, records[::-1]))
    pd.testing.assert_frame_equal(forth, back)


def test_square_loss_is_selected_by_its_only_metric_and_fitc_has_no_beta():
    square = [replace(ELBO, objective="sq_dlm", beta=b) for b in (10.0, 1.0)]
    fitc = replace(ELBO, objective="fitc", beta=None)
    chosen = select(table([record(square[0], mse=0.5), record(square[1], mse=0.4), record(fitc, nll=1.0)]), methods())
    assert dict(zip(chosen["method"], chosen["beta"], strict=True))["joint_sq_dlm"] == 1.0
    assert set(chosen["method"]) == {"joint_sq_dlm", "fitc"}


def test_different_estimators_and_sizes_are_selected_apart():
    cells = [replace(PLAIN, samples=L, n=n, beta=b) for L in (1, 10) for n in (100, 200) for b in (1.0, 0.1)]
    chosen = select(table([record(cell, nll=cell.beta) for cell in cells]), methods())
    assert len(chosen) == 4
    assert set(chosen["beta"]) == {0.1}


def test_by_another_metric():
    cells = [record(replace(PLAIN, beta=1.0), nll=1.0, error=0.2), record(replace(PLAIN, beta=0.1), nll=2.0, error=0.1)]
    assert select(table(cells), methods())["beta"].tolist() == [1.0]
    assert select(table(cells), methods(), metric="error")["beta"].tolist() == [0.1]


def test_nothing_to_choose_from():
    assert select(table([record(PLAIN, "failed")]), methods()).empty


def test_a_row_has_the_cells_fields_metrics_and_origin():
    row = flatten(record(PLAIN, nll=0.25, error=0.1))
    assert row["key"] == PLAIN.key
    assert row["beta"] == PLAIN.beta
    assert row["validation_nll"] == 0.25
    assert row["test_error"] == pytest.approx(0.6)
    assert row["test_mse"] is None
    assert row["hyper_noise"] == 0.1
    assert row["command"] == "dlmexp run"


def test_part_of_a_grid_is_nothing_to_choose_from():
    """n, n/2, n/4, ...: the best of those run so far is not the best."""
    grid = [100 / 2**k for k in range(14)]
    records = [record(replace(PLAIN, beta=beta), nll=beta) for beta in grid]
    assert select(table(records), methods())["beta"].tolist() == [grid[-1]]
    assert select(table(records[:-1]), methods()).empty


def test_fits_that_start_elsewhere_are_chosen_among_themselves():
    fixed = [replace(PLAIN, base=base, beta=beta) for base in ("a", "b") for beta in (10.0, 1.0)]
    records = [record(cell, nll=score) for cell, score in zip(fixed, (0.1, 0.2, 0.4, 0.3), strict=True)]
    chosen = select(table(records), methods())
    assert sorted(zip(chosen["base"], chosen["beta"], chosen["candidates"], strict=True)) == [
        ("a", 10.0, 2),
        ("b", 1.0, 2),
    ]
