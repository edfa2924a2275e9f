"""The command `dlmexp`: arguments and help texts. A subcommand imports what it needs only when it runs."""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from dlmexp import __version__
from dlmexp.console import harmless_output, nobody_reads
from dlmexp.errors import UserError, nearest
from dlmexp.plugins import extended

MODULES = ("run", "models", "manage", "outputs", "plot", "data")  # each adds its commands
COMPLETION = ("-sc", "--shell-completion")


class Parser(argparse.ArgumentParser):
    """Reports errors as UserError, so that they are printed like all others: in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see '{self.prog} --help'")

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        # A command refuses what it does not know itself, with its own options as suggestions. `run` takes all words:
        # its options may stand between overrides, of which argparse knows but the first ones.
        arguments, unknown = super().parse_known_args(args, namespace)
        if "overrides" in arguments:
            arguments.overrides, unknown = arguments.overrides + unknown, []
        if unknown and self.prog != "dlmexp":
            known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
            self.error(f"unknown argument '{unknown[0]}': {nearest(unknown[0], known)}")
        return arguments, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            self.error(f"{what} '{value}': {nearest(str(value), [str(choice) for choice in action.choices])}")


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = Parser(
        prog="dlmexp",
        description="Direct Loss Minimization for Sparse Gaussian Processes: run the paper's sweeps, draw its figures, "
        "check its claims.",
        epilog="Start with 'dlmexp run' (about a minute, on synthetic data), then 'dlmexp plot'.",
    )
    _shared_options(top)
    top.add_argument("--version", action="version", version=f"dlmexp {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in MODULES:
        import_module(f"dlmexp.cli.{name}").add_parser(commands)
    return top


def _shared_options(parser: argparse.ArgumentParser) -> None:
    """Options of all commands, which may stand anywhere among their arguments."""
    modules = "Python modules that add your own figures, claims, ..."
    parser.add_argument("--plugins", default="", metavar="MODULE[,MODULE]", help=modules)
    parser.add_argument("--config-dir", metavar="DIR", help="a conf folder of your own, with datasets, methods, ...")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. 0: done; 1: some cells failed; 2: error of the user; 3: budget= is
    spent; 128 + N: ended by signal N (130: Ctrl-C)."""
    with harmless_output():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(argv: list[str]) -> int:
    try:
        if asked := [argv[i + 1 :] for i, word in enumerate(argv[:2]) if word in COMPLETION]:
            from dlmexp.cli.complete import answer

            with extended():
                return answer(asked[0])
        shared = Parser(prog="dlmexp", add_help=False, allow_abbrev=False)
        _shared_options(shared)
        common, rest = shared.parse_known_args(argv)
        with extended(common.config_dir, [name for name in common.plugins.split(",") if name]):
            args = parser().parse_args(rest)
            args.typed = argv[argv.index(args.command) + 1 :]
            return args.run(args)
    except UserError as error:
        print(f"dlmexp: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        nobody_reads()  # as after `dlmexp status | head`
        return 0
    except OSError as error:
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"dlmexp: {where}{error.strerror}; fix that, or choose another file or folder", file=sys.stderr)
        return 2
    except MemoryError:
        print(
            "dlmexp: not enough memory; what is finished is safe, the same command goes on from there", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it leaves: nothing more to interrupt
        print("dlmexp: interrupted", file=sys.stderr)
        return 130
