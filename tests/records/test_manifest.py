"""What was asked for, and that its data stays what it was."""

import hashlib

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.records.manifest import Asked, check_same_data, manifest, merged, read_manifests, write_manifest
from tests.support.cells import ELBO, PLAIN, candidates

CELLS = [replace(PLAIN, seed=seed) for seed in range(3)]
ASKED = [candidates("fixed_log_dlm", [cell, replace(cell, beta=2.0)], "2, 0.1") for cell in CELLS]


def _read(root):
    return {one.experiment: one for one in merged(read_manifests(root))}


def test_it_says_which_cells_belong_together_the_largest_beta_first():
    made = manifest("one", ASKED)
    assert made.candidates == [
        Asked("fixed_log_dlm", "2, 0.1", (replace(cell, beta=2.0).key, cell.key)) for cell in CELLS
    ]
    assert made.cells == {cell.key: cell.describe() for some in ASKED for cell in some.cells}


def test_what_was_asked_for_twice_is_there_once():
    made = manifest("one", [*ASKED, *ASKED])
    assert made == manifest("one", ASKED)


def test_what_was_asked_for_adds_up_over_runs(tmp_path):
    write_manifest(tmp_path, manifest("one", ASKED[:2]))
    write_manifest(tmp_path, manifest("one", ASKED[:2]))
    assert len(list((tmp_path / "one" / "cells").iterdir())) == 1
    write_manifest(tmp_path, manifest("one", ASKED[1:]))
    write_manifest(tmp_path, manifest("two", ASKED[:1]))
    found = _read(tmp_path)
    assert found["one"].cells == {cell.key: cell.describe() for some in ASKED for cell in some.cells}
    assert sorted(found["one"].candidates, key=str) == sorted(manifest("one", ASKED).candidates, key=str)
    assert found["two"].candidates == manifest("two", ASKED[:1]).candidates


def test_two_grids_over_the_same_cells_are_two_things_asked_for(tmp_path):
    """A run with half the betas of another is a selection of its own."""
    short = candidates("fixed_log_dlm", [CELLS[0]], "0.1")
    write_manifest(tmp_path, manifest("one", [ASKED[0]]))
    write_manifest(tmp_path, manifest("one", [short]))
    assert {one.betas: len(one.keys) for one in _read(tmp_path)["one"].candidates} == {"2, 0.1": 2, "0.1": 1}


def test_one_cell_can_serve_two_methods(tmp_path):
    one = replace(ELBO, beta=1.0)
    made = manifest("one", [candidates("elbo", [one], "1"), candidates("beta_elbo", [one, ELBO], "1, 0.1")])
    assert len(made.cells) == 2
    assert [some.method for some in made.candidates] == ["elbo", "beta_elbo"]


def test_nothing_was_asked_for(tmp_path):
    assert read_manifests(tmp_path) == []


def test_changed_data_is_refused_with_both_checksums(tmp_path):
    check_same_data(tmp_path, "mine", "a" * 64)
    check_same_data(tmp_path, "mine", "a" * 64)
    check_same_data(tmp_path, "other", "b" * 64)
    with pytest.raises(UserError, match="'mine' has changed") as found:
        check_same_data(tmp_path, "mine", "b" * 64)
    assert "a" * 16 in str(found.value)
    assert "b" * 16 in str(found.value)
    assert str(tmp_path) in str(found.value)


def test_what_is_not_a_manifest_is_skipped(tmp_path):
    write_manifest(tmp_path, manifest("one", ASKED))
    folder = tmp_path / "one" / "cells"
    (folder / "notes.json").write_bytes(b"\xff caf\xe9\n")
    (folder / "folder.json").mkdir()
    (folder / "0123456789abcdef.json").write_text("{}")
    content = b'{"a manifest": "of somebody else"}'
    (folder / f"{hashlib.sha256(content).hexdigest()[:16]}.json").write_bytes(content)
    (tmp_path / "foreign" / "cells").mkdir(parents=True)
    (tmp_path / "foreign" / "cells" / "a.json").write_text("not a manifest\n")
    assert _read(tmp_path) == {"one": manifest("one", ASKED)}


def test_a_torn_manifest_is_written_again(tmp_path):
    write_manifest(tmp_path, manifest("one", ASKED))
    (path,) = (tmp_path / "one" / "cells").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    assert read_manifests(tmp_path) == []
    write_manifest(tmp_path, manifest("one", ASKED))
    assert read_manifests(tmp_path) == [manifest("one", ASKED)]


def test_a_field_of_a_later_version_is_ignored(tmp_path):
    values = msgspec.to_builtins(manifest("one", ASKED)) | {"later": 1}
    content = msgspec.json.encode(values)
    path = tmp_path / "one" / "cells" / f"{hashlib.sha256(content).hexdigest()[:16]}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert read_manifests(tmp_path) == [manifest("one", ASKED)]


@pytest.mark.parametrize("content", [b"", b'{"dataset": "mi', b"[]", b"{}", b"\xff"])
def test_a_torn_checksum_is_named_and_left_alone(tmp_path, content):
    check_same_data(tmp_path, "mine", "a" * 64)
    path = tmp_path / "data" / "mine.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.json' is torn.*delete that file if it is, or give another folder"):
        check_same_data(tmp_path, "mine", "a" * 64)
    assert path.read_bytes() == content
