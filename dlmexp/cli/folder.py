"""What commands that read or change a results folder share: the option `--results`, and a question."""

import argparse
import sys
from pathlib import Path

from dlmexp.errors import UserError
from dlmexp.paths import in_folder


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", default="results", metavar="DIR", help="results folder (default: results)")


def results_folder(args: argparse.Namespace) -> Path:
    """The folder that `--results` names; UserError if there is none."""
    folder = Path(args.results)
    if not folder.is_dir():
        run = in_folder("dlmexp run", folder)
        raise UserError(f"--results {args.results}: there is no such folder; `{run}` makes one")
    return folder


def confirmed(question: str, yes: bool) -> bool:
    """Whether the user agrees; with `--yes` nobody is asked. `UserError` where nobody can be."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(f"{question} nobody can answer here: add --yes")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
