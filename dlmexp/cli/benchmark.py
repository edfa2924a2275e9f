"""`dlmexp benchmark`: ratios measured side by side in one run."""

import argparse
from importlib import import_module

SUITES = {
    "core": "a training step against GPyTorch, uPS against bMC, memory of a step",
    "engine": "a sweep against GPyTorch models one by one, overhead of the engine, planning",
    "gpu": "what the batch dimension is worth on a GPU: steps, and a figure's block",
    "agreement": "how closely the same cells came out in two results folders",
    "data": "parsing and reading full-size files",
    "figures": "figures and claims from 20 000 records",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "benchmark",
        help="print measured ratios",
        description="Print ratios measured side by side in one run: "
        + "; ".join(f"{name}: {what}" for name, what in SUITES.items())
        + ".",
    )
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="options of the suite (--help lists them)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return import_module(f"dlmexp.benchmark.{args.suite}").main(args.rest) or 0
