"""Batches: independent of the order of cells and of progress, each cell once, sized for the device."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.cell import ARRAYS, CPU_BYTES, CPU_CELLS, GPU_SHARE, bytes_of, cells_at_once, plan
from tests.support.cells import ELBO, PLAIN


def _grid(sizes=(20, 50), seeds=range(3), betas=(10.0, 1.0, 0.1)):
    cells = []
    for n, seed in product(sizes, seeds):
        elbo, dlm = (replace(cell, n=n, seed=seed, beta=1.0) for cell in (ELBO, PLAIN))
        cells += [replace(elbo, beta=beta) for beta in betas]
        cells += [replace(dlm, beta=beta, base=elbo.key) for beta in betas]
        cells.append(replace(elbo, objective="fitc", beta=None))
    return cells


GRID = _grid()
CELL = replace(PLAIN, n=1000, M=74, options={}, estimator="exact")


@settings(max_examples=60)
@given(st.permutations(GRID), st.sets(st.sampled_from(GRID)), st.sets(st.sampled_from(GRID)), st.integers(1, 12))
def test_pending_cells_once_each_in_batches_that_depend_on_neither_order_nor_progress(cells, done, failed, size):
    done_keys, failed_keys = {cell.key for cell in done}, {cell.key for cell in failed - done}
    whole = plan(GRID, set(), set(), lambda _: size)
    assert plan(cells, set(), set(), lambda _: size) == whole == plan([*GRID, *cells], set(), set(), lambda _: size)
    for retry in (False, True):
        made = plan(cells, done_keys, failed_keys, lambda _: size, retry)
        skipped = done_keys | (set() if retry else failed_keys)
        rest = [tuple(cell for cell in batch if cell.key not in skipped) for batch in whole.batches]
        assert list(made.batches) == [batch for batch in rest if batch]
        assert (made.done, made.failed) == (done_keys, failed_keys)
        assert made.pending == len(GRID) - len(skipped)
    for batch in whole.batches:
        assert 1 <= len(batch) <= size
        assert len({cell.group for cell in batch}) == 1
        assert [cell.seed for cell in batch] == sorted(cell.seed for cell in batch)


def test_base_fits_come_before_what_needs_them_and_small_before_large():
    cells = [replace(cell, objective="a_dlm") if cell.base else cell for cell in GRID]  # whatever its name
    batches = plan(cells, set(), set(), lambda _: 4).batches
    seen: set[str] = set()
    for batch in batches:
        assert all(cell.base is None or cell.base in seen for cell in batch)
        seen |= {cell.key for cell in batch}
    sizes = [batch[0].M * batch[0].n for batch in batches]
    assert sizes == sorted(sizes)


def test_batches_are_even_and_have_one_start_per_seed():
    cells = _grid(sizes=(20,), seeds=range(10), betas=(1.0,))
    assert sorted(len(batch) for batch in plan(cells, set(), set(), lambda _: 7).batches) == [5] * 6
    others = [replace(cell, base=f"other-{cell.seed}") for cell in GRID if cell.base]
    for batch in plan([*GRID, *others], set(), set(), lambda _: 100).batches:
        assert len({(cell.seed, cell.base) for cell in batch}) == len({cell.seed for cell in batch})


def test_a_cpu_gets_as_many_as_its_caches_hold_and_several_cores_a_large_cell_each():
    at_once = cells_at_once(CELL, "cpu", None)
    assert at_once * 8 * 1000 * 74 <= CPU_BYTES < (at_once + 1) * 8 * 1000 * 74
    assert cells_at_once(replace(CELL, n=10**6), "cpu", None) == 1
    assert cells_at_once(replace(CELL, n=10**6, minibatch=1000), "cpu", None) == at_once
    assert cells_at_once(replace(CELL, dtype="float32"), "cpu", None) == 2 * at_once
    assert cells_at_once(replace(CELL, n=9000, M=206), "cpu", None) == CPU_CELLS


def test_a_gpu_gets_as_many_as_its_memory_holds():
    free = 50e9
    at_once = cells_at_once(CELL, "cuda", free)
    assert at_once * ARRAYS * 8 * 1000 * 74 <= GPU_SHARE * free
    assert cells_at_once(CELL, "cuda", free / 2) == at_once // 2
    assert cells_at_once(CELL, "cuda", 1.0) == 1
    assert cells_at_once(replace(CELL, options={"samples": 74}), "cuda", free) < 0.6 * at_once
    limited = replace(CELL, n=10**5, minibatch=100, max_iterations=30_000)
    epochs = replace(limited, max_iterations=None, epochs=30)
    assert bytes_of((epochs,)) == bytes_of((limited,)) == bytes_of((replace(epochs, epochs=1),)) + 8 * 29_000


def test_a_path_over_beta_is_never_cut():
    square = replace(CELL, objective="sq_dlm", variant="fixed", form="collapsed", n=10**6)
    assert min(cells_at_once(square, "cpu", None), cells_at_once(square, "cuda", 1e9)) >= 1000
