"""Models whose record and file were made by a stranger: no module of the stranger's choice is imported."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.models.file import encoded
from dlmexp.records.store import Store
from tests.support.cells import scored
from tests.support.models import made_up_model

MODULE = """
import gpytorch
from pathlib import Path
Path("imported").touch()
class K(gpytorch.kernels.RBFKernel):
    pass
"""
KERNELS = (
    "evil.K", "this.K", "os.system", "..K", ".K", "a..K", "K.", "evil.K\nimport evil", "gpytorch.kernels.RBFKernel\n",
    "gpytorch.kernels.PeriodicKernel", "gpytorch.kernels.SpectralMixtureKernel", "gpytorch.kernels.IndexKernel",
    "gpytorch.kernels.ScaleKernel", "matern53",
)  # fmt: skip
COMMANDS = ("predict new.csv", "export model.pt", "plot predictions")


def _fill(kernel: str, **hyper) -> None:
    """A folder with a model of that kernel, and in the current folder a module `evil`."""
    model = made_up_model(kernel=kernel)
    model.hyper.update(hyper)
    Store("results").write(scored(model.cell, nll=0.1), model=encoded(model))
    Path("evil.py").write_text(MODULE)
    pd.DataFrame({"x1": [0.1], "x2": [0.2], "x3": [0.3]}).to_csv("new.csv", index=False)


@pytest.fixture
def here(here, monkeypatch):
    """`evil` can be imported, and has not been."""
    monkeypatch.syspath_prepend(str(here))
    for name in ("evil", "this"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return here


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_forged_kernel(here, capsys, kernel):
    _fill(kernel)
    for command in COMMANDS:
        assert main(command.split()) == 2
        assert "dlmexp: " in capsys.readouterr().err
    assert not Path("imported").exists()
    assert not {"evil", "this"} & sys.modules.keys()
    assert not Path("model.pt").exists()


def test_a_kernel_of_a_plugin(here, capsys):
    model = made_up_model()
    _fill("evil.K", **{"kernel.raw_lengthscale": model.hyper["lengthscale"][None]})
    for command in COMMANDS[:2]:
        assert main(command.split()) == 2
        assert "plugins" in capsys.readouterr().err
    for command in COMMANDS[:2]:
        assert main(["--plugins", "evil", *command.split()]) == 0


def test_what_a_user_types_is_imported(here, tiny):
    Path("evil.py").write_text(MODULE)
    run = ["run", *tiny, "method=[elbo]", "seeds=[0]", "plan=true"]
    assert main([*run, "dataset.ringnorm_drawn.kernel=evil.K"]) == 0
    assert Path("imported").exists()


def test_a_checkpoint_brings_no_module(here, tiny, capsys):
    """Cells of a checkpoint are trained to the end with those that the run asks for: they must be of one batch."""
    from dlmexp.plan.compose import compose
    from dlmexp.running import checkpoint
    from dlmexp.running.sweep import prepare_sweep

    words = [*tiny, "method=[elbo]", "seeds=[0]"]
    (cell,) = prepare_sweep(compose(words)).cells
    Path("evil.py").write_text(MODULE)
    cells = (cell, replace(cell, kernel="evil.K"))
    store = Store("results")
    checkpoint.save(checkpoint.path_of(store, cells), cells, checkpoint.Notes([0, 1]), {})
    assert main(["run", *words]) == 0
    assert not Path("imported").exists()
    assert [record.cell for record in store.all()] == [cell]
