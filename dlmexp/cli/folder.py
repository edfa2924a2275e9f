"""What the commands share: how one is added, its results folder, a question, and whether a file can be written."""

import argparse
import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Any

from dlmexp.atomic import is_writable
from dlmexp.errors import UserError
from dlmexp.paths import in_folder

Commands = argparse._SubParsersAction  # what `add_subparsers` returns


def add_command(
    commands: Commands, run: Callable[[argparse.Namespace], int], help: str, **more: Any
) -> argparse.ArgumentParser:
    """Add the command that a function is: its name, its docstring as the description (with its own line breaks if it
    begins in its second line), and the option `--results`, unless it takes settings. Returns its parser."""
    text = run.__doc__ or ""
    formatter = argparse.RawDescriptionHelpFormatter if text.startswith("\n") else argparse.HelpFormatter
    parser = commands.add_parser(run.__name__, help=help, description=cleandoc(text), formatter_class=formatter, **more)
    if run.__name__ != "run":
        parser.add_argument("--results", default="results", metavar="DIR", help="results folder (default: results)")
    parser.set_defaults(run=run)
    return parser


def results_folder(args: argparse.Namespace) -> Path:
    """The folder that `--results` names; UserError if there is none."""
    folder = Path(args.results)
    if not folder.is_dir():
        run = in_folder("dlmexp run", folder)
        raise UserError(f"--results {args.results}: there is no such folder; `{run}` makes one")
    return folder


def check_writable(path: Path, folder: Path, option: str) -> None:
    """Raises UserError if `folder`, which is to hold `path`, can be neither written to nor created; `option` set it."""
    if not is_writable(folder):
        raise UserError(f"can't write to '{path}': choose another path with {option}")


def confirmed(question: str, yes: bool) -> bool:
    """Whether the user agrees; with `--yes` nobody is asked. `UserError` where nobody can be."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(f"{question} nobody can answer here: add --yes")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
