"""`dlmexp results`: download the packs of published records."""

import argparse
import sys
from pathlib import Path

from dlmexp.cli.parser import Commands
from dlmexp.common.console import wide_console

FETCH_DESCRIPTION = """\
Downloads the packs of published records, which belong to a release and are part of neither the
wheel nor the sdist. Each file is compared with the SHA-256 that the release lists; files that are
complete already are not downloaded again. Then other commands can read the packs, as in
`dlmexp claims --results results/paper`."""


def add_commands(commands: Commands) -> None:
    """Add `results` with its action."""
    results = commands.add_parser("results", help="download published records")
    actions = results.add_subparsers(dest="action", metavar="ACTION", required=True)
    summary = "download the packs of a release"
    parser = actions.add_parser("fetch", help=summary, description=FETCH_DESCRIPTION)
    parser.add_argument(
        "--url", metavar="URL", help="address of the files (default: $DLMEXP_RESULTS_URL)"
    )
    parser.add_argument(
        "--out", default="results", metavar="DIR", type=Path, help="folder (default: results)"
    )
    parser.set_defaults(run=fetch_results)


def fetch_results(args: argparse.Namespace) -> None:
    """Download the packs that are missing or have other contents, and print their paths."""
    from rich.progress import Progress

    from dlmexp.data.releases import fetch_packs, release_address

    address = release_address(args.url)
    is_hidden = not sys.stdout.isatty()
    with Progress(console=wide_console(), disable=is_hidden, transient=True) as bars:
        paths = fetch_packs(address, args.out, bars)
    for path in paths:
        print(path)
    if not paths:
        print("nothing to fetch, all packs are there")
