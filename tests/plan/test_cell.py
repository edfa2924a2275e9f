"""Keys: stable, and made of everything that changes a result."""

from typing import Any, get_type_hints

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS, Cell
from tests.support.cells import PLAIN


def test_the_key_is_the_same_on_every_machine_and_for_good():
    assert PLAIN.key == "4e59517bd39db2406665", "later fields with their defaults are in no key"
    assert replace(PLAIN, beta=None, seed=0).key == "5fefe9a0cf96ece1e77f"
    assert PLAIN.describe() == "banana n=100 seed=3 fixed log_dlm bmc-10 beta=0.1"


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        return {**value, "samples": 11.0}
    return "x" if isinstance(value, str | None) else value + 1


def test_every_field_and_every_option_changes_the_key():
    for field in FIELDS:
        assert replace(PLAIN, **{field: _another(getattr(PLAIN, field))}).key != PLAIN.key, field
    one, two = {"samples": 10, "a": 1, "b": 2}, {"b": 2, "a": 1, "samples": 10}  # in any order
    assert replace(PLAIN, options=one).key == replace(PLAIN, options=two).key
    assert replace(PLAIN, options=one).group == replace(PLAIN, options=two).group
    for option in (*FIRST_OPTIONS, "antithetic"):
        keys = {replace(PLAIN, options={**PLAIN.options, option: value}).key for value in (1, 2, 2.5, "a", True)}
        assert len(keys - {PLAIN.key}) == 5, option


NAMES = st.text("abcdefgh_", min_size=1, max_size=6)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
OPTIONS = st.dictionaries(
    st.one_of(st.sampled_from(FIRST_OPTIONS), NAMES),
    st.one_of(st.booleans(), st.integers(-(2**53), 2**53), NUMBERS, st.text(max_size=5)),
    max_size=4,
)
VALUES: dict[Any, st.SearchStrategy] = {
    str: st.text(max_size=6),
    int: st.integers(0, 2**53),
    float: NUMBERS,
    bool: st.booleans(),
    int | None: st.none() | st.integers(0, 2**53),
    float | None: st.none() | NUMBERS,
    str | None: st.none() | st.text(max_size=6),
    dict[str, float]: st.dictionaries(NAMES, NUMBERS, max_size=2),
}
TYPES = get_type_hints(Cell)  # without the limits on what a record may say
CELLS = st.builds(Cell, **{name: OPTIONS if name == "options" else VALUES[kind] for name, kind in TYPES.items()})


@given(CELLS, st.data())
def test_there_and_back_through_a_record_and_a_key_that_depends_on_every_field(cell, data):
    cell = replace(cell, dataset="banana", evaluate="end")  # a record takes only names here, and only these values
    again = msgspec.json.decode(msgspec.json.encode(cell), type=Cell)
    assert (again, again.key, hash(again)) == (cell, cell.key, hash(cell))
    name = data.draw(st.sampled_from(FIELDS))
    value = data.draw(OPTIONS if name == "options" else VALUES[TYPES[name]])
    before, after = (msgspec.json.encode(each, order="deterministic") for each in (getattr(cell, name), value))
    assert (replace(cell, **{name: value}).key == cell.key) == (before == after)


def test_a_group_differs_in_seed_beta_and_base_alone_and_candidates_in_beta():
    for field in FIELDS:
        other = replace(PLAIN, **{field: _another(getattr(PLAIN, field))})
        assert (other.group == PLAIN.group) == (field in ("seed", "beta", "base"))
        assert (other.group == PLAIN.group) == (field in ("beta", "seed", "base"))
