"""`dlmexp collect`: writes the tidy table, or packed records."""

import argparse
from pathlib import Path

from dlmexp.cli.folder import add_results, results_folder
from dlmexp.console import counted


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "collect",
        help="write the results as one table, or pack the records into one file",
        description="Writes results/table.parquet: a row per dataset, size, seed, method, estimator, q, setting, role "
        "and metric that selects beta. With --pack: one Parquet file with all records, which can be copied to another "
        "results folder and is read there like the records themselves. With --running: the learning curves of cells in "
        "training, up to their last checkpoint (checkpoint_seconds=), one row per cell and iteration.",
    )
    add_results(parser)
    parser.add_argument("--csv", action="store_true", help="write table.csv instead of table.parquet")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--running", metavar="FILE", help="curves of cells in training to this .csv or .parquet file")
    instead.add_argument("--pack", metavar="FILE", help="write all records to one .parquet file instead")
    parser.add_argument("--new", action="store_true", help="with --pack: only records that no pack in the folder has")
    parser.add_argument("--protocol", metavar="NAME", help="with --pack: only records of this protocol, unchanged")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cli import check_writable
    from dlmexp.errors import UserError
    from dlmexp.records.results import collect_packed, collect_table

    if args.running is not None:
        return _running(args)
    if args.pack is not None:
        check_writable(Path(args.pack), Path(args.pack).parent, "--pack")
        count = collect_packed(args.results, args.pack, args.new, args.protocol)
        print(f"{args.pack}: {counted(count, 'record')}, {Path(args.pack).stat().st_size / 1e6:.1f} MB")
        return 0
    for option, given in (("--new", args.new), ("--protocol NAME", args.protocol)):
        if given:
            raise UserError(f"{option} needs --pack FILE, as in --pack records.parquet {option}")
    path, rows = collect_table(args.results, args.csv)
    print(f"{path}: {counted(rows, 'row')}")
    return 0


def _running(args: argparse.Namespace) -> int:
    from dlmexp.atomic import write_atomically
    from dlmexp.cli import check_writable
    from dlmexp.errors import UserError
    from dlmexp.running.checkpoint import running_curves

    path = Path(args.running)
    if path.suffix not in (".csv", ".parquet"):
        raise UserError(f"--running {path}: end the name in .csv or .parquet")
    folder = results_folder(args)
    check_writable(path, path.parent, "--running")
    rows = running_curves(folder)
    write_atomically(
        path, rows.to_parquet(index=False) if path.suffix == ".parquet" else rows.to_csv(index=False).encode()
    )
    print(f"{path}: {counted(len(rows), 'row')}")
    return 0
