"""`dlmexp status`: what is done, running, failed and missing."""

import argparse
from pathlib import Path


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status",
        help="cells done, running, failed and missing, per experiment",
        description="Cells done, running, failed (with --failed: why) and missing, for each experiment in a results "
        "folder; jobs on a cluster that are pending, running, or ended without a record, with their logs.",
    )
    parser.add_argument("--results", default="results", metavar="DIR", help="results folder (default: ./results)")
    parser.add_argument("--failed", action="store_true", help="list the failed cells with their reasons")
    parser.add_argument("--missing", action="store_true", help="list the cells that have no record yet")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cluster.status import print_json, print_tables, read_status
    from dlmexp.errors import UserError

    if not Path(args.results).is_dir():
        raise UserError(f"--results {args.results}: there is no such folder; 'dlmexp run' makes one")
    status = read_status(Path(args.results), failure_reasons=args.failed)
    if args.json:
        print_json(status)
    else:
        print_tables(status, args.failed, args.missing)
    return 0
