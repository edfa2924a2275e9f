"""The accuracy of the announced time and of the time left, by replays of recorded runs.

    python -m scripts.benchmark clock record FILE.csv experiment=class-log seeds=5
    python -m scripts.benchmark clock replay [FILE.csv ...]

The first trains as `dlmexp run` does, and writes down what happens (`recorded_run.py`); a run with
`budget=10min` or one that is killed keeps its rows. The second prints a table. Recorded runs are in
the folder `runs` beside this file.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from dlmexp.common.console import duration
from dlmexp.common.errors import UserError
from dlmexp.experiment.running.clock import Clock, KindCount
from dlmexp.experiment.running.cost import BatchShape, Measurement, Steps
from scripts.benchmark.recorded_run import record

RUNS = Path(__file__).parent / "runs"
FIRST_MINUTE = 60.0
CHECK_EVERY = 5.0  # seconds between looks at the time left
LAST_SECONDS = 10.0  # at the end of a run, in which ratios of times say nothing
CLOSE = 1.5  # a factor by which the time left may be wrong


class Replay:
    """A recorded run, event by event."""

    def __init__(self, file: Path):
        self.name = file.stem
        with file.open(newline="") as stream:
            self.rows = list(csv.DictReader(stream, restval=""))
        begins = [row for row in self.rows if row["event"] == "run"]
        self.clock = Clock([], begins[0]["device"])
        self.total = float(self.rows[-1]["at"])
        self._looks: dict[str, tuple[float, int]] = {}  # time and iteration, by batch

    @property
    def is_whole(self) -> bool:
        """Whether the run went to its end."""
        return self.rows[-1]["event"] == "end" and self.rows[-1]["waiting"] == "0"

    def start(self) -> None:
        """Let the clock know the kinds and the trials, as they were before training."""
        for row in self.rows:
            if row["event"] in ("start", "look", "finish"):
                break
            self._apply(row)

    def factors(self) -> list[tuple[float, float]]:
        """Return pairs of seconds since the start and the ratio of shown to true time left.

        They begin after the first minute.
        """
        factors = []
        next_check = FIRST_MINUTE
        for row in self.rows:
            seconds = float(row["at"])
            while seconds >= next_check and next_check <= self.total - LAST_SECONDS:
                shown_left = self.clock.seconds_left(next_check)
                if shown_left is not None:
                    factors.append((next_check, shown_left / (self.total - next_check)))
                next_check += CHECK_EVERY
            if row["event"] != "trial":
                self._apply(row)
        return factors

    def _apply(self, row: dict[str, str]) -> None:
        """Update the clock by an event."""
        match row["event"]:
            case "kind":
                self._note_kind(row)
            case "trial":
                self._note_trial(row)
            case "look":
                self._note_look(row)
            case "finish":
                self._note_finished(row)

    def _note_kind(self, row: dict[str, str]) -> None:
        name = int(row["kind"])
        if name in self.clock.kinds:
            self.clock.kinds[name].waiting = int(row["waiting"])
            return
        shape = BatchShape(
            kind=name,
            family=row["family"],
            task=row["task"],
            cells=int(row["cells"]),
            work=float(row["work"]),
            limit=int(row["limit"]),
            may_converge=row["may_converge"] == "1",
            is_timed=row["is_timed"] == "1",
        )
        self.clock.kinds[name] = KindCount(shape, waiting=int(row["waiting"]))

    def _note_trial(self, row: dict[str, str]) -> None:
        kind = self.clock.kinds[int(row["kind"])]
        steps = Steps(1, int(row["cells"]))
        self.clock.trials.append(Measurement(kind.shape, steps, float(row["seconds"]), alone=True))

    def _note_look(self, row: dict[str, str]) -> None:
        kind = self.clock.kinds[int(row["kind"])]
        batch = f"{row['batch']}: "
        self._note_speed(kind, row)
        before = [cell for cell in kind.reached if cell.startswith(batch)]
        live = int(row["cells"])
        for number in range(live):
            kind.reached[f"{batch}{number}"] = int(row["iterations"])
        for cell in before[live:]:
            del kind.reached[cell]
            kind.stopped.add(cell)

    def _note_speed(self, kind: KindCount, row: dict[str, str]) -> None:
        at = float(row["at"])
        iteration = int(row["iterations"])
        last = self._looks.get(row["batch"])
        self._looks[row["batch"]] = (at, iteration)
        if last is not None and at > last[0]:
            kind.note_speed((iteration - last[1]) / (at - last[0]), at - last[0])

    def _note_finished(self, row: dict[str, str]) -> None:
        kind = self.clock.kinds[int(row["kind"])]
        cells = int(row["cells"])
        kind.note_finished(
            cells, int(row["iterations"]), int(row["longest"]), float(row["seconds"])
        )
        for cell in sorted(kind.stopped)[:cells]:
            kind.stopped.discard(cell)
            cells -= 1
        # The others have stopped since the last look.
        for cell in list(kind.reached)[-cells:] if cells else []:
            del kind.reached[cell]


def wrong_by(run: Replay) -> list[float]:
    """Return by which factors the time left of a run was wrong, sorted."""
    return sorted(max(factor, 1 / max(factor, 1e-9)) for _, factor in run.factors())


def replay(files: Sequence[Path]) -> int:
    """Print how good the clock would have been in each recorded run."""
    columns = ("run", "took", "announced", "time left: median", "90 %", "worst", "within 1.5")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for file in files:
        run = Replay(file)
        if not run.is_whole:
            print(f"| {run.name} | not whole |")
            continue
        run.start()
        interval = run.clock.expected_interval(1)
        announced = "-"
        if interval is not None:
            announced = f"{duration(interval.least)} to {duration(interval.most)}"
        factors = wrong_by(run)
        cells = ["-"] * 4
        if factors:
            places = [factors[int(share * (len(factors) - 1))] for share in (0.5, 0.9, 1.0)]
            good = sum(factor <= CLOSE for factor in factors) / len(factors)
            cells = [*(f"{factor:.2f}" for factor in places), f"{good:.0%}"]
        print(f"| {' | '.join([run.name, duration(run.total), announced, *cells])} |")
    return 0


def main(arguments: list[str]) -> int:
    """Record a run, or replay recorded ones."""
    parser = argparse.ArgumentParser("scripts.benchmark clock", description=__doc__)
    parser.add_argument("action", choices=("record", "replay"))
    parser.add_argument("files", nargs="*", help="a file to write and arguments of `dlmexp run`")
    options = parser.parse_args(arguments)
    if options.action == "record":
        if not options.files:
            raise UserError("record: give a file to write, and arguments of dlmexp run")
        return record(Path(options.files[0]), options.files[1:])
    return replay([Path(file) for file in options.files] or sorted(RUNS.glob("*.csv")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
