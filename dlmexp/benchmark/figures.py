"""Time of `dlmexp claims`, `plot` and `report` with the records of a results folder."""

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable


def print_time(name: str, limit: float, work: Callable[[], object]) -> None:
    """Prints the seconds that `work` takes, and the limit they are compared with by the reader."""
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        work()
    seconds = time.perf_counter() - started
    print(f"{name:8} {seconds:6.1f} s   (goal: under {limit:g} s)")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dlmexp benchmark figures", description=__doc__)
    parser.add_argument(
        "--results", default="results/paper", metavar="DIR", help="results folder (default: results/paper)"
    )
    folder = parser.parse_args(argv).results

    from dlmexp.cli import claims, plot, report
    from dlmexp.records.results import load

    print(f"{len(load(folder).records)} records")
    with tempfile.TemporaryDirectory() as out:
        options = {"claims": [], "plot": ["--out", out], "report": ["--out", f"{out}/report.html"]}
        for name, limit, command in (("claims", 5.0, claims), ("plot", 60.0, plot), ("report", 60.0, report)):
            subparsers = argparse.ArgumentParser().add_subparsers()
            command.add_parser(subparsers)
            arguments = subparsers.choices[name].parse_args(["--results", folder, *options[name]])
            print_time(name, limit, lambda arguments=arguments: arguments.run(arguments))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
