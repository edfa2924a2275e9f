"""Drawing histograms of gradient draws, with where the exact gradient lies among them."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dlmexp.figures import style
from dlmexp.figures.families.gradients import STATISTICS
from dlmexp.figures.panels import Panel
from dlmexp.figures.scales import STEPS, log_x, scale_of
from dlmexp.figures.series import Series
from dlmexp.figures.style import Look


def draw_histograms(ax: Axes, panel: Panel, drawn: list[tuple[Series, Look]], error: str) -> None:
    """Shares of the draws, on common bins; log-spaced where the values need it."""
    values = [one.draws for one, _ in drawn if one.draws is not None and len(one.draws)]
    if values:
        pooled = np.concatenate(values)
        log = scale_of(pooled) == "log"
        low, high = float(pooled.min()), float(pooled.max())
        if low == high:
            low, high = low - 0.5, high + 0.5
        bins = np.geomspace(low, high, 41) if log else np.linspace(low, high, 41)
        for one, look in drawn:
            if one.draws is None or not len(one.draws):
                continue
            weights = np.full(len(one.draws), 1 / len(one.draws))
            shape = {"bins": bins, "weights": weights, "color": look.colour}
            ax.hist(one.draws, histtype="stepfilled", alpha=0.18, **shape)
            ax.hist(one.draws, histtype="step", linestyle=look.dashes, linewidth=1.0, label=look.label, **shape)
        if log:
            log_x(ax, "")
    for value in {float(one.points["error_of_G"].iloc[0]) for one, _ in drawn}:
        for place in _where_exact(panel.metric, value) if np.isfinite(value) else ():
            ax.axvline(place, color="#555555", linewidth=0.8, linestyle="-.", label="_error of G")
    ax.set_xlabel(STATISTICS[panel.metric])
    ax.set_ylabel("share of draws")
    ax.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    if panel.metric == "condition_i":
        ax.axvline(1.0, color=style.MISSING, linewidth=0.6, zorder=0.5)


def _where_exact(statistic: str, error_of_G: float) -> tuple[float, ...]:
    """Where the exact gradient lies, if G is so far from it: a value of the error, an interval of the conditions."""
    far = np.sqrt(max(error_of_G, 0.0))  # |exact - G| / |G|
    exact = {"condition_i": (1 - far, 1 + far), "condition_ii": ((1 - far) ** 2, (1 + far) ** 2)}
    return exact.get(statistic, (error_of_G,))
