"""`dlmexp status`, `logs` and `cancel`: what is in a results folder and what works on it."""

import argparse

from dlmexp.cli.folder import Commands, add_command, confirmed, results_folder
from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.paths import in_folder


def add_parser(commands: Commands) -> None:
    parser = add_command(commands, status, "cells done, running, failed and missing, per experiment")
    add, how = parser.add_argument, parser.add_mutually_exclusive_group()
    add("--failed", action="store_true", help="list the failed cells with their reasons")
    add("--missing", action="store_true", help="list the cells that have no record yet")
    how.add_argument("--json", action="store_true", help="the same as JSON")
    watching = "show it again every 5 (or SECONDS) seconds until nothing runs any more; Ctrl-C leaves, the run goes on"
    how.add_argument("--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help=watching)
    add = add_command(commands, logs, "what jobs have printed").add_argument
    add("words", nargs="*", metavar="JOB", help="a job, or overrides of its block, such as dataset=pol")
    add("--lines", type=int, metavar="N", help="only the last N lines of each log")
    add = add_command(commands, cancel, "stop jobs on a cluster and processes of this machine").add_argument
    add("names", nargs="*", metavar="JOB", help="jobs, or ids of processes (default: all)")
    add("--yes", action="store_true", help="do not ask")


def status(args: argparse.Namespace) -> int:
    """Cells done, running, failed (with --failed: why) and missing, for each experiment in a results folder; iteration,
    objective and time left of batches in training, on any node; jobs on a cluster that are pending, running, can't
    start, or ended without a record, with their logs."""
    from dlmexp.cluster.status import print_tables, read_status, watch

    folder = results_folder(args)
    if args.watch is not None:
        if not 0.1 <= args.watch <= 86400:
            raise UserError(f"--watch {args.watch:g}: give a number of seconds from 0.1 on, at most a day")
        watch(folder, args.watch, args.failed, args.missing)
        return 0
    seen = read_status(folder, failure_reasons=args.failed)
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(seen), indent=1).decode())
    else:
        print_tables(seen, args.failed, args.missing)
    return 0


def logs(args: argparse.Namespace) -> int:
    """Prints the log of a job on a cluster (12, or 12_3 for one task of an array), or of the jobs of blocks with some
    overrides (dataset=pol). Without words: lists all jobs with their logs."""
    from dlmexp.cluster.jobs import jobs_of

    root = results_folder(args)
    if args.lines is not None and args.lines < 1:
        raise UserError(f"--lines {args.lines}: give a number from 1 on")
    if not (jobs := jobs_of(root, args.words)):
        print(f"no job was submitted for {root}; runs on this machine print to the terminal, and keep no log")
    for job in jobs:
        if not args.words:
            print(f"job {job.id}: {job.overrides}\n  {job.log}")
            continue
        print(f"== job {job.id}: {job.overrides} ({job.log})")
        try:
            lines = job.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = ["(no log: the job has not started, or never did)"]
        print("\n".join(lines[-args.lines :] if args.lines else lines))
    return 0


def cancel(args: argparse.Namespace) -> int:
    """Stops what trains in a results folder or waits in the queue of a cluster: all of it, or the jobs (12, or 12_3 for
    one task of an array) and processes (their ids) that are named. What trains saves its state first, so that the same
    'dlmexp run' goes on from there."""
    from dlmexp.atomic import machine
    from dlmexp.cluster.jobs import SchedulerUnavailable, cancellable
    from dlmexp.cluster.jobs import cancel as cancel_all

    jobs, processes = cancellable(results_folder(args), args.names)
    for job in jobs:
        what = f"job {job.id}" if job.ours else f"not from here: job {job.id} of {job.user}"
        print(f"{what}: {job.description}; {counted(len(job.left), 'cell')} to do")
    here = [process for process in processes if process.machine == machine()]
    for process in processes:
        if process in here:
            print(f"process {process.pid}: {counted(len(process.keys), 'cell')} in training")
        else:
            print(f"not from here: {process.description}: stop it on its own machine")
    ours = [job for job in jobs if job.ours]
    if not ours and not here:
        print(f"nothing to cancel in {args.results}")
        return 0
    if not confirmed("cancel them?", args.yes):
        print("nothing was cancelled")
        return 0
    try:
        cancel_all(ours, here)
    except SchedulerUnavailable as error:
        raise UserError(f"SLURM does not cancel them: {error}") from None
    print(f"asked to save and leave; `{in_folder('dlmexp status', args.results)}` shows what is left")
    return 0
