"""How closely the same cells came out in two results folders: of a CPU and a GPU, say, or of other batches."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlmexp.benchmark.core import Line

if TYPE_CHECKING:
    import pandas as pd

ENOUGH = 95.0  # per cent


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per quantity; exit code 1 if one is not what was promised."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark agreement", description=__doc__)
    parser.add_argument("folders", nargs=2, metavar="RESULTS", help="a results folder")
    lines = agreement(*(fits(folder) for folder in parser.parse_args(argv).folders))
    for line in lines:
        print(line)
    return 0 if all(line.kept for line in lines) else 1


def fits(folder: str) -> "pd.DataFrame":
    """The finished fits with a test NLL."""
    from dlmexp.errors import UserError
    from dlmexp.sweep.store import Store
    from dlmexp.sweep.table import table

    found = [r for r in Store(folder).all() if r["status"] == "done" and "nll" in r["result"].get("test", {})]
    if not found:
        raise UserError(f"'{folder}' has no finished cells with a test NLL: give a results folder of 'dlmexp run'")
    return table(found)


def agreement(one: "pd.DataFrame", other: "pd.DataFrame") -> list[Line]:
    """Differences of the cells that are in both, and of the betas that validation chooses among them."""
    from dlmexp.errors import UserError
    from dlmexp.sweep.methods import methods
    from dlmexp.sweep.table import IDENTITY, select

    one, other = (frame[frame["key"].isin(of["key"])] for frame, of in ((one, other), (other, one)))
    if one.empty:
        raise UserError("the two folders have no cell in common: give two of the same 'dlmexp run' command")
    both = one.merge(other, on="key", suffixes=("", "_other"))
    difference = (both["test_nll"] - both["test_nll_other"]).abs()
    lines = [
        Line("cells in both", len(both), ""),
        Line("test NLL the same to the last bit", _share(difference == 0), "%"),
    ]
    for within in (1e-4, 1e-3, 1e-2):
        promised = ENOUGH if within == 1e-4 else None
        lines.append(Line(f"test NLL within {within:g}", _share(difference <= within), "%", promised, at_least=True))
    lines.append(Line("largest difference in test NLL", difference.max(), "nats"))
    group = dict(zip(one["key"], one.groupby(IDENTITY, dropna=False).ngroup(), strict=True))
    choosing = [name for name, method in methods().items() if method["select"]]
    chosen = [rows[rows["method"].isin(choosing)] for rows in (select(frame, methods()) for frame in (one, other))]
    chosen = [rows.assign(group=rows["key"].map(group))[["method", "group", "key"]] for rows in chosen]
    pairs = chosen[0].merge(chosen[1], on=["method", "group"], suffixes=("", "_other"))
    if len(pairs):
        same = _share(pairs["key"] == pairs["key_other"])
        lines.append(Line(f"the same beta selected, of {len(pairs)} times", same, "%", ENOUGH, at_least=True))
    return lines


def _share(which: "pd.Series") -> float:
    return 100 * float(which.mean())
