"""Differences between the results of the same cells in two results folders, for example of a CPU and of a GPU."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlmexp.benchmark.measure import Measurement, print_all

if TYPE_CHECKING:
    from dlmexp.records.results import Results

MIN_SHARE = 95.0  # per cent


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark agreement", description=__doc__)
    parser.add_argument("folders", nargs=2, metavar="RESULTS", help="a results folder")
    folders = parser.parse_args(argv).folders
    from dlmexp.records.results import load

    return 0 if print_all(agreement(*(load(folder) for folder in folders))) else 1


def agreement(one: "Results", other: "Results") -> list[Measurement]:
    """Differences in test NLL of the cells in both folders, and how often validation selects the same beta."""
    import numpy as np

    from dlmexp.errors import UserError
    from dlmexp.records.selection import choices, on_test

    for results in (one, other):
        if not any(np.isfinite(on_test(record, "nll")) for record in results.records.values()):
            raise UserError(f"'{results.store.root}' has no finished cells with a test NLL: run some of them first")
    both = [key for key in one.records if key in other.records]
    difference = np.array([abs(on_test(one.records[key], "nll") - on_test(other.records[key], "nll")) for key in both])
    difference = difference[np.isfinite(difference)]
    if not len(difference):
        raise UserError(
            "the two folders have no finished cell in common: give two results of the same 'dlmexp run' command"
        )
    lines = [
        Measurement("cells in both", len(difference), ""),
        Measurement("test NLL identical in every bit", 100 * float((difference == 0).mean()), "%"),
    ]
    for within in (1e-4, 1e-3, 1e-2):
        limit = MIN_SHARE if within == 1e-4 else None
        share = 100 * float((difference <= within).mean())
        lines.append(Measurement(f"test NLL within {within:g}", share, "%", limit, at_least=True))
    lines.append(Measurement("largest difference in test NLL", difference.max(), "nats"))
    asked = [group for group in dict.fromkeys([*one.asked, *other.asked]) if len(group.keys) > 1]
    selected = [
        {(c.method, c.betas, c.protocol, c.cell.identity): c.selected() for c in choices(asked, r.records)}
        for r in (one, other)
    ]
    pairs = [(ours, selected[1].get(which)) for which, ours in selected[0].items()]
    same = [ours.key == theirs.key for ours, theirs in pairs if ours is not None and theirs is not None]
    if same:
        share = 100 * sum(same) / len(same)
        lines.append(
            Measurement(f"same beta selected, of {len(same)} selections", share, "%", MIN_SHARE, at_least=True)
        )
    return lines
