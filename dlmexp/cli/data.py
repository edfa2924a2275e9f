"""`dlmexp data`: lists, downloads, imports and checks datasets."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from dlmexp.cli import Commands
from dlmexp.common.catalogue import stand_ins
from dlmexp.common.console import wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root

COLUMNS = ("name", "task", "rows", "features", "M", "state")
STYLES = {"ready": "green", "drawn": "cyan", "partial": "yellow", "missing": "red"}
ROOT = "folder with a subfolder for each dataset (default: $DLMEXP_DATA, else ./data)"


def add_parser(commands: Commands) -> None:
    data = commands.add_parser("data", help="list, fetch, import and check datasets")
    actions = data.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(
        name: str, run: Callable[..., int | None], help: str
    ) -> Callable[..., argparse.Action]:
        parser = actions.add_parser(name, help=help)
        parser.add_argument("--data-root", metavar="DIR", help=ROOT)
        parser.set_defaults(run=lambda args: run(args, data_root(args.data_root)))
        return parser.add_argument

    action("list", _list, "list all datasets: ready, partial, missing or drawn")
    action("fetch", _fetch, "download datasets")("dataset", nargs="+", metavar="NAME")
    add = action("import", _import, "copy files that you have to the data root")
    add("dataset", metavar="NAME")
    add("files", nargs="+", metavar="FILE", type=Path)
    add = action("check", _check, "verify checksums and parse all files again")
    add("dataset", nargs="*", metavar="NAME", help="only these datasets")


def _list(args: argparse.Namespace, root: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    from dlmexp.data.dataset import dataset_names, read_spec
    from dlmexp.data.raw_files import find_files, how_to_get

    console, table, notes = wide_console(), Table(*COLUMNS, box=None), []
    for spec in map(read_spec, dataset_names()):
        found, detail = find_files(spec, root), spec.note
        if found.state in ("missing", "partial"):
            others = "".join(f"; {name} may stand in" for name in stand_ins(spec.name))
            detail = how_to_get(spec, found, root) + others
        values = (spec.name, spec.task, spec.rows, spec.features, spec.M, found.state)
        texts = ["" if value is None else str(value) for value in values]
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in texts))
        notes += [f"{spec.name}: {detail}"] if detail else []
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)


def _fetch(args: argparse.Namespace, root: Path) -> None:
    from rich.progress import Progress

    from dlmexp.data.acquisition import fetch
    from dlmexp.data.dataset import read_spec

    for spec in [read_spec(name) for name in args.dataset]:
        print(f"fetching {spec.name}", file=sys.stderr, flush=True)
        with Progress(
            console=wide_console(), disable=not sys.stdout.isatty(), transient=True
        ) as bars:
            fetched = fetch(spec, root, bars)
        for path in fetched:
            print(f"{spec.name}: {path}")
        if not fetched:
            print(f"{spec.name}: nothing to fetch, all files are there")


def _import(args: argparse.Namespace, root: Path) -> None:
    from dlmexp.data.acquisition import import_files
    from dlmexp.data.dataset import read_spec
    from dlmexp.data.raw_files import find_files, how_to_get

    spec = read_spec(args.dataset)
    for path in import_files(spec, root, args.files):
        print(f"{spec.name}: {path}")
    there = find_files(spec, root)
    print(
        f"{spec.name} is {there.state}"
        + ("" if there.state == "ready" else f": {how_to_get(spec, there, root)}")
    )


def _check(args: argparse.Namespace, root: Path) -> int:
    from dlmexp.data.dataset import dataset_names, read_spec
    from dlmexp.data.raw_files import verify

    specs = [read_spec(name) for name in args.dataset or dataset_names()]
    if not root.is_dir():
        raise UserError(
            f"'{root}' is not a folder: give the one with your datasets with --data-root"
        )
    labels = {True: "ok", False: "FAILED", None: "-"}
    outcomes = []
    for spec in specs:
        sound, detail = verify(spec, root)
        outcomes.append(sound)
        print(f"{spec.name:15} {labels[sound]:7} {detail}", flush=True)
    passed, failed, absent = map(outcomes.count, labels)
    print(f"{root}: {passed} passed, {failed} failed, {absent} without files there")
    return int(failed > 0)
