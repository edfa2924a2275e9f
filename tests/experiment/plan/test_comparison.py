"""`experiment=uci`: which methods it compares, on which data, and that all have the same settings."""

from collections import defaultdict
from pathlib import Path

import pytest

import dlmexp
from dlmexp.cli import main
from dlmexp.common.catalogue import with_members
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.compose import compose, experiment_configs

REGRESSION = {
    *("elbo", "beta_elbo", "tighter", "t_pep", "power_ep", "fitc", "loo", "crps", "ppgpr"),
    *("fixed_log_dlm", "joint_log_dlm", "mixture_log_dlm"),
}
DISCRETE = {
    *("elbo", "beta_elbo", "tighter", "ppgpr", "fixed_log_dlm", "joint_log_dlm"),
    "mixture_log_dlm",
}


@pytest.fixture(scope="module")
def selections() -> list[RunConfig]:
    return experiment_configs(compose(["experiment=uci"]))


def methods_by_dataset(selections: list[RunConfig], kernel: str) -> dict[str, list[str]]:
    """Return the methods of every dataset under a kernel, without the exact Gaussian process."""
    methods: dict[str, list[str]] = defaultdict(list)
    for selection in selections:
        for name, dataset in selection.dataset.items():
            if dataset.kernel == kernel:
                methods[name] += set(selection.method) - {"exact"}
    return methods


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matern52", "rbf"])
def test_every_dataset_has_every_method(selections: list[RunConfig], kernel: str):
    for name, methods in methods_by_dataset(selections, kernel).items():
        assert len(set(methods)) == len(methods)
        assert set(methods) == (REGRESSION if name.startswith("uci_") else DISCRETE)


@pytest.mark.slow
def test_suites_are_whole_under_matern_and_thinner_under_rbf(selections: list[RunConfig]):
    everything = set(with_members(["uci", "uci_binary", "uci_counts"]))
    assert set(methods_by_dataset(selections, "matern52")) == everything
    middle = {"uci_gas", "uci_skillcraft", "uci_sml", "uci_parkinsons"}
    large = {"uci_kin8nm", "uci_pumadyn32nm", "uci_power"}
    under_rbf = set(methods_by_dataset(selections, "rbf"))
    assert under_rbf == {*with_members(["uci_small"]), *middle, *large}


@pytest.mark.slow
def test_exact_process_is_trained_on_all_rows_of_sets_below_4000(selections: list[RunConfig]):
    exact = [selection for selection in selections if "exact" in selection.method]
    middle = {"uci_gas", "uci_skillcraft", "uci_sml"}
    names = {name for selection in exact for name in selection.dataset}
    assert names == {*with_members(["uci_small"]), *middle}
    datasets = [dataset for selection in exact for dataset in selection.dataset.values()]
    assert {dataset.validation for dataset in datasets} == {"train"}


@pytest.mark.slow
def test_folds_select_on_small_sets_and_a_tenth_of_the_rows_on_others(selections: list[RunConfig]):
    small = {*with_members(["uci_small"]), "german", "ionosphere", "pima"}
    for selection in selections:
        if "exact" not in selection.method:
            assert selection.cv == ("5" if set(selection.dataset) <= small else "holdout")
            assert set(selection.dataset) <= small or not small & set(selection.dataset)
            assert selection.K == [1, 4]


@pytest.mark.slow
def test_all_have_the_same_optimiser_and_budget(selections: list[RunConfig]):
    optimisers = {repr(selection.training) for selection in selections}
    assert len(optimisers) == 1
    assert {selection.protocol for selection in selections} == {"uci"}
    for selection in selections:
        values = [0.5] if set(selection.method) == {"power_ep"} else [25, 5, 1, 0.2]
        assert selection.beta.values == values


def test_a_kernel_holds_for_all_datasets_but_those_whose_own_is_typed():
    words = ["dataset=[uci_wine,uci_pol,pol]", "kernel=matern32", "dataset.pol.kernel=rbf"]
    cfg = compose(words)
    kernels = {name: dataset.kernel for name, dataset in cfg.dataset.items()}
    assert kernels == {"uci_wine": "matern32", "uci_pol": "matern32", "pol": "rbf"}


def test_settings_of_an_experiment_hold_for_the_datasets_that_are_asked_for():
    for experiment, setting, value in (
        ("fair-reg", "ard", True),
        ("truth-student", "likelihood", "student_t"),
        ("zero-mean", "mean", "zero"),
    ):
        (dataset,) = parts_of(experiment)[0].dataset.values()
        assert getattr(dataset, setting) == value
    uses = [part.dataset["pol"].validation for part in parts_of("rivals-reg", "pol")]
    assert uses == ["all", "all", "train", "tenth"]


def parts_of(experiment: str, dataset: str = "") -> list[RunConfig]:
    """Return the selections of an experiment on one of its datasets, or on one that is named."""
    name = dataset or next(iter(compose([f"experiment={experiment}"]).dataset))
    return experiment_configs(compose([f"experiment={experiment}", f"dataset=[{name}]"]))


@pytest.mark.slow
def test_anchors_are_trained_as_they_were_published():
    selections = experiment_configs(compose(["experiment=anchors"]))
    minibatch = [part for part in selections if part.protocol == "anchors"]
    assert {name: part.M for part in minibatch for name in part.dataset} == {
        **dict.fromkeys(["uci_wine", "uci_skillcraft", "uci_parkinsons", "uci_elevators"], 200),
        "uci_protein": 500,
    }
    for part in minibatch:
        training = part.training["regression"]
        assert (training.max_iterations, training.minibatch) == (10_000, 512)
        assert training.minibatch_lr == 0.01
        assert training.final_lr is None
        assert not part.collapsed
        assert set(part.method) == {"elbo", "ppgpr"}
        assert {dataset.validation for dataset in part.dataset.values()} == {"train"}
    assert all(dataset.kernel == "rbf" for part in selections for dataset in part.dataset.values())


@pytest.mark.slow
def test_a_quick_version_runs_on_three_small_datasets(data_root: Path, tmp_path: Path):
    names = ["uci_yacht", "uci_autompg", "uci_stock"]
    for name in names:
        if not (data_root / "uci" / name.removeprefix("uci_")).is_dir():
            pytest.skip(f"no {name} there")
    words = ["experiment=uci-small", "parts=[]", "preset=quick", "M=20", "seeds=1"]
    selected = [f"dataset=[{','.join(names)}]", "method=[elbo,joint_log_dlm]", "workers=1"]
    folders = [f"data_root={data_root}", f"results={tmp_path}"]
    assert main(["run", *words, *selected, *folders]) == 0
    selected_fits = dlmexp.results(str(tmp_path)).selected
    by_method = selected_fits.groupby(["dataset", "method"])["test_nll"].mean()
    assert len(by_method) == 6
    # Better than a Gaussian with mean and variance of the targets.
    assert (by_method < 1.0).all()
