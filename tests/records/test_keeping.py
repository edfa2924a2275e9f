"""Which models stay, on made-up records: what any run of the folder keeps, and nothing that is still undecided."""

import pytest
from msgspec.structs import replace

from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import drop_unselected
from dlmexp.records.store import Store
from tests.support.cells import PLAIN, candidates, scored

BETAS = (10.0, 1.0, 0.1)
CELLS = [replace(PLAIN, beta=beta) for beta in BETAS]
FAILED, ABSENT = {"status": "failed"}, None
SCORES = tuple({"nll": nll} for nll in (0.3, 0.1, 0.2))  # beta = 1 is selected


def _write(store, scores):
    for cell, score in zip(CELLS, scores, strict=True):
        if score is not ABSENT:
            store.write(scored(cell, **score), model=None if score is FAILED else b"a model")


def _ask(store, keep, cells=CELLS, name="one"):
    write_manifest(store.root, manifest(name, [candidates("fixed_log_dlm", cells)], keep))


def _left(store):
    """The betas of the cells with a model."""
    return {cell.beta for cell in CELLS if cell.key in store.keys_with_models()}


@pytest.mark.parametrize(
    ("runs", "scores", "left"),
    [
        ([("selected", CELLS)], SCORES, {1.0}),
        ([("selected", CELLS)], (*SCORES[:2], ABSENT), {10.0, 1.0}),  # undecided before all have a record
        ([("selected", CELLS)], (*SCORES[:2], FAILED), {1.0}),
        ([("selected", CELLS)], ({"nll": 1, "mse": 3}, {"nll": 2, "mse": 2}, {"nll": 3, "mse": 1}), {10.0, 0.1}),
        ([("selected", CELLS)], ({}, {}, {}), {*BETAS}),  # no validation rows
        ([("selected", CELLS), ("selected", [CELLS[0], CELLS[2]])], SCORES, {1.0, 0.1}),  # what any run selects
        ([("selected", CELLS), ("all", CELLS)], SCORES, {*BETAS}),
        ([("selected", CELLS), ("none", CELLS)], SCORES, {1.0}),
        ([("none", CELLS)], SCORES, {*BETAS}),  # of an earlier run
        ([], SCORES, {*BETAS}),  # nobody asked for them
    ],
)  # fmt: skip
def test_what_stays(tmp_path, runs, scores, left):
    store = Store(tmp_path)
    for number, (keep, cells) in enumerate(runs):
        _ask(store, keep, cells, f"run-{number}")
    _write(store, scores)
    before = _left(store)
    assert drop_unselected(store) == len(before - left)
    assert _left(store) == left
    assert drop_unselected(store) == 0
