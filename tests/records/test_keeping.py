"""Which models stay, on made-up records: what any run of the folder keeps, and nothing that is still undecided."""

import math
from typing import Literal

import pytest
from msgspec.structs import replace

from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import drop_unselected, without_model
from dlmexp.records.store import Store
from tests.support.cells import PLAIN, candidates, scored

CELLS = [replace(PLAIN, beta=beta) for beta in (10.0, 1.0, 0.1)]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def _write(store, cell, model: bytes | None = b"a model", status: Literal["done", "failed"] = "done", **validation):
    store.write(scored(cell, status, **validation), model=None if status == "failed" else model)


def _ask(store, keep, cells=CELLS, name="one"):
    write_manifest(store.root, manifest(name, [candidates("fixed_log_dlm", cells)], keep))


def _left(store):
    """The betas of the cells with a model."""
    by_key = {cell.key: cell.beta for cell in CELLS}
    return sorted(by_key[key] or 0.0 for key in store.keys_with_models())


def test_only_the_selected_one_stays(store):
    _ask(store, "selected")
    for cell, nll in zip(CELLS, (0.3, 0.1, 0.2), strict=True):
        _write(store, cell, nll=nll)
    assert drop_unselected(store) == 2
    assert _left(store) == [1.0]
    assert drop_unselected(store) == 0


def test_nothing_is_dropped_before_all_candidates_have_a_record(store):
    _ask(store, "selected")
    for cell, nll in zip(CELLS[:2], (0.3, 0.1), strict=True):
        _write(store, cell, nll=nll)
    assert drop_unselected(store) == 0
    _write(store, CELLS[2], status="failed")
    assert drop_unselected(store) == 1
    assert _left(store) == [1.0]


def test_each_metric_that_selects_keeps_its_model(store):
    _ask(store, "selected")
    for cell, nll, mse in zip(CELLS, (0.1, 0.2, 0.3), (0.3, 0.2, 0.1), strict=True):
        _write(store, cell, nll=nll, mse=mse)
    drop_unselected(store)
    assert _left(store) == [0.1, 10.0]


def test_without_validation_all_stay(store):
    _ask(store, "selected")
    for cell in CELLS:
        _write(store, cell)
    drop_unselected(store)
    assert _left(store) == [0.1, 1.0, 10.0]


def test_another_run_may_keep_what_this_one_does_not(store):
    _ask(store, "selected")
    _ask(store, "selected", CELLS[1:], "two")
    for cell, nll in zip(CELLS, (0.1, 0.3, 0.2), strict=True):
        _write(store, cell, nll=nll)
    drop_unselected(store)
    assert _left(store) == [0.1, 10.0]


@pytest.mark.parametrize("keep", ["all", "none"])
def test_models_of_a_run_that_keeps_all_stay(store, keep):
    _ask(store, "selected")
    _ask(store, keep, name="two")
    for cell, nll in zip(CELLS, (0.3, 0.1, 0.2), strict=True):
        _write(store, cell, nll=nll)
    drop_unselected(store)
    assert _left(store) == ([0.1, 1.0, 10.0] if keep == "all" else [1.0])


def test_models_that_nobody_asked_for_are_left_alone(store):
    for cell in CELLS:
        _write(store, cell, nll=1.0)
    assert drop_unselected(store) == 0
    assert len(_left(store)) == 3


def test_only_among_the_given_cells(store):
    _ask(store, "selected")
    for cell, nll in zip(CELLS, (0.3, 0.1, 0.2), strict=True):
        _write(store, cell, nll=nll)
    assert drop_unselected(store, {CELLS[0].key}) == 1
    assert _left(store) == [0.1, 1.0]


@pytest.mark.parametrize(("keep", "expected"), [("selected", {1.0}), ("all", {10.0, 1.0, 0.1})])
def test_what_a_refit_trains_again(store, keep, expected):
    some = candidates("fixed_log_dlm", CELLS)
    asked = manifest("", [some]).candidates
    for cell, nll in zip(CELLS, (0.3, 0.1, math.nan), strict=True):
        _write(store, cell, model=None, nll=nll)
    keys = {cell.key: cell.beta for cell in CELLS}
    assert {keys[key] for key in without_model(store, asked, keep)} == expected
    _write(store, CELLS[1], nll=0.1)
    assert {keys[key] for key in without_model(store, asked, keep)} == expected - {1.0}
    (path,) = store.keys_with_models()[CELLS[1].key]
    path.write_bytes(b"torn")
    assert {keys[key] for key in without_model(store, asked, keep)} == expected
    assert not path.exists()
    assert [p for p in (store.root / "quarantine").iterdir() if p.suffix == ".npz"]
