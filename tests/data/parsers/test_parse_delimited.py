"""Comma-separated files without a header."""

import zipfile

import numpy as np
import pytest

from dlmexp.data.parsers.delimited import abalone, label_last, song
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError
from dlmexp.reading.tables import read_numbers


def spec(loader: str, features: int | None) -> DatasetSpec:
    return DatasetSpec("made_up", loader, "regression", "regression", features=features)


def test_blanks_around_numbers_and_windows_line_ends(tmp_path):
    (tmp_path / "f").write_bytes(b"-1.2036, 2.5, 1\r\n 0.1713, -1e-3, 0\r\n")
    assert read_numbers(tmp_path / "f", 3).tolist() == [[-1.2036, 2.5, 1], [0.1713, -1e-3, 0]]


def test_numbers_are_rounded_correctly(tmp_path):
    values = np.random.default_rng(0).normal(size=(500, 3)) * 10.0 ** np.arange(-3, 6, 3)
    (tmp_path / "f").write_text("\n".join(",".join(repr(float(v)) for v in row) for row in values))
    assert np.array_equal(read_numbers(tmp_path / "f", 3), values)


def test_an_empty_field_becomes_nan(tmp_path):
    (tmp_path / "f").write_text("1,2\n,4\n")
    assert np.isnan(read_numbers(tmp_path / "f", 2)).tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize("text", ["1,2\n3\n", "1,2\n3,x\n", "1,2,3\n", ""])
def test_invalid_tables_are_refused(tmp_path, text):
    (tmp_path / "f").write_text(text)
    with pytest.raises(UserError, match="f is not a table of 2 numbers per line"):
        read_numbers(tmp_path / "f", 2)


def test_labels_become_zero_and_one(tmp_path):
    (tmp_path / "f").write_text("1.14,-0.114,-1.0\n-1.52,-1.15,1.0\n")
    parsed = label_last(spec("label_last", 2), {"f": tmp_path / "f"})
    assert parsed.y.tolist() == [0.0, 1.0]
    assert parsed.X.tolist() == [[1.14, -0.114], [-1.52, -1.15]]
    with pytest.raises(UserError, match="needs 'features'"):
        label_last(spec("label_last", None), {"f": tmp_path / "f"})


def test_abalone_encodes_sex_as_two_columns(tmp_path):
    (tmp_path / "f").write_text("M,1,2,3,4,5,6,7,15\nF,1,2,3,4,5,6,7,9\nI,1,2,3,4,5,6,7,0\n")
    parsed = abalone(spec("abalone", 9), {"f": tmp_path / "f"})
    assert parsed.X[:, :2].tolist() == [[0, 0], [1, 0], [0, 1]]
    assert parsed.X[0, 2:].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert parsed.y.tolist() == [15, 9, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M,1,2,3,4,5,6,7,15\nX,1,2,3,4,5,6,7,9\n", "line 2: .*found 'X"),
        ("M,1,2\n", "line 1"),
        ("\xe9,1\n", "line 1"),
        ("M,1,2,3,4,5,6,7,a\n", ""),
    ],
)
def test_bad_abalone_files_are_named(tmp_path, text, message):
    (tmp_path / "f").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=f"f.*{message}"):
        abalone(spec("abalone", 9), {"f": tmp_path / "f"})


@pytest.mark.parametrize("packed", [True, False])
def test_song_takes_the_first_column_as_target(tmp_path, packed):
    text = "2001,49.9,21.4\n1965,-3.5,1e2\n"
    path = tmp_path / ("YearPredictionMSD.txt.zip" if packed else "YearPredictionMSD.txt")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("YearPredictionMSD.txt", text)
    else:
        path.write_text(text)
    parsed = song(spec("song", 2), {"song": path})
    assert parsed.y.tolist() == [2001, 1965]
    assert parsed.X.tolist() == [[49.9, 21.4], [-3.5, 100]]
