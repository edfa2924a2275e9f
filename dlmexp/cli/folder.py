"""The option `--results` of the commands that read a results folder."""

import argparse
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
