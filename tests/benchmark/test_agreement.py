"""Comparison of two results folders."""

import pytest
from msgspec.structs import replace

from dlmexp.benchmark.agreement import agreement, main
from dlmexp.cli import main as dlmexp
from dlmexp.errors import UserError
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import load
from dlmexp.records.store import Store
from tests.support.cells import candidates
from tests.support.made_up import cell, failed, fit

CELLS = [replace(cell("banana"), seed=seed, beta=beta) for seed in range(2) for beta in (1.0, 0.3)]


def folder(path, nlls, more=()):
    """Validation and test NLL of CELLS, in their order."""
    store = Store(path)
    for each, nll in zip(CELLS, nlls, strict=True):
        store.write(fit(each, nll=nll, error=0.1))
    for record in more:
        store.write(record)
    write_manifest(store.root, manifest("mine", [candidates("beta_elbo", CELLS[i : i + 2]) for i in (0, 2)]))
    return str(path)


def values(first, second):
    return {one.name: one.value for one in agreement(load(first), load(second))}


def test_differences_and_selections_are_counted(tmp_path, capsys):
    alone = replace(CELLS[0], seed=7)
    one = folder(tmp_path / "one", [0.5, 0.4, 0.5, 0.4], [fit(alone, nll=0.1, error=0.1)])
    other = folder(tmp_path / "other", [0.5, 0.40005, 0.5, 0.503], [failed(alone)])
    found = values(one, other)
    assert found["cells in both"] == 4
    assert found["test NLL identical in every bit"] == 50
    assert found["test NLL within 0.0001"] == 75
    assert found["test NLL within 0.01"] == 75
    assert found["largest difference in test NLL"] == pytest.approx(0.103)
    # beta = 0.3 has the lowest validation NLL everywhere but with the second seed of the other folder.
    assert found["same beta selected, of 2 selections"] == 50
    assert main([one, other]) == 1
    assert capsys.readouterr().out.count("NOT MET") == 2
    assert main([one, one]) == 0


@pytest.mark.parametrize("other", ["nowhere", "strangers"])
def test_folders_without_a_common_cell_are_refused(tmp_path, monkeypatch, capsys, other):
    monkeypatch.chdir(tmp_path)
    one = folder("one", [0.5, 0.4, 0.5, 0.4])
    Store("strangers").write(fit(replace(CELLS[0], seed=7), nll=0.1, error=0.1))
    assert dlmexp(["benchmark", "agreement", one, other]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert {"nowhere": "there is no folder 'nowhere'", "strangers": "no finished cell in common"}[other] in err


def test_cells_that_failed_in_one_folder_are_not_compared(tmp_path):
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    for store, done, not_done in ((one, CELLS[0], CELLS[1]), (other, CELLS[1], CELLS[0])):
        store.write(fit(done, nll=0.5, error=0.1))
        store.write(failed(not_done))
    with pytest.raises(UserError, match="no finished cell in common"):
        agreement(load(one.root), load(other.root))


def test_a_folder_with_failures_only_is_refused(tmp_path):
    store = Store(tmp_path / "failures")
    store.write(failed(CELLS[0]))
    one = load(folder(tmp_path / "one", [0.5, 0.4, 0.5, 0.4]))
    with pytest.raises(UserError, match="no finished cells with a test NLL"):
        agreement(one, load(store.root))
