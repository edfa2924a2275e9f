"""The command `dlmexp`: arguments, help texts and shell completion. A subcommand imports what it
needs only when it runs; completion loads nothing slow."""

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any, NoReturn

from dlmexp import __version__
from dlmexp.common import catalogue
from dlmexp.common.console import discard_stdout, sanitized_output
from dlmexp.common.errors import UserError, nearest
from dlmexp.common.extensions import extended

Commands = argparse._SubParsersAction  # what `add_subparsers` returns
MODULES = ("models", "results", "data")  # each adds its commands


class Parser(argparse.ArgumentParser):
    """Reports errors as UserError, so that they are printed like all others: in one line, with exit
    code 2. Every command has the two options that are added here."""

    def __init__(self, **more: Any):
        super().__init__(**more)
        modules = "Python modules that add your own figures, claims, ..."
        self.add_argument(
            "--plugins", default=argparse.SUPPRESS, metavar="MODULE[,MODULE]", help=modules
        )
        folder = "a conf folder of your own, with datasets, methods, ..."
        self.add_argument("--config-dir", default=argparse.SUPPRESS, metavar="DIR", help=folder)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see '{self.prog} --help'")

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        # A command refuses what it does not know itself, with its own options as suggestions. `run`
        # takes all words: its options may stand between overrides, of which argparse knows but the
        # first ones.
        arguments, unknown = super().parse_known_args(args, namespace)
        known = [
            name
            for action in self._actions
            for name in action.option_strings
            if name.startswith("--")
        ]
        if "overrides" in arguments:
            from dlmexp.experiment.plan.overrides import settings

            arguments.overrides += [word for word in unknown if not word.startswith("-")]
            unknown = [word for word in unknown if word.startswith("-")]
            typed = unknown[0].lstrip("-").partition("=")[0] if unknown else ""
            known += [f"{name}=" for name in settings(typed) if name == typed]
        if unknown and self.prog != "dlmexp":
            self.error(f"unknown argument '{unknown[0]}': {nearest(unknown[0], known)}")
        return arguments, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            self.error(
                f"{what} '{value}': {nearest(str(value), [str(choice) for choice in action.choices])}"
            )


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = Parser(
        prog="dlmexp",
        description="Direct Loss Minimization for Sparse Gaussian Processes: run the paper's sweeps, draw its figures, "
        "check its claims.",
        epilog="Start with 'dlmexp run' (about a minute, on synthetic data), then 'dlmexp plot'.",
    )
    top.set_defaults(plugins="", config_dir=None)
    top.add_argument("--version", action="version", version=f"dlmexp {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in MODULES:
        import_module(f"dlmexp.cli.{name}").add_parser(commands)
    return top


def add_command(
    commands: Commands, run: Callable[[argparse.Namespace], int | None], help: str, **more: Any
) -> argparse.ArgumentParser:
    """Add the command that a function is: its name, its docstring as the description (with its own
    line breaks if it begins in its second line), and the option `--results`, unless it takes
    settings. It returns an exit code, or None for 0. Returns its parser."""
    text = run.__doc__ or ""
    formatter = (
        argparse.RawDescriptionHelpFormatter if text.startswith("\n") else argparse.HelpFormatter
    )
    parser = commands.add_parser(
        run.__name__, help=help, description=cleandoc(text), formatter_class=formatter, **more
    )
    if run.__name__ != "run":
        parser.add_argument(
            "--results", default="results", metavar="DIR", help="results folder (default: results)"
        )
    parser.set_defaults(run=run)
    return parser


@sanitized_output()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. 0: done; 1: some cells failed; 2: error of the user;
    3: budget= is spent; 128 + N: ended by signal N (130: Ctrl-C)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what the last word of a line can become
            import argcomplete

            with extended():
                argcomplete.autocomplete(parser(), default_completer=known_values)  # pyright: ignore[reportArgumentType]
        args = parser().parse_args(words)
        with extended(args.config_dir, [name for name in args.plugins.split(",") if name]):
            args.typed = words[words.index(args.command) + 1 :]
            return args.run(args) or 0
    except BrokenPipeError:
        discard_stdout()  # as after `dlmexp status | head`
        return 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it leaves: nothing more to interrupt
        said, code = "interrupted", 130
    except MemoryError:
        said, code = (
            "not enough memory; what is finished is safe, the same command goes on from there",
            2,
        )
    except UserError as error:
        said, code = str(error), 2
    except OSError as error:
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        said, code = f"{where}{error.strerror}; fix that, or choose another file or folder", 2
    print(f"dlmexp: {said}", file=sys.stderr)
    return code


def known_values(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """For shell completion: what an argument without `choices` can be, by the name it is stored
    under."""
    if action.dest in ("dataset", "protocol"):
        return catalogue.names(action.dest)
    if action.dest == "ids":
        from dlmexp.presentation.figures.panels import FIGURES, PREDICTIONS

        return [*FIGURES.names(), PREDICTIONS]
    if action.dest == "overrides":
        return _settings(prefix)
    from argcomplete.completers import FilesCompleter

    return FilesCompleter()(prefix)


def _settings(last: str) -> Iterator[str]:
    """Keys that start with `last`; behind `key=`, the names of a group or the choices of a
    setting."""
    from dlmexp.experiment.plan.overrides import GROUPS, settings

    key, equals, value = last.partition("=")
    known = settings(key)
    if not equals:
        for name in dict.fromkeys([*GROUPS, *known]):
            if name.count(".") <= key.count("."):
                inner = name not in GROUPS and any(other.startswith(f"{name}.") for other in known)
                yield f"{name}{'.' if inner else '='}"
        return
    start = max(value.rfind("["), value.rfind(",")) + 1  # of the last name in a list
    allowed = re.findall(r"\^\(([\w|]+)\)\$", str(known.get(key)))  # of `config.one_of`
    choices = (
        ["true", "false"]
        if known.get(key) is bool
        else [word for words in allowed for word in words.split("|")]
    )
    for name in catalogue.names(key) if key in GROUPS else choices:
        yield f"{key}={value[:start]}{name}"
