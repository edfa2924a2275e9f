"""From overrides to a config, and from mistakes to sentences."""

import shlex

import pytest

from dlmexp.errors import UserError
from dlmexp.paths import conf_dir
from dlmexp.plan.compose import check_table_is_used, compose, expand, parts, with_default
from dlmexp.plan.shorthand import spelled_out
from dlmexp.plugins import extended
from tests.conftest import REPOSITORY

EXPERIMENTS = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name):
    cfg = compose([f"experiment={name}"])
    assert cfg.name == name
    cfg.parts = cfg.parts[:2]  # the whole paper has many, and each takes its time
    for part in parts(cfg):
        assert part.dataset
        assert part.method


def test_several_datasets_and_methods():
    cfg = compose(["dataset=[pol,cadata]", "method=[elbo,joint_log_dlm]", "seeds=[0,1]", "sizes=['5%',100]"])
    assert list(cfg.dataset) == ["pol", "cadata"]
    assert list(cfg.method) == ["elbo", "joint_log_dlm"]
    assert cfg.sizes == ["5%", 100]
    assert cfg.dataset["cadata"].M == 206


@pytest.mark.slow
def test_parts_have_parts():
    """The paper has `sampler` among its parts, and that has the rejection sampler among its own."""
    found = parts(compose(["experiment=paper", 'parts=[["experiment=sampler"]]']))
    assert [list(cfg.estimator) for cfg in found] == [["bmc", "ups"], ["ups"]]
    assert found[1].estimator["ups"]["sampler"] == "rejection"


@pytest.mark.parametrize("chain", [["x"], ["x", "y", "z"]])
def test_an_experiment_that_is_a_part_of_itself(tmp_path, chain):
    (tmp_path / "experiment").mkdir()
    for name, following in zip(chain, [*chain[1:], chain[0]], strict=True):
        text = f"# @package _global_\nname: {name}\nparts: [[experiment={following}, 'seeds=[1]']]\n"
        (tmp_path / "experiment" / f"{name}.yaml").write_text(text)
    with extended(str(tmp_path)), pytest.raises(UserError, match=r"experiment=[xy]"):
        parts(compose(["experiment=x"]))


@pytest.mark.slow
def test_parts_may_be_written_in_short():
    short = '["dataset=banana","beta=0.1","seeds=2","training.max_iterations=7"]'
    (found,) = parts(compose(["name=own", f"parts=[{short}]", "training.binary.lr=0.3"]))
    assert (found.beta.values, found.seeds) == ([0.1], [0, 1])
    assert (found.training["binary"].max_iterations, found.training["binary"].lr) == (7, 0.3)


def test_what_is_typed_holds_for_all_parts():
    found = parts(compose(["experiment=selection", "seeds=[7]", "device=cpu"]))
    assert len(found) > 3
    assert {tuple(part.seeds) for part in found} == {(7,)}
    assert {part.device for part in found} == {"cpu"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ([], {"bmc": [1, 10, 100], "ups": [1, 10, 100]}),
        (["estimator=[bmc]"], {"bmc": [1, 10, 100]}),
        (["estimator=ups"], {"ups": [1, 10, 100]}),
        (["~estimator.bmc"], {"ups": [1, 10, 100]}),
        (["estimator=[bmc]", "estimator.ups.samples=[5]"], {"bmc": [1, 10, 100], "ups": [5]}),
    ],
)
def test_an_experiments_options_select_no_estimator_that_the_user_left_out(typed: list[str], expected: dict):
    found = compose(["experiment=count-learning", *typed]).estimator
    assert {name: options["samples"] for name, options in found.items()} == expected


def test_a_part_keeps_what_it_says_itself():
    found = parts(compose(["experiment=selection", "sizes=[33]"]))
    assert ["5%"] in [part.sizes for part in found]


def test_without_data_it_is_the_default_job():
    assert with_default(["seeds=[0]"]) == ["experiment=default", "seeds=[0]"]
    assert with_default(["dataset=pol"]) == ["dataset=pol"]
    assert with_default(["experiment=bias"]) == ["experiment=bias"]


def test_a_users_own_folder(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text(
        "# @package method.mine\nobjective: elbo\nvariant: joint\nselect: false\n"
    )
    with extended(str(tmp_path)):
        cfg = compose(["dataset=banana", "method=[mine]"])
    assert cfg.method["mine"].objective == "elbo"
    with pytest.raises(UserError, match="there is no method 'mine'"):
        compose(["dataset=banana", "method=[mine]"])
    with pytest.raises(UserError, match="there is no such folder"), extended(str(tmp_path / "nowhere")):
        pass


SENTENCES = {
    "dataset=cadatta": ["there is no dataset 'cadatta'", "did you mean cadata"],
    "dataset=zzz": ["there is no dataset 'zzz'", "abalone", "banana"],
    "method=[joint_logdlm]": ["there is no method 'joint_logdlm'", "joint_log_dlm"],
    "estimator=[bmcc]": ["there is no estimator 'bmcc'", "bmc"],
    "experiment=reg_log": ["there is no experiment 'reg_log'", "reg-log"],
    "beta=grit": ["there is no beta 'grit'", "grid"],
    "sede=[0]": ["there is no setting 'sede'", "seeds"],
    "training.binary.lrr=1": ["there is no setting 'training.binary.lrr'", "training.binary.lr"],
    "n=100": ["there is no setting 'n': write sizes="],
    "kernel=rbf": ["there is no setting 'kernel'", "dataset.NAME.kernel="],
    "method=ELBO": ["there is no method 'ELBO': did you mean elbo"],
    "csv.pth=x": ["there is no setting 'csv.pth'", "csv.path"],
    "seeds=[a]": ["seeds"],
    "training.binary.lr=fast": ["can't use training.binary.lr=fast: 'fast' is not a number"],
    "M=1.5": ["can't use M=1.5: '1.5' is not a whole number"],
    "plan=maybe": ["can't use plan=maybe: 'maybe' is not true or false"],
    "sizes=[1,2": ["can't read 'sizes=[1,2'"],
    "nonsense": ["can't read 'nonsense'"],
    "+sede=[0]": ["there is no setting 'sede'", "seeds"],
    "++training.binary.lrr=1": ["there is no setting 'training.binary.lrr'", "training.binary.lr"],
    "+dataset.twonorm_drawn.kernle=rbf": ["there is no setting", "did you mean dataset.twonorm_drawn.kernel"],
    "++csv.arrays={X:": ["can't read 'csv.arrays={X:': put all of it in quotes"],
    "dataset=null": ["can't compose 'dataset=null'"],
    "experiment=": ["there is no experiment ''", "reg-log"],
    "seeds=3": ["write it as a list, seeds=[3]"],
    "dataset=csv": ["csv.task is not set", "regression, binary, count"],
}


@pytest.mark.parametrize("word", SENTENCES)
def test_mistakes_become_one_sentence(word):
    with pytest.raises(UserError) as found:
        compose(with_default([word]))
    text = str(found.value)
    assert "\n" not in text
    assert len(text) < 600
    for part in SENTENCES[word]:
        assert part in text


def test_jobs_of_a_multirun():
    assert expand(["dataset=pol,cadata", "seeds=[0,1]"]) == [
        ["dataset=pol", "seeds=[0,1]"],
        ["dataset=cadata", "seeds=[0,1]"],
    ]
    assert len(expand(["dataset=pol,cadata", "method=[elbo],[fitc]", "device=cpu"])) == 4


def test_a_users_table_says_what_it_lacks():
    for words, said in (
        (["csv.task=regresion"], "csv.task=regresion: give one of regression, binary, count"),
        (["csv.task=binary"], "needs csv.path"),
        (["csv.task=binary", "csv.path=x.csv"], "needs csv.target"),
        (["csv.task=binary", "csv.path=x.npz"], r"needs csv.arrays: csv.path=FILE 'csv.arrays={X: NAME, y: NAME}'"),
        (
            ["csv.task=binary", "csv.path=x.csv", "csv.target=y", "csv.name=mall", "dataset.mall.M=5"],
            "no dataset 'mall', .* your own table are dataset.csv.M=",
        ),
    ):
        with pytest.raises(UserError, match=said):
            compose(["dataset=csv", *words])


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
    cfg = compose(spelled_out(shlex.split(command, comments=True)[2:]))
    assert cfg.parts or (cfg.dataset and cfg.method)
