"""Drawing effects: a bar for each with its interval and number, and small markers for what it is made of."""

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
BAR, PLACE = 0.34, 0.12  # height of a bar, and how far below the middle of its row it lies
ROWS = list(style.EFFECTS)
# What the markers stand for; their shapes are those of the methods.
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
        for _, point in one.points.iterrows():
            if point["part"] != "effect" and np.isfinite(point["mean"]):
                ax.plot(
                    [point["mean"]], [row + PLACE], linestyle="none", label=f"_{point['part']}", zorder=4,
                    **_marker(point["part"]),
                )  # fmt: skip
                edges.append(point["mean"])
    ax.axvline(0.0, color=INK, linewidth=0.6, zorder=1)
    low, high = min(edges), max(edges)
    margin = 0.1 * (high - low) or 1.0
    ax.set(xlim=(low - margin, high + margin), ylim=(len(ROWS) - 0.5, -0.5))
    ax.axhline(0.5, color="#bbbbbb", linewidth=0.5)
    ax.axhline(2.5, color="#bbbbbb", linewidth=0.5)
    first = (spec := ax.get_subplotspec()) is None or spec.is_first_col()
    ax.set_yticks(range(len(ROWS)), [style.EFFECTS[name].label for name in ROWS] if first else [""] * len(ROWS))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.xaxis.set_major_locator(FixedLocator(few_ticks(*ax.get_xlim())))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.set_xlabel(f"Δ test {style.METRIC_LABELS[panel.metric]}")
    for name in ROWS:
        if name not in {one.line.effect for one, _ in drawn}:
            empty = "not run" if name in {line.effect for line in panel.lines} else "–"
            ax.text(0.5, ROWS.index(name), empty, transform=ax.get_yaxis_transform(), ha="center", va="center",
                    fontsize=5.5, color=style.MISSING)  # fmt: skip


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
    ax.text(0.5, row - 0.27, f"{mean:+.3f}".replace("-", "−") + lost, transform=ax.get_yaxis_transform(), ha="center",
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
    return [Line2D([], [], linestyle="none", label=text, **_marker(part)) for part, text in PARTS.items()]
