"""Plans: independent of the order of cells and of progress, nothing twice, nothing forgotten."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.batches import plan
from tests.support.cells import ELBO, PLAIN


def _grid(sizes=(20, 50), seeds=range(3), betas=(10.0, 1.0, 0.1)):
    cells = []
    for n in sizes:
        for seed in seeds:
            base = replace(ELBO, n=n, seed=seed, beta=1.0)
            cells += [replace(ELBO, n=n, seed=seed, beta=beta) for beta in betas]
            cells += [replace(PLAIN, n=n, seed=seed, beta=beta, base=base.key) for beta in betas]
            cells.append(replace(ELBO, n=n, seed=seed, objective="fitc", beta=None))
    return cells


GRID = _grid()


@settings(max_examples=40)
@given(st.permutations(GRID), st.integers(1, 12))
def test_the_order_of_cells_does_not_matter(cells, size):
    assert plan(cells, set(), set(), lambda _: size) == plan(GRID, set(), set(), lambda _: size)


@settings(max_examples=60)
@given(st.sets(st.sampled_from(GRID)), st.sets(st.sampled_from(GRID)), st.integers(1, 12), st.booleans())
def test_pending_cells_once_each_in_batches_of_equal_shape(done, failed, size, retry):
    done_keys, failed_keys = {cell.key for cell in done}, {cell.key for cell in failed - done}
    made = plan(GRID, done_keys, failed_keys, lambda _: size, retry)
    expected = {cell.key for cell in GRID} - done_keys - (set() if retry else failed_keys)
    planned = [cell.key for batch in made.batches for cell in batch]
    assert sorted(planned) == sorted(expected)
    assert made.pending == len(expected)
    assert made.done == done_keys
    assert made.failed == failed_keys
    for batch in made.batches:
        assert 1 <= len(batch) <= size
        assert len({cell.group for cell in batch}) == 1


@settings(max_examples=60)
@given(st.sets(st.sampled_from(GRID)), st.integers(1, 12))
def test_company_does_not_depend_on_progress(done, size):
    whole = plan(GRID, set(), set(), lambda _: size)
    rest = plan(GRID, {cell.key for cell in done}, set(), lambda _: size)
    expected = [tuple(cell for cell in batch if cell not in done) for batch in whole.batches]
    assert list(rest.batches) == [batch for batch in expected if batch]


def test_base_fits_come_before_what_needs_them_and_small_before_large():
    batches = plan(GRID, set(), set(), lambda _: 4).batches
    seen: set[str] = set()
    for batch in batches:
        assert all(cell.base is None or cell.base in seen for cell in batch)
        seen |= {cell.key for cell in batch}
    sizes = [batch[0].M * batch[0].n for batch in batches]
    assert sizes == sorted(sizes)


def test_cells_of_a_batch_are_sorted_by_seed():
    for batch in plan(GRID, set(), set(), lambda _: 100).batches:
        assert [cell.seed for cell in batch] == sorted(cell.seed for cell in batch)


def test_batches_are_even():
    cells = _grid(sizes=(20,), seeds=range(10), betas=(1.0,))
    sizes = [len(batch) for batch in plan(cells, set(), set(), lambda _: 7).batches]
    assert sorted(sizes) == [5] * 6


def test_equal_cells_count_once():
    assert len(plan([*GRID, *GRID], set(), set(), lambda _: 5).cells) == len(GRID)


def test_a_batch_has_one_start_per_seed():
    others = [replace(cell, base=f"other-{cell.seed}") for cell in GRID if cell.base]
    for batch in plan([*GRID, *others], set(), set(), lambda _: 100).batches:
        assert len({(cell.seed, cell.base) for cell in batch}) == len({cell.seed for cell in batch})
