"""`dlmexp plot`: draws the paper's figures from your results."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.atomic import within
from dlmexp.cli.folder import add_results
from dlmexp.console import counted
from dlmexp.cores import cores
from dlmexp.errors import UserError
from dlmexp.paths import in_folder

if TYPE_CHECKING:
    from dlmexp.figures.plot import Request
    from dlmexp.figures.style import Page
    from dlmexp.figures.variants import Drawing

DESCRIPTION = """
Draws figures from the records under --results, as PDF and PNG, with their numbers as CSV. Without an ID: all figures
with any results. An incomplete figure shows the results there are; what is missing is listed, with the command that
would compute it. Stand-ins for the paper's datasets are shown under their own names. All lines of a panel are of one
setting: a protocol as it stands, or with the same changes. Records of other settings are left out and counted, with the
command that draws them. The figure 'predictions' shows one trained model on its test rows: the one with the best
validation NLL, or the one that --by chooses.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("plot", help="draw the paper's figures from your results", description=DESCRIPTION)
    parser.add_argument("ids", nargs="*", metavar="ID", help="figures to draw (--list shows them)")
    add_results(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the figures (default: figures in the results folder)")
    parser.add_argument(
        "--format", default="pdf,png", metavar="LIST", help="file formats: pdf, png, svg (default: pdf,png)"
    )
    parser.add_argument("--style", metavar="FILE", help="a style file of matplotlib, on top of ours")
    parser.add_argument(
        "--width",
        type=float,
        metavar="INCHES",
        help="width of each figure (default: a column or the text of the paper)",
    )
    parser.add_argument("--list", action="store_true", help="list the figures, and how much of each has results")
    parser.add_argument(
        "--by", action="append", default=[], metavar="FIELD=VALUE",
        help="dataset=NAME: draw this dataset, e.g. a stand-in or your own; method, n, seed, beta and other fields "
        "that cells are enumerated by: use only records with this value",
    )  # fmt: skip
    protocols = parser.add_mutually_exclusive_group()
    protocols.add_argument(
        "--protocol", metavar="NAME", help="draw the records of this protocol (default: paper, if there are any)"
    )
    protocols.add_argument(
        "--compare-protocols", action="store_true", help="draw the panels of all protocols that were run side by side"
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="SETTING=VALUE",
        help="draw the records made with another value than the protocol's, such as training.lr=0.01; of the figure "
        "'predictions': which model, as for 'dlmexp predict'",
    )  # fmt: skip
    parser.add_argument(
        "--compare", nargs="+", default=[], metavar="DIR", help="more results folders to show in the same figures"
    )
    parser.add_argument(
        "--error",
        choices=["std", "sem"],
        default="std",
        help="error bars: standard deviation or standard error (default: std)",
    )
    parser.add_argument(
        "--parameterisation", choices=["whitened", "unwhitened"],
        help="parameterisation of q for binary and count data (default: a file for each that was run)",
    )  # fmt: skip
    parser.add_argument(
        "--data-root", metavar="DIR",
        help="of the figure 'predictions': the folder that the run read its data from (default: $DLMEXP_DATA, else "
        "./data)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.figures.plot import Request, datasets_not_drawn, plot
    from dlmexp.figures.registry import PREDICTIONS, find
    from dlmexp.figures.save import parse_formats
    from dlmexp.figures.style import Page, check_page
    from dlmexp.figures.variants import parse_by
    from dlmexp.records.results import load, load_several
    from dlmexp.records.wanted import Wanted, parse_where

    page = Page(args.width, args.style)
    check_page(page)
    if PREDICTIONS in args.ids:
        return _predictions(args, parse_formats(args.format), page)
    find([name for name in args.ids if not name.startswith("own-")])
    formats, wanted = parse_formats(args.format), Wanted(args.protocol, parse_where(args.where))
    request = Request(parse_by(args.by), args.parameterisation, wanted, args.compare_protocols)
    if args.list:
        return _list(args, request)
    several = load_several([args.results, *args.compare]) if args.compare else [load(args.results)]
    out = _folder(args)
    shown, not_run = [], []
    for drawn, paths in plot(several, args.ids, out, formats, request, args.error, cores(), page):
        shown.append(drawn.drawing)
        if not paths:
            not_run.append(drawn.drawing)
            continue
        print(
            f"{drawn.drawing.name}: {paths[0].parent / drawn.drawing.name}.{{{','.join(p.suffix[1:] for p in paths)}}}"
        )
        for gap in drawn.gaps:
            print(f"  missing: {gap.dataset}: {gap.what}  ->  {gap.command}")
        for where, setting in drawn.settings.items():
            print(f"  setting: {where}: {setting}")
        for text in drawn.caveats:
            print(f"  note: {text}")
        for left in drawn.left_out:
            print(f"  left out: {left.words}  ->  {left.command}")
    own_alone = {one.name.startswith("own-") for one in shown if one not in not_run} == {True}
    if not_run and (args.ids or not own_alone):
        print(f"no results yet for: {', '.join(one.name for one in not_run)}  ({_computed_by(not_run, args.results)})")
    if not args.by and (others := datasets_not_drawn(several, args.ids, shown)):
        print(
            f"your records on {', '.join(others)} are not in these figures; to draw them: {_command_for(args, others)}"
        )
    return 0


def _folder(args: argparse.Namespace) -> Path:
    """Where figures go: what `--out` names, or `figures` in the results folder."""
    from dlmexp.cli import check_writable

    out = Path(args.out) if args.out else within(Path(args.results), Path(args.results) / "figures")
    check_writable(out, out, "--out")
    return out


def _predictions(args: argparse.Namespace, formats: list[str], page: "Page") -> int:
    """Draws what a trained model predicts on its test rows; `--by` or, as of `dlmexp predict`, `--where` chooses it."""
    from dlmexp.records.results import load

    if len(args.ids) > 1 or args.compare or args.compare_protocols or args.list:
        others = "--compare, --compare-protocols and --list"
        raise UserError(f"the figure 'predictions' is of one model: draw it alone, and without {others}")
    results = load(args.results)
    out = _folder(args)

    from dlmexp.figures import style
    from dlmexp.figures.predictions import check_width, numbers, render
    from dlmexp.figures.registry import PREDICTIONS
    from dlmexp.figures.save import encode, write
    from dlmexp.models.choose import chosen, described
    from dlmexp.models.diagnosis import diagnose

    check_width(page.width)
    named = {"protocol": args.protocol, "parameterisation": args.parameterisation}
    terms = [*args.by, *args.where, *(f"{field}={value}" for field, value in named.items() if value)]
    (record,) = chosen(results, terms, option="--where" if args.where else "--by")
    found = diagnose(results, record, args.data_root)
    with style.use(page.style):
        canvas = render(found, page.width)
        contents = {format: encode(canvas, format) for format in formats}
    name = f"{PREDICTIONS}-{record.cell.dataset}"
    write(contents, numbers(found), out, name)
    print(f"{name}: {out / name}.{{{','.join([*formats, 'csv'])}}}")
    print(f"  model {described(results, record)}")
    return 0


def _computed_by(not_run: "list[Drawing]", results: str) -> str:
    """Which experiments compute these figures: of most, the one of the same name."""
    from dlmexp import catalogue

    others = [one for one in not_run if one.figure.id not in catalogue.experiments()]
    said = f"{in_folder('dlmexp run experiment=ID', results)} computes those of a figure"
    if not others:
        return said
    needed = dict.fromkeys(panel.experiment for one in others for panel in one.panels if panel.experiment)
    return f"{said}; {', '.join(one.name for one in others)}: those of {', '.join(needed)}"


def _command_for(args: argparse.Namespace, datasets: list[str]) -> str:
    """The command that draws these datasets."""
    ids = [name for name in args.ids if not name.startswith("own-")]
    folder = [] if args.results == "results" else ["--results", args.results]
    return shlex.join(["dlmexp", "plot", *ids, "--by", f"dataset={','.join(datasets)}", *folder])


def _list(args: argparse.Namespace, request: "Request") -> int:
    """Lists the figures; without any results, all as `not run`."""
    from dlmexp.figures.plot import measured
    from dlmexp.figures.registry import PREDICTIONS, find
    from dlmexp.records.results import read_results

    results = read_results(args.results)
    if not args.ids:
        models = f"{counted(len(results.store.keys_with_models()), 'model')}"
        print(f"{PREDICTIONS:28} {models:16} One trained model on its test rows.")
    if not results.records:
        for figure in find([]):
            print(f"{figure.id:28} not run       {figure.caption}")
        return 0
    for drawn in measured([results], args.ids, request):
        lines = [one for panel in drawn.series for one in panel]
        present = sum(not one.empty for one in lines)
        part = f"{present} of {counted(len(lines), 'line')}"
        state = "not run" if not present else "complete" if not drawn.gaps else part
        print(f"{drawn.drawing.name:28} {state:16} {drawn.drawing.figure.caption}")
    return 0
