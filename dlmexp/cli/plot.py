"""`dlmexp plot`: the paper's figures from your results."""

import argparse
import os
import shlex
from pathlib import Path

DESCRIPTION = """
Draws figures from the records under --results, as PDF and PNG with the numbers beside them as CSV. Without an ID:
every figure for which something was run. A figure with part of its cells draws them, greys out the rest and lists the
command that would compute it. Data that stands in for the paper's is drawn under its own name.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("plot", help="draw the paper's figures from your results", description=DESCRIPTION)
    parser.add_argument("ids", nargs="*", metavar="ID", help="figures to draw (--list shows them)")
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="the folder with records (default: results)"
    )
    parser.add_argument("--out", metavar="DIR", help="where figures go (default: figures in the results folder)")
    parser.add_argument("--format", default="pdf,png", metavar="LIST", help="pdf, png, svg (default: pdf,png)")
    parser.add_argument("--list", action="store_true", help="list the figures and how much of each was run")
    parser.add_argument(
        "--by", action="append", default=[], metavar="FIELD=VALUE",
        help="dataset=flights draws stand-ins or your own data; any other field of a cell keeps only its records",
    )  # fmt: skip
    parser.add_argument(
        "--compare", nargs="+", default=[], metavar="DIR", help="set these folders' results beside those of --results"
    )
    parser.add_argument(
        "--error", choices=["std", "sem"], default="std", help="error bars: deviation or standard error"
    )
    parser.add_argument(
        "--parameterisation", choices=["whitened", "unwhitened"],
        help="coordinates of q on binary and count data (default: all that were run, each in its own file)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.cli import check_output
    from dlmexp.figures.plot import left_out, plot
    from dlmexp.figures.registry import find
    from dlmexp.figures.save import parse_formats
    from dlmexp.figures.variants import parse_by
    from dlmexp.records.results import load, load_several

    find(args.ids)
    formats, _ = parse_formats(args.format), parse_by(args.by)
    if args.list:
        return _list(args)
    several = load_several([args.results, *args.compare]) if args.compare else [load(args.results)]
    out = Path(args.out) if args.out else Path(args.results) / "figures"
    check_output(out, out, "--out")
    shown, nothing = [], []
    jobs = os.cpu_count() or 1
    for drawn, paths in plot(several, args.ids, out, formats, args.by, args.parameterisation, args.error, jobs):
        shown.append(drawn.drawing)
        if not paths:
            nothing.append(drawn.drawing.name)
            continue
        print(
            f"{drawn.drawing.name}: {paths[0].parent / drawn.drawing.name}.{{{','.join(p.suffix[1:] for p in paths)}}}"
        )
        for gap in drawn.gaps:
            print(f"  missing: {gap.dataset}: {gap.what}  ->  {gap.command}")
        for text in drawn.caveats:
            print(f"  note: {text}")
    if nothing:
        print(f"nothing run yet for: {', '.join(nothing)}  (dlmexp run experiment=ID computes a figure)")
    if not args.by and (rest := left_out(several, args.ids, shown)):
        print(f"your records on {', '.join(rest)} are not drawn here: {_by_dataset(args, rest)}")
    return 0


def _by_dataset(args: argparse.Namespace, datasets: list[str]) -> str:
    """The command that draws these datasets."""
    folder = [] if args.results == "results" else ["--results", args.results]
    return shlex.join(["dlmexp", "plot", *args.ids, "--by", f"dataset={','.join(datasets)}", *folder])


def _list(args: argparse.Namespace) -> int:
    """Works without any results too: the figures are then all `not run`."""
    from dlmexp.figures.plot import measured
    from dlmexp.figures.registry import find
    from dlmexp.records.results import read_results

    results = read_results(args.results)
    if not results.records:
        for figure in find([]):
            print(f"{figure.id:28} not run       {figure.caption}")
        return 0
    for drawn in measured([results], args.ids, {}, args.parameterisation):
        lines = [one for panel in drawn.series for one in panel]
        present = sum(not one.empty for one in lines)
        state = "not run" if not present else "complete" if not drawn.gaps else f"{present} of {len(lines)} lines"
        print(f"{drawn.drawing.name:28} {state:16} {drawn.drawing.figure.caption}")
    return 0
