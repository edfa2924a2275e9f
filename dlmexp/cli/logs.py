"""`dlmexp logs`: what jobs on a cluster have printed."""

import argparse

from dlmexp.cli.folder import add_results, results_folder


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "logs",
        help="what a job, or the job of a cell, has printed",
        description="Prints the log of a job on a cluster (12, or 12_3 for one task of an array), or of the jobs that "
        "trained a cell, given by its key or by words of its description (banana seed=2 beta=1). Without words: lists "
        "all jobs with their logs.",
    )
    parser.add_argument(
        "words", nargs="*", metavar="JOB|CELL", help="a job, the key of a cell, or words that name cells"
    )
    add_results(parser)
    parser.add_argument("--lines", type=int, metavar="N", help="only the last N lines of each log")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cluster.jobs import jobs_of, read_submissions
    from dlmexp.errors import UserError
    from dlmexp.paths import in_folder

    root = results_folder(args)
    if args.lines is not None and args.lines < 1:
        raise UserError(f"--lines {args.lines}: give a number from 1 on")
    if not args.words:
        jobs = read_submissions(root)
        for job in jobs:
            print(f"job {job.id}: {job.overrides}\n  {job.log}")
        if not jobs:
            print(f"no job was submitted for {root}; runs on this machine print to the terminal, and keep no log")
        return 0
    jobs = jobs_of(root, args.words)
    for job in jobs:
        print(f"== job {job.id}: {job.overrides} ({job.log})")
        try:
            lines = job.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = ["(no log: the job has not started, or never did)"]
        print("\n".join(lines[-args.lines :] if args.lines else lines))
    if not jobs:
        print(
            f"these cells have no job; `{in_folder('dlmexp status --failed', root)}` shows those that failed, and why"
        )
    return 0
