"""Selection by folds: which fits to all rows it asks for, and what tables show of it."""

import pytest
from msgspec.structs import replace

from dlmexp.core.folds import Candidate
from dlmexp.experiment.plan.cell import CandidateGroup, Setting
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.refits import Selections, losses_of_candidates, unneeded_refits
from dlmexp.experiment.records.results import ResultsFolder, collect_packed
from dlmexp.experiment.records.store import Store
from tests.support.cells import ELBO, scored

BETAS = (10.0, 1.0, 0.1)
CELL = replace(ELBO, task="regression", likelihood="gaussian", cv="2", dataset="wine")


def group(betas=BETAS, selection="reported", **changes):
    """A selection by two folds, its fits to all rows, and the cells of its folds by candidate."""
    fits = [replace(CELL, beta=beta, **changes) for beta in betas]
    folds = [[replace(fit, fold=number) for number in range(2)] for fit in fits]
    setting = Setting("paper", {"cv": 2}, selection)
    asked = CandidateGroup.of(
        "beta_elbo",
        fits,
        [fold for of_fit in folds for fold in of_fit],
        setting=setting,
        experiment="test",
        role="fit",
        size="100",
    )
    return asked, fits, folds


def write(root, cell, y_std=1.0, status="done", **losses):
    record = scored(cell, status, **losses)  # pyright: ignore[reportArgumentType]
    record.result = replace(record.result, y_std=y_std)
    Store(root).write(record)


def write_folds(root, folds, by_candidate, metric="nll"):
    for of_candidate, values in zip(folds, by_candidate, strict=True):
        for fold, value in zip(of_candidate, values, strict=True):
            write(root, fold, **{metric: value})


def refits(root, asked):
    return Selections.of(Store(root), [asked]).refits(asked)


def test_the_least_mean_loss_over_all_folds_is_selected(tmp_path):
    asked, fits, folds = group()
    write_folds(tmp_path, folds, [(0.1, 0.9), (0.4, 0.4), (0.5, 0.6)])
    assert refits(tmp_path, asked) == (fits[1].key,)


def test_losses_are_compared_in_the_units_of_the_target(tmp_path):
    asked, fits, folds = group(betas=(10.0, 0.1))
    for fold, y_std, loss in zip(folds[0], (1.0, 20.0), (0.3, 0.3), strict=True):
        write(tmp_path, fold, y_std, nll=loss)
    for fold in folds[1]:
        write(tmp_path, fold, nll=0.5)
    assert refits(tmp_path, asked) == (fits[1].key,)


def test_the_losses_of_candidates_are_means_over_all_folds(tmp_path):
    asked, fits, folds = group(betas=(10.0, 0.1))
    write_manifest(tmp_path, Manifest("test", [asked]))
    write_folds(tmp_path, folds[:1], [(0.2, 0.6)])
    assert losses_of_candidates(Store(tmp_path), fits[0].key, "nll") == {}, "folds lack records"
    write_folds(tmp_path, folds[1:], [(0.1, 0.2)])
    losses = losses_of_candidates(Store(tmp_path), fits[0].key, "nll")
    assert losses == pytest.approx({Candidate(10.0): 0.4, Candidate(0.1): 0.15})
    assert losses_of_candidates(Store(tmp_path), folds[0][0].key, "nll") == {}


def test_every_reported_metric_selects_unless_nll_alone_does(tmp_path):
    asked, fits, folds = group()
    for of_fit, nll, mse in zip(folds, (0.3, 0.2, 0.1), (0.1, 0.2, 0.3), strict=True):
        for fold in of_fit:
            write(tmp_path, fold, nll=nll, mse=mse)
    assert set(refits(tmp_path, asked)) == {fits[0].key, fits[2].key}  # pyright: ignore[reportArgumentType]
    assert refits(tmp_path, group(selection="nll")[0]) == (fits[2].key,)


def test_a_candidate_that_failed_in_a_fold_is_not_selected(tmp_path):
    asked, fits, folds = group(betas=(10.0, 0.1))
    write(tmp_path, folds[0][0], nll=-5.0)
    write(tmp_path, folds[0][1], status="failed")
    write(tmp_path, folds[1][0], nll=2.0)
    assert refits(tmp_path, asked) is None, "one fold has no record"
    write(tmp_path, folds[1][1], nll=2.0)
    assert refits(tmp_path, asked) == (fits[1].key,)


def test_a_selection_whose_candidates_all_failed_is_one_failed_row(tmp_path):
    asked, _, folds = group(betas=(10.0, 0.1))
    for fold in (*folds[0], *folds[1]):
        write(tmp_path, fold, status="failed")
    assert refits(tmp_path, asked) == ()
    write_manifest(tmp_path, Manifest("test", [asked]))
    (row,) = ResultsFolder(tmp_path).table.itertuples()
    assert (row.status, row.candidates, row.failed) == ("failed", 2, 2)


def test_a_single_candidate_is_trained_on_all_rows_after_its_folds(tmp_path):
    asked, fits, folds = group(betas=(1.0,))
    write(tmp_path, folds[0][0], nll=1.0)
    assert refits(tmp_path, asked) is None
    write(tmp_path, folds[0][1], status="failed")
    assert refits(tmp_path, asked) == (fits[0].key,)


def test_one_fit_stands_for_the_selected_one_until_it_is_known(tmp_path):
    asked, fits, folds = group()
    write_manifest(tmp_path, Manifest("test", [asked]))
    write_folds(tmp_path, folds[:2], [(0.4, 0.4), (0.2, 0.2)])
    assert unneeded_refits(Store(tmp_path)) == {fits[1].key, fits[2].key}
    write_folds(tmp_path, folds[2:], [(0.1, 0.1)])
    assert unneeded_refits(Store(tmp_path)) == {fits[0].key, fits[1].key}


def test_a_fit_that_one_of_two_selections_needs_is_needed(tmp_path):
    of_all, fits, folds = group()
    of_one, _, _ = group(betas=(10.0,))
    write_manifest(tmp_path, Manifest("test", [of_all, of_one]))
    write_folds(tmp_path, folds, [(0.4, 0.4), (0.2, 0.2), (0.1, 0.1)])
    assert unneeded_refits(Store(tmp_path)) == {fits[1].key}


@pytest.fixture
def complete(tmp_path):
    """A folder with a selection by NLL and by MSE, both of them trained on all rows."""
    asked, fits, folds = group()
    root = tmp_path / "results"
    write_manifest(root, Manifest("test", [asked]))
    for of_fit, nll, mse in zip(folds, (0.3, 0.2, 0.1), (0.1, 0.2, 0.3), strict=True):
        for fold in of_fit:
            write(root, fold, nll=nll, mse=mse)
    write(root, fits[0], nll=0.3, mse=0.1)
    write(root, fits[2], nll=0.1, mse=0.3)
    return root


COLUMNS = ["key", "selected_by", "beta", "edge", "candidates", "missing", "failed", "status"]


def test_tables_show_the_selected_fits_and_no_fold(complete):
    _, fits, _ = group()
    rows = ResultsFolder(complete).table[COLUMNS].itertuples(index=False)
    assert [tuple(row) for row in rows] == [
        (fits[2].key, "nll", 0.1, "smallest", 3, 0, 0, "done"),
        (fits[0].key, "mse", 10.0, "largest", 3, 0, 0, "done"),
    ]


def test_a_selection_without_its_fit_is_an_incomplete_row(complete):
    _, fits, _ = group()
    Store(complete).path("wine", fits[0].key).unlink()
    (row,) = ResultsFolder(complete).table.itertuples()
    assert (row.status, row.missing) == ("incomplete", 1)


def test_a_pack_has_the_selected_fits_and_needs_no_folds(complete, tmp_path):
    pack = tmp_path / "packed" / "records.parquet"
    pack.parent.mkdir()
    assert collect_packed(str(complete), str(pack)) == 2
    packed = ResultsFolder(pack.parent)
    expected = ResultsFolder(complete).table[COLUMNS]
    assert packed.table[COLUMNS].equals(expected)
    asked, fits, _ = group()
    selections = Selections.of(packed.store, [asked])
    assert selections.needed(asked) == (fits[0].key, fits[2].key), "nothing is trained again"
    write_manifest(pack.parent, Manifest("test", [asked]))
    assert ResultsFolder(pack.parent).table[COLUMNS].equals(expected), "no row is there twice"


def test_a_packed_fit_of_one_method_is_not_the_selection_of_another(tmp_path):
    """Joint DLM's selected fit is also a candidate of a mixture, whose own folds were never run."""
    asked, fits, folds = group()
    write_manifest(tmp_path, Manifest("test", [asked]))
    write_folds(tmp_path, folds, [(0.3, 0.3), (0.1, 0.1), (0.2, 0.2)])
    write(tmp_path, fits[1], nll=0.1)
    other = tmp_path / "other"
    other.mkdir()
    collect_packed(str(tmp_path), str(other / "records.parquet"))
    mixture = replace(asked, method="mixture_log_dlm")
    assert refits(other, asked) == (fits[1].key,)
    assert refits(other, mixture) is None
    selections = Selections.of(Store(other), [asked, mixture])
    assert selections.needed(asked) == (fits[1].key,)
    assert set(selections.needed(mixture)) >= set(mixture.folds)
