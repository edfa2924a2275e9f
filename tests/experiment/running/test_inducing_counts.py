"""`M=auto` in a run: one number for all seeds and methods, recorded in the results folder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import dlmexp
from dlmexp.common.errors import UserError
from dlmexp.core.training import automatic
from dlmexp.data.splits import prepare
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.overrides import expand_shorthand
from dlmexp.experiment.records.inducing_counts import chosen_folder
from dlmexp.experiment.records.manifests import forget_other_data
from dlmexp.experiment.running.run import write_manifests
from dlmexp.experiment.running.sweep import prepare_sweep

ROWS = 150
AUTO = ("M=auto", "auto_M.most=60")


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """Choose from a shorter fit, among smaller numbers; results go to an empty folder."""
    monkeypatch.setattr(automatic, "PILOT", replace(automatic.PILOT, iterations=25))
    monkeypatch.setattr(automatic, "MIN_M", 5)
    monkeypatch.chdir(tmp_path)


def sweep(*words):
    """Return what these words ask for on a table that a function of one column makes."""
    random = np.random.default_rng(0)
    x = random.normal(size=ROWS)
    y = np.sin(2 * x) + 0.2 * random.normal(size=ROWS)
    np.savetxt("waves.csv", np.stack([x, y], 1), delimiter=",", header="x,y", comments="")
    table = [
        "dataset=csv",
        "csv.path=waves.csv",
        "csv.target=y",
        "csv.task=regression",
        "csv.name=waves",
    ]
    others = ["method=[elbo,tighter]", "seeds=2", "sizes=[90]"]
    return prepare_sweep(compose(expand_shorthand([*table, *others, *words])))


def numbers(of_sweep):
    return {cell.M for cell in of_sweep.cells}


def test_all_seeds_and_methods_have_the_choice_for_the_rows_of_seed_0():
    asked = sweep(*AUTO)
    cell = asked.cells[0]
    spec, data = asked.datasets[cell.dataset, cell.split]
    rows = prepare(data, spec, seed=0, n=90)
    model = dlmexp.Model(cell.kernel, ard=cell.ard, inducing=cell.inducing, initial=cell.initial)
    auto = automatic.AutoM(most=60)
    X = torch.from_numpy(rows.X_train)
    y = torch.from_numpy(rows.y_train)
    expected = automatic.chosen_inducing_count(model, X, y, auto, seed=0)
    assert numbers(asked) == {expected}
    assert 5 <= expected < 60


def test_cells_are_those_of_the_chosen_number_under_a_setting_of_their_own():
    asked = sweep(*AUTO)
    (M,) = numbers(asked)
    assert asked.by_key.keys() == sweep(f"M={M}").by_key.keys()
    changes = asked.candidates[0].setting.changes
    assert (changes["M"], changes["auto_M.most"]) == ("auto", 60)
    assert "auto_M.tolerance" not in changes


def test_limit_of_the_choice_is_no_change_where_m_is_a_number():
    setting = sweep("M=7", "auto_M.most=60").candidates[0].setting
    assert setting == sweep("M=7").candidates[0].setting


def test_setting_of_a_dataset_chooses_as_that_of_all_datasets():
    assert numbers(sweep("dataset.csv.M=auto", AUTO[1])) == numbers(sweep(*AUTO))


def test_smaller_tolerance_gives_a_larger_number():
    (loose,) = numbers(sweep(*AUTO, "auto_M.tolerance=5"))
    (tight,) = numbers(sweep(*AUTO, "auto_M.tolerance=0.001"))
    assert loose == 5
    assert tight > loose


def test_folds_have_at_most_their_rows():
    asked = sweep(*AUTO, "auto_M.tolerance=1e-9", "auto_M.most=200", "cv=2", "sizes=[30]")
    assert {(cell.fold is None, cell.M) for cell in asked.cells} == {(True, 30), (False, 15)}


def test_choice_of_an_earlier_run_is_taken_again():
    asked = sweep(*AUTO)
    write_manifests(Path("results"), [asked])
    (file,) = chosen_folder(Path("results"), "waves").iterdir()
    (M,) = numbers(asked)
    file.write_text(file.read_text().replace(f'"M":{M}', '"M":11'))
    assert numbers(sweep(*AUTO)) == {11}
    assert numbers(sweep(*AUTO, "auto_M.tolerance=0.09")) == {M}, "another rule, another choice"


def test_damaged_choice_is_made_again():
    asked = sweep(*AUTO)
    write_manifests(Path("results"), [asked])
    (file,) = chosen_folder(Path("results"), "waves").iterdir()
    file.write_text(file.read_text()[:-5])
    assert numbers(sweep(*AUTO)) == numbers(asked)


def test_nothing_is_written_before_the_whole_run_is_checked():
    sweep(*AUTO)
    assert not Path("results").exists()


def test_choice_is_forgotten_with_the_results_on_other_data():
    asked = sweep(*AUTO)
    write_manifests(Path("results"), [asked])
    assert chosen_folder(Path("results"), "waves").exists()
    forget_other_data(Path("results"), "waves", "another checksum")
    assert not chosen_folder(Path("results"), "waves").exists()


def test_likelihoods_without_bounds_are_refused():
    words = ["dataset=ringnorm_drawn", "M=auto"]
    with pytest.raises(UserError, match="M=auto needs Gaussian noise, and ringnorm_drawn"):
        prepare_sweep(compose(expand_shorthand(words)))


@pytest.mark.parametrize("name", ["M", "dataset.csv.M"])
@pytest.mark.parametrize("value", ["most", "0", "2.5", "true"])
def test_other_words_and_numbers_are_refused(name, value):
    with pytest.raises(UserError, match=f"^{name}={value}: give a whole number > 0, or auto$"):
        sweep(f"{name}={value}")
