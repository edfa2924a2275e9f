"""The figure `predictions`: what a trained model says on its test rows, and how it came to be."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from dlmexp.experiment.models.diagnosis import Diagnosis
from dlmexp.presentation.figures.panels import COLUMN, TEXT, paper_style
from dlmexp.presentation.labels import metric_label

BINS = 20  # in which intervals are averaged
MOST = 2000  # test rows that are drawn as points
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"
HEIGHT = 2.0  # inches, of a panel
CAPTION = "Predictions of one trained model on its test rows, their calibration, the betas that it was selected from, "
CAPTION += "and the course of its training."


def render(found: Diagnosis) -> Canvas:
    """The figure, in the project's style."""
    wanted = {
        _over_feature: found.line is not None,
        _against_true: found.model.schema.labels is None,
        _probabilities: found.model.schema.labels is not None,
        _calibration: found.calibration is not None,
        _against_beta: not found.betas.empty,
        _training: len(found.objective) > 1,
    }
    panels = [draw for draw, there in wanted.items() if there]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width = TEXT if columns > 1 else COLUMN
    with paper_style():
        canvas = Canvas(figsize=(width, HEIGHT * rows + 0.3), layout="constrained")
        for place, draw in enumerate(panels, 1):
            ax = canvas.add_subplot(rows, columns, place)
            draw(ax, found)
            if ax.get_legend_handles_labels()[1]:  # under the axes it covers nothing
                ax.legend(
                    ncols=4,
                    loc="upper center",
                    bbox_to_anchor=(0.5, -0.22),
                    columnspacing=0.8,
                    handlelength=1.4,
                )
        canvas.suptitle(found.model.cell.describe(), fontsize=7)
        return canvas


def numbers(found: Diagnosis) -> pd.DataFrame:
    """The predictions on the test rows beside what was seen there."""
    labels = found.model.schema.labels
    seen = (
        found.targets
        if labels is None
        else np.array([labels[int(y)] for y in found.targets], dtype=object)
    )
    return pd.DataFrame({found.model.schema.target: seen, **found.columns})


def text(found: Diagnosis, model: str) -> str:
    """The caption file, in Markdown."""
    errors = f" {_errors(found)}." if found.errors else ""
    return f"# {found.model.cell.describe()}\n\n{CAPTION}\n\n- {model}\n- Test rows: {len(found.targets)}.{errors}\n"


def _errors(found: Diagnosis) -> str:
    """RMSE and the like in the units of the target, as text."""
    labels = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "coverage_95": "in 95 % interval"}
    texts = {
        name: f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
        for name, value in found.errors.items()
    }
    return ", ".join(f"{labels[name]} {text}" for name, text in texts.items())


def _against_true(ax: Axes, found: Diagnosis) -> None:
    """True values against predicted means, with the mean 95 % intervals of rows with similar
    means."""
    mean, y, target = found.columns["mean"], found.targets, found.model.schema.target
    if "lower_95" in found.columns:  # which need not hold the mean: of rare counts they are 0 to 0
        bins = pd.DataFrame(
            {"x": mean, "low": found.columns["lower_95"], "high": found.columns["upper_95"]}
        )
        bins = bins.sort_values("x").groupby(np.arange(len(y)) * BINS // len(y)).mean()
        label = f"95 % interval, mean in {BINS} bins"
        ax.fill_between(
            bins["x"], bins["low"], bins["high"], color=BLUE, alpha=0.15, lw=0, label=label
        )
    some = np.random.default_rng(0).permutation(len(y))[:MOST]
    size = float(np.clip(30 / np.sqrt(len(some)), 0.8, 3))
    ax.plot(
        mean[some],
        y[some],
        "o",
        ms=size,
        mew=0,
        color=BLUE,
        alpha=0.6,
        rasterized=True,
        label="test rows",
    )
    both = np.concatenate([mean, y])
    ax.plot(
        [both.min(), both.max()],
        [both.min(), both.max()],
        "-",
        color=ORANGE,
        lw=0.9,
        label="_equal",
    )
    shown = "" if len(some) == len(y) else f" ({len(some)} of {len(y)})"
    ax.set_title(f"test rows{shown}\n{_errors(found)}", fontsize=6)
    ax.set(xlabel=f"predicted {target}", ylabel=f"true {target}")


def _probabilities(ax: Axes, found: Diagnosis) -> None:
    target, labels = found.model.schema.target, found.model.schema.labels
    assert labels is not None
    p = found.columns[f"probability_{labels[1]}"]
    for value, colour in ((0, BLUE), (1, ORANGE)):
        label = f"{target} = {labels[value]}"
        edges: Any = np.linspace(0, 1, 21)
        ax.hist(p[found.targets == value], edges, color=colour, alpha=0.55, label=label)
    ax.axvline(0.5, color=GREY, lw=0.7, ls=":")
    ax.set(title="test rows", xlabel=f"probability of {target} = {labels[1]}", ylabel="rows")
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _calibration(ax: Axes, found: Diagnosis) -> None:
    assert found.calibration is not None
    promised, observed, rows = (
        found.calibration[name] for name in ("promised", "observed", "rows")
    )
    ax.plot([0, 1], [0, 1], "-", color=ORANGE, lw=0.9)
    ax.plot(promised, observed, "-", color=BLUE, lw=0.7)
    binary = found.model.schema.labels is not None
    ax.scatter(
        promised,
        observed,
        s=60 * rows / rows.max() if binary else 7,
        color=BLUE,
        lw=0,
        zorder=3,
        clip_on=False,
    )
    title = "calibration (area: rows)" if binary else "calibration of central intervals"
    ax.set(
        title=title,
        xlabel="predicted probability" if binary else "promised share",
        ylabel="observed share",
    )
    ax.set(xlim=(0, 1), ylim=(0, 1))


def _against_beta(ax: Axes, found: Diagnosis) -> None:
    beta = found.betas["beta"]
    for name, colour, marker in (("validation", BLUE, "s"), ("test", ORANGE, "o")):
        if np.isfinite(found.betas[name]).any():
            ax.plot(beta, found.betas[name], f"{marker}-", color=colour, ms=2.6, label=name)
    cell = found.model.cell
    if cell.beta is not None:
        ax.axvline(cell.beta, color=GREY, lw=0.8, ls=":", label=f"this model, β = {cell.beta:.3g}")
    if len(positive := beta[beta > 0]):
        zero = bool((beta == 0).any())
        ax.set_xscale(
            "symlog" if zero else "log", **({"linthresh": positive.min()} if zero else {})
        )
    metric = metric_label(found.metric)
    scale = " (normalised targets)" if cell.task == "regression" else ""
    ax.set(title=f"{metric} against β{scale}", xlabel="β", ylabel=metric)


def _training(ax: Axes, found: Diagnosis) -> None:
    """The objective, in a frame without the first steps, which may be far above all others."""
    ax.plot(np.arange(1, len(found.objective) + 1), found.objective, "-", color=BLUE)
    rest = found.objective[len(found.objective) // 20 :]
    low, high = float(np.nanmin(rest)), float(np.nanmax(rest))
    span = high - low or 1
    ax.set(
        title="training",
        xlabel="iteration",
        ylabel="objective / n",
        ylim=(low - 0.05 * span, high + 0.1 * span),
    )


def _over_feature(ax: Axes, found: Diagnosis) -> None:
    line, schema = found.line, found.model.schema
    assert line is not None
    name = "mean" if schema.labels is None else f"probability_{schema.labels[1]}"
    ax.plot(line["rows"], line["targets"], "o", ms=1.8, mew=0, color=GREY, label="training rows")
    ax.plot(line["x"], line[name], "-", color=BLUE, label=name.partition("_")[0])
    if "lower_95" in line:
        ax.fill_between(
            line["x"], line["lower_95"], line["upper_95"], color=BLUE, alpha=0.2, lw=0, label="95 %"
        )
    inside = line["inducing"][
        (line["inducing"] >= line["x"][0]) & (line["inducing"] <= line["x"][-1])
    ]
    low = ax.get_ylim()[0]
    ax.plot(
        inside,
        inside * 0 + low,
        "^",
        color=ORANGE,
        ms=4,
        clip_on=False,
        label="inducing inputs",
        zorder=5,
    )
    labelled = (
        schema.target
        if schema.labels is None
        else f"probability of {schema.target} = {schema.labels[1]}"
    )
    ax.set(title="over its one feature", xlabel=schema.features[0], ylabel=labelled)
    ax.set_ylim(bottom=low)
