"""`dlmexp benchmark figures`: how long plot, claims and report take on about 20 000 made-up records."""

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable

from dlmexp.errors import UserError


def timed(name: str, limit: float, work: Callable[[], object]) -> None:
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        work()
    seconds = time.perf_counter() - started
    print(f"{name:8} {seconds:6.1f} s   (aim: under {limit:g} s)")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dlmexp benchmark figures", description=__doc__)
    parser.add_argument("--betas", type=int, default=14, help="betas per grid: 14 make some 20 000 records")
    args = parser.parse_args(argv)

    from dlmexp.cli import claims, plot, report

    try:
        from tests.support.made_up import fill, paper
    except ModuleNotFoundError:
        raise UserError("the made-up records come with the tests: run this in a checkout of the repository") from None

    with tempfile.TemporaryDirectory() as folder:
        print(f"{fill(folder, paper(betas=args.betas))} made-up records")
        for name, limit, command in (("claims", 5.0, claims), ("plot", 60.0, plot), ("report", 60.0, report)):
            subparsers = argparse.ArgumentParser().add_subparsers()
            command.add_parser(subparsers)
            arguments = subparsers.choices[name].parse_args(["--results", folder])
            timed(name, limit, lambda arguments=arguments: arguments.run(arguments))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
