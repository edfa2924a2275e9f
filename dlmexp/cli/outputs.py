"""`dlmexp collect`, `claims` and `report`: results as a table, as verdicts on the paper, and as a page."""

import argparse
import os
import sys
from pathlib import Path

from dlmexp.atomic import check_output, write_atomically
from dlmexp.cli.folder import Commands, add_command, check_writable
from dlmexp.console import counted
from dlmexp.errors import UserError

FORMS = {
    "--details": "also the numbers behind each verdict, and their commands",
    "--json": "everything, for programs",
    "--markdown": "tables and details, in Markdown",
    "--counts": "how many claims have which verdict, in Markdown",
}


def add_parser(commands: Commands) -> None:
    shown = "write the results as one table, or pack the records into one file"
    add = add_command(commands, collect, shown).add_argument
    add("--csv", action="store_true", help="write table.csv instead of table.parquet")
    add("--pack", metavar="FILE", help="write all records to one .parquet file instead")
    add("--protocol", metavar="NAME", help="with --pack: only records of this protocol, unchanged")
    parser = add_command(commands, claims, "judge the paper's claims by your results")
    add, form = parser.add_argument, parser.add_mutually_exclusive_group()
    add("numbers", nargs="*", metavar="NUMBER", help="claims to judge, such as 7 18 (default: all)")
    add("--protocol", metavar="NAME", help="judge under this protocol alone (default: all that were run)")
    where = "judge the records made with this value, such as training.lr=0.01, in columns of their own"
    add("--where", action="append", default=[], metavar="SETTING=VALUE", help=where)
    for option, what in FORMS.items():
        form.add_argument(option, dest="form", action="store_const", const=option, help=what)
    add = add_command(commands, report, "write one HTML page about your results").add_argument
    add("--out", metavar="FILE", help="file to write (default: report.html in the results folder)")


def collect(args: argparse.Namespace) -> int:
    """Writes results/table.parquet: a row per dataset, size, seed, method, estimator, q, setting, role and metric that
    selects beta. With --pack: one Parquet file with all records, which can be copied to another results folder and is
    read there like the records themselves."""
    from dlmexp.records.results import collect_packed, collect_table

    if args.pack is not None:
        check_writable(Path(args.pack), Path(args.pack).parent, "--pack")
        count = collect_packed(args.results, args.pack, args.protocol)
        print(f"{args.pack}: {counted(count, 'record')}, {Path(args.pack).stat().st_size / 1e6:.1f} MB")
        return 0
    if args.protocol:
        raise UserError(f"--protocol {args.protocol} needs --pack FILE, as in --pack records.parquet")
    path, rows = collect_table(args.results, args.csv)
    print(f"{path}: {counted(rows, 'row')}")
    return 0


def claims(args: argparse.Namespace) -> int:
    """Judges the 22 claims of the paper by the records under --results, under every protocol that was run: a table of
    claims and protocols, then what a verdict depends on. At each size there is a paired t-test over repetitions, with
    Holm's correction over the sizes. A claim holds on a dataset where it is supported at half of the sizes or more and
    nowhere contradicted; it fails where it is contradicted at half or more; it is mixed where sizes or parts disagree,
    undecided where the intervals are too wide to tell, and undecidable where the records lack what it needs. A
    difference counts only if it is at least the margin; smaller ones are "better" or "worse within the margin"
    (docs/SPEC.md, section 8). Verdicts on data that stands in for the paper's are labelled as such."""
    import json

    from dlmexp.claims import render
    from dlmexp.claims.claim import CLAIMS
    from dlmexp.claims.judge import judge
    from dlmexp.records.results import load

    numbers = [CLAIMS[text].number for text in args.numbers]
    judged = judge(load(args.results), numbers, args.protocol, args.where)
    if args.form == "--json":
        print(json.dumps(render.as_json(judged), indent=1, ensure_ascii=False, allow_nan=False))
    elif args.form not in (None, "--details"):
        written = render.as_markdown if args.form == "--markdown" else render.as_markdown_counts
        print(written(judged), end="")
    else:
        from rich.console import Console

        wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 500
        Console(width=wide).print(render.as_table(judged))
        print("\n".join(render.below_table(judged, bool(args.form))))
        if not args.form:
            print("\nThe numbers behind each verdict, and commands for what was not run: --details.")
    return 0


def report(args: argparse.Namespace) -> int:
    """Writes one self-contained HTML file about the records under --results: what was found, a verdict on each of the
    paper's claims, the figures, a table of results, failures, and how everything was made. Protocols stand behind a
    switch."""
    from dlmexp.records.results import load
    from dlmexp.report.page import page

    out = Path(args.out) if args.out else Path(args.results) / "report.html"
    if args.out:
        check_output(out, f"--out {out}")
    write_atomically(out, page(load(args.results)).encode())
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
