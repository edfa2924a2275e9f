"""The same numbers in every format in which collections publish them are the same data."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from dlmexp.data.dataset import load
from dlmexp.data.parsers.published import numbers_of
from dlmexp.data.spec import DatasetSpec, FileSpec, read_spec
from dlmexp.errors import UserError

ROWS = [(0.1, -2.5, 0), (1.25, 3.0, 1), (-4.0, 0.5, 1), (2.0, 2.0, 0), (7.5, -1.0, 1)]
KEEL = "@relation toy\n@attribute A real [0, 1]\n@attribute Class {0, 1}\n@inputs A\n@outputs Class\n@data\n"
ARFF = "% a comment\n@RELATION 'toy'\n@ATTRIBUTE V1 NUMERIC\n@ATTRIBUTE Class {1,2}\n\n@DATA\n"


def text(sep: str, low: str = "0", high: str = "1", quote: str = "") -> str:
    return "".join(f"{a}{sep}{b}{sep}{quote}{high if y else low}{quote}\n" for a, b, y in ROWS)


def tarred(content: bytes, member: str = "ringnorm/Dataset.data.gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


FORMATS = {
    "toy.csv": text(",").encode(),
    "blanks.csv": text(", ").encode(),
    "minus.csv": text(",", "-1.0", "1.0").encode(),
    "toy.data": text("   ").encode(),
    "toy.arff": (ARFF + text(",", "1", "2", "'")).encode(),
    "keel.dat": (KEEL + text(", ")).encode(),
    "pmlb.tsv.gz": gzip.compress(("A1\tA2\ttarget\n" + text("\t")).encode()),
    "toy.data.gz": gzip.compress(text(" ").encode()),
    "delve.tar.gz": tarred(gzip.compress(text(" ").encode())),
}


def spec(name: str, **checks) -> DatasetSpec:
    file = FileSpec(f"toy/{name}")
    return DatasetSpec("toy", "label_last", "binary", "counts", features=2, files=(file,), options={"checks": checks})


def loaded(root, name: str, content: bytes, **checks):
    (root / "toy").mkdir(exist_ok=True)
    (root / "toy" / name).write_bytes(content)
    return load(spec(name, **checks), root)


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_does_not_matter(tmp_path, name):
    dataset = loaded(tmp_path, name, FORMATS[name], positives=3)
    assert dataset.X.tolist() == [[a, b] for a, b, _ in ROWS]
    assert dataset.y.tolist() == [y for *_, y in ROWS]
    assert dataset.checksum == loaded(tmp_path, "plain.csv", FORMATS["toy.csv"], positives=3).checksum


def test_class_1_is_known_by_its_number_of_rows(tmp_path):
    swapped = text(",", "1", "0").encode()
    assert loaded(tmp_path, "a.csv", swapped, positives=3).y.tolist() == [y for *_, y in ROWS]
    assert loaded(tmp_path, "b.csv", swapped).y.tolist() == [1 - y for *_, y in ROWS]


BROKEN = {
    "a.arff": (b"@data\n1,2,0\n1,x,1\n", "line 3: '1,x,1' is not a row of numbers"),
    "b.arff": (b"@data\n1,2,0\n1,1\n", "line 3: 2 numbers, where 3 are expected"),
    "c.arff": (b"@relation nothing\n", "is not a table of 3 numbers per line"),
    "d.tar.gz": (tarred(b"no gzip"), "Dataset.data.gz is damaged"),
    "e.tar.gz": (tarred(b"", "other"), "has no member 'Dataset.data.gz'"),
    "f.tsv.gz": (b"no gzip", "is damaged"),
    "g.data": (b"1 2 0\n1 2 5\n", "check 'labels' failed"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_not_be_read_is_refused(tmp_path, name):
    content, message = BROKEN[name]
    with pytest.raises(UserError, match=message):
        loaded(tmp_path, name, content)


def test_other_numbers_are_refused_by_their_content(tmp_path):
    table = numbers_of_text(tmp_path)
    known = {"x_mean": table.mean(0).tolist(), "x_std": table.std(0).tolist()}
    assert loaded(tmp_path, "a.csv", FORMATS["toy.csv"], **known)
    thousandths = "".join(f"{round(1000 * a)},{round(1000 * b)},{y}\n" for a, b, y in ROWS).encode()
    with pytest.raises(UserError, match="check 'content' failed: these are other data: the means of the features are"):
        loaded(tmp_path, "b.csv", thousandths, **known)
    with pytest.raises(UserError, match="check 'content' failed: these are other data: the standard deviations"):
        loaded(tmp_path, "c.csv", FORMATS["toy.csv"], x_std=[1.0, 1.0])


def numbers_of_text(tmp_path) -> np.ndarray:
    (tmp_path / "t.data").write_bytes(FORMATS["toy.data"])
    return numbers_of(tmp_path / "t.data", 3)[:, :2]


@pytest.mark.parametrize("name", ["ringnorm", "twonorm", "banana", "abalone"])
def test_the_papers_data_reformatted_is_the_papers_data(name, data_root, tmp_path):
    """The real file as ARFF with other labels: recognised, and the same checksum, so the same cells."""
    whole = load(read_spec(name), data_root)
    source = next(path for path in (data_root / name).iterdir() if path.is_file())
    rows = [line.replace(" ", "") for line in source.read_text().split("\n") if line.strip()]
    (tmp_path / name).mkdir()
    (tmp_path / name / "other.arff").write_text("@relation x\n@attribute a real\n@data\n" + "\n".join(rows) + "\n")
    if name == "banana":
        (tmp_path / name / "other.arff").rename(tmp_path / name / "banana.arff")
    assert load(read_spec(name), tmp_path).checksum == whole.checksum
    if name in ("ringnorm", "abalone"):
        lost = "\n".join(row.replace(".", "") for row in rows)
        (tmp_path / name / "other.arff").write_text(f"@data\n{lost}\n")
        with pytest.raises(UserError, match="these are other data"):
            load(read_spec(name), tmp_path)
