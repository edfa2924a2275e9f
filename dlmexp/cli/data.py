"""`dlmexp data`: list, download, import and check datasets."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, Parser
from dlmexp.common.catalogue import stand_ins, with_members
from dlmexp.common.console import wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root

if TYPE_CHECKING:
    from rich.text import Text

    from dlmexp.data.config import DatasetConfig
    from dlmexp.data.raw_files import FileInventory

COLUMNS = ("name", "task", "rows", "features", "M", "state")
STYLE_OF_STATE = {"ready": "green", "drawn": "cyan", "partial": "yellow", "missing": "red"}
ROOT_HELP = "folder with a subfolder for each dataset (default: $DLMEXP_DATA, else ./data)"
Action = Callable[[argparse.Namespace, Path], int | None]


def add_commands(commands: Commands) -> None:
    """Add `data` with its actions."""
    data = commands.add_parser("data", help="list, fetch, import and check datasets")
    actions = data.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_action(
        actions, "list", list_datasets, "list all datasets: ready, partial, missing or drawn"
    )
    fetch = _add_action(actions, "fetch", fetch_datasets, "download datasets")
    fetch.add_argument("dataset", nargs="+", metavar="NAME", help="datasets, or suites such as uci")
    add = _add_action(
        actions, "import", import_dataset, "copy files that you have to the data root"
    )
    add.add_argument("dataset", metavar="NAME")
    add.add_argument("files", nargs="+", metavar="FILE", type=Path)
    check = _add_action(
        actions, "check", check_datasets, "verify checksums and parse all files again"
    )
    check.add_argument("dataset", nargs="*", metavar="NAME", help="only these datasets or suites")


def _add_action(actions: Commands, name: str, action: Action, summary: str) -> Parser:
    parser = actions.add_parser(name, help=summary)
    parser.add_argument("--data-root", metavar="DIR", help=ROOT_HELP)
    parser.set_defaults(run=partial(_run_action, action))
    return parser


def _run_action(action: Action, args: argparse.Namespace) -> int | None:
    return action(args, data_root(args.data_root))


def list_datasets(args: argparse.Namespace, root: Path) -> None:
    """Print a table of all datasets, and notes on some of them below it."""
    from rich.table import Table

    from dlmexp.data.dataset import dataset_names, read_spec
    from dlmexp.data.raw_files import find_files

    table = Table(*COLUMNS, box=None)
    notes = []
    for name in dataset_names():
        spec = read_spec(name)
        files = find_files(spec, root)
        values = (spec.name, spec.task, spec.rows, spec.features, spec.M, files.state)
        cells = map(_styled_cell, values)
        table.add_row(*cells)
        note = _note(spec, files, root)
        if note:
            notes.append(f"{spec.name}: {note}")
    console = wide_console()
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)


def _styled_cell(value: object) -> "Text":
    """Return a cell of the table: empty for None; the states of datasets have colours."""
    from rich.text import Text

    text = "" if value is None else str(value)
    return Text(text, style=STYLE_OF_STATE.get(text, ""))


def _note(spec: "DatasetConfig", files: "FileInventory", root: Path) -> str:
    """Return the note on a dataset.

    If files are missing, it says how to get them, and which datasets may stand in. Otherwise it is
    the `note` in the YAML file of the dataset.
    """
    from dlmexp.data.raw_files import how_to_get

    if files.state not in ("missing", "partial"):
        return spec.note or ""
    note = how_to_get(spec, files, root)
    for stand_in in stand_ins(spec.name):
        note += f"; {stand_in} may stand in"
    return note


def fetch_datasets(args: argparse.Namespace, root: Path) -> None:
    """Download the files of datasets that are missing from the data root."""
    from rich.progress import Progress

    from dlmexp.data.acquisition import fetch
    from dlmexp.data.dataset import read_spec

    specs = [read_spec(name) for name in with_members(args.dataset)]
    problems = []
    for spec in specs:
        print(f"fetching {spec.name}", file=sys.stderr, flush=True)
        is_hidden = not sys.stdout.isatty()
        try:
            with Progress(console=wide_console(), disable=is_hidden, transient=True) as bars:
                paths = fetch(spec, root, bars)
        except UserError as error:
            # Go on with the other datasets of a suite.
            problems.append(str(error))
            continue
        for path in paths:
            print(f"{spec.name}: {path}")
        if not paths:
            print(f"{spec.name}: nothing to fetch, all files are there")
    if problems:
        raise UserError("; ".join(problems))


def import_dataset(args: argparse.Namespace, root: Path) -> None:
    """Copy files of a dataset to the data root, and print whether it is complete."""
    from dlmexp.data.acquisition import import_files
    from dlmexp.data.dataset import read_spec
    from dlmexp.data.raw_files import find_files, how_to_get

    spec = read_spec(args.dataset)
    for path in import_files(spec, root, args.files):
        print(f"{spec.name}: {path}")
    files = find_files(spec, root)
    advice = ""
    if files.state != "ready":
        advice = f": {how_to_get(spec, files, root)}"
    print(f"{spec.name} is {files.state}{advice}")


def check_datasets(args: argparse.Namespace, root: Path) -> int:
    """Verify the files of datasets; return the exit code, 1 if any is wrong."""
    from dlmexp.data.dataset import dataset_names, read_spec
    from dlmexp.data.raw_files import verify

    specs = [read_spec(name) for name in with_members(args.dataset or dataset_names())]
    if not root.is_dir():
        raise UserError(
            f"'{root}' is not a folder: give the one with your datasets with --data-root"
        )
    # `verify` returns True if all files are right, False if one is wrong, None if there are none.
    labels = {True: "ok", False: "FAILED", None: "-"}
    outcomes = []
    for spec in specs:
        outcome, description = verify(spec, root)
        outcomes.append(outcome)
        print(f"{spec.name:15} {labels[outcome]:7} {description}", flush=True)
    passed = outcomes.count(True)
    failed = outcomes.count(False)
    without_files = outcomes.count(None)
    print(f"{root}: {passed} passed, {failed} failed, {without_files} without files there")
    return 1 if failed else 0
