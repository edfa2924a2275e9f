"""Drawing one panel on one pair of axes: what is drawn lies exactly where the numbers are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from dlmexp.presentation.figures.numbers import Measured, Series
from dlmexp.presentation.figures.panels import GREY, INK, METHOD_LOOKS, STATISTICS, Look, Panel
from dlmexp.presentation.figures.stats import half_width
from dlmexp.presentation.labels import metric_label

STEPS = [1, 2, 2.5, 5, 10]
START, START_OF_MEDIANS = (
    0.1,
    0.25,
)  # of a learning curve: there it falls from anywhere, and may leave the frame
# a line so many times as far from the ELBO as the median line may leave the frame of differences
FAR = 10.0
MARGIN = 0.06
LABEL_GAP = 7.5  # points between labels at the ends of curves
BINS = 60
EDGE = (
    3e-4  # the smallest probability of a reliability diagram; bins beyond it have no visible error
)
UNITS = {"regression": "std(y)", "count": "counts"}
AXES = {
    "n": "training rows n", "M": "inducing inputs M", "samples": "samples S of bMC",
    "predict_seconds": "prediction time (s)",
}  # fmt: skip
GUIDE: dict[str, Any] = {"color": GREY, "linewidth": 0.6, "zorder": 0.5, "label": "_guide"}
Lines = Sequence[Series]
Values = np.ndarray  # [P]
Curve = tuple[Values, Values, Values, Look]  # x, means and half of their intervals


def draw(ax: Axes, below: Axes | None, measured: Measured) -> None:
    """Everything inside the axes of a panel that has a line; `below`: the axes of the differences
    to the ELBO."""
    panel, lines, bars = measured.panel, measured.filled, measured.single
    ax.set_ylabel(_label(panel, measured.task))
    make = {"betas": _betas, "curve": _training, "reliability": _reliability, "sizes": _sizes}
    if bars:
        _bars(
            ax,
            _curves(lines, _nominal(panel)),
            f"{ax.get_ylabel()}, {panel.x} = {lines[0].points['x'].iloc[0]:g}",
        )
    elif panel.kind in make:  # histograms: `draw_histograms`
        make[panel.kind](ax, panel, lines)
    if below is not None and bars:
        _bars(below, _differences(lines), f"Δ {metric_label(panel.metric)} vs ELBO")
    elif below is not None:
        _draw_differences(below, panel, lines)
        below.set_xlabel(ax.get_xlabel())
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)


def _size(ax: Axes) -> tuple[float, float]:
    """Width and height in inches, before the layout."""
    assert ax.figure is not None
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def line_style(look: Look) -> dict[str, Any]:
    """A look in matplotlib's words."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": look.dashes,
        "label": look.label,
    }


def _nominal(panel: Panel) -> float:
    """What an interval promises to cover, which is subtracted from its coverage; 0 for other
    metrics."""
    return int(panel.metric[9:]) / 100 if panel.metric.startswith("coverage_") else 0.0


def _label(panel: Panel, task: str) -> str:
    if panel.kind in ("histogram", "reliability"):
        return "share of draws" if panel.kind == "histogram" else "observed − predicted"
    if _nominal(panel):
        return f"coverage − {panel.metric[9:]} %"
    unit = (
        UNITS.get(task, "") if panel.metric == "crps" or panel.metric.startswith("width_") else ""
    )
    return f"test {metric_label(panel.metric)}" + (f", {unit}" if unit else "")


def _band(ax: Axes, x: Values, mean: Values, half: Values, look: Look, **how: Any) -> None:
    """Means on a line, with their intervals as a band; as a bar where a point has no neighbour."""
    for value in mean[np.isnan(x)]:  # the same at every x
        ax.axhline(value, color=look.colour, linestyle=look.dashes, label=look.label)
    ax.plot(x, mean, **line_style(look), **how)
    known, half = np.isfinite(mean) & np.isfinite(x), np.nan_to_num(half)
    around = np.concatenate([[False], known, [False]])
    alone = known & ~around[:-2] & ~around[2:]
    ax.fill_between(
        x[known],
        (mean - half)[known],
        (mean + half)[known],
        color=look.colour,
        alpha=0.15,
        linewidth=0,
    )
    if alone.any():
        ax.errorbar(
            x[alone], mean[alone], yerr=half[alone], fmt="none", ecolor=look.colour, elinewidth=0.7
        )


def _frame(ax: Axes, *curves: Any) -> None:
    """Limits that hold all means, and their intervals unless those are wider than the means are
    apart: intervals of two or three repetitions can be huge. `curves`: means, and how far their
    intervals reach above and below."""
    mean, up, down = np.hstack([np.asarray(curve, dtype=float) for curve in curves])
    known = np.isfinite(mean)
    mean, up, down = mean[known], np.nan_to_num(up[known]), np.nan_to_num(down[known])
    if len(mean):
        span = float(np.ptp(mean)) or float(max(up.max(), down.max()))
        _limit(
            ax,
            max((mean - down).min(), mean.min() - span),
            min((mean + up).max(), mean.max() + span),
        )
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))


def _limit(ax: Axes, low: float, high: float) -> None:
    if low < high:
        ax.set_ylim(low - MARGIN * (high - low), high + MARGIN * (high - low))


def _bands(ax: Axes, curves: Sequence[Curve], guide: bool, **how: Any) -> None:
    """Bands in a frame that holds them, and 0 where that is a `guide`."""
    for curve in curves:
        _band(ax, *curve, **how)
    if guide:
        ax.axhline(0.0, **GUIDE)
    _frame(ax, *((mean, half, half) for _, mean, half, _ in curves), np.zeros((3, int(guide))))


def _sizes(ax: Axes, panel: Panel, lines: Lines) -> None:
    """Means against n, M or a time."""
    curves = _curves(lines, _nominal(panel))
    _bands(ax, curves, guide=_nominal(panel) > 0 or panel.metric == "excess_nll")
    if panel.log and min(np.nanmin(mean) for _, mean, _, _ in curves) > 0:
        ax.autoscale(axis="y")
        ax.set_yscale("log")
        _log_ticks(ax.yaxis)
    if all(np.isnan(x).all() for x, *_ in curves):
        ax.set_xlim(1, 100)
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    inches = _size(ax)[0] / np.log10(high / low)  # for a decade
    _log_ticks(
        ax.xaxis, (1.0, 2.0, 5.0) if inches > 1.0 else (1.0, 3.0) if inches > 0.47 else (1.0,)
    )
    if panel.x != "predict_seconds":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(AXES.get(panel.x, panel.x))


def _log_ticks(axis: Axis, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Ordinary numbers at the ticks of a log axis."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=subs) if high / low > 3 else MaxNLocator(4, steps=STEPS))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _curves(lines: Lines, nominal: float = 0.0) -> list[Curve]:
    tables = [(one.points, one.line.look) for one in lines]
    return [
        (
            points["x"].to_numpy(dtype=float),
            points["mean"].to_numpy() - nominal,
            half_width(points),
            look,
        )
        for points, look in tables
    ]


def _differences(lines: Lines) -> list[Curve]:
    """The mean differences of lines to the ELBO, with their intervals."""
    compared = [
        one
        for one in lines
        if "minus_elbo" in one.points and one.points["minus_elbo"].notna().any()
    ]
    tables = [
        (*one.points[["x", "minus_elbo", "high"]].to_numpy(dtype=float).T, one.line.look)
        for one in compared
    ]
    return [(x, mean, high - mean, look) for x, mean, high, look in tables]


def _draw_differences(ax: Axes, panel: Panel, lines: Lines) -> None:
    """Each line minus the ELBO of the same repetitions; one far from all others may leave the
    frame."""
    ax.axhline(0.0, color=METHOD_LOOKS["elbo"].colour, linewidth=0.8, zorder=1.5)
    curves = _differences(lines)
    reach = np.array([np.nanmax(abs(mean)) for _, mean, _, _ in curves])
    near = reach <= FAR * np.median(reach)
    for i in np.flatnonzero(~near):
        _band(ax, *curves[i], markersize=2.6)
    _bands(ax, [curves[i] for i in np.flatnonzero(near)], guide=True, markersize=2.6)
    ax.set_ylabel(f"Δ {metric_label(panel.metric)}\nvs ELBO")


def _bars(ax: Axes, curves: list[Curve], label: str) -> None:
    """A bar with its interval and number for each curve of one point."""
    for row, (_, mean, half, look) in enumerate(curves):
        value, bar = mean[0], np.nan_to_num(half[0])
        ax.barh([row], [value], 0.62, color=look.colour, alpha=0.75)
        ax.errorbar([value], [row], xerr=[bar], fmt="none", ecolor=INK, elinewidth=0.8)
        number, place = f"{value:.3g}".replace("-", "−"), (max(value + bar, 0.0), row)
        ax.annotate(number, place, (3, 0), textcoords="offset points", va="center", fontsize=5.5)
    ax.set_yticks(range(len(curves)), [look.label for *_, look in curves])
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.axvline(0.0, color=INK, linewidth=0.6)
    ax.margins(x=0.18)
    ax.grid(visible=False, axis="y")
    ax.set(xlabel=label, ylabel="")


def _betas(ax: Axes, panel: Panel, lines: Lines) -> None:
    """Means against beta; a line across for a method without one, a circle at the lowest mean
    validation metric. The frame holds those and most points; far from the best beta, lines may
    leave it."""
    framed = []
    for one, (x, mean, half, look) in zip(lines, _curves(lines), strict=True):
        flat = np.isnan(x)
        for part in (flat, x == 0, x > 0):  # a step from 0 is none on this scale: not joined
            _band(ax, x[part], mean[part], half[part], look)
        validation = np.where(flat | np.isnan(mean), np.nan, one.points["validation"])
        best = validation == np.fmin.reduce(validation)
        ax.plot(
            x[best],
            mean[best],
            "o",
            ms=8,
            mfc="none",
            mec=look.colour,
            mew=0.7,
            label="_lowest validation",
        )
        framed += [*mean[flat], *mean[best], *(mean - half)[best], np.fmin.reduce(mean)]
    betas = np.concatenate([one.points["x"].dropna() for one in lines])
    smallest = betas[betas > 0].min(initial=np.inf)
    if (betas == 0).any() and np.isfinite(smallest):  # the place of 0 is left of the smallest other
        ax.set_xscale("symlog", linthresh=smallest, linscale=0.5)
    else:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(numticks=6))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("β")
    ax.axvline(1.0, **GUIDE)
    means = np.concatenate([one.points["mean"] for one in lines])
    if panel.log and np.nanmin(means) > 0:
        ax.set_yscale("log")
        return _log_ticks(ax.yaxis)
    _limit(ax, np.nanmin(framed), max(np.nanmax(framed), np.nanquantile(means, 0.7)))
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))


def _training(ax: Axes, panel: Panel, lines: Lines) -> None:
    """Means with a band, or medians with quartiles; each labelled where it ends."""
    late, ends = [], []
    names = ("median", "q75", "q25") if panel.median else ("mean", "mean", "mean")
    for one in lines:
        look, points = one.line.look, one.points[one.points["repetitions"] > 0]
        half = 0.0 if panel.median else np.nan_to_num(half_width(points))
        x, centre, high, low = points[["x", *names]].to_numpy().T
        up, down = high - centre + half, centre - low + half
        width = 0.8 if panel.median else 1.1
        ax.plot(
            x, centre, color=look.colour, linestyle=look.dashes, linewidth=width, label=look.label
        )
        ax.fill_between(x, centre - down, centre + up, color=look.colour, alpha=0.15, linewidth=0)
        after = x >= (START_OF_MEDIANS if panel.median else START) * x.max()
        late.append((centre[after], up[after], down[after]))
        label = f"β = {one.line.beta:g}" if one.line.names == "beta" else look.label
        ends.append((float(centre[-1]), float(x[-1]), label, look.colour))
    _frame(ax, *late)
    ax.set_xlabel("epoch" if panel.x == "epochs" else "iteration")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.02)
    _label_ends(ax, sorted(ends))


def _label_ends(ax: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Labels right of the axes from bottom to top, each joined to the end of its curve; set apart
    where ends lie close together, half by pushing up and half by pushing down."""
    low, high = ax.get_ylim()
    gap = LABEL_GAP / (_size(ax)[1] * 72)
    steps = gap * np.arange(len(ends))
    heights = np.clip([(y - low) / (high - low) for y, *_ in ends], 0.0, 1.0) - steps
    up, down = np.maximum.accumulate(heights), np.minimum.accumulate(heights[::-1])[::-1]
    places = np.clip((up + down) / 2, 0.0, max(1.0 - steps[-1], 0.0)) + steps
    for (y, x, text, colour), place in zip(ends, places, strict=True):
        line = {
            "arrowstyle": "-",
            "color": colour,
            "lw": 0.5,
            "shrinkA": 1,
            "shrinkB": 0,
            "relpos": (0, 0.5),
        }
        ax.annotate(
            text, (x, min(max(y, low), high)), (1.06, place), textcoords="axes fraction", va="center", fontsize=5.5,
            color=colour, annotation_clip=False, arrowprops={**line, "patchA": None},
        )  # fmt: skip


def draw_histograms(axes: Sequence[Axes], lines: Sequence[Lines], metric: str) -> None:
    """Shares of the draws of one statistic, in the same bins in all of its panels; where it is an
    error, a line at that of G itself, which no draw can be told from."""
    every = np.concatenate([one.draws for some in lines for one in some])
    bins = np.geomspace(every.min() / 1.05, every.max() * 1.05, BINS + 1)
    for ax, some in zip(axes, lines, strict=True):
        ax.set(xscale="log", xlabel=STATISTICS[metric])
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        for one in some:
            shares, look = np.histogram(one.draws, bins)[0] / len(one.draws), one.line.look
            x, y = (
                np.repeat(bins, 2),
                np.pad(np.repeat(shares, 2), 1),
            )  # `hist` takes ten times as long
            ax.fill_between(x, y, color=look.colour, alpha=0.25, linewidth=0)
            ax.plot(
                x,
                y,
                color=look.colour,
                lw=1.0,
                label=look.label,
                solid_joinstyle="miter",
                solid_capstyle="butt",
            )
        ax.set(xlim=(bins[0] / 1.15, bins[-1] * 1.15), ylim=(0, None))
        if bins[-1] / bins[0] < 100:
            _log_ticks(ax.xaxis)
        limit = float(some[0].points["error_of_G"].iloc[0]) if metric == "error" else 1.0
        if bins[0] < limit < bins[-1]:
            ax.axvline(limit, **GUIDE)
        if bins[0] < limit < bins[-1] and metric == "error":
            ax.annotate("error of G", (limit, 0.9), (3, 0), xycoords=ax.get_xaxis_transform(), fontsize=5.5,
                        textcoords="offset points", color="#6B6B6B")  # fmt: skip


def _reliability(ax: Axes, panel: Panel, lines: Lines) -> None:
    """Observed minus predicted shares of class 1, on a logit axis: most rows lie near 0 or 1."""
    several = [
        (x, mean - x, half, look, (x > 0) & (x < 1)) for x, mean, half, look in _curves(lines)
    ]
    curves = [(x[some], gap[some], half[some], look) for x, gap, half, look, some in several]
    _bands(ax, curves, guide=True, markersize=2.6)
    ax.set_xscale("logit")
    ax.set_xticks(
        [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999], ["0.001", "", "0.1", "0.5", "0.9", "", "0.999"]
    )
    ax.set_xlim(EDGE, min(max(0.5, *(x.max() for x, *_ in curves)) + 0.1, 1 - EDGE))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("predicted probability")
