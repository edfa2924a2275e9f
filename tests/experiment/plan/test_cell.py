"""Cells: keys that are stable and made of everything that changes a result; batches that are
independent of the order of cells and of progress, with each cell once."""

from itertools import product
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.experiment.plan.cell import FIRST_OPTIONS, Cell, batches
from tests.support.cells import ELBO, PLAIN


def test_the_key_is_the_same_on_every_machine_and_for_good():
    assert PLAIN.key == "4e59517bd39db2406665", "later fields with their defaults are in no key"
    assert replace(PLAIN, beta=None, seed=0).key == "5fefe9a0cf96ece1e77f"
    one, two = (replace(PLAIN, options=options) for options in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert (one.key, one.shared_values) == (two.key, two.shared_values)
    assert one.key != replace(PLAIN, options={"a": 1}).key
    assert PLAIN.describe() == "banana n=100 seed=3 fixed log_dlm bmc-10 beta=0.1"


def test_a_description_names_options_of_the_objective_components_and_another_optimizer():
    options = replace(ELBO, objective="t_pep", objective_options={"alpha": 0.2}, optimizer="lbfgs")
    assert options.describe().endswith("joint t_pep exact alpha=0.2 lbfgs beta=0.1")
    assert replace(ELBO, components=8).describe().endswith("joint elbo exact beta=0.1 K=8")


NAMES = st.text("abcdefgh_", min_size=1, max_size=6)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**53)
OPTIONS = st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | st.text(max_size=5)
VALUES: dict[Any, st.SearchStrategy] = {
    str: st.text(max_size=6),
    int: COUNTS,
    float: NUMBERS,
    bool: st.booleans(),
    int | None: st.none() | COUNTS,
    float | None: st.none() | NUMBERS,
    str | None: st.none() | st.text(max_size=6),
    dict[str, float]: st.dictionaries(NAMES, NUMBERS, max_size=2),
    dict[str, float | str]: st.dictionaries(
        NAMES, NUMBERS | st.sampled_from(["sqrt", "median"]), max_size=2
    ),
}
TYPES = get_type_hints(Cell)  # without the limits on what a record may say
VALUES[TYPES["options"]] = st.dictionaries(
    st.sampled_from(FIRST_OPTIONS) | NAMES, OPTIONS, max_size=4
)
BY_FIELD = {name: VALUES[kind] for name, kind in TYPES.items()}


@pytest.mark.parametrize("name", BY_FIELD)
@settings(max_examples=5)
@given(cell=st.builds(Cell, **BY_FIELD), data=st.data())
def test_there_and_back_through_a_record_and_a_key_that_depends_on_every_field(name, cell, data):
    """The cells of a batch have one group, and differ in seed, beta, base and number of the fold."""
    # A record takes only names here, and only these values.
    cell = replace(cell, dataset="banana", evaluate="end", cv="5")
    again = msgspec.json.decode(msgspec.json.encode(cell), type=Cell)
    assert (again, again.key, hash(again)) == (cell, cell.key, hash(cell))
    value = data.draw(BY_FIELD[name])
    before, after = (
        msgspec.json.encode(each, order="deterministic") for each in (getattr(cell, name), value)
    )
    other = replace(cell, **{name: value})
    assert (other.key == cell.key) == (before == after)
    if value != getattr(cell, name):
        is_another_fold = name == "fold" and None not in (value, cell.fold)
        assert (other.shared_values == cell.shared_values) == (
            name in ("seed", "beta", "base") or is_another_fold
        )


def test_folds_are_trained_on_the_rows_outside_of_them():
    fit = replace(PLAIN, n=103, cv="5")
    fold = replace(fit, fold=2)
    assert (fit.training_rows, fold.training_rows) == (103, 83)
    assert replace(fold, cv="holdout").training_rows == 93
    assert replace(fold, minibatch=40).iterations_per_epoch == 2
    assert fold.describe() == "banana n=103 seed=3 fold 3 fixed log_dlm bmc-10 beta=0.1"
    assert len({PLAIN.key, fit.key, fold.key, replace(fit, cv="10").key}) == 4


def _grid(sizes=(20, 50), seeds=range(3), betas=(10.0, 1.0, 0.1)):
    cells = []
    for n, seed in product(sizes, seeds):
        elbo, dlm = (replace(cell, n=n, seed=seed, beta=1.0) for cell in (ELBO, PLAIN))
        cells += [replace(elbo, beta=beta) for beta in betas]
        cells += [replace(dlm, beta=beta, base=elbo.key) for beta in betas]
        cells.append(replace(elbo, objective="fitc", beta=None))
    return cells


GRID = _grid()


@settings(max_examples=60)
@given(st.permutations(GRID), st.sets(st.sampled_from(GRID)), st.integers(1, 12))
def test_pending_cells_once_each_in_batches_that_depend_on_neither_order_nor_progress(
    cells, skip, size
):
    skipped, whole = {cell.key for cell in skip}, batches(GRID, set(), lambda _: size)
    assert (
        batches(cells, set(), lambda _: size)
        == whole
        == batches([*GRID, *cells], set(), lambda _: size)
    )
    rest = [tuple(cell for cell in batch if cell.key not in skipped) for batch in whole]
    assert batches(cells, skipped, lambda _: size) == [batch for batch in rest if batch]
    assert sum(map(len, whole)) == len(GRID)
    for batch in whole:
        assert 1 <= len(batch) <= size
        assert len({cell.shared_values for cell in batch}) == 1
        assert [cell.seed for cell in batch] == sorted(cell.seed for cell in batch)


def test_base_fits_come_before_what_needs_them_and_small_before_large():
    cells = [
        replace(cell, objective="a_dlm") if cell.base else cell for cell in GRID
    ]  # whatever its name
    made = batches(cells, set(), lambda _: 4)
    seen: set[str] = set()
    for batch in made:
        assert all(cell.base is None or cell.base in seen for cell in batch)
        seen |= {cell.key for cell in batch}
    sizes = [batch[0].M * batch[0].n for batch in made]
    assert sizes == sorted(sizes)


def test_batches_are_even_and_have_one_start_per_seed():
    cells = _grid(sizes=(20,), seeds=range(10), betas=(1.0,))
    assert sorted(len(batch) for batch in batches(cells, set(), lambda _: 7)) == [5] * 6
    others = [replace(cell, base=f"other-{cell.seed}") for cell in GRID if cell.base]
    folds = [replace(cell, cv="3", fold=number) for cell in GRID for number in range(3)]
    assert {len(batch) for batch in batches(folds, set(), lambda _: 1000)} == {9, 27}
    for batch in batches([*GRID, *others], set(), lambda _: 100):
        assert len({(cell.seed, cell.base) for cell in batch}) == len({cell.seed for cell in batch})


def test_nothing_is_cut_where_everything_is_skipped():
    """A run with nothing to do looks at 20 000 cells."""

    def cells_at_once(cell):
        raise AssertionError("a batch is cut")

    assert batches(GRID, {cell.key for cell in GRID}, cells_at_once) == []
