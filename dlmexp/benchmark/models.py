"""Speed of trained models: predictions compared with the GPyTorch model exported from the same file, their memory, and
`DLMRegressor` over a grid of betas compared with GPyTorch models one after another."""

import argparse
from collections.abc import Sequence

from dlmexp.benchmark.measure import print_all, print_device

PARTS = ("predict", "memory", "grid")
ROWS = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark models", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: a GPU if there is one")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows to predict on (default: {ROWS})")
    parser.add_argument("--iterations", type=int, default=10, help="iterations of the grid of betas (default: 10)")
    args = parser.parse_args(argv)
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}': {', '.join(PARTS)}")
    from dlmexp.benchmark import trained_models

    args.device = print_device(args.device)
    measured = (one for part in args.parts or PARTS for one in getattr(trained_models, part)(args))
    return 0 if print_all(measured) else 1
