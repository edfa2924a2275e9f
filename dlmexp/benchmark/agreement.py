"""How closely the same cells came out in two results folders: of a CPU and a GPU, say, or of other batches."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlmexp.benchmark.core import Line

if TYPE_CHECKING:
    from dlmexp.records.results import Results

ENOUGH = 95.0  # per cent


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per quantity; exit code 1 if one is not what was promised."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark agreement", description=__doc__)
    parser.add_argument("folders", nargs=2, metavar="RESULTS", help="a results folder")
    folders = parser.parse_args(argv).folders
    from dlmexp.records.results import load

    lines = agreement(*(load(folder) for folder in folders))
    for line in lines:
        print(line)
    return 0 if all(line.kept for line in lines) else 1


def agreement(one: "Results", other: "Results") -> list[Line]:
    """Differences of the fits that are in both, and of the betas that validation chooses among them."""
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
        raise UserError("the two folders have no cell in common: give two of the same 'dlmexp run' command")
    lines = [
        Line("cells in both", len(difference), ""),
        Line("test NLL the same to the last bit", 100 * float((difference == 0).mean()), "%"),
    ]
    for within in (1e-4, 1e-3, 1e-2):
        promised = ENOUGH if within == 1e-4 else None
        share = 100 * float((difference <= within).mean())
        lines.append(Line(f"test NLL within {within:g}", share, "%", promised, at_least=True))
    lines.append(Line("largest difference in test NLL", difference.max(), "nats"))
    asked = [several for several in dict.fromkeys([*one.asked, *other.asked]) if len(several.keys) > 1]
    picked = [
        {(c.method, c.betas, c.protocol, c.cell.identity): c.selected() for c in choices(asked, r.records)}
        for r in (one, other)
    ]
    pairs = [(ours, picked[1].get(which)) for which, ours in picked[0].items()]
    same = [ours.key == theirs.key for ours, theirs in pairs if ours is not None and theirs is not None]
    if same:
        share = 100 * sum(same) / len(same)
        lines.append(Line(f"the same beta selected, of {len(same)} times", share, "%", ENOUGH, at_least=True))
    return lines
