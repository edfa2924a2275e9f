"""Recorded runs and their replays (`scripts.benchmark clock`)."""

import csv
from pathlib import Path

import pytest

from scripts.benchmark import clock, recorded_run
from scripts.benchmark.clock import CLOSE, RUNS, Replay, wrong_by


@pytest.fixture
def recorder(monkeypatch):
    """Record with the real engine; `dlmexp run` gets the usual progress back afterwards."""
    monkeypatch.setattr(recorded_run.running, "Progress", recorded_run.running.Progress)
    monkeypatch.setattr(recorded_run.RecordedProgress, "file", None, raising=False)
    return lambda file, *words: clock.main(["record", str(file), *words])


def rows_of(file: Path) -> list[dict[str, str]]:
    """Return the rows of a recorded run."""
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream, restval=""))


def cells_of(rows: list[dict[str, str]], event: str) -> int:
    """Return how many cells the rows of an event have together."""
    return sum(int(row["cells"]) for row in rows if row["event"] == event)


def test_recorded_run_trains_and_writes_every_cell(here, tiny, recorder):
    assert recorder(Path("runs/tiny.csv"), *tiny, "method=[elbo]") == 0
    rows = rows_of(Path("runs/tiny.csv"))
    assert rows[0]["event"] == "run"
    assert rows[0]["device"] == "cpu"
    waiting = sum(int(row["waiting"]) for row in rows if row["event"] == "kind")
    assert waiting > 0
    assert cells_of(rows, "start") == cells_of(rows, "finish") == waiting
    assert rows[-1]["event"] == "end"
    assert rows[-1]["waiting"] == "0"
    assert len(list(Path("results/records").rglob("*.json"))) == waiting


def test_rows_are_in_the_file_as_soon_as_something_happens(tmp_path):
    file = tmp_path / "run.csv"
    rows = recorded_run.RowFile(file)
    rows.add("start", at=1.5, kind=0, cells=3)
    assert rows_of(file)[0]["cells"] == "3"
    assert file.read_text().splitlines()[1] == "start,1.5,0,3"
    rows.close()


def test_recording_does_not_overwrite_an_earlier_one(here, tiny, recorder):
    for _ in range(2):
        assert recorder(Path("tiny.csv"), *tiny, "method=[elbo]") == 0
    assert recorder(Path("tiny.csv"), *tiny, "method=[elbo]", "seeds=[5]") == 0
    assert Path("tiny.csv").exists()
    assert Path("tiny-2.csv").exists()


def test_kinds_that_are_known_after_the_folds_are_recorded(here, tiny, recorder):
    words = [*tiny, "method=[joint_log_dlm]", "beta.values=[1,0.1]", "cv=2"]
    assert recorder(Path("cv.csv"), *words) == 0
    rows = rows_of(Path("cv.csv"))
    run = Replay(Path("cv.csv"))
    run.start()
    run.factors()
    assert run.is_whole
    assert sum(kind.waiting for kind in run.clock.kinds.values()) == 0
    assert cells_of(rows, "finish") == cells_of(rows, "start")


# Four processes shared the H200 in its runs, and eight programs the two cores in theirs.
@pytest.mark.parametrize("file", sorted(RUNS.glob("*.csv")), ids=lambda file: file.stem)
def test_time_left_in_recorded_runs_is_usually_close(file):
    assert file.stat().st_size < 200_000
    run = Replay(file)
    assert run.is_whole
    run.start()
    factors = wrong_by(run)
    assert factors, "a run of more than a minute"
    close = sum(factor <= CLOSE for factor in factors)
    if file.stem not in SHARE_UNKNOWN:
        assert close >= 0.6 * len(factors)
    assert factors[-1] <= 2.5


# Most of what is left are kinds without a finished cell, which converge at another share.
SHARE_UNKNOWN = {"h200-decay", "h200-uci-refits"}


def test_announced_interval_is_at_most_a_factor_of_three_wide():
    for file in RUNS.glob("*.csv"):
        run = Replay(file)
        run.start()
        interval = run.clock.expected_interval(1)
        assert interval is None or interval.most <= 3 * interval.least
