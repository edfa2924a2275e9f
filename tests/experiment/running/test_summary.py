"""What is printed of the cells of a run: the plan before it, the results after it."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.summary import (
    mean_and_deviation,
    overdispersion_lines,
    print_plan,
    print_summary,
    results_table,
    summarize,
    warnings_of,
)
from dlmexp.experiment.running.sweep import Plan, Sweep
from tests.support.cells import ELBO, PLAIN, candidates, scored

BETAS = (10.0, 1.0, 0.1)
CELLS = [replace(PLAIN, seed=seed, beta=beta) for seed in (2, 1, 0) for beta in BETAS]
# Each of them is in the grid, none of them is a mean or a median.
BEST_BETA = {2: 1.0, 1: 0.1, 0: 10.0}
WITHOUT_RULE = replace(PLAIN, window=None, seed=9)  # it has no limit to stop at


@pytest.fixture
def summarized(tmp_path, capsys):
    """Prints the summary of the first so many cells, and returns it with the lines."""

    def summary_of(recorded, failed=()):
        store = Store(tmp_path)
        for cell in (*CELLS[:recorded], WITHOUT_RULE):
            nll = 0.0 if cell.beta == BEST_BETA.get(cell.seed, 0.1) else 1.0
            record = scored(cell, "failed" if cell in failed else "done", nll=nll, error=0.25)
            if record.done:
                record.result.converged = cell.beta == 10.0
            store.write(record)
        groups = [CELLS[:3], CELLS[3:6], CELLS[6:], [WITHOUT_RULE]]
        asked = [candidates("fixed_log_dlm", group) for group in groups]
        summary = summarize(asked, store)
        print_summary(summary, store)
        return summary, capsys.readouterr().out.splitlines()

    return summary_of


def test_results_are_means_over_seeds_at_their_best_betas(summarized):
    _, lines = summarized(9)
    (line,) = [line for line in lines if "fixed_log_dlm" in line and " 20.0 " in line]
    assert line.split()[:6] == ["banana", "100", "53", "fixed_log_dlm", "20.0", "3"]
    # The betas of the seeds in their order, then NLL and error on the test rows.
    assert line.split()[6:] == ["10,", "0.1,", "1", "0.5000±0.0000", "0.7500±0.0000"]


def test_complete_run_is_a_success(summarized):
    summary, lines = summarized(9)
    assert (summary.total, summary.done, summary.failed, summary.missing) == (10, 10, 0, 0)
    assert summary.exit_code == 0
    assert any(line.startswith("10 of 10 cells done, 0 failed; records in ") for line in lines)
    assert not any("--failed" in line or "--missing" in line for line in lines)


def test_missing_cell_is_a_failure_of_the_run(summarized):
    summary, lines = summarized(8)
    assert (summary.missing, summary.exit_code) == (1, 1)
    text = "\n".join(lines)
    assert "9 of 10 cells done, 0 failed, 1 without a record; records in " in text
    assert "--missing` lists what has no record" in text


def test_failed_cell_is_a_failure_of_the_run(summarized):
    summary, lines = summarized(9, failed=[CELLS[4]])
    assert (summary.failed, summary.missing, summary.exit_code) == (1, 0, 1)
    text = "\n".join(lines)
    assert "9 of 10 cells done, 1 failed; records in " in text
    assert "--failed` lists them" in text


@pytest.mark.parametrize(("recorded", "at_limit"), [(9, 6), (8, 5)])
def test_fits_that_reached_their_limit_are_counted(summarized, recorded, at_limit):
    summary, lines = summarized(recorded)
    assert (summary.at_limit, summary.with_stopping_rule) == (at_limit, recorded)
    assert any(
        line.startswith(f"{at_limit} of {recorded} fits stopped at the limit of iterations")
        for line in lines
    )


def rows(**columns) -> pd.DataFrame:
    """Return rows of the tidy table for two seeds."""
    values = {
        "dataset": "pol",
        "n": 100,
        "M": 10,
        "method": "elbo",
        "estimator": "exact",
        "samples": np.nan,
        "parameterisation": "whitened",
        "seed": [1, 0],
        "beta": [1.0, 1.0],
        "test_nll": [0.5, 0.7],
    }
    return pd.DataFrame(values | columns)


def cells_of(table):
    columns = {column.header: list(column.cells) for column in table.columns}
    return columns


def test_table_has_a_line_for_each_method_with_the_number_of_seeds():
    columns = cells_of(results_table(rows(), ["test_nll", "test_error"]))
    assert columns == {
        "dataset": ["pol"],
        "n": ["100"],
        "M": ["10"],
        "method": ["elbo"],
        "seeds": ["2"],
        "beta": ["1"],
        "nll": ["0.6000±0.1414"],
    }


def test_warnings_of_results_have_a_line_per_method():
    notes = ["a; warning: wrong", "a"]
    noted = rows(method=["elbo", "crps"], note=notes)
    assert warnings_of(noted) == ["warning: elbo: wrong (1 result)"]


def test_betas_of_the_seeds_come_in_their_order_if_they_differ():
    columns = cells_of(results_table(rows(beta=[0.1, 10.0]), ["test_nll"]))
    assert columns["beta"] == ["10, 0.1"]
    assert cells_of(results_table(rows(beta=np.nan), ["test_nll"]))["beta"] == [""]


def test_settings_that_differ_have_a_column():
    columns = cells_of(results_table(rows(estimator=["exact", "ups"]), ["test_nll"]))
    assert columns["estimator"] == ["exact", "ups"]
    assert columns["nll"] == ["0.5000", "0.7000"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.6], "0.6000"),
        ([9.99994], "9.9999"),
        ([10.0, 12.0], "11.00±1.41"),
        ([-123.456], "-123.5"),
        ([31000.0, 31480.0], "31240±339"),
        ([np.nan, np.nan], ""),
    ],
)
def test_numbers_have_four_digits(values, text):
    assert mean_and_deviation(pd.Series(values)) == text


def test_plan_counts_cells_and_batches(capsys):
    base = replace(ELBO, beta=1.0)
    cells = [base, *(replace(PLAIN, beta=beta) for beta in BETAS)]
    asked = [candidates("elbo", [base]), candidates("fixed_log_dlm", cells[1:])]
    asked.append(candidates("fixed_dlm", cells[1:]))
    cfg: Any = SimpleNamespace()
    sweep = Sweep(cfg, asked, {cell.key: cell for cell in cells})
    plan = Plan([(base,), (cells[3],)], [], cells, {cells[1].key}, {cells[2].key}, frozenset())
    print_plan(plan, sweep)
    *table, totals = capsys.readouterr().out.splitlines()
    assert totals == "4 cells: 1 done, 1 failed, 2 to run in 2 batches"
    lines = [re.split(r"\s*│\s*", line.strip("│ ")) for line in table if "banana" in line]
    # dataset, n, methods, estimator, q, seeds, betas, cells, done, failed, batches
    assert [" ".join(line) for line in lines] == [
        "banana 100 elbo exact whitened 1 1 1 0 0 1",
        "banana 100 fixed_log_dlm, fixed_dlm bmc-10 whitened 1 3 3 1 1 1",
    ]


def test_counts_that_vary_more_than_predicted_are_told():
    rows = pd.DataFrame(
        {
            "dataset": "bikes",
            "method": ["elbo", "elbo", "joint_log_dlm"],
            "test_dispersion": [12.0, 8.0, 1.1],
        }
    )
    (line,) = overdispersion_lines(rows)
    assert line.startswith("bikes elbo: squared errors are 10 times the predicted variance")
