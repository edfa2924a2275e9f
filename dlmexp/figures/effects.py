"""The anatomy of "DLM - ELBO": how much is choosing beta, how much the objective, how much the rest.

ELBO and joint DLM differ in two ways: the objective (log loss in place of the ELBO's term) and the choice of beta (1 or
selected). Beta-ELBO and PPGPR, the joint DLM with beta = 1, change one of them each. There are two orders in which to
change both; an effect is the mean over them, so that both effects add up to the whole, in every repetition. Beside
that: by how much the whole changes if q is trained in unwhitened coordinates, or with a floor under the noise.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from dlmexp.figures.paired import Values, contrast, interval
from dlmexp.figures.panels import Line, Panel, methods
from dlmexp.figures.series import STATISTICS, Series, panel_records, summary
from dlmexp.records.results import Results
from dlmexp.records.selection import Choice, on_test
from dlmexp.records.wanted import Settled, Wanted

FLOOR = 0.01  # under the noise, in regression


class Level(NamedTuple):
    """One way to train: a method, the coordinates of q, and the floor under the noise."""

    method: str
    q: str = "whitened"
    floor: float | None = None


@dataclass(frozen=True)
class Effect:
    """A weighted sum of test NLLs, and the simple differences that it is made of."""

    name: str
    weights: tuple[tuple[float, Level], ...]
    parts: tuple[tuple[str, tuple[tuple[float, Level], ...]], ...] = ()  # kind of marker -> its own weights


def _minus(ours: Level, reference: Level) -> tuple[tuple[float, Level], ...]:
    return (1.0, ours), (-1.0, reference)


def _gap(q: str = "whitened", floor: float | None = None) -> tuple[tuple[float, Level], ...]:
    return _minus(Level("joint_log_dlm", q, floor), Level("elbo", q, floor))


def _change(q: str = "whitened", floor: float | None = None) -> tuple[tuple[float, Level], ...]:
    """By how much the whole changes when something else changes."""
    return (*_gap(q, floor), *((-weight, level) for weight, level in _gap()))


def _half(*several: tuple[tuple[float, Level], ...]) -> tuple[tuple[float, Level], ...]:
    return tuple((weight / 2, level) for weights in several for weight, level in weights)


def _of(method: str, q: str = "whitened", floor: float | None = None) -> tuple[tuple[float, Level], ...]:
    return _minus(Level(method, q, floor), Level(method))


ELBO, BETA_ELBO, PPGPR, DLM = (Level(name) for name in ("elbo", "beta_elbo", "ppgpr", "joint_log_dlm"))
BETA = (("elbo", _minus(BETA_ELBO, ELBO)), ("joint_log_dlm", _minus(DLM, PPGPR)))
OBJECTIVE = (("ppgpr", _minus(PPGPR, ELBO)), ("beta_elbo", _minus(DLM, BETA_ELBO)))
METHODS = ("elbo", "beta_elbo", "fitc", "ppgpr", "joint_log_dlm")
EFFECTS = (
    Effect("whole", _gap()),
    Effect("beta", _half(*(weights for _, weights in BETA)), BETA),
    Effect("objective", _half(*(weights for _, weights in OBJECTIVE)), OBJECTIVE),
    Effect(
        "coordinates",
        _change("unwhitened"),
        (("elbo", _of("elbo", "unwhitened")), ("joint_log_dlm", _of("joint_log_dlm", "unwhitened"))),
    ),
    Effect(
        "noise",
        _change(floor=FLOOR),
        (("elbo", _of("elbo", floor=FLOOR)), ("joint_log_dlm", _of("joint_log_dlm", floor=FLOOR))),
    ),
    Effect("fitc", _minus(Level("fitc"), ELBO)),
)


def effect_records(panel: Panel, results: Results, wanted: Wanted) -> Settled:
    """The choices that a panel of effects is drawn from: of one setting, without and with a floor under the noise."""
    found = panel_records(replace(panel, kind="sizes", lines=methods(*METHODS)), results, "whitened", wanted)
    if found.setting is None:
        return found
    settings = (found.setting, found.setting.changed({"training.noise_floor": FLOOR}))
    several = [one for method in METHODS for one in results.line("fits", panel.dataset, method)]
    kept = [one for one in several if any(results.settings.fits(one, setting) for setting in settings)]
    shown = {record.key for one in kept for record in one.records}
    left_out = {setting: rest for setting, keys in found.left_out.items() if (rest := keys - shown)}
    return replace(found, kept=kept, left_out=left_out)


def panel_effects(panel: Panel, results: Results, records: Settled) -> list[Series]:
    """One series per effect of the panel: the effect first, then its parts; nothing where a level has no records."""
    lines = {line.effect: line for line in panel.lines}
    n = _size(records.kept)
    values: dict[Level, Values] = {}
    found = []
    for effect in EFFECTS:
        if effect.name not in lines:
            continue
        for _, level in effect.weights:
            values.setdefault(level, _values(panel, level, n, records.kept))
        points = _points(effect, values)
        table = pd.DataFrame(points, columns=None if points else list(STATISTICS))
        series = Series(lines[effect.name], table, n=n, folder=results.label, setting=records.setting)
        found.append(series)
    return found


def _size(several: list[Choice]) -> int | None:
    """The size with most records of PPGPR, which nothing but this experiment trains; the larger of equals."""
    counts: dict[int, int] = {}
    for one in several:
        if one.method == PPGPR.method:
            counts[one.cell.n] = counts.get(one.cell.n, 0) + len(one.records)
    return max(counts, key=lambda n: (counts[n], n), default=None)


def _values(panel: Panel, level: Level, n: int | None, several: list[Choice]) -> dict[int, float]:
    """Test metric by repetition at the selected beta; NaN where all candidates failed."""
    found = {}
    for one in several:
        if one.method == level.method and one.cell.n == n and not one.missing and _at(one, level):
            record = one.selected(panel.metric)
            found[one.cell.seed] = float("nan") if record is None else on_test(record, panel.metric)
    return found


def _at(one: Choice, level: Level) -> bool:
    """Whether these candidates were trained so. A closed form over q knows no coordinates, so it serves for all."""
    cell = one.cell
    return cell.noise_floor == level.floor and (cell.form == "collapsed" or cell.parameterisation == level.q)


def _points(effect: Effect, values: dict[Level, Values]) -> list[dict[str, Any]]:
    """The effect, and its parts as far as they are there; x numbers them."""
    points = []
    for part, weights in (("", effect.weights), *effect.parts):
        levels = dict.fromkeys(level for _, level in weights)
        if not all(values.get(level) for level in levels):
            continue
        found = contrast((weight, values[level]) for weight, level in weights)
        attempted = len(set.intersection(*(set(values[level]) for level in levels)))
        about = summary(len(points), found.values(), attempted)
        bounds = {name: value for name, value in interval(found.values()).items() if name in ("low", "high")}
        points.append(about | bounds | {"effect": effect.name, "part": part or "effect"})
    return points if points and points[0]["part"] == "effect" else []


def lines(*names: str) -> tuple[Line, ...]:
    """The lines of a panel that shows these effects."""
    return tuple(Line(name if name == "fitc" else DLM.method, names="effect", effect=name) for name in names)
