"""The head of the page, and failures by reason."""

from msgspec.structs import replace

from dlmexp.records.results import Results
from dlmexp.records.store import Store
from dlmexp.report.summary import commands, failures, made_with, overview
from tests.support.made_up import asked, cell, failed, fit


def results() -> Results:
    records = [fit(cell("banana", seed=seed), nll=0.1) for seed in range(4)]
    records += [failed(cell("pol", seed=seed), "not positive definite") for seed in range(7)]
    records.append(failed(cell("pol", seed=9), "NaN"))
    records[0].made = replace(records[0].made, device="NVIDIA", time="2001-01-01T00:00:00Z")
    return Results(Store("nowhere"), records, asked(records))


def test_overview() -> None:
    head = overview(results())
    assert (head.done, head.failed, head.datasets) == (4, 8, ["banana", "pol"])
    assert (head.first, head.last) == ("2000-01-01T00:00:00Z", "2001-01-01T00:00:00Z")
    assert (head.clock, head.devices, head.added) == (4, 2, 4)
    assert (head.alone, head.unknown) == (0, 12)


def test_batches_that_share_a_device_have_their_shares_of_its_time() -> None:
    """Two batches of 3 s each, by their shares, that end at the same moment."""
    records = [fit(cell(name, seed=seed), nll=0.1) for name in ("banana", "pol") for seed in range(3)]
    for record in records:
        record.result = replace(record.result, seconds=1.0, alone=False)
    head = overview(Results(Store("nowhere"), records, asked(records)))
    assert (head.clock, head.added, head.alone, head.known, head.unknown) == (6, 6, 0, 6, 0)


def test_machines() -> None:
    assert [(values[0], count) for values, count in made_with(results())] == [("cpu", 11), ("NVIDIA", 1)]


def test_commands() -> None:
    assert commands(results()) == [("dlmexp run experiment=made-up", 12)]


def test_failures_by_reason() -> None:
    first, second = failures(results())
    assert (first.reason, first.count, len(first.examples)) == ("not positive definite", 7, 5)
    assert first.examples[0] == "pol n=100 seed=0 joint elbo exact beta=1"
    assert (second.reason, second.count) == ("NaN", 1)
