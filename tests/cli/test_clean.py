"""`dlmexp clean EXPERIMENT`: what only that experiment asked for goes, all else stays as it was, byte for byte."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.cli import folder, main
from dlmexp.records.manifest import check_same_data
from dlmexp.records.results import collect_packed
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.cleaning import removal
from dlmexp.running.leases import Leases
from tests.support import made_up
from tests.support.cells import ask

BANANA = [made_up.cell("banana", seed=seed) for seed in range(4)]
THYROID = [made_up.cell("thyroid", seed=seed) for seed in range(2)]


def _ask(root, name, cells):
    ask(root, name, cells)


@pytest.fixture
def root(tmp_path):
    """`one` asked for all of banana and thyroid, `two` for the first two seeds of banana."""
    store = Store(tmp_path)
    _ask(tmp_path, "one", [*BANANA, *THYROID])
    _ask(tmp_path, "two", BANANA[:2])
    for cell in (*BANANA[:3], *THYROID):
        store.write(*made_up.plausible(cell))
    store.write(made_up.failed(BANANA[3], "no reason"))
    for dataset in ("banana", "thyroid"):
        check_same_data(tmp_path, dataset, "abc")
    for cells in (BANANA[1:3], BANANA[2:3]):  # one batch with a shared cell, one without
        checkpoint.save(checkpoint.path_of(store, tuple(cells)), tuple(cells), checkpoint.Notes([0]), {})
    return tmp_path


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_others_share_stays(root, capsys):
    before = _files(root)
    assert main(["clean", "one", "--results", str(root), "--yes"]) == 0
    said = capsys.readouterr().out
    assert "one: 4 cells that no other experiment asked for\n2 cells that other experiments asked for too" in said
    after = _files(root)
    assert after.items() <= before.items()
    gone = before.keys() - after.keys()
    keys = {cell.key for cell in (*BANANA[2:], *THYROID)}
    names = {name.split("/")[0] for name in gone}
    assert names == {"records", "one", "data", "checkpoints"}
    assert {Path(name).name[:20] for name in gone if name.startswith("records")} == keys
    assert not any(Path(name).name[:20] in keys for name in after if name.startswith("records"))
    assert "data/thyroid.json" in gone, "another table may have that name now"
    assert "data/banana.json" in after
    assert [name for name in after if name.startswith("checkpoints")] == [
        str(checkpoint.path_of(Store(root), tuple(BANANA[1:3])).relative_to(root))
    ]
    assert not (root / "one").exists()
    assert not (root / "records" / "thyroid").exists()


def test_the_last_experiment_takes_everything(root):
    for name in ("one", "two"):
        assert main(["clean", name, "--results", str(root), "--yes"]) == 0
    left = _files(root)
    assert [name for name in left if not name.startswith("checkpoints")] == []


@given(first=st.sets(st.integers(0, 3)), second=st.sets(st.integers(0, 3)))
def test_exactly_the_cells_of_no_other_experiment_go(tmp_path_factory, first, second):
    root = tmp_path_factory.mktemp("results")
    _ask(root, "first", [BANANA[i] for i in first])
    _ask(root, "second", [BANANA[i] for i in second])
    assert removal(root, "first").keys == {BANANA[i].key for i in first - second}
    assert removal(root, "first").shared == len(first & second)


def test_records_in_packs_stay(root, capsys):
    collect_packed(str(root), str(root / "records.parquet"))
    pack = (root / "records.parquet").read_bytes()
    assert main(["clean", "one", "--results", str(root), "--yes"]) == 0
    assert "4 records in packs: they stay" in capsys.readouterr().out
    assert (root / "records.parquet").read_bytes() == pack


def test_an_experiment_in_training_is_refused(root, capsys):
    before = _files(root)
    with Leases(root, print) as mine:
        mine.take([BANANA[3].key])
        assert main(["clean", "one", "--results", str(root), "--yes"]) == 2
        assert "dlmexp cancel --results " in capsys.readouterr().err
        assert main(["clean", "two", "--results", str(root), "--yes"]) == 0, "none of its cells is in training"
    assert before.keys() - _files(root).keys() == {name for name in before if name.startswith("two/")}, (
        "the cells of the other one are all shared"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tow", "--yes"], "there is no experiment 'tow' in {root}: did you mean two"),
        (["../two", "--yes"], "there is no experiment '../two'"),
        (["one"], "add --yes"),
    ],
)
def test_nothing_is_deleted_otherwise(root, capsys, words, said):
    before = _files(root)
    assert main(["clean", *words, "--results", str(root)]) == 2
    assert said.format(root=root) in capsys.readouterr().err
    assert _files(root) == before


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_the_question(root, monkeypatch, capsys, answer, deleted):
    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return answer

    monkeypatch.setattr(folder.sys, "stdin", Terminal())
    assert main(["clean", "one", "--results", str(root)]) == 0
    assert "delete" in capsys.readouterr().out
    assert (root / "one").exists() != deleted


def test_nothing_is_touched_before_the_answer(root, monkeypatch):
    (root / "checkpoints" / "damaged.npz").write_bytes(b"not a checkpoint")
    before = _files(root)
    monkeypatch.setattr(folder, "confirmed", lambda *_: False)
    assert main(["clean", "one", "--results", str(root)]) == 0
    assert _files(root) == before
