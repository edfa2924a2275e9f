"""The state of a results folder."""

from dataclasses import replace

import pytest
from test_cell import PLAIN
from test_table import record

from dlmexp.cluster.status import status
from dlmexp.records.collect import collect_pack
from dlmexp.records.manifest import remember
from dlmexp.records.store import Store
from dlmexp.running.presence import Presence

CELLS = [replace(PLAIN, seed=seed) for seed in range(6)]


@pytest.fixture
def root(tmp_path):
    """Two done, one failed, one at work, two missing."""
    store = Store(tmp_path)
    remember(tmp_path, "one", CELLS)
    remember(tmp_path, "two", CELLS[:2])
    for cell in CELLS[:2]:
        store.write(record(cell, nll=0.5))
    store.write(record(CELLS[2], "failed"))
    with Presence(tmp_path) as mine:
        mine.announce([CELLS[3].key])
        yield tmp_path


def test_counts(root):
    found = status(root)
    one, two = found.experiments
    assert (one.name, one.done, one.running, one.failed, one.missing) == ("one", 2, 1, 1, 2)
    assert (two.name, two.done, two.missing) == ("two", 2, 0)
    assert one.absent == [cell.describe() for cell in CELLS[4:]]
    assert [worker["cells"] for worker in found.running] == [1]
    assert found.set_aside == 0


def test_reasons_are_read_when_asked_for(root):
    assert status(root).experiments[0].failures == []
    (failure,) = status(root, reasons=True).experiments[0].failures
    assert failure["cell"] == CELLS[2].describe()
    assert failure["reason"] == "no reason (iteration 3)"
    assert failure["where"] == "h"


def test_a_torn_failure_stays_a_failure_with_the_way_out(root):
    path = Store(root).path("banana", CELLS[2].key, ".failed.json")
    path.write_text("{")
    (failure,) = status(root, reasons=True).experiments[0].failures
    assert "its record is torn; retry_failed=true runs it again" in failure["reason"]
    assert path.read_text() == "{"
    again = status(root)
    assert again.set_aside == 0
    assert again.experiments[0].failed == 1


def test_records_in_packs_are_counted(root):
    assert status(root).packed == 0
    collect_pack(str(root), str(root / "records.tar.xz"), light=True)
    assert status(root).packed == 3


def test_a_done_cell_that_is_run_again_counts_as_done(root):
    with Presence(root) as mine:
        mine.announce([CELLS[0].key])
        assert status(root).experiments[0].done == 2
