"""From records to the numbers of a panel: one `Series` per line, and a count of what failed.

A repetition counts where it has a finite result. One that failed, or whose metric is NaN or infinite, is left out of
mean and deviation and counted in `failed`; it is never averaged in silence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from dlmexp import catalogue
from dlmexp.config import PARAMETERISATIONS
from dlmexp.data.splits import known_pool, resolve_size
from dlmexp.figures.paired import differences
from dlmexp.figures.panels import Line, Panel
from dlmexp.plan.protocols import kind_of
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, on_test, on_validation
from dlmexp.records.settings import Setting, of_experiment, selects_beta
from dlmexp.records.wanted import Settled, Wanted, has, settle, usual_protocol

STATISTICS = ("x", "mean", "std", "sem", "repetitions", "failed")
PARTS = {
    "sizes": "fits", "betas": "fits", "curve": "curves", "histogram": "gradients", "reliability": "fits",
    "effects": "fits",
}  # fmt: skip
LEVELS = (50, 90, 95)  # per cent, of the central intervals whose coverage is recorded


@dataclass
class Series:
    """One line: a row of `points` per x with the columns of `STATISTICS` (and more where they apply)."""

    line: Line
    points: pd.DataFrame
    n: int | None = None  # the training size, where the whole panel has one
    draws: np.ndarray | None = None  # histograms: the draws of one repetition
    values: dict[tuple[int, int], float] = field(default_factory=dict)  # against n: by n and repetition
    folder: str = ""
    notes: list[str] = field(default_factory=list)
    setting: Setting | None = None  # of all lines of the panel; None where it has no records
    parameterisation: str = "whitened"  # of q, where it matters

    @property
    def empty(self) -> bool:
        return self.points.empty


def summary(x: float, values: Iterable[float], attempted: int) -> dict[str, Any]:
    """Mean, sample deviation and standard error of the finite ones among `values`, out of `attempted` repetitions."""
    finite = np.array([value for value in values if np.isfinite(value)])
    count = len(finite)
    std = float(finite.std(ddof=1)) if count > 1 else np.nan
    mean = float(finite.mean()) if count else np.nan
    sem = std / np.sqrt(count) if count > 1 else np.nan
    return {"x": x, "mean": mean, "std": std, "sem": sem, "repetitions": count, "failed": attempted - count}


def panel_records(panel: Panel, results: Results, parameterisation: str, wanted: Wanted) -> Settled:
    """The choices that a panel is drawn from: of one setting, for all its lines."""
    found = panel_choices(panel, results, parameterisation)
    protocol = usual_protocol(found, wanted)
    return settle(results.settings, found, panel_setting(panel, protocol, panel_kind(panel, results)), wanted)


def panel_setting(panel: Panel, protocol: str, kind: str) -> Setting:
    """What the panel's experiment asks for under a protocol."""
    return of_experiment(panel.experiment, protocol, kind, selects=selects_beta(PARTS[panel.kind], panel.dataset))


def panel_kind(panel: Panel, results: Results) -> str:
    """The kind of data of a panel, as protocols name it."""
    file = catalogue.datasets().get(panel.dataset, {})
    task = results.tasks.get(panel.dataset) or file.get("task", "")
    return kind_of(task, file.get("split", ""))


def drawing_protocol(panels: Iterable[Panel], results: Results, parameterisation: str, wanted: Wanted) -> str:
    """The protocol of all panels of a figure: the one asked for; else the paper's, or if nothing of it is there (or has
    the settings that are wanted) another one."""
    found = {id(one): one for panel in panels for one in panel_choices(panel, results, parameterisation)}
    choices = list(found.values())
    if wanted.where:
        at_hand = results.settings.at_hand(choices)
        choices = [
            one for s, several in at_hand.items() if has(results.settings, s, several, wanted) for one in several
        ]
    return usual_protocol(choices, wanted)


def series_of(panel: Panel, results: Results, parameterisation: str, records: Settled) -> list[Series]:
    """The lines of a panel from the choices that `panel_records` gives."""
    make = {
        "sizes": _sizes, "betas": _betas, "curve": _curve, "histogram": _histogram, "reliability": _reliability
    }[panel.kind]  # fmt: skip
    kept = {id(one) for one in records.kept}
    had = {one.cell.parameterisation for one in records.kept if one.cell.task != "regression"}
    how = had.pop() if len(had) == 1 else parameterisation
    candidates = [
        _at_beta(line, [one for one in line_choices(panel, line, results, parameterisation) if id(one) in kept])
        for line in panel.lines
    ]
    n = None if panel.kind == "sizes" else _one_size(panel, [one for several in candidates for one in several])
    found = []
    for line, several in zip(panel.lines, candidates, strict=True):
        chosen = [one for one in several if panel.kind == "sizes" or one.cell.n == n]
        if panel.kind == "curve" and line.beta is None:
            line, chosen = _at_most_selected(line, chosen)
        series = make(panel, line, chosen, results) if chosen else Series(line, pd.DataFrame(columns=list(STATISTICS)))
        series.n, series.folder, series.setting, series.parameterisation = n, results.label, records.setting, how
        found.append(series)
    if panel.kind == "sizes":
        _add_differences(found)
    return found


def _add_differences(found: list[Series]) -> None:
    """Where there is an ELBO: each line minus the ELBO of the same repetitions, with its 95 % interval."""
    reference = next((one.values for one in found if one.line.method == "elbo" and one.values), None)
    for one in found if reference else ():
        if one.line.method != "elbo" and (by_size := differences(one.values, reference or {})):
            for name, column in (("mean", "minus_elbo"), ("low", "low"), ("high", "high")):
                one.points[column] = [by_size.get(n, {}).get(name, np.nan) for n in one.points["x"]]


def panel_choices(panel: Panel, results: Results, parameterisation: str) -> list[Choice]:
    """All that could be part of a panel, whatever the settings."""
    found = {
        id(one): one for line in panel.lines for one in line_choices(panel, line, results, parameterisation)
        if _at_beta(line, [one])
    }  # fmt: skip
    return list(found.values())


def line_choices(panel: Panel, line: Line, results: Results, parameterisation: str) -> list[Choice]:
    """All that could be part of `line`, every size and seed."""
    part = line.part or PARTS[panel.kind]
    several = results.line(part, panel.dataset, line.method, line.estimator, line.samples)
    found = [one for one in several if one.cell.parameterisation == coordinates(one, parameterisation)]
    # Regression has a closed form over q for most methods: q's coordinates are not a variant of its figures.
    return found or [one for one in several if one.cell.task == "regression"]


def coordinates(one: Choice, parameterisation: str) -> str:
    """Of q: a protocol without the whitened ones is drawn in those that it has."""
    own = own_coordinates(one)
    return own[0] if parameterisation == PARAMETERISATIONS[0] and parameterisation not in own else parameterisation


def own_coordinates(one: Choice) -> list[str]:
    """Those of q that the protocol asks for on such data; all where it says nothing."""
    training = catalogue.training(one.protocol).get(kind_of(one.cell.task, one.cell.split))
    return list(training.parameterisation) if training else list(PARAMETERISATIONS)


def _at_beta(line: Line, several: list[Choice]) -> list[Choice]:
    """Single records at the line's own beta; for a line without one, the choices themselves."""
    if line.beta is None:
        return several
    return [
        Choice(line.method, f"{line.beta:g}", (record,), 0)
        for record in records_of(several)
        if record.cell.beta is not None and np.isclose(record.cell.beta, line.beta)
    ]


def _at_most_selected(line: Line, several: list[Choice]) -> tuple[Line, list[Choice]]:
    """A line at the beta that validation selects most often (the larger of equals); no choices where none is yet. What
    has no beta stays as it is."""
    selected = [record for one in several if (record := one.selected("nll")) is not None]
    betas = Counter(record.cell.beta for record in selected if record.cell.beta is not None)
    if not betas:
        return line, [one for one in several if one.cell.beta is None]
    line = replace(line, beta=max(betas, key=lambda beta: (betas[beta], beta)))
    return line, _at_beta(line, several)


def _one_size(panel: Panel, several: list[Choice]) -> int | None:
    """The size a panel is drawn at: the share it names, else the one with most records (the larger of equals)."""
    counts: Counter[int] = Counter()
    for one in several:
        counts[one.cell.n] += len(one.records)
    if not counts:
        return None
    if panel.n is None:
        return max(counts, key=lambda n: (counts[n], n))
    wanted = resolve_size(panel.n, known_pool(panel.dataset) or max(counts))
    closest = min(counts, key=lambda n: abs(n - wanted))
    return closest if abs(closest - wanted) <= 0.02 * wanted else None


def _sizes(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Test metric against n, beta selected on validation for every repetition.

    A repetition with candidates that have no record yet has not been run; a note counts it.
    """
    sizes: dict[int, list[Choice]] = defaultdict(list)
    for one in sorted(several, key=lambda one: one.cell.seed):
        sizes[one.cell.n].append(one)
    points, notes, values = [], [], {}
    for n, attempts in sorted(sizes.items()):
        complete, note = _measured(panel, line, [one for one in attempts if not one.missing])
        notes += note
        if lacking := [one.missing for one in attempts if one.missing]:
            notes.append(_incomplete(line, n, lacking))
        if not complete:
            continue
        chosen = [record for one in complete if (record := one.selected(panel.metric)) is not None]
        values |= {(n, record.cell.seed): on_test(record, panel.metric) for record in chosen}
        point = summary(n, (on_test(record, panel.metric) for record in chosen), len(complete))
        points.append(
            point
            | {
                "betas": " ".join(f"{record.cell.beta:.4g}" for record in chosen if record.cell.beta is not None),
                "fewest_candidates": min(len(one.records) for one in complete),
                "most_candidates": max(len(one.records) for one in complete),
                "failed_candidates": sum(one.failed for one in attempts),
            }
        )
    table = pd.DataFrame(points, columns=None if points else list(STATISTICS))
    return Series(line, table, notes=notes, values=values)


def _measured(panel: Panel, line: Line, several: list[Choice]) -> tuple[list[Choice], list[str]]:
    """Those whose records have the panel's metric, and a note on the others: older records lack newer metrics."""
    name = f"coverage_{LEVELS[-1]}" if panel.metric == "coverage" else panel.metric
    name = "ece" if name == "reliability" else name
    having = [one for one in several if not all(r.done and name not in r.result.test for r in one.records)]
    if len(having) == len(several):
        return several, []
    n, count = several[0].cell.n, len(several) - len(having)
    which = "1 repetition has" if count == 1 else f"{count} repetitions have"
    return having, [f"{line.look.label}, n = {n}: {which} records without {panel.metric}, from before it was measured"]


def _reliability(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Observed shares against predicted ones at the selected beta: per level of central intervals, or per bin."""
    complete, notes = _measured(panel, line, [one for one in several if not one.missing])
    chosen = [record for one in complete if (record := one.selected(panel.metric)) is not None]
    points = []
    if panel.metric == "coverage":
        for level in LEVELS if complete else ():
            values = [on_test(record, f"coverage_{level}") for record in chosen]
            points.append(summary(level / 100, values, len(complete)))
    else:
        names = ("reliability_p", "reliability_y")
        bins = [[arrays.get(name) for name in names] for record in chosen if (arrays := results.arrays(record))]
        pairs = np.array([pair for pair in bins if all(one is not None for one in pair)], dtype=float)
        for b in range(pairs.shape[-1] if len(pairs) else 0):
            p, y = pairs[:, 0, b], pairs[:, 1, b]
            points.append(summary(summary(0, p, len(p))["mean"], y, len(complete)))
    return Series(line, pd.DataFrame(points, columns=None if points else list(STATISTICS)), notes=notes)


def _incomplete(line: Line, n: int, lacking: list[int]) -> str:
    span = f"{min(lacking)}" if min(lacking) == max(lacking) else f"{min(lacking)} to {max(lacking)}"
    betas = "beta has" if span == "1" else "betas have"
    where = "1 repetition, which is" if len(lacking) == 1 else f"{len(lacking)} repetitions, which are"
    return f"{line.look.label}, n = {n}: {span} {betas} no record yet in {where} not drawn"


def _betas(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Test metric against beta at one size; the mean validation metric beside it. A method without beta has x = NaN."""
    cells: dict[float, list[Record]] = defaultdict(list)
    for record in records_of(several):
        cells[np.inf if record.cell.beta is None else record.cell.beta].append(record)
    points = []
    for beta, records in sorted(cells.items()):
        point = summary(np.nan if beta == np.inf else beta, (on_test(r, panel.metric) for r in records), len(records))
        beside = summary(0, (on_validation(r, panel.metric) for r in records), len(records))
        points.append(point | {"validation": beside["mean"]})
    return Series(line, pd.DataFrame(points))


def _curve(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """Test metric against epochs or iterations; a repetition that has stopped keeps its last value."""
    records, curves = records_of(several), []
    for record in records:
        arrays = results.arrays(record)
        x, y = arrays.get("epochs" if panel.x == "epochs" else "evaluated_at"), arrays.get(f"test_{panel.metric}")
        if x is not None and y is not None and len(x) == len(y) > 0:
            curves.append((np.asarray(x, dtype=float), np.asarray(y, dtype=float)))
    if not curves:
        return Series(line, pd.DataFrame([summary(np.nan, [], len(records))]))
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    held = np.stack([_held(grid, x, y) for x, y in curves])
    return Series(line, pd.DataFrame([summary(at, held[:, i], len(records)) for i, at in enumerate(grid)]))


def _held(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`y` at every point of `grid`: the last value at or before it, NaN before the first."""
    index = np.searchsorted(x, grid, side="right") - 1
    return np.where(index >= 0, y[np.maximum(index, 0)], np.nan)


def _histogram(panel: Panel, line: Line, several: list[Choice], results: Results) -> Series:
    """The draws of the first repetition that has any, in units of |G|^2; x is the number of samples. Repetitions have
    gradients of different size, so draws of several would show their differences."""
    records = sorted(records_of(several), key=lambda record: record.cell.seed)
    draws = {record.cell.seed: _finite_draws(panel, record, results) for record in records}
    first = next((record for record in records if len(draws[record.cell.seed])), records[0])
    shown = draws[first.cell.seed]
    lost = sum(len(values) == 0 for values in draws.values())
    point = summary(line.samples or 0, shown, len(shown)) | {"repetitions": len(records) - lost, "failed": lost}
    size = first.result.norm2_G or np.nan
    beside = {
        "draws": len(shown), "seed": first.cell.seed, "bias": (first.result.bias or np.nan) / size,
        "error_of_G": _error_of_truth(first, results) / size,
    }  # fmt: skip
    return Series(line, pd.DataFrame([point | beside]), draws=shown)


def _finite_draws(panel: Panel, record: Record, results: Results) -> np.ndarray:
    values = np.asarray(results.arrays(record).get(panel.metric, []), dtype=float)
    if panel.metric != "condition_i":  # that is relative to |G|^2 already
        values = values / (record.result.norm2_G or np.nan)
    return values[np.isfinite(values)]


def _error_of_truth(record: Record, results: Results) -> float:
    """|G - exact gradient|^2: how far G, from 10 000 bMC samples, is off itself.

    The mean of many uPS draws is the exact gradient but for 1 % of that distance. What it is off from G more than from
    quadrature is the error of G.
    """
    same = [
        other
        for one in results.choices
        if one.cell.kind == "gradient" and one.cell.estimator == "ups"
        for other in one.records
        if all(getattr(other.cell, name) == getattr(record.cell, name) for name in ("base", "parameterisation", "beta"))
    ]
    best = max(same, key=lambda other: other.cell.samples or 0, default=None)
    if best is None or best.result.bias is None or best.result.bias_quadrature is None:
        return np.nan
    return best.result.bias - best.result.bias_quadrature
