"""Model files: what is written is read back, and nothing else is taken for a model."""

import io
import pickle

import numpy as np
import pytest

from dlmexp.errors import Unreadable
from dlmexp.models.file import ABOUT, decoded, encoded, lower_triangular
from tests.support.models import MIXED, made_up_model


def test_there_and_back():
    model = made_up_model(schema=MIXED)
    again = decoded(encoded(model))
    assert again.cell == model.cell
    assert again.schema == model.schema
    assert (again.y_mean, again.y_std, again.jitter) == (model.y_mean, model.y_std, model.jitter)
    assert again.hyper.keys() == model.hyper.keys()
    for name, value in model.hyper.items():
        np.testing.assert_array_equal(again.hyper[name], value)
    for name in ("m", "L"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    for name in ("mean", "std", "constant"):
        np.testing.assert_array_equal(getattr(again.normalisation, name), getattr(model.normalisation, name))
    assert encoded(again) == encoded(model)


def test_another_square_root_becomes_triangular():
    L = np.random.default_rng(0).normal(size=(6, 6))
    lower = lower_triangular(L)
    np.testing.assert_allclose(lower @ lower.T, L @ L.T, atol=1e-12)
    assert not np.triu(lower, 1).any()
    assert (np.diag(lower) > 0).all()


class _Evil:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was read",))


def _changed(**arrays):
    """The file of a model with some arrays replaced; None takes one away."""
    with np.load(io.BytesIO(encoded(made_up_model()))) as file:
        content = {name: file[name] for name in file.files} | {k.replace("__", "."): v for k, v in arrays.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value for name, value in content.items() if value is not None})
    return buffer.getvalue()


def _about(old, new):
    with np.load(io.BytesIO(encoded(made_up_model()))) as file:
        text = file[ABOUT].tobytes()
    assert old in text
    return _changed(about=np.frombuffer(text.replace(old, new), dtype=np.uint8))


WRONG = {
    "nothing": (lambda: b"", "npz file"),
    "half": (lambda: encoded(made_up_model())[:900], "npz file"),
    "text": (lambda: b"hello", "npz file"),
    "a pickle": (lambda: pickle.dumps(_Evil()), "npz file"),
    "a pickled array": (lambda: _changed(m=np.array([_Evil()] * 5, dtype=object)), "Python objects"),
    "no description": (lambda: _changed(about=None), "not a model"),
    "another description": (lambda: _changed(about=np.frombuffer(b"{}", dtype=np.uint8)), "missing required field"),
    "a newer format": (lambda: _about(b'"format":1', b'"format":9'), "newer"),
    "an unknown field of a cell": (lambda: _about(b'"kind":', b'"king":1,"kind":'), "unknown field"),
    "no mean": (lambda: _changed(m=None), "no array 'm'"),
    "no inducing inputs": (lambda: _changed(hyper__Z=None), "no array 'hyper.Z'"),
    "too few inducing inputs": (lambda: _changed(hyper__Z=np.zeros((4, 3))), "shape (4, 3), not (5, 3)"),
    "a square L": (lambda: _changed(L=np.eye(5)), "shape (5, 5), not (15,)"),
    "too many features": (lambda: _changed(X_mean=np.zeros(4)), "shape (4,), not (3,)"),
    "NaN": (lambda: _changed(m=np.full(5, np.nan)), "'m' is not finite"),
    "text in place of numbers": (lambda: _changed(m=np.array(list("abcde"))), "type"),
    "no spread": (lambda: _changed(X_std=np.zeros(3)), "not positive"),
    "a foreign array": (lambda: _changed(extra=np.zeros(3)), "an array 'extra'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_a_sound_model_is_refused(what):
    content, expected = WRONG[what]
    with pytest.raises(Unreadable) as refused:
        decoded(content())
    assert expected in str(refused.value)
