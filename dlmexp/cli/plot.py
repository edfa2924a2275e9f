"""`dlmexp plot`: draws the paper's figures from your results."""

import argparse
import gc
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.atomic import within
from dlmexp.cli.folder import Commands, add_command, check_writable
from dlmexp.console import counted
from dlmexp.errors import UserError

if TYPE_CHECKING:
    from dlmexp.figures.plot import Drawn


def add_parser(commands: Commands) -> None:
    parser = add_command(commands, plot, "draw the paper's figures from your results")
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="figures to draw (--list shows them)")
    add("--out", metavar="DIR", help="folder for the figures (default: figures in the results folder)")
    add("--format", default="png", metavar="LIST", help="file formats: png, pdf, svg (default: png)")
    add("--list", action="store_true", help="list the figures, and how much of each has results")
    add("--captions", action="store_true", help="print the captions as well")
    add("--by", action="append", default=[], metavar="FIELD=VALUE",
        help="dataset=NAME: draw this dataset, e.g. a stand-in or your own; method, n, seed, beta, ...: use only "
        "results with this value")  # fmt: skip
    protocols = parser.add_mutually_exclusive_group()
    protocols.add_argument("--protocol", metavar="NAME", help="draw this protocol (default: paper, if it was run)")
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


def plot(args: argparse.Namespace) -> int:
    """Draws figures from the results under --results, as PNG, with their numbers as CSV and what is to be said about
    them as Markdown: the caption, setting, repetitions, what was not run and the command that computes it. Without an
    ID: all figures with any results. Stand-ins for the paper's datasets are shown under their own names. All lines of a
    panel are of one setting: a protocol as it stands, or with the same changes; others are left out and counted, with
    the command that draws them. The figure 'predictions' shows one trained model on its test rows: the one with the
    best validation NLL, or the one that --by chooses."""
    gc.set_threshold(100_000)  # what is made here is kept to the end: looking for garbage takes a tenth of the time
    from dlmexp.figures.choose import parse_by
    from dlmexp.figures.panels import PREDICTIONS
    from dlmexp.figures.plot import Request, drawings, no_results, parse_formats, save
    from dlmexp.records.results import load
    from dlmexp.records.table import parse_where

    formats = parse_formats(args.format)
    if PREDICTIONS in args.ids:
        return _predictions(args, formats)
    by = parse_by(args.by)
    if args.list and not Path(args.results).is_dir():
        return _list([], args.ids)
    results = load(args.results)
    where = parse_where(args.where, results.candidates)
    request = Request(by, args.protocol, where, args.parameterisation, args.compare_protocols)
    if args.list:
        return _list(list(drawings(results, args.ids, request)), args.ids, results)
    out = _folder(args)
    drawn_ids, not_run = [], []
    for drawn in drawings(results, args.ids, request):
        if not drawn.run:
            not_run.append(drawn)
            continue
        drawn_ids.append(drawn.figure.id)
        print(save(out, drawn.name, drawn.canvas, drawn.csv, drawn.text, formats))
        for text in ([drawn.figure.caption] if args.captions else []) + drawn.notes:
            print(f"  {text}")
    names = list(dict.fromkeys(drawn.figure.id for drawn in not_run))
    computes = list(dict.fromkeys(command for drawn in not_run for command in drawn.commands))
    if names and args.ids:
        if not drawn_ids:
            raise UserError(no_results(names, computes))
        print(no_results(names, computes))
    elif not drawn_ids:
        terms = [f"{name}={','.join(values)}" for name, values in by.items()]
        chosen = f" with {' and '.join(terms)}" if terms else ""
        raise UserError(f"none of the results in '{args.results}' are in a figure{chosen}; try --by dataset=NAME")
    elif names and any(not name.startswith("own-") for name in drawn_ids):
        print(f"no results yet for {counted(len(names), 'other figure')}: {results.command('dlmexp plot --list')}")
    return 0


def _folder(args: argparse.Namespace) -> Path:
    """Where figures go: what `--out` names, or `figures` in the results folder."""
    out = Path(args.out) if args.out else within(Path(args.results), Path(args.results) / "figures")
    check_writable(out, out, "--out")
    return out


def _predictions(args: argparse.Namespace, formats: list[str]) -> int:
    """Draws what a trained model predicts on its test rows; `--by` or, as of `dlmexp predict`, `--where` chooses it."""
    from dlmexp.records.results import load

    if len(args.ids) > 1 or args.compare_protocols or args.list:
        others = "--compare-protocols and --list"
        raise UserError(f"the figure 'predictions' is of one model: draw it alone, and without {others}")
    results = load(args.results)
    out = _folder(args)

    from dlmexp.figures.panels import PREDICTIONS
    from dlmexp.figures.plot import save
    from dlmexp.figures.predictions import numbers, render, text
    from dlmexp.models.choice import choose_models
    from dlmexp.models.diagnosis import diagnose

    named = {"protocol": args.protocol, "parameterisation": args.parameterisation}
    terms = [*args.by, *args.where, *(f"{field}={value}" for field, value in named.items() if value)]
    (chosen,) = choose_models(results, terms, option="--where" if args.where else "--by")
    diagnosis = diagnose(results, chosen, args.data_root)
    name, model = f"{PREDICTIONS}-{chosen.row.dataset}", f"Model {chosen.words}."
    print(save(out, name, render(diagnosis), numbers(diagnosis), text(diagnosis, model), formats))
    print(f"  {model}")
    return 0


def _list(everything: "list[Drawn]", ids: list[str], results=None) -> int:
    """Lists the figures; without any results, all as `not run`."""
    from dlmexp.figures.panels import FIGURES, PREDICTIONS

    if not ids:
        models = counted(len(results.store.keys_with_models()) if results else 0, "model")
        print(f"{PREDICTIONS:28} {models:16} One trained model on its test rows.")
    for name in FIGURES if results is None else ():
        print(f"{name:28} {'not run':16} {FIGURES[name].title}")
    for drawn in everything:
        lines = [series for cell in drawn.cells for series in cell.series]
        present = sum(not series.points.empty for series in lines)
        part = f"{present} of {counted(len(lines), 'line')}"
        complete = not any(note.startswith("Not run") for note in drawn.notes)
        state = "not run" if not present else "complete" if complete else part
        print(f"{drawn.name:28} {state:16} {drawn.figure.title}")
    return 0
