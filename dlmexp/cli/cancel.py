"""`dlmexp cancel`: stops the jobs and processes of a results folder."""

import argparse

from dlmexp.cli.folder import add_results, results_folder


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "cancel",
        help="stop jobs on a cluster and processes of this machine",
        description="Stops what trains in a results folder or waits in the queue of a cluster: all of it, or the jobs "
        "(12, or 12_3 for one task of an array) and processes (their ids) that are named. What trains saves its state "
        "first, so that the same 'dlmexp run' goes on from there.",
    )
    parser.add_argument("names", nargs="*", metavar="JOB", help="jobs, or ids of processes (default: all)")
    add_results(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cli.folder import confirmed
    from dlmexp.cluster.jobs import cancellable
    from dlmexp.cluster.slurm import SchedulerUnavailable
    from dlmexp.console import counted
    from dlmexp.errors import UserError
    from dlmexp.paths import in_folder

    found = cancellable(results_folder(args), args.names)
    for one in found.other_jobs:
        print(f"not from here: job {one.job.id} of {one.job.user}: {one.description}")
    for process in found.other_processes:
        print(f"not from here: {process.description}: stop it on its own machine")
    if not found.jobs and not found.processes:
        print(f"nothing to cancel in {args.results}")
        return 0
    for one in found.jobs:
        print(f"job {one.job.id}: {one.description}; {counted(len(one.unrecorded), 'cell')} to do")
    for process in found.processes:
        print(f"process {process.pid}: {counted(len(process.keys), 'cell')} in training")
    if not confirmed("cancel them?", args.yes):
        print("nothing was cancelled")
        return 0
    try:
        found.cancel()
    except SchedulerUnavailable as error:
        raise UserError(f"SLURM does not cancel them: {error}") from None
    print(f"asked to save and leave; `{in_folder('dlmexp status', args.results)}` shows what is left")
    return 0
