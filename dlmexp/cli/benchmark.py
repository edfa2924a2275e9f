"""`dlmexp benchmark`: speed, memory and agreement, each suite in a module of `dlmexp.benchmark`."""

import argparse
from importlib import import_module

SUITES = {
    "core": "time of a training step compared with GPyTorch, uPS compared with bMC, memory of a step",
    "engine": "time of a sweep compared with GPyTorch, overhead besides training, planning, status",
    "gpu": "effect of batching on a GPU: training steps, and the cells of a figure",
    "agreement": "differences between results of the same cells: batch sizes, CPU and GPU, float32 and "
    "float64, or two results folders",
    "data": "time to parse and load full-size files",
    "models": "time and memory of predictions, and of DLMRegressor, compared with GPyTorch",
    "figures": "time of claims, plot and report with the records of a results folder",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "benchmark",
        help="measure speed, memory and agreement",
        description="Measure and print, with limits where there are any. "
        + "; ".join(f"{name}: {what}" for name, what in SUITES.items())
        + ".",
    )
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="options of the suite (--help lists them)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return import_module(f"dlmexp.benchmark.{args.suite}").main(args.rest) or 0
