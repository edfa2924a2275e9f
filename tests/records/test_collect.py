"""Records as tables on disk."""

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.plan.cell import Candidates
from dlmexp.records.collect import collect, collect_pack
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import read_results
from dlmexp.records.store import Store
from tests.support.cells import PLAIN, candidates, scored
from tests.support.made_up import cell as made_up_cell
from tests.support.made_up import fill

CELLS = [replace(PLAIN, seed=seed, beta=beta) for seed in (0, 1) for beta in (1.0, 0.1)]
ASKED = [candidates("fixed_log_dlm", CELLS[:2]), candidates("fixed_log_dlm", CELLS[2:])]


@pytest.fixture
def root(tmp_path):
    store = Store(tmp_path)
    for cell in CELLS[:3]:
        store.write(scored(cell, nll=cell.beta or 0.0, error=0.25))
    store.write(scored(CELLS[3], "failed"))
    write_manifest(tmp_path, manifest("one", ASKED))
    write_manifest(tmp_path, manifest("half", ASKED[:1]))
    write_manifest(tmp_path, manifest("none", [candidates("fixed_log_dlm", [replace(PLAIN, seed=99)])]))
    return tmp_path


def test_one_row_per_selected_cell_and_all_of_them(root):
    written = {path.relative_to(root).as_posix(): rows for path, rows in collect(str(root), [])}
    assert written == {
        "half/all.parquet": 2, "half/table.parquet": 1, "half/table.csv": 1,
        "none/all.parquet": 0, "none/table.parquet": 0, "none/table.csv": 0,
        "one/all.parquet": 4, "one/table.parquet": 2, "one/table.csv": 2,
    }  # fmt: skip
    chosen = pd.read_parquet(root / "one" / "table.parquet")
    assert dict(zip(chosen["seed"], chosen["beta"], strict=True)) == {0: 0.1, 1: 1.0}
    assert chosen["failed"].tolist() == [0, 1]
    pd.testing.assert_frame_equal(
        pd.read_csv(root / "one" / "table.csv")[["seed", "beta", "test_nll"]], chosen[["seed", "beta", "test_nll"]]
    )


def test_chosen_experiments(root):
    assert {path.parent.name for path, _ in collect(str(root), ["half"])} == {"half"}
    with pytest.raises(UserError, match=r"no experiment 'hlaf' in .*did you mean half"):
        list(collect(str(root), ["hlaf"]))


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="there are no records"):
        list(collect(str(tmp_path), []))


def test_a_pack_counts_as_the_folders_own(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    assert collect_pack(str(root), str(other / "records-one.tar.xz"), light=False) == 4
    assert Store(other).keys() == Store(root).keys()
    found = {r.key: r.result for r in Store(other).all()}
    assert found == {r.key: r.result for r in Store(root).all()}
    with pytest.raises(UserError, match="choose one like"):
        collect_pack(str(root), str(other / "mine.zip"), light=False)


def test_new_records_are_those_that_no_pack_has(root, tmp_path_factory):
    """Carried in pieces: what was packed before, and then what is new since."""
    other = tmp_path_factory.mktemp("other")
    assert collect_pack(str(root), str(root / "records-1.tar.xz"), light=True) == 4
    with pytest.raises(UserError, match="there is nothing new"):
        collect_pack(str(root), str(other / "records-2.tar.xz"), light=True, new=True)
    late = replace(PLAIN, seed=2, beta=1.0)
    Store(root).write(scored(late, nll=0.5))
    write_manifest(root, manifest("late", [candidates("fixed_log_dlm", [late]), ASKED[0]]))
    assert collect_pack(str(root), str(other / "records-2.tar.xz"), light=True, new=True) == 1
    (second,) = [one for one in Store(other).packs.manifests if one.experiment == "late"]
    assert second.cells == {}, "records describe themselves, in this pack or in others"
    (root / "records-1.tar.xz").rename(other / "records-1.tar.xz")
    both, before = read_results(other), read_results(root)
    assert both.records.keys() == before.records.keys()
    assert set(both.asked) == set(before.asked)


def test_a_protocol_without_what_was_changed_in_it(tmp_path):
    """Of two protocols and a changed one, a pack has the records of one as it stands, and what was asked for."""
    plain = [made_up_cell("banana", n=100, seed=seed) for seed in range(3)]
    changed = [replace(one, lr=0.05) for one in plain]
    released = [replace(one, initial={"lengthscale": 0.5}) for one in plain]
    fill(tmp_path, [*plain, *changed])
    fill(tmp_path, released, manifest("mine", [Candidates("elbo", "1", (one,), "released") for one in released]))
    kept = tmp_path / "kept"
    assert collect_pack(str(tmp_path), str(kept / "records.tar.xz"), light=True, protocol="paper") == 3
    found = read_results(kept)
    assert found.records.keys() == {one.key for one in plain}
    assert {key for one in found.asked for key in one.keys} == found.records.keys()
    with pytest.raises(UserError, match="--protocol converged: no record was made under it; there are paper, released"):
        collect_pack(str(tmp_path), str(kept / "records-2.tar.xz"), light=True, protocol="converged")
    changed = tmp_path / "changed"
    fill(changed, [made_up_cell("banana", lr=0.5)])
    with pytest.raises(UserError, match="--protocol paper: every record under it was made with other values"):
        collect_pack(str(changed), str(kept / "records-2.tar.xz"), light=True, protocol="paper")
