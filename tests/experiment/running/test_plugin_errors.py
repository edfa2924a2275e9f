"""Exceptions in a plugin: its cells fail with file and line, and everything else goes on."""

import importlib
import json
import sys

import pytest

from dlmexp.cli import main
from dlmexp.common.plugin_code import code_version
from dlmexp.experiment.records.store import Store
from dlmexp.plugins import CLAIMS, LOADERS, OBJECTIVES

OBJECTIVE = """
import torch
from dlmexp.plugins import OBJECTIVES, Objective, kl

def row_loss(likelihood, estimator, q_f, y, draws):
    {mistake}
    return likelihood.elbo_loss(q_f.mean, q_f.variance, y), None

OBJECTIVES.add("breaks", Objective("breaks", row_loss=row_loss, regulariser=kl))
"""
METHOD = "# @package method.breaks\nobjective: breaks\nselect: false\n"
SMALL = [
    "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3", "sizes=[10]", "seeds=[0,1]",
    "device=cpu", "training.binary.max_iterations=2",
]  # fmt: skip
RUN = ["run", "dataset=ringnorm_drawn", *SMALL, "plugins=[breaking_plugin]", "--config-dir", "conf"]


@pytest.fixture
def plugin(here, monkeypatch):
    """A function that writes the code of a plugin, whose objective is that of a method."""

    def write(code: str) -> None:
        (here / "breaking_plugin.py").write_text(code)
        importlib.invalidate_caches()
        code_version.cache_clear()

    (here / "conf" / "method").mkdir(parents=True)
    (here / "conf" / "method" / "breaks.yaml").write_text(METHOD)
    monkeypatch.syspath_prepend(here)
    for registry in (CLAIMS, LOADERS, OBJECTIVES):
        registry.names()
        monkeypatch.setattr(registry, "_items", dict(registry._items))
        monkeypatch.setattr(registry, "_module_of", dict(registry._module_of))
    yield write
    sys.modules.pop("breaking_plugin", None)
    code_version.cache_clear()


def statuses() -> dict[str, set[str]]:
    """Return the states of cells by their objective."""
    found: dict[str, set[str]] = {}
    for record in Store("results").own_records():
        found.setdefault(record.cell.objective, set()).add(record.status)
    return found


@pytest.mark.slow
def test_cells_of_an_objective_that_raises_fail_and_the_others_are_trained(plugin, capfd):
    plugin(OBJECTIVE.format(mistake="raise ValueError('no such noise')"))
    assert main([*RUN, "method=[breaks,elbo]"]) == 1
    out = capfd.readouterr().out
    assert "error in breaking_plugin.py:6: ValueError: no such noise" in out
    assert "2 of 4 cells done, 2 failed" in out
    assert statuses() == {"breaks": {"failed"}, "elbo": {"done"}}


def test_status_shows_the_traceback_once(plugin, capfd):
    plugin(OBJECTIVE.format(mistake="missing_name"))
    assert main([*RUN, "method=[breaks]"]) == 1
    capfd.readouterr()
    assert main(["status", "--failed"]) == 0
    out = capfd.readouterr().out
    assert out.count("error in breaking_plugin.py:6: NameError") == 2
    assert out.count("Traceback (most recent call last)") == 1
    assert "    missing_name" in out
    assert main(["status", "--failed", "--json"]) == 0
    (experiment,) = json.loads(capfd.readouterr().out)["experiments"]
    assert "missing_name" in experiment["failures"][0]["traceback"]


def test_error_in_one_batch_leaves_the_others_done(plugin):
    """Nor does it leave a checkpoint."""
    at_seed_1 = "if draws.seeds.tolist() == [1]: raise RuntimeError('seed 1')"
    plugin(OBJECTIVE.format(mistake=at_seed_1))
    assert main([*RUN, "method=[breaks]", "batch_cells=1"]) == 1
    states = {record.cell.seed: record.status for record in Store("results").own_records()}
    assert states == {0: "done", 1: "failed"}
    assert not list(Store("results").root.glob("checkpoints/*.npz"))


@pytest.mark.slow
def test_mended_plugin_trains_the_failed_cells(plugin):
    plugin(OBJECTIVE.format(mistake="raise ValueError"))
    assert main([*RUN, "method=[breaks]"]) == 1
    sys.modules.pop("breaking_plugin")
    OBJECTIVES._items.pop("breaks")
    plugin(OBJECTIVE.format(mistake=""))
    assert main([*RUN, "method=[breaks]", "retry_failed=true"]) == 0
    assert statuses() == {"breaks": {"done"}}


def test_wrong_closed_form_is_refused_before_anything_is_written(plugin, here, capfd):
    plugin("""
from dlmexp.plugins import OBJECTIVES, Objective
elbo = OBJECTIVES["elbo"]
def collapsed(problem, beta):
    closed = elbo.collapsed(problem, beta)
    return closed._replace(L=closed.L.mT)
OBJECTIVES.add("breaks", Objective("breaks", collapsed=collapsed, needs_gaussian=True))
""")
    words = [*RUN, "dataset=gp_constant", "dataset.gp_constant.options.rows=60", "method=[breaks]"]
    words = [word for word in words if "ringnorm" not in word and "binary" not in word]
    assert main(words) == 2
    assert "objective 'breaks': L of collapsed is not lower triangular" in capfd.readouterr().err
    assert not (here / "results").exists()


@pytest.mark.slow
def test_dataset_whose_loader_raises_is_left_out(plugin, here, capfd):
    plugin("""
from dlmexp.plugins import LOADERS
@LOADERS.register("broken")
def broken(spec, files):
    return 1 / 0
""")
    (here / "conf" / "dataset").mkdir()
    (here / "conf" / "dataset" / "broken.yaml").write_text(
        "# @package dataset.broken\nname: broken\nloader: broken\ntask: binary\nlikelihood: probit\n"
        "kernel: rbf\nmean: constant\nM: 3\nsizes: [10]\nsplit: counts\n"
    )
    words = [word for word in RUN if not word.startswith("dataset=")]
    assert main([*words, "dataset=[broken,ringnorm_drawn]", "method=[elbo]"]) == 0
    line = (
        "left out: dataset 'broken' can't be read: error in breaking_plugin.py:5: ZeroDivisionError"
    )
    assert line in capfd.readouterr().out


@pytest.mark.slow
def test_claim_that_raises_is_not_tested(plugin, capfd):
    plugin("""
from dlmexp.plugins import claim
@claim(100, "our note", text="All is well.")
def all_is_well(evidence):
    yield evidence.no_such_method()
""")
    assert main(["run", "dataset=ringnorm_drawn", *SMALL, "method=[elbo]"]) == 0
    capfd.readouterr()
    assert main(["--plugins", "breaking_plugin", "claims"]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert "not tested: error in breaking_plugin.py:5: AttributeError" in out
