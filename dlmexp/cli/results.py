"""`dlmexp collect`, `claims` and `report`: a results folder as a table, as verdicts, as a page."""

import argparse
import json
import math
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
copied to another results folder and is read there like the records themselves. With --as: the
scores of every split, in the format of another leaderboard: scores.parquet has a row per method,
data set, split and metric; bencheval.csv and benchopt.parquet are read by the packages of these
names; croissant.json describes the Parquet files of the folder."""
CLAIMS = """\
Judges the claims of the paper by the records under --results, under every protocol that was run.
A claim is a list of tests, each at one size of one data set. A test is supported, contradicted,
of no difference (its interval lies inside the margin), or can't tell (its interval is too
wide). A claim is reproduced where nine in ten of the tests that can tell support it, not
reproduced where at most one in ten does, and else partly, with the number of tests. The first
table has what was tested; `dlmexp claims 7` shows one claim in full (docs/SPEC.md, section 8)."""
REPORT = """\
Writes one self-contained HTML file about the records under --results: a summary, a verdict on
each of the paper's claims, the figures, a table of results, failures, and the commands and versions
behind them. A switch on the page chooses the protocol."""

DETAILS = "--details"
JSON = "--json"
MARKDOWN = "--markdown"
COUNTS = "--counts"
# Options of `claims`: how the verdicts are printed.
CLAIMS_FORMATS = {
    DETAILS: "all claims in full: every test, pictures and commands",
    JSON: "everything, for programs",
    MARKDOWN: "the table in Markdown",
    COUNTS: "how many claims have which verdict, and tests which outcome, in Markdown",
}
FORMAT_NAMES = ("scores", "bencheval", "benchopt", "croissant")  # of `collect --as`
# Metrics of `--as bencheval`. That package takes no negative numbers, so the NLL is not among them.
METRICS = ("crps", "rmse", "error")
# Characters per line of a table that goes to a file or pipe: enough to break no cell.
FILE_WIDTH = 500


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
        "--as",
        dest="form",
        choices=FORMAT_NAMES,
        help="write the scores of every split in this format instead",
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        help="with --as bencheval: the metric (default: crps)",
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
        help="claims to show in full, such as 7 18 (default: a table of all)",
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
        help="judge the records made with this value, such as training.lr=0.01; they get columns "
        "of their own",
    )
    parser.add_argument(
        "--margins",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="multiply all margins, to see which verdicts depend on them (default: 1)",
    )
    forms = parser.add_mutually_exclusive_group()
    for option, meaning in CLAIMS_FORMATS.items():
        forms.add_argument(option, dest="form", action="store_const", const=option, help=meaning)


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
    """Write the tidy table, a pack of records, or scores in another format."""
    if args.form is not None:
        _collect_as(args)
        return
    if args.metric:
        raise UserError(f"--metric {args.metric} needs --as bencheval")
    if args.pack is not None:
        _collect_pack(args)
        return
    if args.protocol:
        raise UserError(
            f"--protocol {args.protocol} needs --pack FILE, as in --pack records.parquet"
        )
    _collect_table(args)


def _collect_table(args: argparse.Namespace) -> None:
    """Write the tidy table."""
    from dlmexp.experiment.records.results import collect_table

    path, rows = collect_table(args.results, csv=args.csv, pack_folders=args.pack_folders)
    print(f"{path}: {counted(rows, 'row')}")


def _collect_pack(args: argparse.Namespace) -> None:
    """Write all records as one pack."""
    from dlmexp.experiment.records.results import collect_packed

    pack = Path(args.pack)
    check_replaceable(pack, f"--pack {args.pack}")
    if not is_writable(pack.parent):
        raise UserError(f"--pack {args.pack}: can't write there; choose another path")
    count = collect_packed(
        args.results, args.pack, protocol=args.protocol, pack_folders=args.pack_folders
    )
    print(f"{args.pack}: {counted(count, 'record')}, {_megabytes(pack)}")


def _collect_as(args: argparse.Namespace) -> None:
    """Write scores in the format of another leaderboard."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.ranking.formats import FORMATS

    if args.pack or args.csv or args.protocol:
        raise UserError(f"--as {args.form} writes a file of its own: leave other options out")
    if args.metric and args.form != "bencheval":
        raise UserError(f"--as {args.form} has all metrics: leave --metric out")
    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    score_format = FORMATS[args.form]
    content = score_format.content(results, args.metric or "crps")
    path = Path(args.results, score_format.file)
    write_atomically(path, content)
    print(f"{path}: {_megabytes(path)}")


def claims(args: argparse.Namespace) -> None:
    """Print the verdicts on the paper's claims."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims import render
    from dlmexp.presentation.claims.claim import CLAIMS as CLAIM_BY_NAME
    from dlmexp.presentation.claims.judge import judge

    numbers = [CLAIM_BY_NAME[name].number for name in args.numbers]
    if not 0 < args.margins < math.inf:
        raise UserError(f"--margins {args.margins:g}: give a factor above 0, such as 0.5")
    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    judged = judge(results, numbers, protocol=args.protocol, where=args.where, margins=args.margins)
    if args.form in (JSON, MARKDOWN, COUNTS):
        print(_as_text(judged, args.form), end="")
    elif numbers or args.form == DETAILS:
        print("\n".join(render.detail_lines(judged)))
    else:
        _print_table(judged)


def _as_text(judged: "Judged", form: str) -> str:
    """Return the verdicts as JSON or Markdown."""
    from dlmexp.presentation.claims import render

    if form == MARKDOWN:
        return render.as_markdown(judged)
    if form == COUNTS:
        return render.as_markdown_counts(judged)
    verdicts = render.as_json(judged)
    return json.dumps(verdicts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _print_table(judged: "Judged") -> None:
    from dlmexp.presentation.claims import render

    tested, not_tested = render.split_by_tested(judged)
    if tested:
        wide_console(FILE_WIDTH).print(render.as_table(judged))
    if not_tested:
        print(render.not_tested_words(not_tested, judged.with_results_option))
    print("\n".join(render.summaries(judged)))
    if tested:
        first_claim, _ = tested[0]
        command = judged.with_results_option(f"dlmexp claims {first_claim.number}")
        print(f"One claim in full: {command}")


def report(args: argparse.Namespace) -> None:
    """Write the HTML page."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.report.page import page

    if args.out:
        path = Path(args.out)
        check_output(path, f"--out {args.out}")
    else:
        path = Path(args.results) / "report.html"
    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    html = page(results)
    write_atomically(path, html.encode())
    print(f"{path} ({_megabytes(path)})")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
