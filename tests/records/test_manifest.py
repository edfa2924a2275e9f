"""What was asked for, and that its data stays what it was."""

import hashlib
import shutil

import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.plan.setting import Setting
from dlmexp.records.manifest import check_same_data, manifest, merged, read_manifests, write_manifest
from tests.support.cells import ELBO, PLAIN, candidates

CELLS = [replace(PLAIN, seed=seed) for seed in range(3)]
ASKED = [candidates("fixed_log_dlm", [cell, replace(cell, beta=2.0)]) for cell in CELLS]


def test_it_says_which_cells_belong_together_the_largest_beta_first():
    made = manifest("one", ASKED)
    assert [(group.betas, group.keys) for group in made.candidates] == [
        ((2.0, 0.1), (replace(cell, beta=2.0).key, cell.key)) for cell in CELLS
    ]
    first = made.candidates[0]
    assert (first.dataset, first.n, first.seed, first.size) == ("banana", 100, 0, "100")
    assert made.keys == {key for some in ASKED for key in some.keys}
    assert first.describe(CELLS[0].key).split() == ["banana", "n=100", "seed=0", "fixed_log_dlm", "bmc-10", "beta=0.1"]


def test_a_setting_is_written_as_data(tmp_path):
    changed = Setting("released", {"training.lr": 0.01, "beta.values": [1.0, 0.1], "M": None}, "nll")
    write_manifest(tmp_path, manifest("one", [candidates("fixed_log_dlm", CELLS, changed, "curve")]))
    ((group,),) = (read.candidates for read in read_manifests(tmp_path))
    assert group.setting == changed
    assert group.setting.text == "training.lr=0.01, beta.values=[1,0.1], M=null"
    assert (group.role, group.experiment) == ("curve", "test")


def test_what_was_asked_for_adds_up_over_runs(tmp_path):
    write_manifest(tmp_path, manifest("one", ASKED[:2]))
    write_manifest(tmp_path, manifest("one", ASKED[:2]))
    assert len(list((tmp_path / "one" / "cells").iterdir())) == 1
    write_manifest(tmp_path, manifest("one", ASKED[1:]))
    write_manifest(tmp_path, manifest("two", ASKED[:1]))
    together = merged(read_manifests(tmp_path))
    assert together["one"] == manifest("one", ASKED).candidates
    assert together["two"] == manifest("two", ASKED[:1]).candidates


def test_what_differs_in_candidates_method_role_or_setting_is_asked_for_apart():
    elbo = replace(ELBO, beta=1.0)
    groups = [
        candidates("elbo", [elbo]), candidates("beta_elbo", [elbo, ELBO]), candidates("beta_elbo", [elbo]),
        candidates("elbo", [elbo], role="anatomy"), candidates("elbo", [elbo], Setting("released")),
        candidates("elbo", [elbo], Setting("paper", {"M": 5})),
    ]  # fmt: skip
    made = manifest("one", [*groups, *groups])
    assert len(made.candidates) == len(groups)
    assert len(made.keys) == 2


def test_changed_data_is_refused_with_both_checksums(tmp_path):
    check_same_data(tmp_path, "mine", "a" * 64)
    check_same_data(tmp_path, "mine", "a" * 64)
    check_same_data(tmp_path, "other", "b" * 64)
    with pytest.raises(UserError, match=f"'mine'.*{'a' * 16}.*{'b' * 16}"):
        check_same_data(tmp_path, "mine", "b" * 64)


def test_what_is_not_a_manifest_is_skipped_and_a_torn_one_is_written_again(tmp_path):
    write_manifest(tmp_path, manifest("one", ASKED))
    folder = tmp_path / "one" / "cells"
    (folder / "notes.json").write_bytes(b"\xff caf\xe9\n")
    (folder / "folder.json").mkdir()
    (path,) = folder.glob("????????????????.json")
    shutil.copy(path, folder / "0123456789abcdef.json")  # not what its name says
    content = b'{"a manifest": "of somebody else"}'
    (folder / f"{hashlib.sha256(content).hexdigest()[:16]}.json").write_bytes(content)
    (tmp_path / "foreign" / "cells").mkdir(parents=True)
    (tmp_path / "foreign" / "cells" / "a.json").write_text("not a manifest\n")
    assert read_manifests(tmp_path) == [manifest("one", ASKED)]
    path.write_bytes(path.read_bytes()[:-30])
    assert read_manifests(tmp_path) == []
    write_manifest(tmp_path, manifest("one", ASKED))
    assert read_manifests(tmp_path) == [manifest("one", ASKED)]


@pytest.mark.parametrize("content", [b"", b'{"dataset": "mi', b"{}", b"\xff"])
def test_a_torn_checksum_is_named_and_left_alone(tmp_path, content):
    check_same_data(tmp_path, "mine", "a" * 64)
    path = tmp_path / "data" / "mine.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.json"):
        check_same_data(tmp_path, "mine", "a" * 64)
    assert path.read_bytes() == content
