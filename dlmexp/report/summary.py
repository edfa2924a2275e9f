"""What was run, on what, by which versions, and what went wrong."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from dlmexp.records.clock import Span, busy_seconds, spans
from dlmexp.records.results import Results
from dlmexp.records.schema import Record

MADE_WITH = ("device", "host", "version", "commit", "python", "torch", "gpytorch")


@dataclass(frozen=True)
class Overview:
    """The head of the page."""

    done: int
    failed: int
    datasets: list[str]
    clock: float  # seconds in which at least one batch was in training, by device, added up: at least so many
    devices: int
    added: float  # seconds of the cells, added up: where batches share a device, each has its share of it
    alone: int  # fits that had their device to themselves, ...
    known: int  # ... of those that say so, ...
    unknown: int  # ... and those of a version that did not say
    first: str
    last: str


@dataclass(frozen=True)
class Failure:
    """Cells that failed for the same reason."""

    reason: str
    count: int
    examples: list[str]


def overview(results: Results) -> Overview:
    records = results.records.values()
    by_device = spans(records)
    times = sorted(record.made.time for record in records if record.made.time)
    return Overview(
        done=sum(record.done for record in records),
        failed=sum(not record.done for record in records),
        datasets=sorted(results.tasks),
        clock=sum(map(_clock, by_device.values())),
        devices=len(by_device),
        added=sum(record.result.seconds or 0.0 for record in records),
        alone=sum(record.result.alone is True for record in records),
        known=sum(record.result.alone is not None for record in records),
        unknown=sum(record.result.alone is None and record.cell.kind == "fit" for record in records),
        first=times[0] if times else "",
        last=times[-1] if times else "",
    )


def _clock(batches: list[Span]) -> float:
    """Seconds in which one device was in use. Batches that share it began earlier than their own seconds say; but the
    shares that they had of it add up."""
    shares = sum(r.result.seconds or 0.0 for batch in batches for r in batch.records if r.result.alone is not None)
    return max(busy_seconds(batches), shares)


def made_with(results: Results) -> list[tuple[list[str], int]]:
    """Machines and versions, with the number of records each made."""
    counts = Counter(
        tuple(str(getattr(record.made, name) or "") for name in MADE_WITH) for record in results.records.values()
    )
    return [(list(values), count) for values, count in counts.most_common()]


def commands(results: Results, most: int = 40) -> list[tuple[str, int]]:
    """The commands that made the records, the most frequent first."""
    counts = Counter(str(record.made.command or "unknown") for record in results.records.values())
    return counts.most_common(most)


def failures(results: Results, examples: int = 5, most: int = 100) -> list[Failure]:
    """Failed cells by reason; the first few of each are named."""
    by_reason: dict[str, list[Record]] = defaultdict(list)
    for record in results.records.values():
        if not record.done:
            by_reason[str(record.result.reason or "no reason given")].append(record)
    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Failure(reason, len(several), [record.cell.describe() for record in several[:examples]])
        for reason, several in ordered[:most]
    ]
