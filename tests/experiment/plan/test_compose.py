"""From what people type to what it means, and to a config; and what is refused before anything
runs, by a sentence that names it: single values, and what goes with what."""

import re
import shlex
from contextlib import suppress

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.common.errors import UserError
from dlmexp.common.extensions import use_extensions
from dlmexp.common.paths import conf_dir
from dlmexp.experiment.plan.compose import compose, expand, experiment_configs
from dlmexp.experiment.plan.overrides import expand_shorthand
from dlmexp.experiment.running.sweep import prepare_sweep
from tests.conftest import REPOSITORY
from tests.support.cells import planned


@pytest.mark.slow
@pytest.mark.parametrize("chain", [["x"], ["x", "y", "z"]])
def test_an_experiment_that_is_a_part_of_itself(tmp_path, refused, chain):
    (tmp_path / "experiment").mkdir()
    for name, following in zip(chain, [*chain[1:], chain[0]], strict=True):
        text = (
            f"# @package _global_\nname: {name}\nparts: [[experiment={following}, 'seeds=[1]']]\n"
        )
        (tmp_path / "experiment" / f"{name}.yaml").write_text(text)
    typed = ["run", "--config-dir", str(tmp_path), "experiment=x", "plan=true"]
    refused(typed, f"experiment={[*chain, *chain][1]}")


@pytest.mark.slow
def test_what_is_typed_holds_for_all_parts_but_what_a_part_says_itself():
    cfg = compose(["experiment=selection", "preset=quick", "seeds=[7]", "sizes=[33]"])
    assert cfg.name == "selection-quick"
    small = experiment_configs(cfg)
    assert len(small) > 3
    assert {(part.preset, *part.seeds) for part in small} == {("quick", 7)}
    assert {str(part.sizes) for part in small} == {"[33]", "['5%']"}
    assert {part.training["binary"].max_iterations for part in small} == {200}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ([], {"bmc": [1, 10, 100], "ups": [1, 10, 100]}),
        (["estimator=ups"], {"ups": [1, 10, 100]}),
        (["~estimator.bmc"], {"ups": [1, 10, 100]}),
        (["estimator=[bmc]", "estimator.ups.samples=[5]"], {"bmc": [1, 10, 100], "ups": [5]}),
    ],
)
def test_an_experiments_options_select_no_estimator_that_the_user_left_out(
    typed: list[str], expected: dict
):
    made = compose(["experiment=count-learning", *typed]).estimator
    assert {name: options["samples"] for name, options in made.items()} == expected


def test_jobs_of_a_multirun():
    jobs = [["dataset=pol", "seeds=[0,1]"], ["dataset=cadata", "seeds=[0,1]"]]
    assert expand(["dataset=pol,cadata", "seeds=[0,1]"]) == jobs
    assert len(expand(["dataset=pol,cadata", "method=[elbo],[fitc]", "device=cpu"])) == 4
    endless = "seeds=shuffle(range(0,1000000000))"
    for many in ([endless], [f"{name}=range(0,1000)" for name in ("M", "largest")]):
        with pytest.raises(UserError, match=re.escape(many[-1])):
            expand(many)


def test_a_file_of_a_user_with_a_name_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("DLMEXP_CONFIG_DIRS", str(tmp_path))
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "banana.yaml").write_text("# @package dataset.banana\nname: banana\n")
    with pytest.raises(UserError, match=r"banana\.yaml: we have a dataset of that name"):
        compose(["dataset=banana"])


# The sdist has no results.
PAGES = [
    (REPOSITORY / name).read_text(encoding="utf-8")
    for name in ("README.md", "results/paper/README.md")
    if (REPOSITORY / name).exists()
]
COMMANDS = [
    line.strip()
    for page in PAGES
    for line in page.splitlines()
    if line.strip().startswith("dlmexp run ")
]
COMMANDS += [
    f"dlmexp run experiment={path.stem}"
    for path in sorted((conf_dir() / "experiment").glob("*.yaml"))
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_experiment_and_every_command_of_readmes_composes(command: str):
    words = shlex.split(command, comments=True)[2:]
    cfg = compose(
        expand(expand_shorthand([word for word in words if word != "-m"], "-m" in words))[0]
    )
    cfg.parts = cfg.parts[:2]  # the whole paper has many, and each takes its time
    assert all(part.name and part.dataset and part.method for part in experiment_configs(cfg))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("beta=0.1", ["beta=list", "beta.values=[0.1]"]),
        ("beta=0.1,1", ["beta=list", "beta.values=[0.1,1]"]),
        ("beta=short", ["beta=short"]),
        ("seeds=5", ["seeds=[0,1,2,3,4]"]),
        ("seeds=3,5", ["seeds=[3,5]"]),
        ("sizes=1000", ["sizes=[1000]"]),
        ("method=elbo,fitc", ["method=[elbo,fitc]"]),
        ("parameterisation=whitened", ["parameterisation=[whitened]"]),
        ("csv.sep=;", ["csv.sep=';'"]),
        ("csv.path=it's (1).csv", [r"csv.path='it\'s (1).csv'"]),
        ("beta=[]", ["beta=list", "beta.values=[]"]),
        ("training.initial.noise=2", ["++training.initial.noise=2"]),
        ("lengthscale=2", ["++training.initial.lengthscale=2"]),
        ("training.epochs=3", ["training.epochs=3"]),
        ("results=~/runs", ["results='/home/ada/runs'"]),  # shells would not: a folder called `~`
        ("csv.target=~y", ["csv.target='~y'"]),
    ],
)
def test_what_is_meant(typed, meant, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert expand_shorthand([typed]) == meant
    assert expand_shorthand(expand_shorthand([typed])) == meant


@given(st.text(max_size=30) | st.just("~\0"))
def test_anything_can_be_typed(text):
    assert expand_shorthand([text])
    assert expand_shorthand([f"csv.path={text}"])[0].startswith("csv.path=")
    with suppress(UserError):
        assert expand_shorthand([f"seeds={text}"])[0].startswith("seeds=")


def test_a_learning_rate_for_all_kinds_of_data():
    cfg = compose(
        expand_shorthand(["training.binary.lr=0.5", "training.lr=0.01", "dataset=banana"])
    )
    assert cfg.training["binary"].lr == 0.5, "what is said of one kind wins, wherever it stands"
    for kind in ("regression", "count", "large"):
        assert (cfg.training[kind].lr, cfg.training[kind].minibatch_lr) == (0.01, 0.01)
    assert cfg.training["count"].estimator_lr == {"ups": 0.01}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("", ""),
        ("sizes=[20,1000000]", "1000000"),
        ("sizes=[20,40,90] M=40", "M = 20 in place of 40"),
    ],
)
def test_what_is_not_done_as_typed_is_said(words, note):
    tiny = [
        "dataset=ringnorm_drawn",
        "dataset.ringnorm_drawn.options.rows=200",
        "method=elbo",
        "seeds=1",
        "sizes=20",
    ]
    notes = prepare_sweep(compose(expand_shorthand([*tiny, *words.split()]))).notes
    assert (note in "".join(notes), len(notes)) == (True, len(note) > 0)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hydra.launcher.partition=a,b", "hydra.launcher.partition='a,b'"),
        ("hydra.launcher.partition='a,b'", "hydra.launcher.partition='a,b'"),
        ("hydra.launcher.setup=module load cuda", "hydra.launcher.setup=[module load cuda]"),
        ("hydra.launcher.setup=['echo a, b']", "hydra.launcher.setup=['echo a, b']"),
        ("seeds=0,1", "seeds=[0],[1]"),
        ("dataset=pol,cadata", "dataset=pol,cadata"),
    ],
)
def test_commas_in_a_multirun_are_jobs_but_for_settings_of_the_launcher(typed, meant):
    (spelled,) = expand_shorthand([typed], multirun=True)
    assert spelled == meant
    assert OverridesParser.create().parse_override(spelled).is_sweep_override() == (
        not typed.startswith("hydra")
    )


POL, FLOOR = "dataset=pol sizes=[60]", "training.regression.noise_floor"
GRID = "method=[beta_elbo] beta.first=1 beta.ratio=1.1 beta.smallest=0.01"
REFUSED = {
    "training.binary.lr=0": "training.binary.lr=0", "training.binary.criterion=x": "criterion=x",
    "training.binary.lr=11": "lr=11", "training.binary.epsilon=inf": "epsilon=inf", "sizes=[]": "sizes=[]",
    "training.binary.tolerance=nan": "tolerance=nan", "training.count.estimator_lr.ups=0": "ups:0",
    "seeds=[0,-1]": "-1", "parameterisation=[all,x]": "x", "+training.other={lr:1}": "training.other",
    "name=''": "name=", "method=[]": "method",
    "beta.ratio=1": "beta.ratio=1", "dataset.banana.M=0": "dataset.banana.M=0",
    "training.binary.lr=true": "lr=true", "seeds=[[1]]": "seeds", "seeds=3": "seeds",
    "csv.columns=[[a]]": "csv.columns", "++training.binary.initial={a:[1]}": "initial",
    "training.binary.initial={1:2}": "initial", "training.binary=5": "training.binary",
    "method=[joint_sq_dlm]": "joint_sq_dlm", "method=[fitc]": "fitc", "estimator.exact.samples=[0]": "exact",
    "training.binary.final_lr=0.01": "training.binary", "training.binary.initial.lengthscale=0": "lengthscale=0",
    "dataset.banana.name=../../x": "../../x", "dataset.banana.kernel=rbff": "rbff",
    "dataset.banana.likelihood=probt": "probt", "dataset.banana.likelihood=poisson": "poisson",
    "method.elbo.objective=log_dlm": "method.elbo", "method.elbo.variant=fixed": "method.elbo",
    "dataset.banana.name=ringnorm": "'ringnorm'", "dataset.banana.loader=table": "'banana'",
    "dataset.banana.options.checks.positives=3": "'banana'", "~training.binary": "training.binary",
    "~training.binary.lr": "training.binary.lr",
    "estimator=[bmc] estimator.bmc.samples=[]": "estimator.bmc.samples", "estimator=[bmc] +estimator.bmc.nu=1": "nu",
    "estimator=[bmc] estimator.bmc.samples=[-2]": "samples=-2",
    "estimator=[quadrature] estimator.quadrature.nodes=0": "nodes=0",
    "estimator=[ups] estimator.ups.sampler=atuo": "auto", "estimator=[smooth_bmc] estimator.smooth_bmc.nu=a": "nu=a",
    "estimator=[bmc] estimator.bmc.samples=[9999999]": "9999999",
    "estimator=[bmc] estimator.bmc.samples=null": "estimator.bmc.samples=null",
    "estimator=[bmc] estimator.bmc.samples=1.5": "estimator.bmc.samples=1.5",
    "estimator=[bmc] ~estimator.bmc.samples": "samples", f"{GRID} beta.first=1e-310": "beta.first=1e-310",
    f"{GRID} beta.ratio=1.0000001": "beta.ratio=1.0000001", f"{GRID} beta.smallest=1e-300": "beta.smallest=1e-300",
    f"{GRID} beta.coarse_above=0.5 beta.coarse_ratio=1.000000000000001": "beta.coarse_ratio=1.000000000000001",
    f"{GRID} beta.ratio=null": "beta.ratio", f"{GRID} beta.smallest=null": "beta.smallest",
    f"{GRID} beta.coarse_above=0.5 beta.coarse_ratio=null": "beta.coarse_ratio",
    "protocol=annealed training.binary.max_iterations=300": "6500",
    "sizes=[-5]": "size '-5'", "sizes=[many]": "size 'many'", "sizes=['150%']": "150%", "evaluate=epoch": "evaluate=",
    "evaluate=0": "evaluate=0",
    "training.binary.noise_floor=0.01": "banana", f"{POL} {FLOOR}=0.1": "noise_floor=0.1",
    f"{POL} training.regression.initial.noise=0.005 {FLOOR}=0.01": "0.005",
    f"{POL} method=[mine]": "base=fitc",  # which gives no hyperparameters
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_go_together_is_refused(words, monkeypatch, tmp_path):
    monkeypatch.chdir(REPOSITORY)
    (tmp_path / "method").mkdir()
    text = "# @package method.mine\nobjective: log_dlm\nvariant: fixed\nbase: fitc\n"
    (tmp_path / "method" / "mine.yaml").write_text(text)
    with use_extensions(str(tmp_path)), pytest.raises(UserError) as refused:
        planned("dataset=banana", *words.split())
    assert REFUSED[words] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_registered_estimator_without_a_file_is_told(monkeypatch):
    from dlmexp.core.estimators import ESTIMATORS, Exact

    monkeypatch.setattr(ESTIMATORS, "_items", {**ESTIMATORS._items, "mine": Exact})
    with pytest.raises(UserError, match=r"estimator=mine: it is registered.*estimator/mine\.yaml"):
        compose(["estimator=[mine]", "dataset=pol"])
