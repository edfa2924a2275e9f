"""Results of a plugin whose code has changed since: they are told, marked, and trained again on
request."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dlmexp.cli import main
from dlmexp.common.plugin_code import code_version
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import Store
from dlmexp.presentation.figures import notes

PLUGIN = """
from dlmexp.plugins import OBJECTIVES, Objective, kl

def row_loss(likelihood, estimator, q_f, y, draws):
    return likelihood.elbo_loss(q_f.mean, q_f.variance, y), None

OBJECTIVES.add("versioned", Objective("versioned", row_loss=row_loss, regulariser=kl))
"""
METHOD = "# @package method.versioned\nobjective: versioned\n"
WORDS = [
    "run", "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3",
    "sizes=[10]", "seeds=[0,1]", "method=[elbo,versioned]", "beta=list", "beta.values=[1]", "device=cpu",
    "training.binary.max_iterations=2", "plugins=[versioned_plugin]", "--config-dir", "conf",
]  # fmt: skip


@pytest.fixture
def plugin(here, monkeypatch):
    """The file of a plugin with an objective, which is used by a method."""
    path = here / "versioned_plugin.py"
    path.write_text(PLUGIN)
    (here / "conf" / "method").mkdir(parents=True)
    (here / "conf" / "method" / "versioned.yaml").write_text(METHOD)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr(OBJECTIVES, "_items", dict(OBJECTIVES._items))
    importlib.invalidate_caches()
    code_version.cache_clear()
    yield path
    sys.modules.pop("versioned_plugin", None)
    code_version.cache_clear()


def edit(plugin) -> None:
    plugin.write_text(PLUGIN + "# edited\n")
    code_version.cache_clear()


def versions() -> dict[str, set[str | None]]:
    """Return the versions of plugins in the records, by objective."""
    found: dict[str, set[str | None]] = {}
    for record in Store("results").own_records():
        found.setdefault(record.cell.objective, set()).add(record.made.plugins)
    return found


@pytest.mark.slow
def test_edited_plugin_is_told_and_its_cells_are_trained_again_on_request(plugin, capfd, caplog):
    assert main(WORDS) == 0
    before = versions()
    assert before["elbo"] == {None}
    assert len(before["versioned"]) == 1
    assert "another version" not in capfd.readouterr().out

    edit(plugin)
    assert main(WORDS) == 0
    said = capfd.readouterr().out
    assert "2 cells made by another version of versioned_plugin; rerun=changed trains" in said
    assert versions() == before

    assert main([*WORDS, "rerun=changed", "plan=true"]) == 0
    assert "2 to run in 1 batch" in capfd.readouterr().out
    assert versions() == before
    assert main([*WORDS, "rerun=changed"]) == 0
    after = versions()
    assert after["elbo"] == {None}
    assert after["versioned"] != before["versioned"]
    assert len(after["versioned"]) == 1
    assert main([*WORDS, "rerun=changed"]) == 0
    assert "another version" not in capfd.readouterr().out.partition("2 cells made by")[2]


@pytest.mark.slow
def test_tables_and_figures_tell_of_a_mixture_of_versions(plugin, capfd, caplog):
    words = [word.replace("seeds=[0,1]", "seeds=[0]") for word in WORDS]
    assert main(words) == 0
    edit(plugin)
    assert main(WORDS) == 0  # adds seed 1
    caplog.clear()
    assert main(["collect"]) == 0
    assert "2 versions of the plugin versioned_plugin made these results" in caplog.text
    table = pd.read_parquet("results/table.parquet")
    assert table["plugins"].nunique() == 2
    drawn: Any = SimpleNamespace(panel=SimpleNamespace(dataset="ringnorm_drawn"))
    other: Any = SimpleNamespace(panel=SimpleNamespace(dataset="banana"))
    results = ResultsFolder("results")
    (note,) = notes.plugin_versions([drawn], results)
    assert note.startswith("Warning: 2 versions of the plugin")
    assert notes.plugin_versions([other], results) == []
