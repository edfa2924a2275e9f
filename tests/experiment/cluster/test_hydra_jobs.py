"""Sweepers, launchers and callbacks of Hydra's plugins, and Hydra's own words and flags."""

import sys
import textwrap
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from dlmexp.cli import main
from dlmexp.experiment.plan.compose import compose, expand, with_default_experiment
from dlmexp.experiment.plan.overrides import expand_shorthand
from dlmexp.experiment.records.store import Store

TINY = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3",
    "sizes=[10]", "method=[elbo]", "device=cpu", "training.max_iterations=2",
]  # fmt: skip


def jobs_of(*words: str) -> list[list[str]]:
    """Return the overrides of the jobs of a multirun."""
    return expand(with_default_experiment(expand_shorthand(words, multirun=True)))


@pytest.mark.parametrize(
    "sweep", ["training.lr=0.01,0.02", "training.max_iterations=5,6", "lengthscale=1,2"]
)
def test_setting_for_all_kinds_of_data_makes_a_job_for_each_value(sweep):
    assert len(jobs_of("dataset=pol", sweep)) == 2


def test_jobs_name_a_setting_for_all_kinds_of_data_once():
    """`status` and `logs` show these words."""
    (job,) = jobs_of("dataset=pol", "training.max_iterations=60")
    assert [word for word in job if "max_iterations" in word] == ["training.max_iterations=60"]


def test_setting_for_all_kinds_of_data_holds_but_for_those_that_are_named():
    words = ["training.lr=0.02", "training.binary.lr=0.5", "lengthscale=3"]
    training = compose(with_default_experiment(expand_shorthand(words))).training
    rates = {kind: (of_kind.lr, of_kind.minibatch_lr) for kind, of_kind in training.items()}
    assert rates.pop("binary") == (0.5, 0.02)
    assert set(rates.values()) == {(0.02, 0.02)}
    assert {of_kind.initial["lengthscale"] for of_kind in training.values()} == {3}


def test_yaml_file_sets_training_for_all_kinds_of_data(here):
    folder = here / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        textwrap.dedent("""\
        # @package _global_
        name: mine
        training: {max_iterations: 60, initial: {noise: 0.5}, binary: {max_iterations: 70}}
        """)
    )
    from dlmexp.common.extensions import use_extensions

    with use_extensions(str(here / "conf")):
        training = compose(["experiment=mine"]).training
        typed = compose(["experiment=mine", "training.max_iterations=80"]).training
    limits = {kind: of_kind.max_iterations for kind, of_kind in training.items()}
    assert limits == {"regression": 60, "binary": 70, "count": 60, "large": 60}
    assert {of_kind.initial["noise"] for of_kind in training.values()} == {0.5}
    assert {of_kind.max_iterations for of_kind in typed.values()} == {80}


def test_glob_chooses_names_of_files():
    jobs = jobs_of("dataset=glob(uci_s*,exclude=[uci_song,uci_small])")
    assert {"dataset=uci_sml", "dataset=uci_stock"} <= {job[0] for job in jobs}
    assert all(job[0].startswith("dataset=uci_s") for job in jobs)


def test_group_may_be_added_with_a_plus():
    assert compose(expand_shorthand(["+experiment=class-log"])).name == "class-log"


REFUSED = {
    "hydra.run.dir=x": "results=DIR",
    "-m hydra.sweep.dir=x": "results=DIR",
    "hydra.job.chdir=true": "hydra.launcher",
    "hydra/job_logging=default": "hydra.launcher",
    "hydra/sweeper=basic": "add -m",
    "-m training.lr=interval(0.1,0.2)": "hydra/sweeper=optuna",
    "-cn other": "experiment=NAME",
    "--config-name other": "experiment=NAME",
    "-cp other": "--config-dir",
    "--hydra-help": "--info",
    "-m hydra/sweeper=no_such": "sweeper",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_what_nothing_reads_is_refused_by_name(typed, here, refused):
    refused(["run", *typed.split()], REFUSED[typed])


def test_hydra_prints_its_settings_and_what_it_has_found(here, capsys):
    assert main(["run", "--cfg", "hydra", "--package", "hydra.sweeper"]) == 0
    assert "BasicSweeper" in capsys.readouterr().out
    assert main(["run", "--cfg", "job", "--resolve", "--package", "seeds", "seeds=[3]"]) == 0
    assert capsys.readouterr().out == "- 3\n"
    assert main(["run", "--info", "searchpath"]) == 0
    assert "/conf" in capsys.readouterr().out
    assert list(here.iterdir()) == []


SWEEPER = '''
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore


class Halving(BasicSweeper):
    """Runs two jobs, and keeps what they return, as optimisers do."""

    returned = []

    def sweep(self, arguments):
        for lr in (0.01, 0.02):
            (job,) = self.launcher.launch([[*arguments, f"training.lr={lr}"]], len(self.returned))
            self.returned.append(job.return_value)


node = {"_target_": "hydra_plugins.halving.Halving", "max_batch_size": None, "params": None}
ConfigStore.instance().store(group="hydra/sweeper", name="halving", node=node, provider="test")
'''


@pytest.fixture
def halving(here, monkeypatch):
    """The class of a sweeper, as a package of plugins brings it."""
    (here / "hydra_plugins").mkdir()
    (here / "hydra_plugins" / "halving.py").write_text(SWEEPER)
    monkeypatch.syspath_prepend(here)
    from hydra_plugins.halving import Halving  # pyright: ignore[reportMissingImports]

    monkeypatch.setitem(
        Plugins.instance().class_name_to_class, "hydra_plugins.halving.Halving", Halving
    )
    yield Halving
    sys.modules.pop("hydra_plugins.halving")


@pytest.mark.slow
def test_sweeper_receives_the_validation_metric_of_each_job(here, halving):
    assert main(["run", "-m", "hydra/sweeper=halving", *TINY, "seeds=[0]"]) == 0
    records = list(Store("results").own_records())
    by_rate = {record.cell.lr: record.result.validation["nll"] for record in records}
    assert halving.returned == pytest.approx([by_rate[0.01], by_rate[0.02]])


CALLBACK = """
from hydra.experimental.callback import Callback

class Noting(Callback):
    calls = []

    def on_job_end(self, config, job_return, **_):
        self.calls.append(job_return.status.name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["seeds=[0]"], ["-m", "seeds=[0],[1]"]])
def test_callbacks_are_called(here, monkeypatch, words):
    (here / "my_callback.py").write_text(CALLBACK)
    monkeypatch.syspath_prepend(here)
    import my_callback  # pyright: ignore[reportMissingImports]

    my_callback.Noting.calls.clear()
    callback = "+hydra.callbacks.noting._target_=my_callback.Noting"
    assert main(["run", callback, *TINY, *words]) == 0
    assert my_callback.Noting.calls == ["COMPLETED"] * (len(words) if "-m" in words else 1)


@pytest.mark.slow
def test_joblib_starts_the_jobs(here, capfd):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="hydra-joblib-launcher")
    words = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *TINY, "seeds=[0],[1]"]
    assert main(["run", *words]) == 0
    out = capfd.readouterr().out
    assert out.count("JoblibLauncher starts the jobs: none of them is submitted again") == 1
    assert {record.cell.seed for record in Store("results").own_records()} == {0, 1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the plugin's Optuna is of 2022, and warns of SQLAlchemy
def test_optuna_chooses_the_jobs_and_minimises_their_validation_metric(here, capfd):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper")
    sweeper = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1"]
    lr = "training.lr=interval(0.01,0.3)"
    words = ["-m", *sweeper, "hydra.sweeper.direction=minimize", lr, *TINY, "seeds=[0]"]
    assert main(["run", *words]) == 0
    losses = {}
    for record in Store("results").own_records():
        losses[record.cell.lr] = record.result.validation["nll"]
    assert len(losses) == 3
    (path,) = Path("results").glob("**/optimization_results.yaml")
    best = OmegaConf.load(path)
    assert best.best_value == min(losses.values())
    assert losses[best.best_params["training.lr"]] == best.best_value


@pytest.mark.slow
def test_ray_starts_the_jobs(here, capfd):
    pytest.importorskip("hydra_plugins.hydra_ray_launcher", reason="hydra-ray-launcher")
    words = ["-m", "hydra/launcher=ray", *TINY, "seeds=[0],[1]"]
    assert main(["run", *words]) == 0
    out = capfd.readouterr().out
    assert out.count("RayLauncher starts the jobs: none of them is submitted again") == 1
    assert {record.cell.seed for record in Store("results").own_records()} == {0, 1}
