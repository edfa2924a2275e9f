"""Comparison of two results folders."""

import re

import pytest
from msgspec.structs import replace

from dlmexp.benchmark.agreement import agreement, main, ways
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
    assert found["test NLL of what is selected within 0.0001, of 2"] == 50
    assert found["largest difference in test NLL of what is selected"] == pytest.approx(0.1)
    assert found["failed, of all cells of the first"] == 0
    assert found["failed, of all cells of the second"] == 1
    assert main([one, other]) == 1
    assert found["stopped by the rule, joint sq-DLM apart, of 10 fits"] == 90, "the one that failed has not"
    assert capsys.readouterr().out.count("NOT MET") == 5
    assert main([one, one]) == 0


def test_cells_that_stop_by_their_rule_are_counted(tmp_path):
    """Of deterministic fits that have a rule: with joint square loss apart, and with all that may have no minimiser."""
    square = replace(cell("cadata"), objective="sq_dlm")
    sampled = replace(CELLS[0], objective="log_dlm", estimator="bmc", options={"samples": 10})
    for name, converged in (("one", [True, True, False, False]), ("other", [True, True, True, False])):
        store = Store(tmp_path / name)
        for each, yes in zip(CELLS, converged, strict=True):
            record = fit(each, nll=0.5, error=0.1)
            note = "no minimiser" if each is CELLS[-1] else None
            store.write(replace(record, result=replace(record.result, converged=yes, note=note)))
        store.write(fit(sampled, nll=0.5, error=0.1))
        record = fit(square, mse=0.3)
        store.write(replace(record, result=replace(record.result, converged=False, note="no minimiser")))
    found = values(tmp_path / "one", tmp_path / "other")
    assert found["stopped by the rule, joint sq-DLM apart, of 8 fits"] == pytest.approx(100 * 5 / 8)
    assert found["the same, all without a minimiser apart, of 6 fits"] == pytest.approx(100 * 5 / 6)
    assert found["the same, of those without a minimiser, of 4 fits"] == 0


def test_the_limit_is_for_cells_that_stopped_by_their_rule(tmp_path, capsys):
    """Where a fit was cut off at its limit of iterations, its value is not that of a minimiser."""
    for name, shift in (("one", 0.0), ("other", 0.1)):
        store = Store(tmp_path / name)
        for each in CELLS:
            cut = each is CELLS[0]
            record = fit(each, nll=0.5 + cut * shift, error=0.1)
            store.write(replace(record, result=replace(record.result, converged=not cut, note="none" if cut else None)))
    found = values(tmp_path / "one", tmp_path / "other")
    assert found["test NLL within 0.0001"] == 75
    assert found["the same, of 3 cells that stopped by their rule in both"] == 100
    assert main([str(tmp_path / "one"), str(tmp_path / "other")]) == 1
    (missed,) = [line for line in capsys.readouterr().out.splitlines() if "NOT MET" in line]
    assert missed.startswith("stopped by the rule, joint sq-DLM apart")


def test_shares_by_dataset_and_method_and_by_beta(tmp_path):
    cells = [cell("banana"), *(replace(cell("ringnorm"), objective="log_dlm", beta=beta) for beta in (2.0, 0.05, 0.0))]
    for name, shift in (("one", 0), ("other", 2e-4)):
        store = Store(tmp_path / name)
        for each in cells:
            store.write(fit(each, nll=0.5 + shift * (each.beta in (0.05, 0.0)), error=0.1))
    found = values(tmp_path / "one", tmp_path / "other")
    assert found["banana, joint elbo: within 0.0001, of 1"] == 100
    assert found["ringnorm, joint log_dlm: within 0.0001, of 3"] == pytest.approx(100 / 3)
    assert found["beta >= 1: within 0.0001, of 2"] == 100
    assert found["beta < 0.1: within 0.0001, of 1"] == found["beta = 0: within 0.0001, of 1"] == 0


WORDS = [
    "dataset=ringnorm_drawn", "protocol=converged", "sizes=[40]", "dataset.ringnorm_drawn.M=5", "seeds=[0]",
    "method=[elbo,joint_log_dlm]", "beta=list", "beta.values=[4,1,0.5,0.1]", "training.binary.decay=20",
    "training.binary.window=5", "training.binary.max_iterations=30",
]  # fmt: skip


def test_cells_are_trained_here_in_batches_of_different_sizes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code = main([*WORDS, "--keep", "kept", "--between", "batches"])
    out = capsys.readouterr().out
    assert "CPU | CPU, 3 cells at once" in out
    assert re.search(r"^cells in both +5 ", out, re.MULTILINE)
    assert "ringnorm_drawn, joint log_dlm: within 0.0001, of 4" in out
    assert code == (1 if "NOT MET" in out else 0)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0-cpu", "1-cpu-3-cells-at-once"]
    for folder in (tmp_path / "kept").iterdir():
        assert len(load(folder).records) == 5


def test_float32_is_compared_with_float64(tmp_path, monkeypatch, capsys):
    """Keys differ, also those of the fits that fixed variants start from; each cell still finds its twin."""
    monkeypatch.chdir(tmp_path)
    words = [word.replace("method=[elbo,", "method=[elbo,fixed_log_dlm,") for word in WORDS]
    code = main([*words, "device=cpu", "--keep", "kept", "--between", "dtypes"])
    out = capsys.readouterr().out
    assert "float64 | float32" in out
    assert re.search(r"^cells in both +9 ", out, re.MULTILINE)
    assert re.search(r"^test NLL within 0.01 +100 %", out, re.MULTILINE)
    assert re.search(r"^test NLL identical in every bit +0 %", out, re.MULTILINE)
    assert "ringnorm_drawn, fixed log_dlm: within 0.01, of 4" in out
    assert "same beta selected, of 2 selections" in out
    assert code == (1 if "NOT MET" in out else 0)
    assert {r.cell.dtype for r in load(tmp_path / "kept" / "1-float32").records.values()} == {"float32"}


def test_square_loss_is_compared_by_its_mse(tmp_path):
    square = replace(cell("cadata"), objective="sq_dlm")
    for name, mse in (("one", 0.3), ("other", 0.302)):
        store = Store(tmp_path / name)
        store.write(fit(CELLS[0], nll=0.5, error=0.1))
        store.write(fit(square, mse=mse))
    found = values(tmp_path / "one", tmp_path / "other")
    assert found["largest difference in test MSE, of 1 without an NLL"] == pytest.approx(0.002)


def test_without_a_gpu_devices_are_not_compared(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert dlmexp(["benchmark", "agreement", "--between", "devices"]) == 2
    assert "there is no CUDA device here" in capsys.readouterr().err


def test_with_a_gpu_both_are_compared(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [way.name for way in ways("both")] == ["GPU", "CPU", "GPU, 3 cells at once"]
    assert [way.name for way in ways("batches")] == ["GPU", "GPU, 3 cells at once"]
    assert [way.words for way in ways("devices")] == [("device=cuda",), ("device=cpu",)]


@pytest.mark.parametrize("given", [["one"], ["one", "other", "third"]])
def test_other_than_two_folders_is_refused(given, capsys):
    assert dlmexp(["benchmark", "agreement", *given]) == 2
    assert "give two results folders, or words as for `dlmexp run`" in capsys.readouterr().err


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
