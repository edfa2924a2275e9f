"""npz files of strangers."""

import pickle

import numpy as np
import pytest

from dlmexp.data.parsers.npz import read_npz
from dlmexp.errors import UserError


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_refused_unread(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([Bomb()], dtype=object))
    with pytest.raises(UserError, match="without pickles"):
        read_npz(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError, match="without pickles"):
        read_npz(tmp_path / "b.npz")


def test_sizes_are_bounded(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros(100_000))
    with pytest.raises(UserError, match="more than 1000: refused"):
        read_npz(tmp_path / "a.npz", limit=1000)
    assert list(read_npz(tmp_path / "a.npz")) == ["X"]
