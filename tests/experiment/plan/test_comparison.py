"""`experiment=uci`: which methods it compares, on which data, and that all have the same settings."""

from collections import defaultdict

import pytest

from dlmexp.common.catalogue import with_members
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.compose import compose, parts

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
    return parts(compose(["experiment=uci"]))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matern52", "rbf"])
def test_every_dataset_of_the_suites_has_every_method_under_each_kernel(
    selections: list[RunConfig], kernel: str
):
    methods: dict[str, list[str]] = defaultdict(list)
    for selection in selections:
        for name, dataset in selection.dataset.items():
            if dataset.kernel == kernel:
                methods[name] += selection.method
    small = {name for name in methods if "exact" in methods[name]}
    assert small == {*with_members(["uci_small"]), "uci_gas", "uci_skillcraft", "uci_sml"}
    for name, its_methods in methods.items():
        assert len(set(its_methods)) == len(its_methods)
        expected = REGRESSION if name.startswith("uci_") else DISCRETE
        assert set(its_methods) - {"exact"} == expected
    assert set(methods) == set(with_members(["uci", "uci_binary", "uci_counts"]))


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
