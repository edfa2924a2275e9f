"""`dlmexp clean`: removes from a results folder what is of no use any more."""

import argparse
from pathlib import Path


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "clean",
        help="remove what killed processes left behind",
        description="With --leftovers: removes the unfinished files and the presence files of processes that were "
        "killed or whose host is gone, and arrays that no record belongs to. Records and checkpoints stay. A run "
        "removes by itself what dead processes of its own machine left.",
    )
    parser.add_argument("--results", default="results", metavar="DIR", help="results folder (default: results)")
    parser.add_argument("--leftovers", action="store_true", help="remove what dead processes left, of any host")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.console import counted
    from dlmexp.errors import UserError
    from dlmexp.running.leftovers import remove_leftovers

    if not Path(args.results).is_dir():
        raise UserError(f"--results {args.results}: there is no such folder")
    if not args.leftovers:
        raise UserError("say what to remove: dlmexp clean --leftovers")
    removed = remove_leftovers(Path(args.results), everywhere=True)
    for path in removed:
        print(f"removed {path}")
    print(f"{counted(len(removed), 'file')} removed from {args.results}")
    return 0
