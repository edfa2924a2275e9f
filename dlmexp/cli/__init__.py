"""The command `dlmexp`: words and help texts; each subcommand loads what it needs only when it runs."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from dlmexp import __version__
from dlmexp.errors import UserError
from dlmexp.plugins import extended

COMMANDS = ("run", "status", "collect", "plot", "claims", "report", "data", "benchmark")


class Parser(argparse.ArgumentParser):
    """Complains in one sentence, like everything else here."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see '{self.prog} --help'")


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="dlmexp",
        description="Direct Loss Minimization for Sparse Gaussian Processes: run the paper's sweeps, draw its figures, "
        "check its claims.",
        epilog="Start with 'dlmexp run' (a job of about a minute on drawn data), then 'dlmexp plot'.",
    )
    top.add_argument(
        "--plugins",
        default="",
        metavar="MODULE[,MODULE]",
        help="your own modules, which add figures, claims, ...",
    )
    top.add_argument("--version", action="version", version=f"dlmexp {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"dlmexp.cli.{name}").add_parser(commands)
    return top


def check_output(path: Path, folder: Path, option: str) -> None:
    """Refuse a path in a folder that can be neither written to nor made, before time is spent on what goes there."""
    from dlmexp.data.folders import is_writable

    if not is_writable(folder):
        raise UserError(f"can't write to '{path}': choose another place with {option}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: done; 1: some cells failed; 2: what was typed can't be done; 130: interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        if argv[:1] in (["run"], ["-sc"], ["--shell-completion"]) and not {"-h", "--help"} & set(argv):
            from dlmexp.cli import run

            return run.run(argv[1:] if argv[0] == "run" else argv)
        args = parser().parse_args(argv)
        with extended(plugins=[name for name in args.plugins.split(",") if name]):
            return args.run(args)
    except UserError as error:
        print(f"dlmexp: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output has gone (`dlmexp status | head`): nothing more to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno is None:
            raise
        print(f"dlmexp: {_what(error)}; see to that, or name another file or folder", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlmexp: interrupted", file=sys.stderr)
        return 130


def _what(error: OSError) -> str:
    """The operating system's complaint, with the file or folder it is about where it says which."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
