"""`dlmexp report`: one HTML page about your results."""

import argparse
from pathlib import Path

from dlmexp.cli.folder import add_results

DESCRIPTION = """
Writes one self-contained HTML file about the records under --results: what was found, a verdict on each of the paper's
claims, the figures, a table of results, failures, and how everything was made. Protocols stand behind a switch.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("report", help="write one HTML page about your results", description=DESCRIPTION)
    add_results(parser)
    parser.add_argument("--out", metavar="FILE", help="file to write (default: report.html in the results folder)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.atomic import write_atomically
    from dlmexp.cli import check_writable
    from dlmexp.errors import UserError
    from dlmexp.records.results import load
    from dlmexp.report.page import page

    out = Path(args.out) if args.out else Path(args.results) / "report.html"
    if out.is_dir():
        raise UserError(f"--out {out} is a folder: give a file such as {out / 'report.html'}")
    if not out.parent.is_dir() and args.out:
        raise UserError(f"--out {out}: there is no folder '{out.parent}'")
    results = load(args.results)
    check_writable(out, out.parent, "--out")
    write_atomically(out, page(results).encode())
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
