"""The anatomy of "DLM - ELBO": how much is choosing beta, how much the objective, how much the rest.

ELBO and joint DLM differ in two ways: the objective (log loss in place of the ELBO's term) and the choice of beta (1 or
selected). Beta-ELBO and PPGPR, the joint DLM with beta = 1, change one of them each. There are two orders in which to
change both; an effect is the mean over them, so that both effects add up to the whole, in every repetition. Beside
that: by how much the whole changes if q is trained in unwhitened coordinates, or with a floor under the noise.
"""

import re
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlmexp.figures.panels import EFFECT_LOOKS, GREY, INK, METHOD_LOOKS, Panel
from dlmexp.figures.stats import half_width, statistics
from dlmexp.labels import metric_label
from dlmexp.records.table import rows_for

METHODS = {"E": "elbo", "B": "beta_elbo", "F": "fitc", "P": "ppgpr", "D": "joint_log_dlm"}
# Effect -> formula of its bar (`effect`), then of its marks; u: q unwhitened, f: with a floor under the noise.
EFFECTS = {
    "whole": {"effect": "D - E"},
    "beta": {"effect": "(B - E + D - P) / 2", "elbo": "B - E", "joint_log_dlm": "D - P"},
    "objective": {"effect": "(P - E + D - B) / 2", "ppgpr": "P - E", "beta_elbo": "D - B"},
    "coordinates": {"effect": "Du - Eu - (D - E)", "elbo": "Eu - E", "joint_log_dlm": "Du - D"},
    "noise": {"effect": "Df - Ef - (D - E)", "elbo": "Ef - E", "joint_log_dlm": "Df - D"},
    "fitc": {"effect": "F - E"},
}
MARKS = {
    "elbo": "in ELBO alone",
    "joint_log_dlm": "in joint DLM alone",
    "ppgpr": "PPGPR − ELBO",
    "beta_elbo": "joint DLM − β-ELBO",
}  # what they stand for; their shapes are those of the methods
BAR, PLACE, NUMBER = 0.34, 0.05, -0.33  # height of a bar, and from the middle of its row the bar and its number


def measure(panel: Panel, rows: pd.DataFrame) -> tuple[int | None, dict[str, pd.DataFrame]]:
    """The training size, and by effect its points: a row for the bar, then for each mark. `rows`: of one setting.

    An effect without rows for one of the ways to train that it compares is left out."""
    rows = rows_for(rows, panel.metric)
    rows = rows[rows["status"] != "incomplete"]
    counts = rows[rows["method"] == "ppgpr"].groupby("n").size()  # which nothing but this experiment trains
    n = max(counts.index, key=lambda size: (counts[size], size), default=None)
    columns = ["method", "noise_floor", "parameterisation", "form", "seed", "status", f"test_{panel.metric}"]
    rows = rows.loc[rows["n"] == n, columns]
    by_effect = {}
    for name in (line.effect for line in panel.lines):
        parts = []
        for part, formula in EFFECTS[name].items():
            ways = {way: _values(rows, way, panel.metric) for way in re.findall(r"[A-Z][uf]?", formula)}
            if any(values.empty for values in ways.values()):
                continue
            values = pd.concat(ways, axis="columns", join="inner").eval(formula).to_numpy()
            point = statistics([len(parts)], values[:, None], len(values))
            half = half_width(point)
            parts.append(point.assign(low=point["mean"] - half, high=point["mean"] + half, effect=name, part=part))
        if parts and parts[0]["part"].iloc[0] == "effect":
            by_effect[name] = pd.concat(parts, ignore_index=True)
    return n, by_effect


def _values(rows: pd.DataFrame, way: str, metric: str) -> pd.Series:
    """Test metric by seed at the selected beta; NaN where all candidates failed. A closed form over q knows no
    coordinates, so it serves for all."""
    fits = (rows["method"] == METHODS[way[0]]) & (rows["noise_floor"].notna() == way.endswith("f"))
    how = rows["parameterisation"] == ("unwhitened" if way.endswith("u") else "whitened")
    own = rows[fits & (how | (rows["form"] == "collapsed"))].drop_duplicates("seed").set_index("seed")
    return own[f"test_{metric}"].astype(float).where(own["status"] == "done")


def draw(ax: Axes, panel: Panel, drawn: list[Any], first: bool) -> None:
    """A row for each effect, the same in all panels; negative, to the left, where DLM gains."""
    names, edges = list(EFFECT_LOOKS), [0.0]
    for one in drawn:
        row = names.index(one.line.effect) + PLACE
        points = one.points[np.isfinite(one.points["mean"])]
        for point in points[points["part"] == "effect"].itertuples():
            edges += _bar(ax, row, EFFECT_LOOKS[one.line.effect].colour, point)
        marks = points[points["part"] != "effect"]
        for above, (part, mean) in zip((-0.5, 0.5), zip(marks["part"], marks["mean"], strict=True), strict=False):
            ax.plot([mean], [row + above * BAR], linestyle="none", label=f"_{part}", zorder=4, **_marker(part))
        edges += [*marks["mean"]]
    ax.axvline(0.0, color=INK, linewidth=0.6, zorder=1)
    low, high = min(edges), max(edges)
    margin = 0.12 * (high - low) or 1.0
    ax.set(xlim=(low - margin, high + margin), ylim=(len(names) - 0.5, -0.5))
    ax.axhline(2.5, color="#bbbbbb", linewidth=0.5)
    ax.set_yticks(range(len(names)), [EFFECT_LOOKS[name].label if first else "" for name in names])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 3, 4, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {metric_label(panel.metric)}")


def _bar(ax: Axes, height: float, colour: str, point: Any) -> list[float]:
    """The effect as a bar with its interval, its number above; what has to be in the frame."""
    ax.barh([height], [point.mean], height=BAR, color=colour, alpha=0.85, zorder=2)
    ax.plot([point.low, point.high], [height] * 2, color=INK, linewidth=0.8, zorder=3)
    sure = point.low > 0 or point.high < 0
    lost = f" ({point.repetitions}/{point.repetitions + point.failed})" if point.failed else ""
    ax.text(0.5, height - PLACE + NUMBER, f"{point.mean:+.3f}".replace("-", "−") + lost, ha="center", va="center",
            fontsize=5.5, color=INK if sure else GREY, transform=ax.get_yaxis_transform(),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    # An interval of two or three repetitions can be huge: it may leave the frame.
    near = [edge for edge in (point.low, point.high) if abs(edge - point.mean) <= 3 * abs(point.mean)]
    return [point.mean, *near]


def _marker(part: str) -> dict[str, Any]:
    look = METHOD_LOOKS[part]
    how = {"marker": look.marker, "markeredgecolor": look.colour, "markersize": 3.4}
    return {**how, "markerfacecolor": "white", "markeredgewidth": 0.8}


def legend() -> list[Line2D]:
    """The entries that explain the marks."""
    return [Line2D([], [], linestyle="none", label=text, **_marker(part)) for part, text in MARKS.items()]
