"""`dlmexp collect`: writes the records as tables, or as one file."""

import argparse
from pathlib import Path

from dlmexp.cli.folder import add_results, results_folder
from dlmexp.console import counted


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "collect",
        help="write the records as tables (parquet and CSV)",
        description="For every experiment: table.parquet and table.csv (one row per selected beta) and all.parquet "
        "(every beta), in results/EXPERIMENT/. With --pack: one file with all records, which can be copied "
        "to another results folder and is read there like the records themselves. With --running: the learning curves "
        "of cells in training, up to their last checkpoint (checkpoint_seconds=), one row per cell and iteration.",
    )
    parser.add_argument("experiment", nargs="*", help="names of experiments (default: all); not with --pack")
    add_results(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--running", metavar="FILE", help="curves of cells in training to this .csv or .parquet file")
    instead.add_argument("--pack", metavar="FILE", help="write all records to one file (named records*.tar.xz) instead")
    parser.add_argument("--light", action="store_true", help="with --pack: only the data that figures and claims need")
    parser.add_argument("--new", action="store_true", help="with --pack: only records that no pack in the folder has")
    parser.add_argument("--protocol", metavar="NAME", help="with --pack: only records of this protocol, unchanged")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.errors import UserError
    from dlmexp.records.collect import collect

    if args.pack is not None:
        if args.experiment:
            raise UserError(f"--pack takes all records of a results folder: leave out {' '.join(args.experiment)}")
        return _pack(args)
    if args.running is not None:
        return _running(args)
    for option, given in (("--light", args.light), ("--new", args.new), ("--protocol NAME", args.protocol)):
        if given:
            raise UserError(f"{option} needs --pack FILE, as in --pack records.tar.xz {option}")
    for path, rows in collect(args.results, args.experiment):
        print(f"{path}: {counted(rows, 'row')}")
    return 0


def _pack(args: argparse.Namespace) -> int:
    from dlmexp.cli import check_writable
    from dlmexp.records.collect import collect_pack

    check_writable(Path(args.pack), Path(args.pack).parent, "--pack")
    count = collect_pack(args.results, args.pack, args.light, args.new, args.protocol)
    size = Path(args.pack).stat().st_size / 1e6
    print(f"{args.pack}: {counted(count, 'record')}, {size:.1f} MB")
    return 0


def _running(args: argparse.Namespace) -> int:
    from dlmexp.cli import check_writable
    from dlmexp.errors import UserError
    from dlmexp.records.files import write_atomically
    from dlmexp.running.curves import running_curves

    path = Path(args.running)
    if args.experiment:
        raise UserError(f"--running takes all cells in training: leave out {' '.join(args.experiment)}")
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
