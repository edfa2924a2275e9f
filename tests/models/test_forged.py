"""Models whose record and file were made by a stranger: no module of the stranger's choice is imported."""

import sys
from dataclasses import replace as changed
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.models.file import decoded, encoded
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store, read_manifests, write_manifest
from dlmexp.running.recording import Checkpoint, save_checkpoint
from dlmexp.running.sweep import prepare_sweep

MODULE = """
import gpytorch
from pathlib import Path
Path("imported").touch()
class K(gpytorch.kernels.RBFKernel):
    pass
"""
KERNELS = (
    "evil.K", "this.K", "os.system", "..K", "K.", "evil.K\nimport evil", "gpytorch.kernels.RBFKernel\n",
    "gpytorch.kernels.PeriodicKernel", "gpytorch.kernels.ScaleKernel", "matern53",
)  # fmt: skip
COMMANDS = ("predict new.csv", "export model.pt", "plot predictions")


@pytest.fixture
def words(tiny):
    return [*(word for word in tiny if "options" not in word), "method=[elbo]", "seeds=[0]", "device=cpu"]


@pytest.fixture
def here(here, monkeypatch):
    """`evil` can be imported, and has not been."""
    monkeypatch.syspath_prepend(str(here))
    for name in ("evil", "this"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("evil.py").write_text(MODULE)
    return here


@pytest.mark.slow
def test_forged_kernels(here, words, capsys):
    """A record with its model, as if it had another kernel: refused unless the user names the module as a plugin."""
    assert main(["run", *words, "results=own"]) == 0
    (path,) = Path("own").glob("records/*/*.model.npz")
    model, (asked,) = decoded(path.read_bytes()), read_manifests(Path("own"))
    pd.DataFrame([[0.1] * len(model.schema.features)], columns=model.schema.features).to_csv("new.csv", index=False)
    record = Store("own").find(model.cell.dataset, model.cell.key)
    assert record is not None
    hyper = model.hyper | {"kernel.raw_lengthscale": model.hyper["lengthscale"][None]}
    for i, kernel in enumerate(KERNELS):
        cell = replace(record.cell, kernel=kernel)
        forged = changed(model, cell=cell, hyper=hyper if kernel == "evil.K" else model.hyper)
        Store(f"forged{i}").write(replace(record, cell=cell, key=cell.key), model=encoded(forged))
        candidates = [replace(asked.candidates[0], keys=(cell.key,))]
        write_manifest(Path(f"forged{i}"), replace(asked, candidates=candidates))
        for command in COMMANDS if i < 2 else COMMANDS[:1]:
            capsys.readouterr()
            assert main([*command.split(), "--results", f"forged{i}"]) == 2, kernel
            said = capsys.readouterr().err.partition("dlmexp: ")[2]
            assert ("--plugins evil" if kernel == "evil.K" else "kernel") in said
    assert not Path("imported").exists()
    assert not {"evil", "this"} & sys.modules.keys()
    assert not Path("model.pt").exists()
    for command in COMMANDS[:2]:
        assert main(["--plugins", "evil", *command.split(), "--results", "forged0"]) == 0


def test_what_a_user_types_is_imported(here, words):
    assert main(["run", *words, "plan=true", "dataset.ringnorm_drawn.kernel=evil.K"]) == 0
    assert Path("imported").exists()


@pytest.mark.slow
def test_a_checkpoint_brings_no_module(here, words):
    """Cells of a checkpoint are trained to the end with those that the run asks for: they must be of one batch."""
    (cell,) = prepare_sweep(compose(words)).cells
    cells, store = (cell, replace(cell, kernel="evil.K")), Store("results")
    save_checkpoint(store, Checkpoint(cells, [0, 1]), {})
    assert main(["run", *words]) == 0
    assert not Path("imported").exists()
    assert store.keys()[0] == {cell.key}
