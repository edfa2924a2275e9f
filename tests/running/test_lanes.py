"""Several batches at once: how many have room, and on a GPU the same bits as one after the other."""

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running import lanes as module
from dlmexp.running.lanes import InFlight, Lane, Lanes
from dlmexp.running.run import execute
from dlmexp.running.schedule import Capacity
from tests.support.cells import PLAIN

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def _flight(lanes, cells):
    return InFlight(cells, cells, lanes.take())


def _of(cells):
    return InFlight(cells, cells, Lane(torch.device("cpu")))


def test_one_at_a_time_on_a_cpu():
    lanes = Lanes(torch.device("cpu"))
    assert lanes.have_room((PLAIN,), [])
    running = [_flight(lanes, (PLAIN,))]
    assert lanes.used == 1
    assert not lanes.have_room((PLAIN,), running)
    lanes.give_back(running[0].lane)
    assert lanes.used == 0


def test_a_device_is_full_by_entries_memory_or_number():
    lanes = Lanes(torch.device("cpu"))
    lanes._free = [*lanes._free, *lanes._free, *lanes._free]
    entries = PLAIN.n * (PLAIN.M + 10)
    lanes.capacity = Capacity(3, 1.5 * entries, 1e9)
    running = [_flight(lanes, (PLAIN,))]
    assert lanes.have_room((PLAIN,), running)  # below the limit: one more
    running.append(_flight(lanes, (PLAIN,)))
    assert not lanes.have_room((PLAIN,), running)
    lanes.capacity = lanes.capacity._replace(entries=1e9)
    assert lanes.have_room((PLAIN,), running)
    assert not lanes.have_room((replace(PLAIN, n=10**6),), running)  # does not fit into memory beside the others
    running.append(_flight(lanes, (PLAIN,)))
    assert not lanes.have_room((PLAIN,), running)


def test_after_memory_ran_out_large_batches_train_alone_and_small_ones_still_together():
    lanes = Lanes(torch.device("cpu"))
    lanes.capacity = Capacity(12, 1e12, 1e12)
    large, small = (replace(PLAIN, n=10**6),), (PLAIN,)
    assert lanes.have_room(large, [_of(large)])
    lanes.fewer([_of(large), _of(large)])
    assert not lanes.have_room(large, [_of(large)])
    assert lanes.have_room(small, [_of(large), _of(small)])
    assert lanes.have_room(small, [_of(small)] * 11)
    before = lanes.capacity
    lanes.fewer([_of(large), _of(large), _of(large)])
    assert lanes.capacity == before, "the least that was too much counts"


def test_work_goes_on_until_it_waits():
    def work():
        for stretch in range(2):
            done.append(stretch)
            yield

    done, lane = [], Lanes(torch.device("cpu")).take()
    started = work()
    assert lane.ready
    assert lane.go_on(started)
    assert done == [0]
    assert lane.go_on(started)
    assert not lane.go_on(started)


@needs_gpu
@pytest.mark.slow
def test_batches_that_train_together_have_the_bits_they_have_alone(tmp_path, monkeypatch):
    table = tmp_path / "visits.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=300), "y": rng.poisson(3, 300)}).to_csv(table, index=False)
    binary = ["dataset=ringnorm_drawn", "sizes=[50,100,200]", "method=[elbo,joint_log_dlm,fixed_log_dlm]"]
    counts = ["dataset=csv", f"csv.path={table}", "csv.target=y", "csv.task=count", "sizes=[50,100]",
              "estimator=[exact,ups]", "method=[elbo,joint_log_dlm,fixed_log_dlm]"]  # fmt: skip
    large = ["dataset=airline_like", "dataset.airline_like.options.rows=9000", "dataset.airline_like.M=20",
             "method=[elbo,joint_log_dlm]"]  # fmt: skip
    every = ["seeds=[0,1]", "beta=list", "beta.values=[0.1,1,10]", "training.max_iterations=300"]
    parts = [f"[{','.join(repr(word) for word in part + every)}]" for part in (binary, counts, large)]
    words = ["name=together", f"parts=[{','.join(parts)}]", "device=cuda"]
    seen, take = [], Lanes.take

    def counted(self):
        lane = take(self)
        seen.append(self.used)
        return lane

    monkeypatch.setattr(Lanes, "take", counted)
    results = {}
    for most in (1, 12):
        monkeypatch.setattr(module, "MOST", most)
        seen.clear()
        assert execute(compose([*words, f"results={tmp_path / str(most)}"])) == 0
        assert (max(seen) == 1) if most == 1 else (max(seen) >= 4)
        store = Store(tmp_path / str(most))
        results[most] = {record.key: (record, store.arrays(record)) for record in store.all()}
    assert results[1].keys() == results[12].keys()
    for key, (alone, arrays) in results[1].items():
        together, other = results[12][key]
        assert alone.result.alone
        assert not together.result.alone or together.cell.variant == "fixed"
        for part in ("validation", "test", "iterations", "stopped", "hyperparameters", "objective_value"):
            assert getattr(alone.result, part) == getattr(together.result, part), (part, alone.cell.describe())
        assert arrays.keys() == other.keys()
        assert all((arrays[name] == other[name]).all() for name in arrays)
