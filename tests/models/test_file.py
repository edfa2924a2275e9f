"""Model files: what is written is read back, and nothing else is taken for a model. Which file is meant."""

import io
from dataclasses import asdict

import numpy as np
import pytest

from dlmexp.errors import Unreadable, UserError
from dlmexp.models.file import ABOUT, choose_models, decoded, encoded, lower_triangular
from dlmexp.records.results import load
from dlmexp.records.store import Manifest, Store, write_manifest
from tests.support.cells import candidates, scored
from tests.support.models import MIXED, made_up_model


def test_there_and_back():
    model = made_up_model(schema=MIXED)
    again = decoded(encoded(model))
    np.testing.assert_equal(asdict(again), asdict(model))
    assert encoded(again) == encoded(model)


def test_another_square_root_becomes_triangular():
    L = np.random.default_rng(0).normal(size=(6, 6))
    lower = lower_triangular(L)
    np.testing.assert_allclose(lower @ lower.T, L @ L.T, atol=1e-12)
    assert not np.triu(lower, 1).any()
    assert (np.diag(lower) > 0).all()


def _changed(swap=(b"", b""), **arrays):
    """The file of a model with some arrays replaced (None takes one away) and a change of its description."""
    with np.load(io.BytesIO(encoded(made_up_model()))) as file:
        content = {name: file[name] for name in file.files} | {k.replace("__", "."): v for k, v in arrays.items()}
    if content[ABOUT] is not None:
        content[ABOUT] = np.frombuffer(content[ABOUT].tobytes().replace(*swap), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value for name, value in content.items() if value is not None})
    return buffer.getvalue()


WRONG = {
    "nothing": (lambda: b"", "npz file"),
    "half": (lambda: encoded(made_up_model())[:900], "npz file"),
    "no description": (lambda: _changed(**{ABOUT: None}), "not a model"),
    "another description": (lambda: _changed(**{ABOUT: np.array(b"{}")}), "missing required field"),
    "a newer format": (lambda: _changed((b'"format":1', b'"format":9')), "newer"),
    "an unknown field of a cell": (lambda: _changed((b'"kind":', b'"king":1,"kind":')), "unknown field"),
    "no mean": (lambda: _changed(m=None), "no array 'm'"),
    "no inducing inputs": (lambda: _changed(hyper__Z=None), "no array 'hyper.Z'"),
    "too few inducing inputs": (lambda: _changed(hyper__Z=np.zeros((4, 3))), "shape (4, 3), not (5, 3)"),
    "a square L": (lambda: _changed(L=np.eye(5)), "shape (5, 5), not (15,)"),
    "too many features": (lambda: _changed(X_mean=np.zeros(4)), "shape (4,), not (3,)"),
    "NaN": (lambda: _changed(m=np.full(5, np.nan)), "'m' is not finite"),
    "text in place of numbers": (lambda: _changed(m=np.array(list("abcde"))), "no numbers"),
    "no spread": (lambda: _changed(X_std=np.zeros(3)), "not positive"),
    "a foreign array": (lambda: _changed(extra=np.zeros(3)), "an array 'extra'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_a_sound_model_is_refused(what):
    content, expected = WRONG[what]
    with pytest.raises(Unreadable) as refused:
        decoded(content())
    assert expected in str(refused.value)


def test_mistakes_in_the_choice_name_the_option_that_was_used(tmp_path):
    models = [made_up_model(seed=seed) for seed in (0, 1)]
    for model in models:
        record = scored(model.cell, nll=0.1)
        record.result.validation.clear()
        Store(tmp_path).write(record, model=encoded(model))
    write_manifest(tmp_path, Manifest("mine", [candidates("elbo", [model.cell]) for model in models]))
    with pytest.raises(UserError, match=f"plot: key=KEY, of ({models[0].cell.key}|{models[1].cell.key})"):
        choose_models(load(tmp_path), [], option="plot:")
    with pytest.raises(UserError, match=r"^plot: seed=0"):
        choose_models(load(tmp_path), ["seed=0"], every_seed=True, option="plot:")
