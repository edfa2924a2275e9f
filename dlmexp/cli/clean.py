"""`dlmexp clean`: removes an experiment from a results folder."""

import argparse
from pathlib import Path

from dlmexp.cli.folder import add_results, results_folder


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "clean",
        help="remove an experiment",
        description="Removes what only that experiment asked for (records, models, "
        "checkpoints), after asking. Cells that another experiment of the folder asked for too stay, and so do packs "
        "and figures. What killed processes left behind, a run removes by itself.",
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", help="as 'dlmexp status' names it")
    add_results(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cli.folder import confirmed
    from dlmexp.console import counted
    from dlmexp.running.cleaning import removal

    root, experiment = results_folder(args), args.experiment
    found = removal(root, experiment)
    _check_unused(root, found.keys)
    print(f"{experiment}: {counted(len(found.keys), 'cell')} that no other experiment asked for")
    if found.shared:
        print(f"{counted(found.shared, 'cell')} that other experiments asked for too: they stay")
    if found.packed:
        print(f"{counted(found.packed, 'record')} in packs: they stay")
    if not confirmed(f"delete {counted(len(found.files), 'file')} in {root}?", args.yes):
        print("nothing was deleted")
        return 0
    found.remove()
    print(f"{counted(len(found.files), 'file')} deleted")
    return 0


def _check_unused(root: Path, keys: frozenset[str]) -> None:
    """UserError if a process trains some of the cells, or a job in the queue will."""
    from dlmexp.cluster.jobs import unfinished_jobs
    from dlmexp.errors import UserError
    from dlmexp.paths import in_folder
    from dlmexp.records.store import Store
    from dlmexp.running.leases import active_processes

    processes = active_processes(root)
    done, failed = Store(root, read_only=True).keys()
    jobs = [one for one in unfinished_jobs(root, done | failed, processes) if one.active and one.job.keys & keys]
    users = [process.description for process in processes if process.keys & keys]
    users += [f"job {one.job.id}" for one in jobs]
    if users:
        stop = in_folder("dlmexp cancel", root)
        raise UserError(f"some of its cells are in training or in a queue ({users[0]}): `{stop}` stops that first")
