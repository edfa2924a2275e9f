"""How many iterations a fit takes before its rule stops it: from fits that are done in the results folder, else from
those of results/paper, condensed into `iterations.json` by

    python -m dlmexp.running.iterations RESULTS_FOLDER...
"""

import math
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from dlmexp.estimators import ESTIMATORS
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.record import Record

FILE = Path(__file__).with_suffix(".json")
BETAS_APART = 2.0  # neighbouring entries of a curve, in powers of two
NO_BETA = 0.0  # the logarithm under which fits without beta (or with beta = 0) are noted
LOWEST = -8.0  # log2 of the smallest beta that is told from 0
AT_LIMIT = 0.98  # of the limit: a mean above it means that fits do not stop before
AFTER_DECAY = 500  # iterations that a fit takes after a decay of the learning rate and a window, where none is known


class Curve(msgspec.Struct, frozen=True):
    """Mean iterations of fits of one kind on one dataset with n rows and M inducing inputs, by the log of beta."""

    dataset: str
    n: int
    M: int
    limit: int
    log2_beta: list[float]
    iterations: list[float]

    def at(self, beta: float | None) -> float:
        """Iterations at a beta: linear in its logarithm, constant beyond the ends."""
        x = _log2(beta)
        right = bisect_left(self.log2_beta, x)
        if right in (0, len(self.log2_beta)):
            return self.iterations[min(right, len(self.iterations) - 1)]
        (x0, x1), (y0, y1) = self.log2_beta[right - 1 : right + 1], self.iterations[right - 1 : right + 1]
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


class Expected(NamedTuple):
    """Iterations of a fit, and what they are taken from: fits done here, the same data in the paper's results, other
    data there or another M, a rule, or an assumption."""

    iterations: float
    source: str


HERE, SAME, OTHER, RULE, ASSUMED = "fits done here", "the paper's fits", "similar fits", "its rule", "assumed"
Curves = Mapping[str, list[Curve]]


def kind_of(cell: Cell) -> str:
    """What fits must share for one to tell of the other: model, objective, form of q, steps and stopping rule."""
    what = f"{cell.task} {cell.variant} {cell.objective} {cell.form} {cell.parameterisation}"
    return f"{what} | lr={cell.lr:g} window={cell.window} {cell.criterion}<={cell.tolerance} decay={cell.decay}"


def is_drawn(cell: Cell) -> bool:
    """Whether the objective is drawn anew at every step (samples, minibatches): such fits never come to rest."""
    return cell.minibatch is not None or ESTIMATORS[cell.estimator].sampled


class Iterations:
    """What is known of the iterations of fits: `here` comes before what is shipped."""

    def __init__(self, here: Iterable[Record] = (), shipped: Curves | None = None):
        self._here = condensed(here)
        self._shipped = shipped_curves() if shipped is None else shipped
        self._expected: dict[str, Expected] = {}
        self._curves: dict[tuple[str, str, int, int], tuple[list[Curve], str]] = {}

    def expected(self, cell: Cell) -> Expected:
        """The mean number of iterations of such a fit."""
        if cell.key not in self._expected:
            self._expected[cell.key] = self._of(cell)
        return self._expected[cell.key]

    def _of(self, cell: Cell) -> Expected:
        limit = cell.iterations
        if cell.kind != "fit" or OBJECTIVES[cell.objective].solved(cell.variant):
            return Expected(1, RULE)
        if not cell.has_stopping_rule or (is_drawn(cell) and kind_of(cell) not in self._here):
            return Expected(limit, RULE)
        kind = kind_of(cell)
        which = kind, cell.dataset, cell.n, cell.M
        if which not in self._curves:
            self._curves[which] = self._found(kind, cell)
        curves, source = self._curves[which]
        if not curves:
            first = (cell.decay or 0) + (cell.window or 0)
            return Expected(min(limit, first + AFTER_DECAY if cell.decay else limit / 2), ASSUMED)
        return Expected(sum(_within(curve, cell.beta, limit) for curve in curves) / len(curves), source)

    def _found(self, kind: str, cell: Cell) -> tuple[list[Curve], str]:
        shipped = self._shipped.get(kind, [])
        for same_M in (True, False):
            for curves, source in ((self._here.get(kind, ()), HERE), (shipped, SAME)):
                some = [one for one in curves if one.dataset == cell.dataset and (one.M == cell.M) == same_M]
                if some:
                    return [_nearest(some, cell.n)], source if same_M else OTHER
        other, source = shipped or self._here.get(kind, []), OTHER
        if not other and cell.decay is None:  # another rule or form of q
            start, source = kind.partition(cell.parameterisation)[0], ASSUMED
            other = [curve for name, some in self._shipped.items() if name.startswith(start) for curve in some]
        datasets = dict.fromkeys(curve.dataset for curve in other)
        return [_nearest([curve for curve in other if curve.dataset == name], cell.n) for name in datasets], source


def _within(curve: Curve, beta: float | None, limit: int) -> float:
    """The iterations of a curve under another limit: fits that ran to theirs would run to this one."""
    found = curve.at(beta)
    return limit if found >= AT_LIMIT * curve.limit else min(found, limit)


def _nearest(curves: list[Curve], n: int) -> Curve:
    """The curve of the training size that is nearest in proportion."""
    return min(curves, key=lambda curve: abs(math.log(max(curve.n, 1) / max(n, 1))))


def _log2(beta: float | None) -> float:
    return NO_BETA if beta is None else max(LOWEST, math.log2(beta)) if beta > 0 else LOWEST


def condensed(records: Iterable[Record]) -> dict[str, list[Curve]]:
    """Curves of done fits that have a stopping rule: means over seeds and over betas within a factor of 4."""
    found: dict[tuple[str, str, int, int, int], dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        cell, iterations = record.cell, record.result.iterations
        if record.done and cell.kind == "fit" and cell.has_stopping_rule and iterations:
            near = BETAS_APART * round(_log2(cell.beta) / BETAS_APART)
            found[kind_of(cell), cell.dataset, cell.n, cell.M, cell.iterations][near].append(iterations)
    curves: dict[str, list[Curve]] = defaultdict(list)
    for (kind, dataset, n, M, limit), by_beta in sorted(found.items()):
        places = sorted(by_beta)
        means = [round(sum(by_beta[place]) / len(by_beta[place]), 1) for place in places]
        if len(set(means)) == 1:
            places, means = places[:1], means[:1]
        curves[kind].append(Curve(dataset, n, M, limit, places, means))
    return dict(curves)


@cache
def shipped_curves() -> Curves:
    """Those that come with the program."""
    return typed_json(content(FILE), dict[str, list[Curve]])


def _main(folders: list[str]) -> None:
    """Write the file from the records of results folders."""
    from dlmexp.records.store import Store

    FILE.write_text(as_text(record for folder in folders for record in Store(folder).all()))


def as_text(records: Iterable[Record]) -> str:
    """The file that these records give. Fits that never stop need no curve."""
    text = msgspec.json.encode(condensed([record for record in records if not is_drawn(record.cell)])).decode()
    return text.replace('{"dataset"', '\n{"dataset"') + "\n"


if __name__ == "__main__":
    _main(sys.argv[1:])
