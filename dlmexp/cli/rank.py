"""`dlmexp rank` and `anchors`: methods ranked over data sets, and compared with the literature."""

import argparse
import json
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, add_command, add_results_option, add_with_option
from dlmexp.common.console import print_table, wide_console

if TYPE_CHECKING:
    from dlmexp.presentation.ranking.board import Board

FILE_WIDTH = 200  # characters per line of the table of anchors, if it goes to a file or pipe
METRICS = ("nll", "crps", "rmse", "error", "coverage", "seconds")
RANK = """\
Ranks the methods under --results over data sets. Each method has its mean rank over data sets,
with a bootstrap interval, and a rank that it shares with all methods that no test separates
from it: paired tests with Nadeau and Bengio's correction for overlapping splits, Holm-corrected
over all pairs. Against a reference there are the data sets won, tied and lost, and the median
gain. Each kernel has a table of its own; different settings are different rows. Methods that
lack data sets are ranked in a second table, on those that all have. Scores of methods that
others trained (baselines.parquet) are rows as well (docs/SPEC.md, section 8)."""

ANCHORS = """\
Lists published numbers on data sets of the suite uci beside the closest results under --results:
value, standard error, ours, the difference in standard errors, and a verdict: met (within two
standard errors), better, worse, or settings differ, with the reason. Sources and settings are in
dlmexp/presentation/anchors/published.csv."""


def add_commands(commands: Commands) -> None:
    """Add `rank` and `anchors`."""
    _add_rank(commands)
    _add_anchors(commands)


def _add_rank(commands: Commands) -> None:
    summary = "rank methods over data sets, with tests"
    parser = add_command(commands, "rank", rank, summary=summary, description=RANK)
    add_results_option(parser)
    add_with_option(parser)
    parser.add_argument(
        "--metric", choices=METRICS, default="nll", help="what to rank by (default: nll)"
    )
    parser.add_argument(
        "--by", choices=["dataset"], help="show the scores on each data set in place of the ranks"
    )
    parser.add_argument(
        "--against", metavar="METHOD", help="the method to compare with (default: elbo)"
    )
    parser.add_argument(
        "--protocol", metavar="NAME", help="rank results of this protocol only (default: of all)"
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")


def _add_anchors(commands: Commands) -> None:
    summary = "compare your results with published numbers"
    parser = add_command(commands, "anchors", anchors, summary=summary, description=ANCHORS)
    add_results_option(parser)
    add_with_option(parser)
    parser.add_argument("--json", action="store_true", help="everything, for programs")


def rank(args: argparse.Namespace) -> None:
    """Print the leaderboards."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.ranking.board import boards
    from dlmexp.presentation.ranking.metrics import METRICS as METRIC_BY_NAME
    from dlmexp.presentation.ranking.render import as_json

    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    metric = METRIC_BY_NAME[args.metric]
    leaderboards = boards(results, metric, args.against, args.protocol)
    if args.json:
        content = as_json(leaderboards)
        print(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
        return
    for board in leaderboards:
        _print_board(board, by_data_set=args.by is not None)


def _print_board(board: "Board", by_data_set: bool) -> None:
    from dlmexp.presentation.ranking import render

    console = wide_console()
    print(render.title(board))
    if by_data_set:
        for table in render.data_set_tables(board, console.width):
            console.print(table)
        lines = render.data_set_caption(board)
    else:
        print_table(console, render.board_table(board))
        lines = render.caption(board)
    print("\n".join(lines) + "\n")


def anchors(args: argparse.Namespace) -> None:
    """Print published numbers beside the closest results under `--results`."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.anchors import render
    from dlmexp.presentation.anchors.compare import anchors as compare

    comparison = compare(ResultsFolder(args.results, pack_folders=args.pack_folders))
    if args.json:
        content = render.as_json(comparison)
        print(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
        return
    print_table(wide_console(FILE_WIDTH), render.anchor_table(comparison))
    print("\n".join(render.caption(comparison)))
