"""The arguments of all commands."""

import argparse
from collections.abc import Callable
from importlib import import_module
from inspect import cleandoc
from typing import Any, NoReturn

from dlmexp import __version__
from dlmexp.common.errors import UserError, nearest

Commands = argparse._SubParsersAction  # what `add_subparsers` returns
Command = Callable[[argparse.Namespace], int | None]

# The modules of commands; each adds its commands to the parser.
MODULES = (
    "run",
    "models",
    "jobs",
    "results",
    "rank",
    "plot",
    "data",
    "fetch_results",
    "plugins",
)

DESCRIPTION = """\
Direct Loss Minimization for Sparse Gaussian Processes: run the paper's sweeps, draw its
figures, check its claims."""
EPILOG = "Start with 'dlmexp run' (about a minute, on synthetic data), then 'dlmexp plot'."


class Parser(argparse.ArgumentParser):
    """A parser that raises `UserError`, with the options `--plugins` and `--config-dir`."""

    takes_settings = False  # whether the arguments are settings of a run, `key=value`

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.add_argument(
            "--plugins",
            default=argparse.SUPPRESS,
            metavar="MODULE[,MODULE]",
            help="Python modules that add your own figures, claims, ...",
        )
        self.add_argument(
            "--config-dir",
            default=argparse.SUPPRESS,
            metavar="DIR",
            help="a conf folder of your own, with datasets, methods, ...",
        )

    def error(self, message: str) -> NoReturn:
        """Raise UserError; `main` prints it in one line, as all errors of users."""
        raise UserError(f"{message}; see '{self.prog} --help'")

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse arguments; refuse unknown ones, with the options of this command as suggestions."""
        arguments, unknown = super().parse_known_args(args, namespace)
        if self.takes_settings:
            # argparse takes only the settings before the first option. It returns settings between
            # or after options as unknown words.
            arguments.overrides += [word for word in unknown if not word.startswith("-")]
            unknown = [word for word in unknown if word.startswith("-")]
        # The parser of a command refuses unknown words before they come to the top parser.
        is_parser_of_command = self.prog != "dlmexp"
        if unknown and is_parser_of_command:
            self._refuse(unknown[0])
        return arguments, unknown

    def _refuse(self, word: str) -> NoReturn:
        """Raise the error that an argument is unknown; its message names similar ones."""
        valid = [*self._long_options(), *self._settings_like(word)]
        suggestion = nearest(word, valid)
        self.error(f"unknown argument '{word}': {suggestion}")

    def _long_options(self) -> list[str]:
        names: list[str] = []
        for action in self._actions:
            names += [name for name in action.option_strings if name.startswith("--")]
        return names

    def _settings_like(self, word: str) -> list[str]:
        """Return the setting `seeds=` for the unknown option `--seeds`, if settings are taken."""
        if not self.takes_settings:
            return []
        from dlmexp.experiment.plan.overrides import setting_types

        name = word.lstrip("-").partition("=")[0]
        return [f"{name}="] if name in setting_types(name) else []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the argument's choices, and name similar ones.

        argparse calls this.
        """
        if action.choices is None or value in action.choices:
            return
        name = "/".join(action.option_strings)
        if not name:  # a positional argument
            name = str(action.metavar or action.dest).lower()
        choices = [str(choice) for choice in action.choices]
        suggestion = nearest(str(value), choices)
        self.error(f"{name} '{value}': {suggestion}")


def make_parser() -> Parser:
    """Return the parser of all commands."""
    top = Parser(prog="dlmexp", description=DESCRIPTION, epilog=EPILOG)
    top.set_defaults(plugins="", config_dir=None)
    top.add_argument("--version", action="version", version=f"dlmexp {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in MODULES:
        import_module(f"dlmexp.cli.{name}").add_commands(commands)
    return top


def add_command(
    commands: Commands,
    name: str,
    run: Command,
    *,
    summary: str,
    description: str = "",
    lines_as_written: bool = False,
    usage: str | None = None,
) -> Parser:
    """Add a command and return its parser.

    Args:
        commands: The commands to which it is added.
        name: What the user types.
        run: The function of the command; it returns an exit code, or None for 0.
        summary: One line for the list of all commands.
        description: The help text of the command.
        lines_as_written: Keep the line breaks of the description; otherwise it is filled to the
            width of the terminal.
        usage: The line of usage; None: argparse writes it.
    """
    formatter = argparse.HelpFormatter
    if lines_as_written:
        formatter = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        name,
        help=summary,
        description=cleandoc(description),
        formatter_class=formatter,
        usage=usage,
    )
    parser.set_defaults(run=run)
    return parser


def add_results_option(parser: Parser) -> None:
    """Add `--results`, the option of all commands that read a results folder."""
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="results folder (default: results)"
    )


def add_with_option(parser: Parser) -> None:
    """Add `--with`, which names further folders whose packed records are read."""
    parser.add_argument(
        "--with",
        dest="pack_folders",
        action="append",
        default=[],
        metavar="DIR",
        help="read the packed records of this folder too, such as results/uci; nothing is trained",
    )
