"""The closing words, and the exit code that goes with them."""

from dataclasses import replace

import pytest
from test_cell import PLAIN
from test_table import record

from dlmexp.sweep.plan import plan
from dlmexp.sweep.store import Store
from dlmexp.sweep.summary import summary

CELLS = [replace(PLAIN, seed=seed, beta=beta) for seed in (0, 1) for beta in (1.0, 0.1)]


def _said(tmp_path, capsys, states):
    store = Store(tmp_path)
    for cell, state in zip(CELLS, states, strict=True):
        if state == "done":
            store.write(record(cell, nll=cell.beta or 0.0, error=0.25))
        elif state == "failed":
            store.write(record(cell, "failed"))
    code = summary(plan(CELLS, *store.keys(), lambda _: 4), store)
    return code, capsys.readouterr().out


def test_all_done(tmp_path, capsys):
    code, said = _said(tmp_path, capsys, ["done"] * 4)
    assert code == 0
    assert "4 of 4 cells done, 0 failed" in said
    (line,) = [line for line in said.splitlines() if "fixed_log_dlm" in line]
    assert line.split() == [
        "banana",
        "100",
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
    ],
)
def test_what_is_not_there_is_said(tmp_path, capsys, states, words):
    code, said = _said(tmp_path, capsys, states)
    assert code == 1
    assert words in said
    assert ("retry_failed=true" in said) == ("failed" in states)


def test_nothing_but_failures(tmp_path, capsys):
    code, said = _said(tmp_path, capsys, ["failed"] * 4)
    assert code == 1
    assert "0 of 4 cells done, 4 failed" in said
