"""`dlmexp status`: what is done, running, failed and missing."""

import argparse

from dlmexp.cli.folder import add_results, results_folder


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status",
        help="cells done, running, failed and missing, per experiment",
        description="Cells done, running, failed (with --failed: why) and missing, for each experiment in a results "
        "folder; iteration, objective and time left of batches in training, on any node; jobs on a cluster that are "
        "pending, running, can't start, or ended without a record, with their logs.",
    )
    add_results(parser)
    parser.add_argument("--failed", action="store_true", help="list the failed cells with their reasons")
    parser.add_argument("--missing", action="store_true", help="list the cells that have no record yet")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="the same as JSON")
    how.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=5.0,
        metavar="SECONDS",
        help="show it again every 5 (or SECONDS) seconds until nothing runs any more; Ctrl-C leaves, the run goes on",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cli.status_tables import print_tables, watch
    from dlmexp.cluster.status import read_status
    from dlmexp.errors import UserError

    folder = results_folder(args)
    if args.watch is not None:
        if not 0.1 <= args.watch <= 86400:
            raise UserError(f"--watch {args.watch:g}: give a number of seconds from 0.1 on, at most a day")
        watch(folder, args.watch, args.failed, args.missing)
        return 0
    status = read_status(folder, failure_reasons=args.failed)
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(status), indent=1).decode())
    else:
        print_tables(status, args.failed, args.missing)
    return 0
