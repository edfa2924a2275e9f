"""When batches were trained, from the times in their records: a batch ended when its last record was written, and took
at least as long as the seconds of its cells together."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from dlmexp.records.schema import Record

Device = tuple[str | None, str | None]  # host and device


class Span(NamedTuple):
    """A batch in training, in seconds since 1970."""

    begin: float
    end: float
    records: list[Record]


def spans(records: Iterable[Record]) -> dict[Device, list[Span]]:
    """The batches of each device; records without a time, or without seconds, are left out."""
    batches: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.result.seconds and record.made.time:
            made = record.made
            batches[(made.host, made.device), (record.cell.group, made.command, made.commit)].append(record)
    found: dict[Device, list[Span]] = defaultdict(list)
    for (device, _), several in batches.items():
        end = max(datetime.fromisoformat(str(record.made.time)).timestamp() for record in several)
        found[device].append(Span(end - sum(record.result.seconds or 0.0 for record in several), end, several))
    return found


def busy_seconds(several: Iterable[Span]) -> float:
    """How long at least one of the batches was in training."""
    total, until = 0.0, float("-inf")
    for span in sorted(several, key=lambda span: span.begin):
        total += max(span.end - max(span.begin, until), 0.0)
        until = max(until, span.end)
    return total
