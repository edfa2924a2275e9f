"""How long something was in training, against a count of seconds."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.records.clock import Span, busy_seconds, spans
from tests.support.made_up import cell, fit

EDGES = st.tuples(st.integers(0, 60), st.integers(0, 20))


@given(st.lists(EDGES, max_size=12))
def test_seconds_in_which_at_least_one_batch_trained(several: list[tuple[int, int]]) -> None:
    counted = {second for begin, length in several for second in range(begin, begin + length)}
    assert busy_seconds([Span(begin, begin + length, []) for begin, length in several]) == len(counted)


def test_a_batch_ends_with_its_last_record_and_devices_are_apart() -> None:
    records = [fit(cell("banana", seed=seed), nll=0.1) for seed in range(4)]  # a second each
    for record, time in zip(records, ("00:00:05", "00:00:09", "00:00:09", "00:01:00"), strict=True):
        record.made = replace(record.made, time=f"2026-01-01T{time}Z")
    records[3].made = replace(records[3].made, device="other")
    one, other = spans(records).values()
    assert [(span.end - span.begin, len(span.records)) for span in (*one, *other)] == [(3.0, 3), (1.0, 1)]
    assert other[0].end - one[0].end == 51
