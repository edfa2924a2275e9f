"""Drawing one panel on one pair of axes. The data on the axes is exact: lines are set apart by an offset in points."""

import textwrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from dlmexp import catalogue
from dlmexp.figures import style
from dlmexp.figures.effect_axes import draw_effects
from dlmexp.figures.histogram_axes import draw_histograms
from dlmexp.figures.panels import Panel
from dlmexp.figures.scales import (
    MARGIN,
    STEPS,
    compact,
    frame,
    frame_of_height,
    frame_of_optimum,
    log_x,
    scale_y,
    tick_zero,
)
from dlmexp.figures.series import Series
from dlmexp.figures.style import Look

START = 0.05  # of a learning curve: there it falls from anywhere, and may leave the frame
APART = 10.0  # so many times smaller than the smallest other β is where β = 0 is drawn
NATS = 5.0  # an NLL within so many is on a linear axis
STAGGER = 0.618  # of the distance between markers, from one curve to the next: neighbours are never close
DODGE = 1.1  # points between neighbouring lines, so that error bars at one n can be told apart
DODGE_ALONE = 6.0  # the same where there is one n, and nothing to join
REMARK = 38  # letters in a line of a remark: what the narrowest panels have room for


def draw(ax: Axes, panel: Panel, series: list[Series], looks: list[Look], error: str) -> None:
    """Everything inside the axes of a panel that has at least one line."""
    kind = {
        "sizes": _points,
        "betas": _points,
        "curve": _curves,
        "histogram": draw_histograms,
        "reliability": _reliability,
        "effects": draw_effects,
    }[panel.kind]
    drawn = [(one, look) for one, look in zip(series, looks, strict=True) if not one.empty]
    kind(ax, panel, drawn, error)
    if panel.kind == "effects":
        return
    ax.autoscale_view()
    if panel.kind == "sizes":
        log_x(ax, "training rows n", compact)
    elif panel.kind == "betas":
        log_x(ax, "β")
        if (zero := _zero(drawn)) is not None:
            tick_zero(ax, zero)
        ax.axvline(1.0, color=style.MISSING, linewidth=0.6, zorder=0.5)
    elif panel.kind == "curve":
        ax.set_xlabel("epoch" if panel.x == "epochs" else "iteration")
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(compact))
    if panel.kind == "sizes" and panel.metric.startswith("coverage_"):
        ax.axhline(int(panel.metric.removeprefix("coverage_")) / 100, color=style.MISSING, linewidth=0.6, zorder=0.5)
    if panel.kind not in ("histogram", "reliability"):
        ax.set_ylabel(f"test {style.METRIC_LABELS[panel.metric]}{_unit(panel)}")
        points = [one.points[one.points["repetitions"] > 0] for one, _ in drawn]
        if panel.kind == "curve":
            points = [some[some["x"] >= START * some["x"].max()] for some in points]
        means = np.concatenate([some["mean"].to_numpy(dtype=float) for some in points])
        if panel.kind == "betas" and frame_of_optimum(ax, points, error):
            means = means[:0]  # the frame is linear
        # The 0 of an NLL means nothing: it is on a log axis only where some are many nats above the others.
        near = panel.metric == "nll" and (not len(means) or np.nanmax(means) - np.nanmin(means) < NATS)
        scale_y(ax, means, panel.kind != "curve" and not near, panel.log)
        if panel.metric.startswith("coverage_"):
            low, high = ax.get_ylim()
            ax.set_ylim(low, min(high, 1 + MARGIN * (1 - low)))  # a share: room for a marker at 1, and no more
        if panel.kind == "curve" and panel.height is not None:
            frame_of_height(ax, points, panel.height)
        elif panel.kind == "curve":
            frame(ax, pd.concat(points), error)
        if panel.kind == "curve":
            _ends_above(ax, drawn)
    if panel.has_differences and any("minus_elbo" in one.points for one, _ in drawn):
        _differences(ax, drawn)


def _unit(panel: Panel) -> str:
    """What a metric with the unit of the target is measured in."""
    task = catalogue.datasets().get(panel.dataset, {}).get("task", "")
    has_unit = panel.metric == "crps" or panel.metric.startswith("width_")
    return {"regression": ", std(y)", "count": ", counts"}.get(task, "") if has_unit else ""


def blank(ax: Axes, text: str, command: str) -> None:
    """A panel without any record: grey, with what to type."""
    ax.set(xticks=[], yticks=[], facecolor="#f6f6f6")
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color="#d5d5d5")
    ax.text(0.5, 0.6, text, transform=ax.transAxes, ha="center", va="bottom", color=style.MISSING)
    broken = command.replace(" experiment=", "\nexperiment=").replace(" dataset=", "\ndataset=")
    ax.text(
        0.5, 0.54, broken, transform=ax.transAxes, ha="center", va="top", color=style.MISSING, fontsize=5.5,
        family="monospace",
    )  # fmt: skip


def write_beside(ax: Axes, text: str) -> None:
    """A remark in the corner where it covers least of what is drawn."""
    drawn = [line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float)) for line in ax.lines]
    inside = [ax.transAxes.inverted().transform(_along(points)) for points in drawn if len(points)]
    points = np.concatenate([np.zeros((0, 2)), *inside])

    def covered(corner: tuple[float, float]) -> int:
        return int((np.abs(points - corner) < (0.5, 0.15)).all(axis=1).sum())

    x, y = min(((1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 1.0)), key=covered)
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, REMARK)]
    ax.text(
        abs(x - 0.02), abs(y - 0.02), "\n".join(lines), transform=ax.transAxes, ha="right" if x else "left",
        va="top" if y else "bottom", fontsize=5.5, color=style.MISSING, in_layout=False,
    )  # fmt: skip


def _along(points: np.ndarray) -> np.ndarray:
    """Points on the line through these points, those that are not finite apart."""
    points = points[np.isfinite(points).all(axis=1)]
    shares = np.linspace(0, 1, 20)[:, None, None]
    return np.concatenate([points, ((1 - shares) * points[:-1] + shares * points[1:]).reshape(-1, 2)])


def line_style(look: Look) -> dict[str, Any]:
    """A look in matplotlib's words."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": look.dashes,
        "linewidth": style.WIDTHS.get(look.dashes, matplotlib.rcParams["lines.linewidth"]),
        "fillstyle": "bottom" if look.fill == "bottom" else "full",
        "markerfacecolor": "white" if look.fill == "none" else look.colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": look.colour,
    }


def _dodged(ax: Axes, position: int, drawn: list[tuple[Series, Look]]) -> Transform:
    assert ax.figure is not None
    alone = len({x for one, _ in drawn for x in one.points["x"].dropna()}) == 1
    shift = (position - (len(drawn) - 1) / 2) * (DODGE_ALONE if alone else DODGE) / 72
    return ax.transData + ScaledTranslation(shift, 0, ax.figure.dpi_scale_trans)


def _points(ax: Axes, panel: Panel, drawn: list[tuple[Series, Look]], error: str) -> None:
    """Means with error bars; how many repetitions a point lacks is written beside it."""
    zero = _zero(drawn) if panel.kind == "betas" else None
    for position, (one, look) in enumerate(drawn):
        # A point without any repetition left has no mean: the line breaks there instead of bridging the gap.
        points = one.points
        flat = points[points["x"].isna() & points["mean"].notna()]
        for _, point in flat.iterrows():
            ax.axhline(point["mean"], color=look.colour, linestyle=look.dashes, label=look.label)
        points = points[points["x"].notna()].sort_values("x")
        if zero is not None and (points["x"] == 0).any():
            # No place on a log axis: apart from the others, and not joined to them.
            apart = points["x"] == 0
            points_only: dict[str, Any] = {**line_style(look), "linestyle": "none"}
            ax.errorbar(
                [zero], points["mean"][apart], yerr=points[error][apart].fillna(0.0), elinewidth=0.7,
                label=f"_{look.label}, β = 0", **points_only,
            )  # fmt: skip
            points = points.assign(x=points["x"].mask(apart, zero))
        joined = points[points["x"] != zero]
        transform = _dodged(ax, position, drawn) if panel.kind == "sizes" else ax.transData
        if points["mean"].notna().any():
            ax.errorbar(
                joined["x"], joined["mean"], yerr=joined[error].fillna(0.0) if joined[error].notna().any() else None,
                elinewidth=0.7, transform=transform, label=look.label, **line_style(look),
            )  # fmt: skip
            # What is drawn through an offset does not count towards the limits of its own accord.
            bar = points[error].fillna(0.0)
            finite = points["mean"].notna()
            for edge in (points["mean"] - bar, points["mean"] + bar):
                ax.update_datalim(np.column_stack([points["x"], edge]).astype(float)[finite])
        if panel.kind == "betas" and (points["validation"].notna() & points["mean"].notna()).any():
            best = points[points["mean"].notna()].sort_values("validation").iloc[0]
            ax.plot(
                [best["x"]], [best["mean"]], linestyle="none", marker="o", markersize=8, markerfacecolor="none",
                markeredgecolor=look.colour, markeredgewidth=0.7, label="_lowest validation metric",
            )  # fmt: skip
        _lost(ax, one, look, transform)


def _zero(drawn: list[tuple[Series, Look]]) -> float | None:
    """Where β = 0 is drawn: left of the smallest other β; None where there is none, or nothing else."""
    values = np.concatenate([one.points["x"].to_numpy(dtype=float) for one, _ in drawn])
    positive = values[values > 0]
    return float(positive.min()) / APART if (values == 0).any() and len(positive) else None


def _lost(ax: Axes, one: Series, look: Look, transform: Transform) -> None:
    """`4/5` beside a point with a lost repetition; a cross at the top of the panel where all were lost."""
    for _, point in one.points[one.points["failed"] > 0].iterrows():
        if np.isnan(point["x"]):
            continue
        attempted = int(point["repetitions"] + point["failed"])
        place: dict[str, Any] = {"textcoords": "offset points", "fontsize": 5, "color": look.colour}
        if point["repetitions"]:
            place |= {"xytext": (3, 3), "xycoords": transform}
            ax.annotate(f"{int(point['repetitions'])}/{attempted}", (point["x"], point["mean"]), **place)
        else:
            top = blended_transform_factory(transform, ax.transAxes)
            ax.update_datalim([(point["x"], 0.0)], updatey=False)
            ax.plot([point["x"]], [0.97], transform=top, marker="x", color=look.colour, linestyle="none", clip_on=False)
            ax.annotate(f"0/{attempted}", (point["x"], 0.97), xycoords=top, xytext=(3, -2), **place)


def _lost_in_corner(ax: Axes, one: Series, look: Look, position: int) -> None:
    """`bMC-10: 4/5` where a whole line lacks repetitions, one line of text above the other."""
    if lost := int(one.points["failed"].max()):
        attempted = int((one.points["repetitions"] + one.points["failed"]).max())
        ax.text(
            0.98, 0.02 + 0.08 * position, f"{look.label}: {attempted - lost}/{attempted}", transform=ax.transAxes,
            ha="right", fontsize=5, color=look.colour,
        )  # fmt: skip


def _differences(ax: Axes, drawn: list[tuple[Series, Look]]) -> None:
    """Axes below `ax`, which gives up the second line of its row: each line minus the ELBO of the same repetitions."""
    assert ax.figure is not None
    spec = ax.get_subplotspec()
    assert spec is not None
    grid, first, column = spec.get_gridspec(), spec.rowspan.start, spec.colspan.start
    ax.set_subplotspec(grid[first, column])
    below = ax.figure.add_subplot(grid[first + 1, column], sharex=ax)
    below.set_xlabel(ax.get_xlabel())
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False)
    below.axhline(0.0, color=style.METHODS["elbo"].colour, linewidth=0.8, zorder=1.5)
    means, edges = [0.0], [0.0]
    for position, (one, look) in enumerate(drawn):
        if one.line.method == "elbo" or "minus_elbo" not in one.points:
            continue
        points = one.points[one.points["minus_elbo"].notna()].sort_values("x")
        if points.empty:
            continue
        half = (points["high"] - points["minus_elbo"]).astype(float)
        below.errorbar(
            points["x"], points["minus_elbo"], yerr=half.fillna(0.0) if half.notna().any() else None, elinewidth=0.7,
            transform=_dodged(below, position, drawn), label=look.label, markersize=2.6, **line_style(look),
        )  # fmt: skip
        means += [*points["minus_elbo"]]
        edges += [*(points["minus_elbo"] - half.fillna(0.0)), *(points["minus_elbo"] + half.fillna(0.0))]
    # Intervals of two or three repetitions are huge: they may leave the frame, the differences may not.
    span = max(means) - min(means)
    low, high = max(min(edges), min(means) - span), min(max(edges), max(means) + span)
    if low < high:
        below.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    below.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    below.set_ylabel("− ELBO")


def _curves(ax: Axes, panel: Panel, drawn: list[tuple[Series, Look]], error: str) -> None:
    """Means with a band; sparse markers, staggered so that lines that lie on each other can be told apart."""
    for position, (one, look) in enumerate(drawn):
        points = one.points[one.points["repetitions"] > 0]
        if points.empty:
            ax.plot([], [], label=look.label, **line_style(look))
        else:
            every = max(len(points) // 6, 1)
            start = int(position * STAGGER % 1 * every)
            ax.plot(points["x"], points["mean"], markevery=(start, every), label=look.label, **line_style(look))
            low, high = points["mean"] - points[error], points["mean"] + points[error]
            if points[error].notna().any():
                ax.fill_between(points["x"], low, high, color=look.colour, alpha=0.15, linewidth=0)
        _lost_in_corner(ax, one, look, position)


def _ends_above(ax: Axes, drawn: list[tuple[Series, Look]]) -> None:
    """A triangle at the upper edge, where a curve ends above it: a spike there is what a reader takes the run for."""
    top = blended_transform_factory(ax.transData, ax.transAxes)
    for one, look in drawn:
        points = one.points[one.points["repetitions"] > 0]
        if len(points) and points["mean"].iloc[-1] > ax.get_ylim()[1]:
            ax.plot(
                [points["x"].iloc[-1]], [1.02], transform=top, marker="^", markersize=5, color=look.colour,
                linestyle="none", clip_on=False, label="_ends above",
            )  # fmt: skip


def _reliability(ax: Axes, panel: Panel, drawn: list[tuple[Series, Look]], error: str) -> None:
    """Coverage as its difference from what the interval promises; shares of class 1 against the diagonal."""
    coverage = panel.metric == "coverage"
    for position, (one, look) in enumerate(drawn):
        points = one.points[one.points["repetitions"] > 0]
        height = points["mean"] - points["x"] if coverage else points["mean"]
        bar = points[error].fillna(0.0)
        ax.errorbar(
            points["x"], height, yerr=bar if points[error].notna().any() else None, elinewidth=0.5, label=look.label,
            transform=_dodged(ax, position, drawn) if coverage else ax.transData, markersize=2.5,
            **line_style(look),
        )  # fmt: skip
        for edge in (height - bar, height + bar):
            ax.update_datalim(np.column_stack([points["x"], edge]).astype(float))
        _lost_in_corner(ax, one, look, position)
    guide: dict[str, Any] = {"color": style.MISSING, "linewidth": 0.6, "zorder": 0.5}
    if coverage:
        ax.axhline(0.0, **guide)
        levels = sorted({float(x) for one, _ in drawn for x in one.points["x"]})
        ax.set_xticks(levels, [f"{100 * level:g}" for level in levels])
        ax.set_xlabel("central interval, %")
        ax.set_ylabel("coverage − nominal")
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    else:
        ax.plot([0, 1], [0, 1], label="_diagonal", **guide)
        ax.set_xlabel("predicted probability")
        ax.set_ylabel("share of class 1")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
            axis.set_major_formatter(FuncFormatter(compact))
