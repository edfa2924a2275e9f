"""`dlmexp data`: lists, downloads, imports and checks datasets."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.console import counted, wide_console

if TYPE_CHECKING:
    from dlmexp.data.acquire import ProgressCallback
    from dlmexp.data.dataset import DatasetStatus

COLUMNS = ("name", "task", "rows", "features", "M", "state")
STYLES = {"ready": "green", "drawn": "cyan", "partial": "yellow", "missing": "red"}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `data` and its actions to the command line."""
    data = commands.add_parser("data", help="list, fetch, import and check datasets")
    data.set_defaults(run=run)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--data-root",
        metavar="DIR",
        help="folder with a subfolder for each dataset (default: $DLMEXP_DATA, else ./data)",
    )
    actions = data.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[common], help="list all datasets: ready, partial, missing or drawn")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    fetch = actions.add_parser("fetch", parents=[common], help="download datasets")
    fetch.add_argument("names", nargs="+", metavar="NAME")
    importing = actions.add_parser("import", parents=[common], help="copy files that you have to the data root")
    importing.add_argument("name", metavar="NAME")
    importing.add_argument("files", nargs="+", metavar="FILE", type=Path)
    check = actions.add_parser("check", parents=[common], help="verify checksums and parse all files again")
    check.add_argument("names", nargs="*", metavar="NAME", help="only these datasets")


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 if `check` found an error."""
    from dlmexp.paths import data_root

    root = data_root(args.data_root)
    actions: dict[str, Callable[[argparse.Namespace, Path], int]] = {
        "list": _list,
        "fetch": _fetch,
        "import": _import,
        "check": _check,
    }
    return actions[args.action](args, root)


def _list(args: argparse.Namespace, root: Path) -> int:
    import json
    from dataclasses import asdict

    from dlmexp.data.dataset import dataset_status
    from dlmexp.data.spec import dataset_names, read_spec

    rows = [dataset_status(read_spec(name), root) for name in dataset_names()]
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    elif sys.stdout.isatty():
        _rich_table(rows, root)
    else:
        _plain_table(rows)
    return 0


def _fetch(args: argparse.Namespace, root: Path) -> int:
    from dlmexp.data.acquire import fetch
    from dlmexp.data.spec import read_spec

    for spec in [read_spec(name) for name in args.names]:
        with _progress() as progress:
            fetched = fetch(spec, root, progress)
        for path in fetched:
            print(f"{spec.name}: {path}")
        if not fetched:
            print(f"{spec.name}: nothing to fetch, all files are there")
    return 0


def _import(args: argparse.Namespace, root: Path) -> int:
    from dlmexp.data.acquire import import_files
    from dlmexp.data.raw_files import find_files, how_to_get
    from dlmexp.data.spec import read_spec

    spec = read_spec(args.name)
    for path in import_files(spec, root, args.files):
        print(f"{spec.name}: {path}")
    found = find_files(spec, root)
    print(f"{spec.name} is {found.state}" + ("" if found.state == "ready" else f": {how_to_get(spec, found, root)}"))
    return 0


def _check(args: argparse.Namespace, root: Path) -> int:
    from dlmexp.data.dataset import verify
    from dlmexp.data.spec import dataset_names, read_spec
    from dlmexp.errors import UserError

    specs = [read_spec(name) for name in args.names or dataset_names()]
    if not root.is_dir():
        raise UserError(f"'{root}' is not a folder: give the one with your datasets with --data-root")
    labels = {True: "ok", False: "FAILED", None: "-"}
    outcomes = []
    for spec in specs:
        sound, detail = verify(spec, root)
        outcomes.append(sound)
        print(f"{spec.name:15} {labels[sound]:7} {detail}", flush=True)
    failed, absent = outcomes.count(False), outcomes.count(None)
    print(
        f"{counted(len(outcomes) - absent, 'dataset')} checked in {root}, "
        + (f"{failed} failed" if failed else "all passed")
        + (f"; {counted(absent, 'other')} without files there" if absent else "")
    )
    return 1 if failed else 0


def _texts(row: "DatasetStatus") -> list[str]:
    return ["" if (value := getattr(row, column)) is None else str(value) for column in COLUMNS]


def _plain_table(rows: "list[DatasetStatus]") -> None:
    table = [[*COLUMNS, "folder, notes, what to do"], *([*_texts(row), _folders_and_detail(row)] for row in rows)]
    widths = [max(len(line[k]) for line in table) for k in range(len(COLUMNS))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)))


def _rich_table(rows: "list[DatasetStatus]", root: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"datasets in {root}")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in ("rows", "features", "M") else "left", no_wrap=True)
    table.add_column("folder, notes, what to do", overflow="fold")
    for row in rows:
        # Text, not markup: a folder may be called [red].
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in _texts(row)), Text(_folders_and_detail(row)))
    wide_console().print(table)


def _folders_and_detail(row: "DatasetStatus") -> str:
    folders = ", ".join(row.folders) if row.state == "ready" else ""
    return ": ".join(filter(None, [folders, row.detail]))


@contextmanager
def _progress() -> "Iterator[Callable[[str], ProgressCallback]]":
    """Yields a function from the name of a file to its progress callback: a bar on a terminal, else a line per file."""
    if not sys.stderr.isatty():
        yield _line
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=wide_console(stderr=True)) as bars:

        def bar(name: str) -> "ProgressCallback":
            task = bars.add_task(name, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield bar


def _line(name: str) -> "ProgressCallback":
    print(f"fetching {name}", file=sys.stderr, flush=True)
    return lambda done, total: None
