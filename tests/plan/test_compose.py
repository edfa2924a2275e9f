"""From overrides to a config, and from mistakes to sentences."""

import shlex

import pytest

from dlmexp import catalogue
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir
from dlmexp.plan.checks import check
from dlmexp.plan.compose import check_table_is_used, compose, expand, parts, with_default
from dlmexp.plan.overrides import spelled_out
from dlmexp.plugins import extended
from tests.conftest import REPOSITORY

EXPERIMENTS = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml") if path.stem != "own")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name):
    cfg = compose([f"experiment={name}"])
    assert cfg.name == name
    cfg.parts = cfg.parts[:2]  # the whole paper has many, and each takes its time
    for part in parts(cfg):
        assert part.dataset
        assert part.method


@pytest.mark.slow
def test_the_shipped_datasets_fit_the_schema_and_their_tasks():
    cfg = compose([f"dataset=[{','.join(name for name in catalogue.names('dataset') if name != 'csv')}]"])
    check(cfg)
    for name, dataset in cfg.dataset.items():
        assert dataset.name == name
        assert dataset.mean == ("constant" if dataset.task == "binary" else "zero")
        assert dataset.ard == (dataset.split == "airline")
        assert dataset.split in ("regression" if dataset.task == "regression" else "counts", "airline")
    assert {name: cfg.dataset[name].M for name in ("cadata", "ringnorm", "airline")} == {
        "cadata": 206, "ringnorm": 74, "airline": 200,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["debug", "quick"])
def test_an_experiment_in_small_has_a_name_of_its_own_and_so_have_its_parts(preset):
    cfg = compose(["experiment=selection", f"preset={preset}"])
    assert cfg.name == f"selection-{preset}"
    for part in parts(cfg):
        check(part)
        assert (part.preset, len(part.seeds)) == (preset, {"debug": 1, "quick": 2}[preset])
        assert {training.max_iterations for kind, training in part.training.items() if kind != "large"} <= {10, 200}


@pytest.mark.slow
@pytest.mark.parametrize("chain", [["x"], ["x", "y", "z"]])
def test_an_experiment_that_is_a_part_of_itself(tmp_path, chain):
    (tmp_path / "experiment").mkdir()
    for name, following in zip(chain, [*chain[1:], chain[0]], strict=True):
        text = f"# @package _global_\nname: {name}\nparts: [[experiment={following}, 'seeds=[1]']]\n"
        (tmp_path / "experiment" / f"{name}.yaml").write_text(text)
    with extended(str(tmp_path)), pytest.raises(UserError, match=r"experiment=[xy]"):
        parts(compose(["experiment=x"]))


@pytest.mark.slow
def test_what_is_typed_holds_for_all_parts_but_what_a_part_says_itself():
    assert with_default(["seeds=[0]"]) == ["experiment=default", "seeds=[0]"]
    assert with_default(["dataset=pol"]) == ["dataset=pol"]
    several = parts(compose(["experiment=selection", "seeds=[7]", "device=cpu", "sizes=[33]"]))
    assert len(several) > 3
    assert {(*part.seeds, part.device) for part in several} == {(7, "cpu")}
    assert {str(part.sizes) for part in several} == {"[33]", "['5%']"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ([], {"bmc": [1, 10, 100], "ups": [1, 10, 100]}),
        (["estimator=ups"], {"ups": [1, 10, 100]}),
        (["~estimator.bmc"], {"ups": [1, 10, 100]}),
        (["estimator=[bmc]", "estimator.ups.samples=[5]"], {"bmc": [1, 10, 100], "ups": [5]}),
    ],
)
def test_an_experiments_options_select_no_estimator_that_the_user_left_out(typed: list[str], expected: dict):
    made = compose(["experiment=count-learning", *typed]).estimator
    assert {name: options["samples"] for name, options in made.items()} == expected


def test_jobs_of_a_multirun():
    jobs = [["dataset=pol", "seeds=[0,1]"], ["dataset=cadata", "seeds=[0,1]"]]
    assert expand(["dataset=pol,cadata", "seeds=[0,1]"]) == jobs
    assert len(expand(["dataset=pol,cadata", "method=[elbo],[fitc]", "device=cpu"])) == 4


def test_own_files_that_can_not_be_used(tmp_path, monkeypatch):
    monkeypatch.setenv("DLMEXP_CONFIG_DIRS", str(tmp_path))
    (tmp_path / "dataset").mkdir()
    own = tmp_path / "dataset" / "houses.yaml"
    own.write_text("# @package dataset.houses\nname: [houses\n")
    with pytest.raises(UserError, match=r"houses\.yaml is not a YAML file"):
        compose(["dataset=houses"])
    own.write_text("# @package dataset.houses\nname: houses\n")
    with pytest.raises(UserError, match="did you mean houses"):
        compose(["dataset=house"])
    own.rename(tmp_path / "dataset" / "banana.yaml")
    with pytest.raises(UserError, match=r"banana\.yaml: we have a dataset of that name"):
        compose(["dataset=banana"])


def test_a_table_that_no_job_reads():
    table = ["csv.path=x.csv", "csv.target=y", "csv.task=binary"]
    jobs = [compose([f"dataset={name}", *table]) for name in ("csv", "banana")]
    check_table_is_used(table, jobs)
    with pytest.raises(UserError, match=r"csv\.path=x\.csv: say dataset=csv as well"):
        check_table_is_used(table, jobs[1:])


def _run_commands() -> list[str]:
    """Those of the pages that a new user follows."""
    pages = [REPOSITORY / "README.md", REPOSITORY / "results" / "paper" / "README.md"]
    lines = [line.strip() for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.startswith("dlmexp run ")]


@pytest.mark.parametrize("command", _run_commands())
def test_commands_of_readmes_can_be_composed(command: str):
    words = shlex.split(command, comments=True)[2:]
    several = "-m" in words
    cfg = compose(expand(spelled_out([word for word in words if word != "-m"], several))[0])
    assert cfg.parts or (cfg.dataset and cfg.method)
