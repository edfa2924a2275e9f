"""`dlmexp collect`, `claims` and `report`: a results folder as a table, as verdicts, as a page."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, add_command, add_results_option, add_with_option
from dlmexp.common.atomic import check_output, check_replaceable, is_writable, write_atomically
from dlmexp.common.console import counted, wide_console
from dlmexp.common.errors import UserError

if TYPE_CHECKING:
    from dlmexp.presentation.claims.judge import Judged

COLLECT = """\
Writes results/table.parquet: a row per dataset, size, seed, method, estimator, q, setting, role
and metric that selects beta. With --pack: one Parquet file with all records, which can be
copied to another results folder and is read there like the records themselves."""
CLAIMS = """\
Judges the 22 claims of the paper by the records under --results, under every protocol that was
run: a table of claims and protocols, then what a verdict depends on. At each size there is a
paired t-test over repetitions, with Holm's correction over the sizes. A claim holds on a
dataset where it is supported at half of the sizes or more and nowhere contradicted; it fails
where it is contradicted at half or more; it is mixed where sizes or parts disagree, undecided
where the intervals are too wide to tell, and undecidable where the records lack what it needs.
A difference counts only if it is at least the margin; smaller ones are "better" or "worse
within the margin" (docs/SPEC.md, section 8). Verdicts on data that stands in for the paper's
are labelled as such."""
REPORT = """\
Writes one self-contained HTML file about the records under --results: what was found, a verdict
on each of the paper's claims, the figures, a table of results, failures, and how everything was
made. Protocols stand behind a switch."""

DETAILS, JSON, MARKDOWN, COUNTS = "--details", "--json", "--markdown", "--counts"
FORMS = {  # options of `claims`: how the verdicts are printed
    DETAILS: "also the numbers behind each verdict, and their commands",
    JSON: "everything, for programs",
    MARKDOWN: "tables and details, in Markdown",
    COUNTS: "how many claims have which verdict, in Markdown",
}
TERMINAL_WIDTH = 500  # of tables in files and pipes: no cell is broken


def add_commands(commands: Commands) -> None:
    """Add `collect`, `claims` and `report`."""
    _add_collect(commands)
    _add_claims(commands)
    _add_report(commands)


def _add_collect(commands: Commands) -> None:
    summary = "write the results as one table, or pack the records into one file"
    parser = add_command(commands, "collect", collect, summary=summary, description=COLLECT)
    add_results_option(parser)
    add_with_option(parser)
    parser.add_argument(
        "--csv", action="store_true", help="write table.csv instead of table.parquet"
    )
    parser.add_argument(
        "--pack", metavar="FILE", help="write all records to one .parquet file instead"
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="with --pack: only records of this protocol, unchanged",
    )


def _add_claims(commands: Commands) -> None:
    summary = "judge the paper's claims by your results"
    parser = add_command(commands, "claims", claims, summary=summary, description=CLAIMS)
    add_results_option(parser)
    add_with_option(parser)
    parser.add_argument(
        "numbers",
        nargs="*",
        metavar="NUMBER",
        help="claims to judge, such as 7 18 (default: all)",
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="judge under this protocol alone (default: all that were run)",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="judge the records made with this value, such as training.lr=0.01, in columns of "
        "their own",
    )
    forms = parser.add_mutually_exclusive_group()
    for option, summary in FORMS.items():
        forms.add_argument(option, dest="form", action="store_const", const=option, help=summary)


def _add_report(commands: Commands) -> None:
    summary = "write one HTML page about your results"
    parser = add_command(commands, "report", report, summary=summary, description=REPORT)
    add_results_option(parser)
    add_with_option(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file to write (default: report.html in the results folder)",
    )


def collect(args: argparse.Namespace) -> None:
    """Write the tidy table, or a pack of records."""
    from dlmexp.experiment.records.results import collect_packed, collect_table

    if args.pack is None:
        if args.protocol:
            raise UserError(
                f"--protocol {args.protocol} needs --pack FILE, as in --pack records.parquet"
            )
        path, rows = collect_table(args.results, args.csv, args.others)
        print(f"{path}: {counted(rows, 'row')}")
        return
    pack = Path(args.pack)
    check_replaceable(pack, f"--pack {args.pack}")
    if not is_writable(pack.parent):
        raise UserError(f"--pack {args.pack}: can't write there; choose another path")
    count = collect_packed(args.results, args.pack, args.protocol, args.others)
    print(f"{args.pack}: {counted(count, 'record')}, {_megabytes(pack)}")


def claims(args: argparse.Namespace) -> None:
    """Print the verdicts on the paper's claims."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims.claim import CLAIMS as ALL_CLAIMS
    from dlmexp.presentation.claims.judge import judge

    numbers = [ALL_CLAIMS[text].number for text in args.numbers]
    judged = judge(
        ResultsFolder(args.results, others=args.others), numbers, args.protocol, args.where
    )
    if args.form in (JSON, MARKDOWN, COUNTS):
        print(_as_text(judged, args.form), end="")
    else:
        _print_table(judged, details=args.form == DETAILS)


def _as_text(judged: "Judged", form: str) -> str:
    """Return the verdicts as JSON or Markdown."""
    from dlmexp.presentation.claims import render

    if form == MARKDOWN:
        return render.as_markdown(judged)
    if form == COUNTS:
        return render.as_markdown_counts(judged)
    verdicts = render.as_json(judged)
    return json.dumps(verdicts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _print_table(judged: "Judged", details: bool) -> None:
    from dlmexp.presentation.claims import render

    wide_console(TERMINAL_WIDTH).print(render.as_table(judged))
    print("\n".join(render.below_table(judged, details)))
    if not details:
        print("\nThe numbers behind each verdict, and commands for what was not run: --details.")


def report(args: argparse.Namespace) -> None:
    """Write the page."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.report.page import page

    if args.out:
        path = Path(args.out)
        check_output(path, f"--out {args.out}")
    else:
        path = Path(args.results) / "report.html"
    write_atomically(path, page(ResultsFolder(args.results, others=args.others)).encode())
    print(f"{path} ({_megabytes(path)})")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
