"""`dlmexp status`, `logs` and `cancel`: the runs of a results folder, here and on a cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, add_command, add_results_option
from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option

if TYPE_CHECKING:
    from dlmexp.experiment.cluster.jobs import Job
    from dlmexp.experiment.running.leases import ActiveProcess

STATUS = """\
Cells done, running, failed (with --failed: why) and missing, for each experiment in a results
folder; iteration, objective and remaining time of batches in training, on any node; jobs on a
cluster that are pending, running, can't start, or ended without a record, with their logs."""
LOGS = """\
Prints the log of a job on a cluster (12, or 12_3 for one task of an array), or of the jobs of
blocks with some overrides (dataset=pol). Without arguments: lists all jobs with their logs."""
CANCEL = """\
Stops what trains in a results folder or waits in the queue of a cluster: all of it, or the jobs
(12, or 12_3 for one task of an array) and processes (their ids) that are named. What trains
saves its state first, so that the same 'dlmexp run' goes on from there."""


def add_commands(commands: Commands) -> None:
    """Add `status`, `logs` and `cancel`."""
    summary = "cells done, running, failed and missing, per experiment"
    parser = add_command(commands, "status", status, summary=summary, description=STATUS)
    add_results_option(parser)
    parser.add_argument(
        "--failed", action="store_true", help="list the failed cells with their reasons"
    )
    parser.add_argument(
        "--missing", action="store_true", help="list the cells that have no record yet"
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")

    parser = add_command(commands, "logs", logs, summary="what jobs have printed", description=LOGS)
    add_results_option(parser)
    parser.add_argument(
        "job_or_overrides",
        nargs="*",
        metavar="JOB",
        help="a job, or overrides of its block, such as dataset=pol",
    )

    summary = "stop jobs on a cluster and processes of this machine"
    parser = add_command(commands, "cancel", cancel, summary=summary, description=CANCEL)
    add_results_option(parser)
    parser.add_argument(
        "names", nargs="*", metavar="JOB", help="jobs, or ids of processes (default: all)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def results_folder(args: argparse.Namespace) -> Path:
    """Return the folder that `--results` names; raise `UserError` if it does not exist."""
    folder = Path(args.results)
    if not folder.is_dir():
        run_command = with_results_option("dlmexp run", folder)
        raise UserError(
            f"--results {args.results}: there is no such folder; `{run_command}` makes one"
        )
    return folder


def status(args: argparse.Namespace) -> None:
    """Print the state of cells, batches and jobs."""
    from dlmexp.experiment.cluster.status import print_status, read_status

    state = read_status(results_folder(args), failure_reasons=args.failed)
    if not args.json:
        print_status(state, args.missing)
        return
    import msgspec

    encoded = msgspec.json.encode(state)
    print(msgspec.json.format(encoded, indent=1).decode())


def logs(args: argparse.Namespace) -> None:
    """Print the logs of jobs, or the list of all jobs."""
    from dlmexp.experiment.cluster.jobs import jobs_of, text_of_log

    jobs = jobs_of(results_folder(args), args.job_or_overrides)
    if not jobs:
        print(
            f"no job was submitted for {args.results}; runs on this machine print to the terminal, "
            "and keep no log"
        )
    for job in jobs:
        if args.job_or_overrides:
            print(f"== job {job.id}: {job.overrides} ({job.log})")
            print(text_of_log(job))
        else:
            print(f"job {job.id}: {job.overrides}\n  {job.log}")


def cancel(args: argparse.Namespace) -> None:
    """Stop jobs and processes, once the user has agreed."""
    from dlmexp.experiment.cluster.jobs import cancel as stop
    from dlmexp.experiment.cluster.jobs import cancellable

    folder = results_folder(args)
    # The files of this folder may also name jobs and processes that do not run for it. If the
    # folder is a copy, they may run for the original. And another program may have the id of a
    # process that has ended.
    jobs, processes, unrelated = cancellable(folder, args.names)
    if unrelated and not args.names:
        print(f"left alone, as they do not run for this folder: {', '.join(unrelated)}")
    if not jobs and not processes:
        print(f"nothing to cancel in {args.results}")
        return
    _print_active(jobs, processes)
    if not args.yes and not _user_agrees():
        print("nothing was cancelled")
        return
    stop(folder, jobs, processes)
    listing = with_results_option("dlmexp status", args.results)
    print(f"asked to save and leave; `{listing}` shows what is left")


def _print_active(jobs: Sequence["Job"], processes: Sequence["ActiveProcess"]) -> None:
    for job in jobs:
        cells_to_do = counted(len(job.unrecorded_keys), "cell")
        print(f"job {job.id}: {job.description}; {cells_to_do} to do")
    for process in processes:
        cells_in_training = counted(len(process.keys), "cell")
        print(f"process {process.pid}: {cells_in_training} in training")


def _user_agrees() -> bool:
    """Ask the user at the terminal; raise `UserError` if standard input is not one."""
    if not sys.stdin.isatty():
        raise UserError("cancel them? standard input is not a terminal: add --yes to agree")
    print("cancel them? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
