"""Drawing one panel on one pair of axes: what is drawn lies exactly where the numbers are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter
from matplotlib.transforms import blended_transform_factory

from dlmexp.figures import style
from dlmexp.figures.numbers import Measured, Series
from dlmexp.figures.panels import STATISTICS, Panel
from dlmexp.figures.stats import half_width
from dlmexp.figures.style import Look
from dlmexp.labels import metric_label

STEPS = [1, 2, 2.5, 5, 10]
START, START_OF_MEDIANS = 0.1, 0.25  # of a learning curve: there it falls from anywhere, and may leave the frame
FAR = 4.0  # a line so many times as far from the ELBO as the median line may leave the frame of differences
MARGIN = 0.06
NEAR = 8.0  # a beta within this factor of the best is in the frame, whatever its loss
APART = 10.0  # so many times smaller than the smallest other beta is where beta = 0 is drawn
LABEL_GAP = 7.5  # points between labels at the ends of curves
BINS = 60
EDGE = 3e-4  # the smallest probability of a reliability diagram; bins beyond it have no visible error
UNITS = {"regression": "std(y)", "count": "counts"}
GUIDE: dict[str, Any] = {"color": style.GREY, "linewidth": 0.6, "zorder": 0.5, "label": "_guide"}
Drawn = Sequence[tuple[Series, Look]]


def draw(ax: Axes, below: Axes | None, measured: Measured, drawn: Drawn, error: str, task: str) -> None:
    """Everything inside the axes of a panel that has a line; `below`: the axes of the differences to the ELBO."""
    panel = measured.panel
    if panel.kind == "sizes" and len({x for one, _ in drawn for x in one.points["x"]}) == 1:
        _bars(ax, below, panel, drawn, error, task)
    elif panel.kind == "sizes":
        _sizes(ax, below, panel, drawn, error, task)
    else:
        {"betas": _betas, "curve": _curves, "histogram": _histogram, "reliability": _reliability}[panel.kind](
            ax, panel, drawn, error
        )


def line_style(look: Look) -> dict[str, Any]:
    """A look in matplotlib's words."""
    return {"color": look.colour, "marker": look.marker, "linestyle": look.dashes, "label": look.label}


def shifted(panel: Panel) -> float:
    """What is subtracted from a metric where it is drawn: of a coverage, what the interval promises."""
    return int(panel.metric[9:]) / 100 if panel.metric.startswith("coverage_") else 0.0


def y_label(panel: Panel, task: str) -> str:
    name = metric_label(panel.metric)
    if panel.metric.startswith("coverage_"):
        return f"coverage − {panel.metric[9:]} %"
    has_unit = panel.metric == "crps" or panel.metric.startswith("width_")
    return f"test {name}" + (f", {UNITS[task]}" if has_unit and task in UNITS else "")


def _band(ax: Axes, x: pd.Series, mean: pd.Series, half: pd.Series, look: Look, **how: Any) -> None:
    """Means on a line, with their intervals as a band; as bars where a point has no neighbour."""
    ax.plot(x, mean, **line_style(look), **how)
    known = mean.notna()
    joined = known & (known.shift(1, fill_value=False) | known.shift(-1, fill_value=False))
    if joined.any():
        low, high = (mean - half.fillna(0.0))[known], (mean + half.fillna(0.0))[known]
        ax.fill_between(x[known], low, high, color=look.colour, alpha=0.15, linewidth=0)
    if (alone := known & ~joined).any():
        ax.errorbar(x[alone], mean[alone], yerr=half[alone].fillna(0.0), fmt="none", ecolor=look.colour, elinewidth=0.7)


def _frame(
    means: Sequence[float], above: Sequence[float], below: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """Limits that hold all means, and their intervals (so far above and below them) unless those are wider than the
    means are apart: intervals of two or three repetitions can be huge."""
    mean, up, down = (np.asarray(values, dtype=float) for values in (means, above, above if below is None else below))
    known = np.isfinite(mean)
    if not known.any():
        return None
    mean, up, down = mean[known], np.nan_to_num(up[known]), np.nan_to_num(down[known])
    span = float(mean.max() - mean.min()) or float(max(up.max(), down.max()))
    low, high = max((mean - down).min(), mean.min() - span), min((mean + up).max(), mean.max() + span)
    return (low - MARGIN * (high - low), high + MARGIN * (high - low)) if low < high else None


def _log_n(ax: Axes) -> None:
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    assert ax.figure is not None
    room = ax.get_position().width * ax.figure.get_figwidth() / np.log10(high / low)  # inches for a decade
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if room > 1.0 else (1.0, 3.0)))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("training rows n")


def _log_y(ax: Axes) -> None:
    """A log axis with ordinary numbers at its ticks."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0)) if high / low > 4 else MaxNLocator(5, steps=STEPS, prune="both")
    )
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _sizes(ax: Axes, below: Axes | None, panel: Panel, drawn: Drawn, error: str, task: str) -> None:
    """Means against n; how many repetitions a point lacks is written beside it."""
    shift, means, halves = shifted(panel), [], []
    for one, look in drawn:
        half = half_width(one.points, error)
        _band(ax, one.points["x"], one.points["mean"] - shift, half, look)
        means += [*(one.points["mean"] - shift)]
        halves += [*half]
        _lost(ax, one, look, shift)
    if shift:
        ax.axhline(0.0, **GUIDE)
        means, halves = [*means, 0.0], [*halves, 0.0]
    positive = np.nanmin(means) > 0 if np.isfinite(means).any() else False
    if panel.log and positive:
        _log_y(ax)
    elif limits := _frame(means, halves):
        ax.set_ylim(*limits)
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    ax.set_ylabel(y_label(panel, task))
    _log_n(ax)
    if below is not None:
        _differences(below, panel, drawn, error)
        below.set_xlabel(ax.get_xlabel())
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)


def _difference_half(points: pd.DataFrame, error: str) -> pd.Series:
    """Half the interval around the mean difference to the ELBO, of the kind that the figure shows."""
    if error == "ci95":
        return points["high"] - points["minus_elbo"]
    return points["minus_elbo_std"] / (np.sqrt(points["repetitions"]) if error == "sem" else 1.0)


def _differences(ax: Axes, panel: Panel, drawn: Drawn, error: str) -> None:
    """Each line minus the ELBO of the same repetitions."""
    ax.axhline(0.0, color=style.METHODS["elbo"].colour, linewidth=0.8, zorder=1.5)
    found = {}
    for one, look in drawn:
        if "minus_elbo" in one.points and one.points["minus_elbo"].notna().any():
            half = _difference_half(one.points, error)
            _band(ax, one.points["x"], one.points["minus_elbo"], half, look, markersize=2.6)
            found[float(one.points["minus_elbo"].abs().max())] = (one.points["minus_elbo"], half)
    held = [some for far, some in found.items() if far <= FAR * np.median([*found])]
    if limits := _frame([0.0, *(x for mean, _ in held for x in mean)], [0.0, *(x for _, half in held for x in half)]):
        ax.set_ylim(*limits)
    ax.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    ax.set_ylabel(f"Δ {metric_label(panel.metric)}\nvs ELBO")


def _bars(ax: Axes, below: Axes | None, panel: Panel, drawn: Drawn, error: str, task: str) -> None:
    """A bar per line where there is one n, with its number; below, the differences to the ELBO."""
    size = next(x for one, _ in drawn for x in one.points["x"])
    shift = shifted(panel)
    rows = [(look, one.points["mean"] - shift, half_width(one.points, error)) for one, look in drawn]
    _rows_of_bars(ax, rows, f"{y_label(panel, task)}, n = {size:g}")
    if below is not None:
        others = [(one, look) for one, look in drawn if "minus_elbo" in one.points]
        rows = [(look, one.points["minus_elbo"], _difference_half(one.points, error)) for one, look in others]
        _rows_of_bars(below, rows, f"Δ {metric_label(panel.metric)} vs ELBO")


def _rows_of_bars(ax: Axes, rows: list[tuple[Look, pd.Series, pd.Series]], label: str) -> None:
    for row, (look, mean, half) in enumerate(rows):
        value = float(mean.iloc[0])
        bar = half.fillna(0.0).to_numpy()
        ax.barh([row], [value], 0.62, color=look.colour, alpha=0.75)
        ax.errorbar([value], [row], xerr=bar, fmt="none", ecolor=style.INK, elinewidth=0.8)
        at = (0, row) if value < 0 else (value + bar[0], row)
        ax.annotate(f"{value:.4g}".replace("-", "−"), at, (3, 0), textcoords="offset points", va="center", fontsize=5.5)
    ax.set_yticks(range(len(rows)), [look.label for look, *_ in rows])
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.axvline(0.0, color=style.INK, linewidth=0.6)
    ax.margins(x=0.15)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(label)


def _lost(ax: Axes, one: Series, look: Look, shift: float = 0.0) -> None:
    """`4/5` beside a point with a lost repetition; a cross at the top of the panel where all were lost."""
    place: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 5,
        "color": look.colour,
        "annotation_clip": True,
    }
    top = blended_transform_factory(ax.transData, ax.transAxes)
    for _, point in one.points[(one.points["failed"] > 0) & one.points["x"].notna()].iterrows():
        attempted = int(point["repetitions"] + point["failed"])
        if point["repetitions"]:
            text = f"{int(point['repetitions'])}/{attempted}"
            ax.annotate(text, (point["x"], point["mean"] - shift), (3, 3), **place)
        else:
            ax.plot([point["x"]], [0.97], transform=top, marker="x", color=look.colour, linestyle="none", clip_on=False)
            ax.annotate(f"0/{attempted}", (point["x"], 0.97), (3, -2), xycoords=top, **place)


def _betas(ax: Axes, panel: Panel, drawn: Drawn, error: str) -> None:
    """Means against beta; a line across for a method without one, a circle at the lowest mean validation metric."""
    betas = np.concatenate([one.points["x"].to_numpy(dtype=float) for one, _ in drawn])
    positive = betas[betas > 0]
    zero = float(positive.min()) / APART if (betas == 0).any() and len(positive) else None
    framed, everything = [], []
    for one, look in drawn:
        points = one.points.sort_values("x")
        half = half_width(points, error)
        flat = points["x"].isna() & points["mean"].notna()
        for mean in points["mean"][flat]:
            ax.axhline(mean, color=look.colour, linestyle=look.dashes, label=look.label)
        # Beta = 0 has no place on a log axis: apart from the others, and not joined to them.
        apart = points["x"] == 0
        for some, at in ((points[apart], zero), (points[~apart & points["x"].notna()], None)):
            if len(some):
                x = some["x"] if at is None else some["x"].mask(some["x"] == 0, at)
                _band(ax, x, some["mean"], half[some.index], look)
        if (known := points[points["validation"].notna() & points["mean"].notna() & ~flat]).size:
            best = known.loc[known["validation"].idxmin()]
            at = zero if best["x"] == 0 and zero else best["x"]
            ax.plot([at], [best["mean"]], "o", ms=8, mfc="none", mec=look.colour, mew=0.7, label="_lowest validation")
            framed.append(best["mean"])
        _lost(ax, one, look)
        framed += _near_best(points, half)
        everything += [*points["mean"]]
    ax.set_xscale("log")
    ax.set_xlabel("β" if zero is None else "β (apart on the left: 0)")
    ax.xaxis.set_major_locator(LogLocator(numticks=6))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.axvline(1.0, **GUIDE)
    low, high = np.nanmin(framed), np.nanmax(framed)
    if np.nanmax(everything) > low + 2.5 * (high - low) > low:  # else nothing is far off
        ax.set_ylim(low - MARGIN * (high - low), high + MARGIN * (high - low))
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    ax.set_ylabel(y_label(panel, ""))


def _near_best(points: pd.DataFrame, half: pd.Series) -> list[float]:
    """The intervals around the lowest mean: of betas within a factor, and of its neighbours."""
    known = points[points["mean"].notna()].reset_index(drop=True)
    if known.empty:
        return []
    at = int(known["mean"].idxmin())
    best = known["x"][at]
    near = known["x"].isna() | known["x"].between(best / NEAR, best * NEAR)
    near |= np.abs(np.arange(len(known)) - at) <= 1
    bar = half[points["mean"].notna()].reset_index(drop=True).fillna(0.0)
    return [*(known["mean"] - bar)[near], *(known["mean"] + bar)[near]]


def _curves(ax: Axes, panel: Panel, drawn: Drawn, error: str) -> None:
    """Means with a band, or medians with quartiles; each labelled where it ends."""
    means, above, below, ends = [], [], [], []
    for one, look in drawn:
        points = one.points[one.points["repetitions"] > 0]
        if panel.median:
            centre, low, high = points["median"], points["q25"], points["q75"]
        else:
            half = half_width(points, error).fillna(0.0)
            centre, low, high = points["mean"], points["mean"] - half, points["mean"] + half
        ax.plot(points["x"], centre, color=look.colour, linestyle=look.dashes, label=look.label)
        ax.fill_between(points["x"], low, high, color=look.colour, alpha=0.15, linewidth=0)
        late = points["x"] >= (START_OF_MEDIANS if panel.median else START) * points["x"].max()
        means += [*centre[late]]
        above += [*(high - centre)[late]]
        below += [*(centre - low)[late]]
        ends.append((float(points["x"].iloc[-1]), float(centre.iloc[-1]), one.line.end_label, look.colour))
    if limits := _frame(means, above, below):
        ax.set_ylim(*limits)
    ax.set_xlabel("epoch" if panel.x == "epochs" else "iteration")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    ax.set_ylabel(y_label(panel, ""))
    ax.margins(x=0.02)
    _label_ends(ax, ends)


def _label_ends(ax: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Labels right of the axes, each joined to the end of its curve; set apart where ends lie close together."""
    assert ax.figure is not None
    low, high = ax.get_ylim()
    position = ax.get_position()
    height = position.height * ax.figure.get_figheight() * 72  # points
    gap = LABEL_GAP / height
    ordered = sorted(ends, key=lambda end: end[1])
    places = [min(max((y - low) / (high - low), 0.0), 1.0) for _, y, _, _ in ordered]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    if places and (over := places[-1] - 1.0 - 0.5 * gap) > 0:
        places[-1] -= over
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - gap)
    for (x, y, text, colour), place in zip(ordered, places, strict=True):
        ax.annotate(
            text, (x, y), (1.06, place), textcoords="axes fraction", va="center", fontsize=5.5, color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _histogram(ax: Axes, panel: Panel, drawn: Drawn, error: str) -> None:
    """Shares of the draws in bins; `same_bins` gives panels of one statistic the same bins."""
    ax.set_xlabel(STATISTICS[panel.metric])
    ax.set_ylabel("share of draws")


def draw_histograms(axes: list[Axes], drawn: list[Drawn], metric: str) -> None:
    """Histograms of one statistic on a log axis, the same in all of its panels; where the statistic is an error, a line
    at that of G itself, which no draw can be told from."""
    every = np.concatenate([one.draws for some in drawn for one, _ in some if one.draws is not None])
    errors = [float(one.points["error_of_G"].iloc[0]) for some in drawn for one, _ in some]
    bins = np.geomspace(every.min() / 1.05, every.max() * 1.05, BINS + 1)
    for ax, some in zip(axes, drawn, strict=True):
        for one, look in some:
            assert one.draws is not None
            shape = {"bins": bins, "weights": np.full(len(one.draws), 1 / len(one.draws)), "color": look.colour}
            ax.hist(one.draws, histtype="stepfilled", alpha=0.25, **shape)
            ax.hist(one.draws, histtype="step", linewidth=1.0, label=look.label, **shape)
        ax.set_xscale("log")
        ax.set_xlim(bins[0] / 1.15, bins[-1] * 1.15)
        if bins[-1] / bins[0] < 100:
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        if metric != "error":
            ax.axvline(1.0, **GUIDE)
        elif np.isfinite(errors).any():
            at = float(np.nanmax(errors))
            ax.axvline(at, **GUIDE)
            ax.annotate("error of G", (at, 1.0), (2, -1), xycoords=ax.get_xaxis_transform(), va="top", fontsize=5.5,
                        textcoords="offset points", color=style.GREY)  # fmt: skip


def _reliability(ax: Axes, panel: Panel, drawn: Drawn, error: str) -> None:
    """Observed minus predicted shares of class 1, on a logit axis: most rows lie near 0 or 1."""
    means, halves = [0.0], [0.0]
    for one, look in drawn:
        points = one.points[(one.points["repetitions"] > 0) & one.points["x"].between(0, 1, inclusive="neither")]
        half = half_width(points, error)
        _band(ax, points["x"], points["mean"] - points["x"], half, look, markersize=2.6)
        means += [*(points["mean"] - points["x"])]
        halves += [*half]
    ax.axhline(0.0, **GUIDE)
    ax.set_xscale("logit")
    ax.set_xlim(EDGE, 1 - EDGE)
    ax.set_xticks([0.001, 0.05, 0.5, 0.95, 0.999], ["0.001", "0.05", "0.5", "0.95", "0.999"])
    ax.xaxis.set_minor_locator(NullLocator())
    if limits := _frame(means, halves):
        ax.set_ylim(*limits)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    ax.set_xlabel("predicted probability")
    ax.set_ylabel("observed − predicted")
