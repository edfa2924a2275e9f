"""The closing words, and the exit code that goes with them."""

import pytest
from msgspec.structs import replace

from dlmexp.records.store import Store
from dlmexp.running.summary import summary
from tests.support.cells import PLAIN, candidates
from tests.support.cells import scored as record

CELLS = [replace(PLAIN, seed=seed, beta=beta) for seed in (0, 1) for beta in (1.0, 0.1)]


def _candidates(cells, method="fixed_log_dlm"):
    """The cells as a run asks for them: the betas of each seed together."""
    groups = {}
    for cell in cells:
        groups.setdefault(cell.identity, []).append(cell)
    return [candidates(method, group) for group in groups.values()]


def _said(tmp_path, capsys, states):
    store = Store(tmp_path)
    for cell, state in zip(CELLS, states, strict=True):
        if state == "done":
            store.write(record(cell, nll=cell.beta or 0.0, error=0.25))
        elif state == "failed":
            store.write(record(cell, "failed"))
    code = summary(_candidates(CELLS), store)
    return code, capsys.readouterr().out


def test_all_done(tmp_path, capsys):
    code, said = _said(tmp_path, capsys, ["done"] * 4)
    assert code == 0
    assert "4 of 4 cells done, 0 failed" in said
    (line,) = [line for line in said.splitlines() if "fixed_log_dlm" in line]
    assert line.split() == [
        "banana",
        "100",
        "53",
        "fixed_log_dlm",
        "bmc-10",
        "whitened",
        "2",
        "0.1",
        "0.6000±0.0000",
        "0.7500±0.0000",
    ]


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["done", "failed", "done", "done"], "3 of 4 cells done, 1 failed;"),
        (["done", "done", "", ""], "2 of 4 cells done, 0 failed, 2 without a record"),
        (["done", "", "", ""], "status --results"),
        (["failed"] * 4, "0 of 4 cells done, 4 failed"),
    ],
)
def test_what_is_not_there_is_said(tmp_path, capsys, states, words):
    code, said = _said(tmp_path, capsys, states)
    assert code == 1
    assert words in said
    assert ("retry_failed=true" in said) == ("failed" in states)


def test_betas_that_differ_between_seeds_are_shown_in_the_order_of_seeds(tmp_path, capsys):
    """Seeds 2, 1, 0 select 1, 0.1, 10: each of the grid, none of them a mean or a median."""
    store, chosen = Store(tmp_path), {2: 1.0, 1: 0.1, 0: 10.0}
    cells = [replace(PLAIN, seed=seed, beta=beta) for seed in chosen for beta in (10.0, 1.0, 0.1)]
    for cell in cells:
        store.write(record(cell, nll=float(cell.beta != chosen[cell.seed])))
    assert summary(_candidates(cells), store) == 0
    assert " 10, 0.1, 1 " in capsys.readouterr().out


def _stopped(cell, converged):
    made = record(cell, nll=0.5)
    made.result.converged = converged
    return made


def test_fits_that_stopped_at_their_limit_are_counted_once(tmp_path, capsys):
    store = Store(tmp_path)
    forever = replace(PLAIN, window=None, seed=9)  # no stopping rule: to reach the limit is what was asked for
    for cell, converged in zip([*CELLS, forever], (False, True, False, False, False), strict=True):
        store.write(_stopped(cell, converged))
    assert summary([*_candidates([*CELLS, forever]), *_candidates(CELLS[:2], "beta_elbo")], store) == 0
    assert "3 of 4 fits stopped at the limit" in capsys.readouterr().out
    for cell in CELLS:
        store.write(_stopped(cell, True))
    summary(_candidates(CELLS), store)
    assert "limit" not in capsys.readouterr().out
