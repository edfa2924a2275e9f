"""`dlmexp collect`: writes the tidy table, or packed records."""

import argparse
from pathlib import Path

from dlmexp.cli.folder import add_results
from dlmexp.console import counted


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "collect",
        help="write the results as one table, or pack the records into one file",
        description="Writes results/table.parquet: a row per dataset, size, seed, method, estimator, q, setting, role "
        "and metric that selects beta. With --pack: one Parquet file with all records, which can be copied to another "
        "results folder and is read there like the records themselves.",
    )
    add_results(parser)
    parser.add_argument("--csv", action="store_true", help="write table.csv instead of table.parquet")
    parser.add_argument("--pack", metavar="FILE", help="write all records to one .parquet file instead")
    parser.add_argument("--protocol", metavar="NAME", help="with --pack: only records of this protocol, unchanged")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cli import check_writable
    from dlmexp.errors import UserError
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
