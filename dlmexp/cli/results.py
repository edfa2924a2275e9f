"""The commands about a results folder: `dlmexp status`, `logs`, `cancel`, `collect`, `plot`,
`claims` and `report`."""

import argparse
import gc
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.cli import Commands, add_command
from dlmexp.common.atomic import check_output, is_writable, within, write_atomically
from dlmexp.common.console import counted, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.processes import map_in_processes

if TYPE_CHECKING:
    from dlmexp.experiment.records.results import ResultsFolder

ONE_MODEL = "One trained model on its test rows."  # the figure `predictions`
FORMS = {
    "--details": "also the numbers behind each verdict, and their commands",
    "--json": "everything, for programs",
    "--markdown": "tables and details, in Markdown",
    "--counts": "how many claims have which verdict, in Markdown",
}


def add_parser(commands: Commands) -> None:
    add = add_command(
        commands, status, "cells done, running, failed and missing, per experiment"
    ).add_argument
    add("--failed", action="store_true", help="list the failed cells with their reasons")
    add("--missing", action="store_true", help="list the cells that have no record yet")
    add("--json", action="store_true", help="the same as JSON")
    add = add_command(commands, logs, "what jobs have printed").add_argument
    add(
        "words",
        nargs="*",
        metavar="JOB",
        help="a job, or overrides of its block, such as dataset=pol",
    )
    add = add_command(
        commands, cancel, "stop jobs on a cluster and processes of this machine"
    ).add_argument
    add("names", nargs="*", metavar="JOB", help="jobs, or ids of processes (default: all)")
    add("--yes", action="store_true", help="do not ask")
    shown = "write the results as one table, or pack the records into one file"
    add = add_command(commands, collect, shown).add_argument
    add("--csv", action="store_true", help="write table.csv instead of table.parquet")
    add("--pack", metavar="FILE", help="write all records to one .parquet file instead")
    add("--protocol", metavar="NAME", help="with --pack: only records of this protocol, unchanged")
    parser = add_command(commands, claims, "judge the paper's claims by your results")
    add, form = parser.add_argument, parser.add_mutually_exclusive_group()
    add("numbers", nargs="*", metavar="NUMBER", help="claims to judge, such as 7 18 (default: all)")
    add(
        "--protocol",
        metavar="NAME",
        help="judge under this protocol alone (default: all that were run)",
    )
    where = (
        "judge the records made with this value, such as training.lr=0.01, in columns of their own"
    )
    add("--where", action="append", default=[], metavar="SETTING=VALUE", help=where)
    for option, what in FORMS.items():
        form.add_argument(option, dest="form", action="store_const", const=option, help=what)
    add = add_command(commands, report, "write one HTML page about your results").add_argument
    add("--out", metavar="FILE", help="file to write (default: report.html in the results folder)")
    parser = add_command(commands, plot, "draw the paper's figures from your results")
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="figures to draw (--list shows them)")
    add(
        "--out",
        metavar="DIR",
        help="folder for the figures (default: figures in the results folder)",
    )
    add(
        "--format", default="png", metavar="LIST", help="file formats: png, pdf, svg (default: png)"
    )
    add("--list", action="store_true", help="list the figures, and how much of each has results")
    add("--captions", action="store_true", help="print the captions as well")
    add("--by", action="append", default=[], metavar="FIELD=VALUE",
        help="dataset=NAME: draw this dataset, e.g. a stand-in or your own; method, n, seed, beta, ...: use only "
        "results with this value")  # fmt: skip
    protocols = parser.add_mutually_exclusive_group()
    protocols.add_argument(
        "--protocol", metavar="NAME", help="draw this protocol (default: paper, if it was run)"
    )
    side_by_side = "draw all protocols that were run side by side"
    protocols.add_argument("--compare-protocols", action="store_true", help=side_by_side)
    add("--where", action="append", default=[], metavar="SETTING=VALUE",
        help="draw results made with another value than the protocol's, such as training.lr=0.01; of the figure "
        "'predictions': which model, as for 'dlmexp predict'")  # fmt: skip
    add("--parameterisation", choices=["whitened", "unwhitened"],
        help="parameterisation of q for binary and count data (default: a file for each that was run)")  # fmt: skip
    add("--data-root", metavar="DIR",
        help="of the figure 'predictions': the folder that the run read its data from (default: $DLMEXP_DATA, else "
        "./data)")  # fmt: skip


def results_folder(args: argparse.Namespace) -> Path:
    """The folder that `--results` names; UserError if there is none."""
    folder = Path(args.results)
    if not folder.is_dir():
        run = with_results_option("dlmexp run", folder)
        raise UserError(f"--results {args.results}: there is no such folder; `{run}` makes one")
    return folder


def status(args: argparse.Namespace) -> None:
    """Cells done, running, failed (with --failed: why) and missing, for each experiment in a
    results folder; iteration, objective and time left of batches in training, on any node; jobs on
    a cluster that are pending, running, can't start, or ended without a record, with their logs."""
    from dlmexp.experiment.cluster.status import print_tables, read_status

    seen = read_status(results_folder(args), failure_reasons=args.failed)
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(seen), indent=1).decode())
    else:
        print_tables(seen, args.missing)


def logs(args: argparse.Namespace) -> None:
    """Prints the log of a job on a cluster (12, or 12_3 for one task of an array), or of the jobs
    of blocks with some overrides (dataset=pol). Without words: lists all jobs with their logs."""
    from dlmexp.experiment.cluster.status import jobs_of

    if not (jobs := jobs_of(results_folder(args), args.words)):
        print(
            f"no job was submitted for {args.results}; runs on this machine print to the terminal, and keep no log"
        )
    for job in jobs:
        if not args.words:
            print(f"job {job.id}: {job.overrides}\n  {job.log}")
            continue
        print(f"== job {job.id}: {job.overrides} ({job.log})")
        try:
            print(Path(job.log).read_text(errors="replace").rstrip("\n"))
        except FileNotFoundError:
            print("(no log: the job has not started, or never did)")


def cancel(args: argparse.Namespace) -> None:
    """Stops what trains in a results folder or waits in the queue of a cluster: all of it, or the
    jobs (12, or 12_3 for one task of an array) and processes (their ids) that are named. What
    trains saves its state first, so that the same 'dlmexp run' goes on from there."""
    from dlmexp.experiment.cluster.status import cancel as cancel_all
    from dlmexp.experiment.cluster.status import cancellable

    jobs, processes = cancellable(results_folder(args), args.names)
    for job in jobs:
        print(f"job {job.id}: {job.description}; {counted(len(job.left), 'cell')} to do")
    for process in processes:
        print(f"process {process.pid}: {counted(len(process.keys), 'cell')} in training")
    if not jobs and not processes:
        print(f"nothing to cancel in {args.results}")
        return
    if not args.yes:
        if not sys.stdin.isatty():
            raise UserError("cancel them? nobody can answer here: add --yes")
        print("cancel them? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("nothing was cancelled")
            return
    cancel_all(jobs, processes)
    print(
        f"asked to save and leave; `{with_results_option('dlmexp status', args.results)}` shows what is left"
    )


def collect(args: argparse.Namespace) -> None:
    """Writes results/table.parquet: a row per dataset, size, seed, method, estimator, q, setting,
    role and metric that selects beta. With --pack: one Parquet file with all records, which can be
    copied to another results folder and is read there like the records themselves."""
    from dlmexp.experiment.records.results import collect_packed, collect_table

    if args.pack is not None:
        if not is_writable(Path(args.pack).parent):
            raise UserError(f"--pack {args.pack}: can't write there; choose another path")
        count = collect_packed(args.results, args.pack, args.protocol)
        print(
            f"{args.pack}: {counted(count, 'record')}, {Path(args.pack).stat().st_size / 1e6:.1f} MB"
        )
        return
    if args.protocol:
        raise UserError(
            f"--protocol {args.protocol} needs --pack FILE, as in --pack records.parquet"
        )
    path, rows = collect_table(args.results, args.csv)
    print(f"{path}: {counted(rows, 'row')}")


def plot(args: argparse.Namespace) -> None:
    """Draws figures from the results under --results, as PNG, with their numbers as CSV and what is
    to be said about them as Markdown: the caption, setting, repetitions, what was not run and the
    command that computes it. Without an ID: all figures with any results. Stand-ins for the paper's
    datasets are shown under their own names. All lines of a panel are of one setting: a protocol as
    it stands, or with the same changes; others are left out and counted, with the command that
    draws them. The figure 'predictions' shows one trained model on its test rows: the one with the
    best validation NLL, or the one that --by chooses."""
    # what is made here is kept to the end: looking for garbage takes a tenth of the time
    gc.disable()
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.experiment.records.settings import parse_terms, parse_where
    from dlmexp.presentation.figures.choose import BY
    from dlmexp.presentation.figures.numbers import FACTS
    from dlmexp.presentation.figures.panels import FIGURES, PREDICTIONS
    from dlmexp.presentation.figures.plot import Request, drawings, no_results, parse_formats, save

    formats, of_model = parse_formats(args.format), PREDICTIONS in args.ids
    if of_model and (len(args.ids) > 1 or args.compare_protocols or args.list):
        others = "--compare-protocols and --list"
        raise UserError(
            f"the figure 'predictions' is of one model: draw it alone, and without {others}"
        )
    by = {} if of_model else parse_terms("--by", args.by, BY)
    if args.list and not Path(args.results).is_dir():
        for name, title in {
            PREDICTIONS: ONE_MODEL,
            **{name: FIGURES[name].title for name in FIGURES},
        }.items():
            print(f"{name:28} {'not run':16} {title}")
        return
    results = ResultsFolder(
        args.results, ("",) if of_model or args.where else (*FACTS, "test_", "validation_")
    )
    where = {} if of_model else parse_where(args.where, results.candidates, results.changes)
    request = Request(by, args.protocol, where, args.parameterisation, args.compare_protocols)
    if args.list:
        if not args.ids:
            models = counted(len(results.keys_with_models()), "model")
            print(f"{PREDICTIONS:28} {models:16} {ONE_MODEL}")
        for drawn in drawings(results, args.ids, request):
            lines = [series for cell in drawn.cells for series in cell.series]
            present = sum(not series.points.empty for series in lines)
            part = f"{present} of {counted(len(lines), 'line')}"
            state = "not run" if not present else part if drawn.missing else "complete"
            print(f"{drawn.name:28} {state:16} {drawn.figure.title}")
        return
    out = Path(args.out) if args.out else within(results.root, results.root / "figures")
    if not is_writable(out):
        raise UserError(f"can't write to '{out}': choose another path with --out")
    if of_model:
        return _predictions(args, results, out, formats)
    with nullcontext() if args.ids else wide_console().status("measuring what the figures show"):
        found = list(drawings(results, args.ids, request))
    run, not_run = [one for one in found if one.run], [one for one in found if not one.run]
    saved = map_in_processes(
        lambda one: save(out, one.name, one.canvas, one.csv, one.text, formats), run
    )
    for drawn, files in zip(run, saved, strict=True):
        print(files)
        for text in ([drawn.figure.caption] if args.captions else []) + drawn.notes:
            print(f"  {text}")
    names = list(dict.fromkeys(drawn.figure.id for drawn in not_run))
    computes = list(dict.fromkeys(command for drawn in not_run for command in drawn.commands))
    if names and args.ids:
        if not run:
            raise UserError(no_results(names, computes))
        print(no_results(names, computes))
    elif not run:
        raise UserError(
            f"no figure shows results of '{args.results}' {' '.join(args.by)}: try --by dataset=NAME"
        )
    elif names and any(not one.figure.id.startswith("own-") for one in run):
        print(
            f"no results yet for {counted(len(names), 'other figure')}: {results.command('dlmexp plot --list')}"
        )


def _predictions(
    args: argparse.Namespace, results: "ResultsFolder", out: Path, formats: list[str]
) -> None:
    """Draws what a trained model predicts on its test rows; `--by` or, as of `dlmexp predict`,
    `--where` chooses it."""
    from dlmexp.experiment.models.diagnosis import diagnose
    from dlmexp.experiment.models.file import choose_models
    from dlmexp.presentation.figures.panels import PREDICTIONS
    from dlmexp.presentation.figures.plot import save
    from dlmexp.presentation.figures.predictions import numbers, render, text

    named = {"protocol": args.protocol, "parameterisation": args.parameterisation}
    terms = [
        *args.by,
        *args.where,
        *(f"{field}={value}" for field, value in named.items() if value),
    ]
    (chosen,) = choose_models(results, terms, option="--where" if args.where else "--by")
    diagnosis = diagnose(results, chosen, args.data_root)
    name, model = f"{PREDICTIONS}-{chosen.row.dataset}", f"Model {chosen.words}."
    print(save(out, name, render(diagnosis), numbers(diagnosis), text(diagnosis, model), formats))
    print(f"  {model}")


def claims(args: argparse.Namespace) -> None:
    """Judges the 22 claims of the paper by the records under --results, under every protocol that
    was run: a table of claims and protocols, then what a verdict depends on. At each size there is
    a paired t-test over repetitions, with Holm's correction over the sizes. A claim holds on a
    dataset where it is supported at half of the sizes or more and nowhere contradicted; it fails
    where it is contradicted at half or more; it is mixed where sizes or parts disagree, undecided
    where the intervals are too wide to tell, and undecidable where the records lack what it needs.
    A difference counts only if it is at least the margin; smaller ones are "better" or "worse
    within the margin" (docs/SPEC.md, section 8). Verdicts on data that stands in for the paper's
    are labelled as such."""
    import json

    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims import render
    from dlmexp.presentation.claims.claim import CLAIMS
    from dlmexp.presentation.claims.judge import judge

    numbers = [CLAIMS[text].number for text in args.numbers]
    judged = judge(ResultsFolder(args.results), numbers, args.protocol, args.where)
    if args.form == "--json":
        print(json.dumps(render.as_json(judged), indent=1, ensure_ascii=False, allow_nan=False))
    elif args.form not in (None, "--details"):
        written = render.as_markdown if args.form == "--markdown" else render.as_markdown_counts
        print(written(judged), end="")
    else:
        wide_console(500).print(render.as_table(judged))
        print("\n".join(render.below_table(judged, bool(args.form))))
        if not args.form:
            print(
                "\nThe numbers behind each verdict, and commands for what was not run: --details."
            )


def report(args: argparse.Namespace) -> None:
    """Writes one self-contained HTML file about the records under --results: what was found, a
    verdict on each of the paper's claims, the figures, a table of results, failures, and how
    everything was made. Protocols stand behind a switch."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.report.page import page

    out = Path(args.out) if args.out else Path(args.results) / "report.html"
    if args.out:
        check_output(out, f"--out {out}")
    write_atomically(out, page(ResultsFolder(args.results)).encode())
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)")
