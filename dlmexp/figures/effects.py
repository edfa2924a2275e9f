"""The anatomy of "DLM - ELBO": how much is choosing beta, how much the objective, how much the rest.

ELBO and joint DLM differ in two ways: the objective (log loss in place of the ELBO's term) and the choice of beta (1 or
selected). Beta-ELBO and PPGPR, the joint DLM with beta = 1, change one of them each. There are two orders in which to
change both; an effect is the mean over them, so that both effects add up to the whole, in every repetition. Beside
that: by how much the whole changes if q is trained in unwhitened coordinates, or with a floor under the noise.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlmexp.figures import style
from dlmexp.figures.panels import Line, Panel
from dlmexp.figures.stats import half_width, statistics
from dlmexp.labels import metric_label
from dlmexp.records.table import rows_for

METHODS = ("elbo", "beta_elbo", "fitc", "ppgpr", "joint_log_dlm")
ROWS = list(style.EFFECTS)
BAR, PLACE = 0.34, 0.05  # height of a bar, and how far below the middle of its row it lies
NUMBER = -0.33  # where the number of a bar is written
# What the marks stand for; their shapes are those of the methods.
MARKS = {
    "elbo": "in ELBO alone",
    "joint_log_dlm": "in joint DLM alone",
    "ppgpr": "PPGPR − ELBO",
    "beta_elbo": "joint DLM − β-ELBO",
}


class Level(NamedTuple):
    """One way to train: a method, the coordinates of q, and whether there is a floor under the noise."""

    method: str
    unwhitened: bool = False
    floor: bool = False


Weights = list[tuple[float, Level]]


def _minus(ours: Level, reference: Level) -> Weights:
    return [(1.0, ours), (-1.0, reference)]


def _gap(**how: bool) -> Weights:
    return _minus(Level("joint_log_dlm", **how), Level("elbo", **how))


def _half(first: Weights, second: Weights) -> Weights:
    return [(weight / 2, level) for weight, level in first + second]


def _changed(**how: bool) -> dict[str, Weights]:
    """By how much the whole changes with `how`, and each method by itself."""
    alone = {name: _minus(Level(name, **how), Level(name)) for name in ("elbo", "joint_log_dlm")}
    return {"effect": _gap(**how) + [(-weight, level) for weight, level in _gap()], **alone}


_ELBO, _BETA_ELBO, _FITC, _PPGPR, _DLM = (Level(name) for name in METHODS)
_BETA = {"elbo": _minus(_BETA_ELBO, _ELBO), "joint_log_dlm": _minus(_DLM, _PPGPR)}
_OBJECTIVE = {"ppgpr": _minus(_PPGPR, _ELBO), "beta_elbo": _minus(_DLM, _BETA_ELBO)}
# Effect -> the weights of its bar (`effect`), then those of its marks.
EFFECTS: dict[str, dict[str, Weights]] = {
    "whole": {"effect": _gap()},
    "beta": {"effect": _half(*_BETA.values()), **_BETA},
    "objective": {"effect": _half(*_OBJECTIVE.values()), **_OBJECTIVE},
    "coordinates": _changed(unwhitened=True),
    "noise": _changed(floor=True),
    "fitc": {"effect": _minus(_FITC, _ELBO)},
}


def lines(*names: str) -> tuple[Line, ...]:
    """The lines of a panel that shows these effects."""
    return tuple(Line("fitc" if name == "fitc" else "joint_log_dlm", names="effect", effect=name) for name in names)


def measure(panel: Panel, rows: pd.DataFrame) -> tuple[int | None, dict[str, pd.DataFrame]]:
    """The training size, and by effect its points: a row for the bar, then for each mark. `rows`: of one setting.

    An effect without rows for one of its levels is left out."""
    rows = rows_for(rows, panel.metric)
    rows = rows[rows["status"] != "incomplete"]
    counts = rows[rows["method"] == "ppgpr"].groupby("n").size()  # which nothing but this experiment trains
    n = max(counts.index, key=lambda size: (counts[size], size), default=None)
    rows = rows[rows["n"] == n]
    found = {}
    for name in (line.effect for line in panel.lines):
        parts = []
        for part, weights in EFFECTS[name].items():
            values = [weight * _values(rows, level, panel.metric) for weight, level in weights]
            if any(one.empty for one in values):
                continue
            table = pd.concat(values, axis="columns", join="inner")
            point = statistics([len(parts)], table.sum(axis="columns", skipna=False).to_numpy()[:, None], len(table))
            half = half_width(point, "ci95")
            parts.append(point.assign(low=point["mean"] - half, high=point["mean"] + half, effect=name, part=part))
        if parts and parts[0]["part"].iloc[0] == "effect":
            found[name] = pd.concat(parts, ignore_index=True)
    return n, found


def _values(rows: pd.DataFrame, level: Level, metric: str) -> pd.Series:
    """Test metric by seed at the selected beta; NaN where all candidates failed. A closed form over q knows no
    coordinates, so it serves for all."""
    fits = (rows["method"] == level.method) & (rows["noise_floor"].notna() == level.floor)
    how = rows["parameterisation"] == ("unwhitened" if level.unwhitened else "whitened")
    fits &= how | (rows["form"] == "collapsed")
    own = rows[fits].drop_duplicates("seed").set_index("seed")
    return own[f"test_{metric}"].astype(float).where(own["status"] == "done")


def draw(ax: Axes, panel: Panel, drawn: list[Any], first: bool) -> None:
    """A row for each effect, the same in all panels; negative, to the left, where DLM gains."""
    edges = [0.0]
    for one in drawn:
        row = ROWS.index(one.line.effect)
        points = one.points[np.isfinite(one.points["mean"])]
        for _, point in points[points["part"] == "effect"].iterrows():
            edges += _bar(ax, row, style.EFFECTS[one.line.effect].colour, point)
        marks = points[points["part"] != "effect"]
        for place, (part, mean) in enumerate(zip(marks["part"], marks["mean"], strict=True)):
            height = row + PLACE + (0.5 * BAR if place else -0.5 * BAR)
            ax.plot([mean], [height], linestyle="none", label=f"_{part}", zorder=4, **_marker(part))
        edges += [*marks["mean"]]
    ax.axvline(0.0, color=style.INK, linewidth=0.6, zorder=1)
    low, high = min(edges), max(edges)
    margin = 0.12 * (high - low) or 1.0
    ax.set(xlim=(low - margin, high + margin), ylim=(len(ROWS) - 0.5, -0.5))
    ax.axhline(2.5, color="#bbbbbb", linewidth=0.5)
    ax.set_yticks(range(len(ROWS)), [style.EFFECTS[name].label for name in ROWS] if first else [""] * len(ROWS))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 3, 4, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {metric_label(panel.metric)}")


def _bar(ax: Axes, row: int, colour: str, point: pd.Series) -> list[float]:
    """The effect as a bar with its interval, its number above; what has to be in the frame."""
    mean, low, high = (float(point[name]) for name in ("mean", "low", "high"))
    ax.barh([row + PLACE], [mean], height=BAR, color=colour, alpha=0.85, zorder=2)
    if np.isfinite(low):
        ax.plot([low, high], [row + PLACE] * 2, color=style.INK, linewidth=0.8, zorder=3)
    sure = np.isfinite(low) and (low > 0 or high < 0)
    lost = f" ({int(point['repetitions'])}/{int(point['repetitions'] + point['failed'])})" if point["failed"] else ""
    ax.text(0.5, row + NUMBER, f"{mean:+.3f}".replace("-", "−") + lost, transform=ax.get_yaxis_transform(), ha="center",
            va="center", fontsize=5.5, color=style.INK if sure else style.GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    # An interval of two or three repetitions can be huge: it may leave the frame.
    return [mean, *(edge for edge in (low, high) if np.isfinite(edge) and abs(edge - mean) <= 3 * abs(mean))]


def _marker(part: str) -> dict[str, Any]:
    look = style.METHODS[part]
    return {
        "marker": look.marker, "markerfacecolor": "white", "markeredgecolor": look.colour, "markersize": 3.4,
        "markeredgewidth": 0.8,
    }  # fmt: skip


def legend() -> list[Line2D]:
    """The entries that explain the marks."""
    return [Line2D([], [], linestyle="none", label=text, **_marker(part)) for part, text in MARKS.items()]
