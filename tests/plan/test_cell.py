"""Keys: stable, and made of everything that changes a result."""

from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS, Cell
from tests.support.cells import PLAIN


def test_the_key_is_the_same_on_every_machine_and_for_good():
    assert PLAIN.key == "4e59517bd39db2406665", "later fields with their defaults are in no key"
    assert replace(PLAIN, beta=None, seed=0).key == "5fefe9a0cf96ece1e77f"
    assert PLAIN.describe() == "banana n=100 seed=3 fixed log_dlm bmc-10 beta=0.1"


@pytest.mark.parametrize("option", [*FIRST_OPTIONS, "antithetic"])
def test_every_option_changes_the_key_in_any_order(option):
    one, two = {"samples": 10, "a": 1, "b": 2}, {"b": 2, "a": 1, "samples": 10}
    assert replace(PLAIN, options=one).key == replace(PLAIN, options=two).key
    assert replace(PLAIN, options=one).group == replace(PLAIN, options=two).group
    keys = {replace(PLAIN, options={**PLAIN.options, option: value}).key for value in (1, 2, 2.5, "a", True)}
    assert len(keys - {PLAIN.key}) == 5


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
}
TYPES = get_type_hints(Cell)  # without the limits on what a record may say
VALUES[TYPES["options"]] = st.dictionaries(st.sampled_from(FIRST_OPTIONS) | NAMES, OPTIONS, max_size=4)
BY_FIELD = {name: VALUES[kind] for name, kind in TYPES.items()}


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=5)
@given(cell=st.builds(Cell, **BY_FIELD), data=st.data())
def test_there_and_back_through_a_record_and_a_key_that_depends_on_every_field(name, cell, data):
    """The cells of a batch have one group, and differ in seed, beta and base."""
    cell = replace(cell, dataset="banana", evaluate="end")  # a record takes only names here, and only these values
    again = msgspec.json.decode(msgspec.json.encode(cell), type=Cell)
    assert (again, again.key, hash(again)) == (cell, cell.key, hash(cell))
    value = data.draw(BY_FIELD[name])
    before, after = (msgspec.json.encode(each, order="deterministic") for each in (getattr(cell, name), value))
    other = replace(cell, **{name: value})
    assert (other.key == cell.key) == (before == after)
    if value != getattr(cell, name):
        assert (other.group == cell.group) == (name in ("seed", "beta", "base"))
