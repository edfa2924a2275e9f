"""Drawing effects: a bar for each with its interval and number, and small marks for what it is made of."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from dlmexp.figures import style
from dlmexp.figures.panels import Panel
from dlmexp.figures.scales import few_ticks
from dlmexp.figures.series import Series
from dlmexp.figures.style import Look

INK = "#333333"
BAR, PLACE = 0.34, 0.05  # height of a bar, and how far below the middle of its row it lies
NUMBER, NAME = -0.33, 0.39  # where the number of a bar is written, and the name of a mark
ROWS = list(style.EFFECTS)
NAMED = "ppgpr"  # the part that is a line across its bar, with its name: it is a method of others
# What the marks stand for; their shapes are those of the methods.
PARTS = {
    "elbo": "effect on ELBO alone",
    "joint_log_dlm": "effect on joint DLM alone",
    "ppgpr": "PPGPR (joint DLM, β = 1) − ELBO",
    "beta_elbo": "joint DLM − β-ELBO",
}


def draw_effects(ax: Axes, panel: Panel, drawn: list[tuple[Series, Look]], error: str) -> None:
    """A row for each effect, the same in all panels; negative, to the left, where DLM gains."""
    edges = [0.0]
    for one, look in drawn:
        row = ROWS.index(one.line.effect)
        for _, point in one.points.iterrows():
            if point["part"] == "effect":
                edges += _bar(ax, row, look, point)
        edges += _parts(ax, row, one.points[one.points["part"] != "effect"])
    ax.axvline(0.0, color=INK, linewidth=0.6, zorder=1)
    low, high = min(edges), max(edges)
    margin = 0.1 * (high - low) or 1.0
    ax.set_ylim(len(ROWS) - 0.5, -0.5)
    span_effects(ax, low - margin, high + margin)
    ax.axhline(2.5, color="#bbbbbb", linewidth=0.5)
    first = (spec := ax.get_subplotspec()) is None or spec.is_first_col()
    ax.set_yticks(range(len(ROWS)), [style.EFFECTS[name].label for name in ROWS] if first else [""] * len(ROWS))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {style.METRIC_LABELS[panel.metric]}")
    for name in ROWS:
        if name not in {one.line.effect for one, _ in drawn}:
            empty = "not run" if name in {line.effect for line in panel.lines} else "–"
            ax.text(0.5, ROWS.index(name), empty, transform=ax.get_yaxis_transform(), ha="center", va="center",
                    fontsize=5.5, color=style.MISSING)  # fmt: skip


def span_effects(ax: Axes, low: float, high: float) -> None:
    """Limits, with so few ticks that their labels do not run together."""
    ax.set_xlim(low, high)
    ticks = few_ticks(low, high)
    if len(ticks) == 3 and ticks[2] < 0.35 * (high - low):
        ticks = ticks[:2] if -low > high else ticks[1:]
    ax.xaxis.set_major_locator(FixedLocator(ticks))


def _parts(ax: Axes, row: int, points: pd.DataFrame) -> list[float]:
    """What an effect is made of, one mark above the other, so that none covers another; what has to be in the frame."""
    points = points[np.isfinite(points["mean"])]
    for place, (_, point) in enumerate(points.iterrows()):
        mean, part = float(point["mean"]), str(point["part"])
        if part == NAMED:
            colour = style.METHODS[part].colour
            ax.plot([mean, mean], [row - 0.16, row + 0.3], color=colour, linewidth=1.2, label=f"_{part}", zorder=5)
            ax.text(mean, row + NAME, "PPGPR", ha="center", va="center", fontsize=4.5, color=colour, clip_on=False)
        else:
            height = row + PLACE + (0.5 * BAR if place else -0.5 * BAR)
            ax.plot([mean], [height], linestyle="none", label=f"_{part}", zorder=4, **_marker(part))
    return [*points["mean"]]


def _bar(ax: Axes, row: int, look: Look, point: pd.Series) -> list[float]:
    """The effect as a bar with its interval, its number above; what has to be in the frame."""
    mean, low, high = (float(point[name]) for name in ("mean", "low", "high"))
    if not np.isfinite(mean):
        return []
    ax.barh([row + PLACE], [mean], height=BAR, color=look.colour, alpha=0.85, label=look.label, zorder=2)
    if np.isfinite(low):
        ax.errorbar([mean], [row + PLACE], xerr=[[mean - low], [high - mean]], color=INK, elinewidth=0.8, zorder=3)
    sure = np.isfinite(low) and (low > 0 or high < 0)
    lost = f" ({int(point['repetitions'])}/{int(point['repetitions'] + point['failed'])})" if point["failed"] else ""
    ax.text(0.5, row + NUMBER, f"{mean:+.3f}".replace("-", "−") + lost, transform=ax.get_yaxis_transform(), ha="center",
            va="center", fontsize=5.5, color=INK if sure else style.MISSING,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    # An interval of two or three repetitions can be huge: it may leave the frame.
    return [mean, *(edge for edge in (low, high) if np.isfinite(edge) and abs(edge - mean) <= 3 * abs(mean))]


def _marker(part: str) -> dict[str, Any]:
    return {
        "marker": style.METHODS[part].marker, "markerfacecolor": "white", "markeredgecolor": INK, "markersize": 3.2,
        "markeredgewidth": 0.7,
    }  # fmt: skip


def effect_legend() -> list[Line2D]:
    """The entries that explain the markers."""
    line: dict[str, Any] = {"color": style.METHODS[NAMED].colour, "linewidth": 1.2}
    marks = {part: line if part == NAMED else {"linestyle": "none", **_marker(part)} for part in PARTS}
    return [Line2D([], [], label=text, **marks[part]) for part, text in PARTS.items()]
