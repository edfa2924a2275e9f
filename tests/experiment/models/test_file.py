"""Model files: what is written is read back, and nothing else is taken for a model. Which file is
meant. No module is imported for a model whose record and file were made by a stranger."""

import io
import sys
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.experiment.models import file
from dlmexp.experiment.models.file import HEADER_ARRAY, decoded, encoded, lower_triangular
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.manifests import read_manifests, write_manifest
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.checkpoints import Checkpoint, save_checkpoint
from dlmexp.experiment.running.sweep import prepare_sweep
from tests.support.cells import made_up_model


def test_another_square_root_becomes_triangular():
    L = np.random.default_rng(0).normal(size=(6, 6))
    lower = lower_triangular(L)
    np.testing.assert_allclose(lower @ lower.T, L @ L.T, atol=1e-12)
    assert not np.triu(lower, 1).any()
    assert (np.diag(lower) > 0).all()


def test_square_roots_of_components_become_triangular_each_on_its_own():
    L = np.random.default_rng(0).normal(size=(3, 4, 4))
    lower = lower_triangular(L)
    for component, root in zip(lower, L, strict=True):
        np.testing.assert_allclose(component, lower_triangular(root), atol=1e-12)


def _changed(swap=(b"", b""), **arrays):
    """The file of a model with some arrays replaced (None takes one away) and a change of its
    description."""
    with np.load(io.BytesIO(encoded(made_up_model()))) as file:
        content = {name: file[name] for name in file.files} | {
            k.replace("__", "."): v for k, v in arrays.items()
        }
    if content[HEADER_ARRAY] is not None:
        content[HEADER_ARRAY] = np.frombuffer(
            content[HEADER_ARRAY].tobytes().replace(*swap), dtype=np.uint8
        )
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value for name, value in content.items() if value is not None})
    return buffer.getvalue()


@pytest.mark.parametrize("components", [1, 3])
def test_model_is_read_back_as_it_was_written(components):
    model = made_up_model(components=components)
    read = decoded(encoded(model))
    assert (read.cell, read.schema, read.y_mean, read.y_std, read.jitter) == (
        model.cell,
        model.schema,
        model.y_mean,
        model.y_std,
        model.jitter,
    )
    np.testing.assert_array_equal(read.L, model.L)
    np.testing.assert_array_equal(read.m, model.m)
    np.testing.assert_array_equal(read.normalisation.std, model.normalisation.std)
    assert read.hyper.keys() == model.hyper.keys()


WRONG = {
    "nothing": (lambda: b"", "npz file"),
    "half": (lambda: encoded(made_up_model())[:900], "npz file"),
    "no description": (lambda: _changed(**{HEADER_ARRAY: None}), "not a model"),
    "another description": (
        lambda: _changed(**{HEADER_ARRAY: np.array(b"{}")}),
        "missing required field",
    ),
    "a newer format": (lambda: _changed((b'"format":1', b'"format":9')), "newer"),
    "an unknown field of a cell": (
        lambda: _changed((b'"kind":', b'"king":1,"kind":')),
        "unknown field",
    ),
    "no mean": (lambda: _changed(m=None), "no array 'm'"),
    "no inducing inputs": (lambda: _changed(hyper__Z=None), "no array 'hyper.Z'"),
    "too few inducing inputs": (lambda: _changed(hyper__Z=np.zeros((4, 3))), "(5, 3)"),
    "a square L": (lambda: _changed(L=np.eye(5)), "(15,)"),
    "too many features": (lambda: _changed(X_mean=np.zeros(4)), "(3,)"),
    "NaN": (lambda: _changed(m=np.full(5, np.nan)), "'m' has values that are not finite"),
    "text in place of numbers": (lambda: _changed(m=np.array(list("abcde"))), "not hold numbers"),
    "no spread": (lambda: _changed(X_std=np.zeros(3)), "not positive"),
    "no spread of targets": (lambda: _changed((b'"y_std":2.0', b'"y_std":0.0')), "not positive"),
    "an unknown mean of targets": (
        lambda: _changed((b'"y_mean":3.0', b'"y_mean":NaN')),
        "not finite",
    ),
    "infinite spread of targets": (
        lambda: _changed((b'"y_std":2.0', b'"y_std":Infinity')),
        "not finite",
    ),
    "a negative jitter": (lambda: _changed(jitter=np.float64(-1e-9)), "jitter is negative"),
    "numbers in place of truth": (
        lambda: _changed(X_constant=np.zeros(3)),
        "a model has booleans of shape (3,) there",
    ),
    "infinite L": (lambda: _changed(L=np.full(15, np.inf)), "'L' has values that are not finite"),
    "infinite hyperparameter": (
        lambda: _changed(hyper__lengthscale=np.full(3, np.inf)),
        "'hyper.lengthscale' has values that are not finite",
    ),
    "a foreign array": (
        lambda: _changed(extra=np.zeros(3)),
        "an array 'extra', which no model has",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_unsound_model_is_refused_with_the_reason(what):
    content, expected = WRONG[what]
    with pytest.raises(Unreadable) as refused:
        decoded(content())
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(13, "Permission denied", "a.npz"), "Permission denied"),
        (OSError("the library has no number"), "the library has no number"),
    ],
)
def test_error_of_the_system_is_reported_with_its_reason(monkeypatch, error, reason):
    def read(path):
        raise error

    monkeypatch.setattr(file, "read_content", read)
    with pytest.raises(UserError) as refused:
        file.load_file(Path("a.npz"))
    assert str(refused.value) == f"'a.npz' can't be used as a model: {reason}"


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
    return [
        *(word for word in tiny if "options" not in word),
        "method=[elbo]",
        "seeds=[0]",
        "device=cpu",
    ]


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
    """A record with its model, as if it had another kernel: refused unless the user names the
    module as a plugin."""
    assert main(["run", *words, "results=own"]) == 0
    (path,) = Path("own").glob("records/*/*.model.npz")
    model, (asked,) = decoded(path.read_bytes()), read_manifests(Path("own"))
    pd.DataFrame([[0.1] * len(model.schema.features)], columns=model.schema.features).to_csv(
        "new.csv", index=False
    )
    (record,) = Store("own").own_records()
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
    """Cells of a checkpoint are trained to the end with those that the run asks for: they must be
    of one batch."""
    (cell,) = prepare_sweep(compose(words)).cells
    cells, store = (cell, replace(cell, kernel="evil.K")), Store("results")
    save_checkpoint(store, Checkpoint(cells, [0, 1]), {})
    assert main(["run", *words]) == 0
    assert not Path("imported").exists()
    assert store.keys()[0] == {cell.key}
