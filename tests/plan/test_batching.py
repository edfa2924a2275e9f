"""Batch sizes from the shape of a cell and the memory of the device."""

from msgspec.structs import replace

from dlmexp.plan.batches import ARRAYS, CPU_BYTES, CPU_CELLS, GPU_SHARE, bytes_of, cells_at_once
from tests.support.cells import PLAIN

CELL = replace(PLAIN, n=1000, M=74, options={}, estimator="exact")


def test_a_cpu_gets_as_many_as_its_caches_hold():
    at_once = cells_at_once(CELL, "cpu", None)
    assert at_once * 8 * 1000 * 74 <= CPU_BYTES < (at_once + 1) * 8 * 1000 * 74
    assert cells_at_once(replace(CELL, n=10**6), "cpu", None) == 1
    assert cells_at_once(replace(CELL, n=10**6, minibatch=1000), "cpu", None) == at_once
    assert cells_at_once(replace(CELL, dtype="float32"), "cpu", None) == 2 * at_once


def test_several_cores_of_a_cpu_have_a_large_cell_each():
    assert cells_at_once(replace(CELL, n=9000, M=206), "cpu", None) == CPU_CELLS
    assert cells_at_once(replace(CELL, n=30_000, M=206), "cpu", None) == 2


def test_a_gpu_gets_as_many_as_its_memory_holds():
    free = 50e9
    at_once = cells_at_once(CELL, "cuda", free)
    assert at_once * ARRAYS * 8 * 1000 * 74 <= GPU_SHARE * free
    assert cells_at_once(CELL, "cuda", free / 2) == at_once // 2
    assert cells_at_once(CELL, "cuda", 1.0) == 1
    assert cells_at_once(replace(CELL, options={"samples": 74}), "cuda", free) < 0.6 * at_once


def test_the_history_of_the_objective_takes_memory_whatever_ends_training():
    limited = replace(CELL, n=10**5, minibatch=100, max_iterations=30_000)
    epochs = replace(limited, max_iterations=None, epochs=30)
    assert epochs.iterations == limited.iterations
    assert bytes_of((epochs,)) == bytes_of((limited,)) == bytes_of((replace(epochs, epochs=1),)) + 8 * 29_000


def test_a_path_over_beta_is_never_cut():
    square = replace(CELL, objective="sq_dlm", variant="fixed", n=10**6)
    assert cells_at_once(square, "cpu", None) >= 1000
    assert cells_at_once(square, "cuda", 1e9) >= 1000
