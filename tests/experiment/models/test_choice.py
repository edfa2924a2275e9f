"""Which model of a results folder is meant."""

from pathlib import Path
from typing import Any

import pytest

from dlmexp.common.errors import UserError
from dlmexp.experiment.models.choice import choose_models
from dlmexp.experiment.models.file import TrainedCell, encoded
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import Store
from tests.support.cells import candidates, made_up_model, scored

METHODS = {"log_dlm": "joint_log_dlm", "sq_dlm": "joint_sq_dlm"}


def stored(root: Path, *models: tuple[TrainedCell, dict[str, Any]]) -> ResultsFolder:
    """A folder with records of models; y_std and validation metrics are as said."""
    store = Store(root)
    for model, values in models:
        y_std = values.pop("y_std", 1.0)
        record = scored(model.cell, **values)
        record.result.y_std = y_std
        store.write(record, model=encoded(model))
    asked = [candidates(METHODS[model.cell.objective], [model.cell]) for model, _ in models]
    write_manifest(root, Manifest("mine", asked))
    return ResultsFolder(root)


def test_nll_is_compared_before_normalisation(tmp_path):
    """-log of a density in units of y_std: log y_std is added."""
    normalised_best = made_up_model(M=5)
    best = made_up_model(M=6)
    results = stored(tmp_path, (normalised_best, {"nll": 0.0, "y_std": 10.0}), (best, {"nll": 1.0}))
    (chosen,) = choose_models(results, [])
    assert chosen.model.cell == best.cell
    assert "the best of 2, validation NLL 1.0000 of targets before scaling" in chosen.description


def test_mse_is_compared_before_normalisation_where_there_is_no_nll(tmp_path):
    normalised_best = made_up_model(M=5, objective="sq_dlm")
    best = made_up_model(M=6, objective="sq_dlm")
    results = stored(tmp_path, (normalised_best, {"mse": 0.1, "y_std": 10.0}), (best, {"mse": 2.0}))
    (chosen,) = choose_models(results, [])
    assert chosen.model.cell == best.cell
    assert "the best of 2, validation MSE 2.0000" in chosen.description


def test_settings_are_compared_on_the_rows_of_the_same_seeds(tmp_path):
    """M = 20 has the best value of all, on the rows of a seed on which all models are good."""
    results = stored(
        tmp_path,
        (made_up_model(seed=0, M=20), {"nll": 0.9}),
        (made_up_model(seed=1, M=20), {"nll": 0.1}),
        (made_up_model(seed=0, M=200), {"nll": 0.5}),
    )
    (chosen,) = choose_models(results, [])
    assert (chosen.row.seed, chosen.row.M) == (0, 200)
    assert (
        "the best of 2 on the validation rows of seed 0, validation NLL 0.5000"
        in chosen.description
    )


def test_settings_are_averaged_over_the_seeds_that_have_them_all(tmp_path):
    results = stored(
        tmp_path,
        (made_up_model(seed=0, M=5), {"nll": 0.4}),
        (made_up_model(seed=0, M=6), {"nll": 0.5}),
        (made_up_model(seed=1, M=5), {"nll": 0.9}),
        (made_up_model(seed=1, M=6), {"nll": 0.3}),
    )
    (chosen,) = choose_models(results, [])
    assert (chosen.row.seed, chosen.row.M) == (0, 6)


def test_settings_without_a_common_seed_are_not_compared(tmp_path):
    results = stored(
        tmp_path,
        (made_up_model(seed=0, M=5), {"nll": 0.4}),
        (made_up_model(seed=1, M=6), {"nll": 0.5}),
    )
    with pytest.raises(UserError, match=r"seed=0\|1"):
        choose_models(results, [])
    (chosen,) = choose_models(results, ["seed=1"])
    assert chosen.row.M == 6


def test_mixture_has_the_best_model_of_every_seed_with_the_same_settings(tmp_path):
    results = stored(
        tmp_path,
        (made_up_model(seed=0, M=5), {"nll": 0.1}),
        (made_up_model(seed=0, M=6), {"nll": 0.4}),
        (made_up_model(seed=1, M=5), {"nll": 0.3}),
        (made_up_model(seed=1, M=6), {"nll": 0.2}),
    )
    chosen = choose_models(results, [], every_seed=True)
    assert [(model.row.seed, model.row.M) for model in chosen] == [(0, 5), (1, 5)]


@pytest.mark.parametrize("term", ["seed=0", "key=a"])
def test_mixture_of_all_seeds_leaves_no_choice_of_a_seed(tmp_path, term):
    model = made_up_model()
    results = stored(tmp_path, (model, {"nll": 0.1}))
    term = f"key={model.cell.key[:5]}" if term == "key=a" else term
    with pytest.raises(UserError, match="leave seed= and key= out"):
        choose_models(results, [term.replace("seed=0", f"seed={model.cell.seed}")], every_seed=True)


def test_model_is_chosen_by_the_start_of_its_key(tmp_path):
    models = [made_up_model(seed=seed) for seed in (0, 1)]
    results = stored(tmp_path, *((model, {"nll": 0.1}) for model in models))
    for model in models:
        (chosen,) = choose_models(results, [f"key={model.cell.key[:8]}"])
        assert chosen.model.cell == model.cell


def test_file_of_another_cell_is_refused(tmp_path):
    wanted = made_up_model(seed=0)
    other = made_up_model(seed=1)
    store = Store(tmp_path)
    store.write(scored(wanted.cell, nll=0.1), model=encoded(other))
    write_manifest(tmp_path, Manifest("mine", [candidates("joint_log_dlm", [wanted.cell])]))
    with pytest.raises(UserError, match="it is that of another cell; give the command"):
        choose_models(ResultsFolder(tmp_path), [])


def test_models_of_failed_cells_are_not_meant(tmp_path):
    done = made_up_model(seed=0)
    failed = made_up_model(seed=1)
    store = Store(tmp_path)
    store.write(scored(done.cell, nll=0.9), model=encoded(done))
    store.write(scored(failed.cell, "failed"), model=encoded(failed))
    asked = [candidates("joint_log_dlm", [model.cell]) for model in (done, failed)]
    write_manifest(tmp_path, Manifest("mine", asked))
    (chosen,) = choose_models(ResultsFolder(tmp_path), [])
    assert chosen.model.cell == done.cell
    with pytest.raises(UserError, match="which 1 record without a model would"):
        choose_models(ResultsFolder(tmp_path), ["seed=1"])


def test_folder_without_models_says_how_to_get_some(tmp_path):
    model = made_up_model()
    Store(tmp_path).write(scored(model.cell, nll=0.1))
    write_manifest(tmp_path, Manifest("mine", [candidates("joint_log_dlm", [model.cell])]))
    with pytest.raises(UserError, match=r"there are no models in .*keep=all"):
        choose_models(ResultsFolder(tmp_path), [])


def test_models_of_one_dataset_are_meant(tmp_path):
    results = stored(
        tmp_path,
        (made_up_model(), {"nll": 0.1}),
        (made_up_model(dataset="thyroid"), {"nll": 0.2}),
    )
    with pytest.raises(UserError, match=r"several datasets: choose with --where dataset=banana\|"):
        choose_models(results, [])
    (chosen,) = choose_models(results, ["dataset=thyroid"])
    assert chosen.row.dataset == "thyroid"


def test_mistakes_in_the_choice_name_the_option_that_was_used(tmp_path):
    models = [made_up_model(seed=seed) for seed in (0, 1)]
    for model in models:
        record = scored(model.cell, nll=0.1)
        record.result.validation.clear()
        Store(tmp_path).write(record, model=encoded(model))
    write_manifest(
        tmp_path, Manifest("mine", [candidates("elbo", [model.cell]) for model in models])
    )
    with pytest.raises(
        UserError, match=f"plot: key=KEY, of ({models[0].cell.key}|{models[1].cell.key})"
    ):
        choose_models(ResultsFolder(tmp_path), [], option="plot:")
    with pytest.raises(UserError, match=r"^plot: seed=0"):
        choose_models(ResultsFolder(tmp_path), ["seed=0"], every_seed=True, option="plot:")
