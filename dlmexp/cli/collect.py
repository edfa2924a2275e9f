"""`dlmexp collect`: the records as tables."""

import argparse


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "collect",
        help="write the records as tables (parquet and CSV)",
        description="For every experiment: table.parquet and table.csv (one row per selected beta) and all.parquet "
        "(every beta), in results/EXPERIMENT/.",
    )
    parser.add_argument("experiment", nargs="*", help="experiments (default: all)")
    parser.add_argument("--results", default="results", metavar="DIR", help="results folder (default: ./results)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.sweep.collect import collect

    for path, rows in collect(args.results, args.experiment):
        print(f"{path}: {rows} rows")
    return 0
