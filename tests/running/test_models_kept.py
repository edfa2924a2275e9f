"""Models beside records: what `keep=` leaves in the folder after whole runs, also interrupted ones."""

import random
import signal
import time

import pytest

from dlmexp.cli import main
from dlmexp.models.file import decoded
from dlmexp.records.results import load
from dlmexp.records.store import Store
from tests.support.processes import comparable

SLOW = ["training.binary.max_iterations=200", "training.binary.tolerance=0.0"]


def _kept(folder="results"):
    """Keys with a sound model, which is that of the record."""
    store = Store(folder)
    files, records = store.keys_with_models(), {record.key: record for record in store.own()}
    for key, paths in files.items():
        assert len(paths) == 1
        cell = records[key].cell
        written = store.model(cell.dataset, key, records[key].model)
        assert written is not None
        assert decoded(written).cell == cell
    return set(files)


def _selected(folder="results"):
    return set(load(folder).table["key"])


@pytest.mark.slow
def test_keep(here, tiny, capsys):
    words = [*tiny, "method=[elbo,joint_log_dlm]"]
    assert main(["run", *words, "results=selected"]) == 0
    assert main(["run", *words, "results=all", "keep=all"]) == 0
    assert main(["run", *words, "results=none", "keep=none"]) == 0
    assert _kept("selected") == _selected("selected")
    assert len(_kept("selected")) == 4  # 2 seeds, 2 methods
    assert len(_kept("all")) == 8
    assert _kept("none") == set()
    assert comparable(here / "selected") == comparable(here / "all") == comparable(here / "none")


@pytest.mark.slow
def test_two_parts_of_a_grid_that_know_nothing_of_each_other(here, tiny, capsys):
    """Seeds in two runs, as in two jobs of a cluster; and betas in two runs, each a selection of its own."""
    for seeds in ("seeds=[0]", "seeds=[1]"):
        assert main(["run", *tiny, "method=[joint_log_dlm]", seeds]) == 0
    assert len(_kept()) == 2
    for betas in ("beta.values=[10]", "beta.values=[1]"):
        assert main(["run", *tiny, "method=[joint_log_dlm]", "results=apart", betas]) == 0
    assert len(_kept("apart")) == 4
    assert main(["run", *tiny, "method=[joint_log_dlm]", "results=apart", "beta.values=[10,1]"]) == 0
    assert len(_kept("apart")) == 4, "the earlier runs still keep theirs"


@pytest.mark.processes
def test_killed_at_random_moments_no_selected_model_is_lost(launcher, here, tiny):
    words = [*tiny, *SLOW, "batch_cells=4", "checkpoint_seconds=0.05"]
    chance = random.Random(1)
    for _ in range(4):
        process = launcher.start(here, "run", *words)
        time.sleep(chance.uniform(0.05, 0.6))
        process.send(signal.SIGKILL)
        process.wait()
    code, said = launcher.run(here, "run", *words, log="last")
    assert code == 0, said
    assert _kept(here / "results") == _selected(here / "results")
