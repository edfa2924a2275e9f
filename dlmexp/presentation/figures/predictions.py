"""Draw the figure `predictions`: one trained model on its test rows, and the course of training."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import MaxNLocator

from dlmexp.experiment.models.diagnosis import Diagnosis
from dlmexp.presentation.figures import importance
from dlmexp.presentation.figures.looks import COLUMN_WIDTH, METHOD_LOOKS, TEXT_WIDTH, paper_style
from dlmexp.presentation.labels import metric_label

INTERVAL_BINS = 20  # bins of predicted means, in each of which intervals are averaged
PROBABILITY_BINS = 20
MAX_COLUMNS = 8  # at most this many columns have their importance drawn
MAX_POINTS = 2000  # at most this many test rows are drawn as points
BLUE = "#0072B2"
ORANGE = "#D55E00"
GREY = "#777777"
PANEL_HEIGHT = 2.0  # inches
ERROR_LABELS = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "coverage_95": "in 95 % interval"}
CAPTION = (
    "Predictions of one trained model on its test rows, their calibration, the betas that it was "
    "selected from, and the course of its training."
)
TABLE_CAPTION = (
    "Predictions of one trained model on its test rows, their errors and calibration, how much "
    "each column matters, and the other models and baselines on the same rows."
)
BASELINE_LABELS = {"test_rmse": "RMSE", "test_error": "share of wrong labels", "test_nll": "NLL"}


def render(diagnosis: Diagnosis) -> MatplotlibFigure:
    """Return the figure in the project's style; panels that have nothing to show are left out."""
    is_binary = diagnosis.model.schema.labels is not None
    # Only models of users' own tables have importance. Their figure has other panels.
    is_table = diagnosis.importance is not None
    has_content = {
        _draw_over_feature: diagnosis.curve is not None,
        _draw_true_against_predicted: not is_binary,
        _draw_residuals: is_table and not is_binary,
        _draw_probabilities: is_binary,
        _draw_calibration: diagnosis.calibration is not None,
        _draw_importance: is_table,
        _draw_baselines: len(diagnosis.baselines) > 1,
        _draw_against_beta: not is_table and not diagnosis.betas.empty,
        _draw_training: not is_table and len(diagnosis.objective) > 1,
    }
    panel_functions = [draw_panel for draw_panel in has_content if has_content[draw_panel]]
    columns = min(2, len(panel_functions))
    rows = math.ceil(len(panel_functions) / columns)
    width = TEXT_WIDTH if columns > 1 else COLUMN_WIDTH
    with paper_style():
        picture = MatplotlibFigure(figsize=(width, PANEL_HEIGHT * rows + 0.3), layout="constrained")
        for number, draw_panel in enumerate(panel_functions, 1):
            ax = picture.add_subplot(rows, columns, number)
            draw_panel(ax, diagnosis)
            _add_legend(ax)
        picture.suptitle(diagnosis.model.cell.describe(), fontsize=7)
        return picture


def _add_legend(ax: Axes) -> None:
    """Add a legend below the axes, where it covers nothing; none if nothing has a label."""
    _, labels = ax.get_legend_handles_labels()
    if labels:
        ax.legend(
            ncols=4,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.22),
            columnspacing=0.8,
            handlelength=1.4,
        )


def numbers(diagnosis: Diagnosis) -> pd.DataFrame:
    """Return targets and predictions of the test rows, with targets as users wrote them."""
    schema = diagnosis.model.schema
    targets = diagnosis.targets
    if schema.labels is not None:
        labels = np.array(schema.labels, dtype=object)
        targets = labels[targets.astype(int)]
    return pd.DataFrame({schema.target: targets, **diagnosis.predictions})


def text(diagnosis: Diagnosis, model: str) -> str:
    """Return the caption file, in Markdown."""
    errors = f" {_errors(diagnosis)}." if diagnosis.errors else ""
    caption = CAPTION if diagnosis.importance is None else TABLE_CAPTION
    return (
        f"# {diagnosis.model.cell.describe()}\n\n{caption}\n\n"
        f"- {model}\n- Test rows: {len(diagnosis.targets)}.{errors}\n"
    )


def _errors(diagnosis: Diagnosis) -> str:
    """Return the errors as a text such as `RMSE 0.12, R² 0.9`, in the units of the target."""
    texts: list[str] = []
    for name, value in diagnosis.errors.items():
        # From 10000 on, four digits would be written as 1.235e+04.
        number = f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
        texts.append(f"{ERROR_LABELS[name]} {number}")
    return ", ".join(texts)


def _draw_true_against_predicted(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw true values against predicted means, with intervals averaged in bins."""
    mean = diagnosis.predictions["mean"]
    y = diagnosis.targets
    target = diagnosis.model.schema.target
    if "lower_95" in diagnosis.predictions:
        _draw_mean_intervals(ax, diagnosis)
    drawn = _rows_to_draw(len(y))
    _draw_points(ax, mean[drawn], y[drawn], label="test rows")
    values = np.concatenate([mean, y])
    ends = [values.min(), values.max()]
    # matplotlib leaves labels that begin with an underscore out of legends.
    ax.plot(ends, ends, "-", color=ORANGE, lw=0.9, label="_equal")
    count_of_drawn = "" if len(drawn) == len(y) else f" ({len(drawn)} of {len(y)})"
    ax.set_title(f"test rows{count_of_drawn}\n{_errors(diagnosis)}", fontsize=6)
    ax.set(xlabel=f"predicted {target}", ylabel=f"true {target}")


def _rows_to_draw(row_count: int) -> np.ndarray:
    """Return the numbers of the test rows to draw: at most `MAX_POINTS`, a fixed random choice."""
    return np.random.default_rng(0).permutation(row_count)[:MAX_POINTS]


def _draw_points(ax: Axes, x: np.ndarray, y: np.ndarray, **style: Any) -> None:
    """Draw test rows as points, which are smaller where there are many."""
    size = float(np.clip(30 / np.sqrt(len(x)), 0.8, 3))
    ax.plot(x, y, "o", ms=size, mew=0, color=BLUE, alpha=0.6, rasterized=True, **style)


def _draw_residuals(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw residuals, the true values minus the predicted means, against these means."""
    mean = diagnosis.predictions["mean"]
    target = diagnosis.model.schema.target
    drawn = _rows_to_draw(len(mean))
    residuals = diagnosis.targets - mean
    _draw_points(ax, mean[drawn], residuals[drawn])
    ax.axhline(0, color=ORANGE, lw=0.9)
    ax.set(title="residuals", xlabel=f"predicted {target}", ylabel=f"true - predicted {target}")


def _draw_importance(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw the importance of the most important columns."""
    assert diagnosis.importance is not None
    importance.draw(ax, diagnosis.importance.head(MAX_COLUMNS))


def _draw_baselines(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw the error of models (blue) and baselines (grey) on the same rows, the best on top."""
    metric = diagnosis.baselines.columns[1]  # the first column has the names
    table = diagnosis.baselines.sort_values(metric, ascending=False)
    heights = np.arange(len(table))
    colours = [BLUE if name in METHOD_LOOKS else GREY for name in table["method"]]
    ax.barh(heights, table[metric], 0.65, color=colours, alpha=0.75)
    for height, value in zip(heights, table[metric], strict=True):
        ax.annotate(f" {value:.4g}", (0, height), va="center", fontsize=5, color="white")
    ax.set_yticks(heights, table["method"])
    units = f" in units of {diagnosis.model.schema.target}" if metric == "test_rmse" else ""
    label = BASELINE_LABELS[metric]
    ax.set(title=f"the same rows: {label}", xlabel=label + units)


def _draw_mean_intervals(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw the mean 95 % interval of the rows in each bin of predicted means.

    The interval need not contain the mean: that of a rare count goes from 0 to 0.
    """
    predictions = diagnosis.predictions
    rows = pd.DataFrame(
        {
            "x": predictions["mean"],
            "low": predictions["lower_95"],
            "high": predictions["upper_95"],
        }
    )
    in_order = rows.sort_values("x")
    # Bins have about equal numbers of rows.
    bin_of_row = np.arange(len(rows)) * INTERVAL_BINS // len(rows)
    bins = in_order.groupby(bin_of_row).mean()
    label = f"95 % interval, mean in {INTERVAL_BINS} bins"
    ax.fill_between(bins["x"], bins["low"], bins["high"], color=BLUE, alpha=0.15, lw=0, label=label)


def _draw_probabilities(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw histograms of the predicted probability of class 1, one for the rows of each class."""
    target = diagnosis.model.schema.target
    labels = diagnosis.model.schema.labels
    assert labels is not None
    probability = diagnosis.predictions[f"probability_{labels[1]}"]
    edges: Any = np.linspace(0, 1, PROBABILITY_BINS + 1)
    for value, colour in enumerate((BLUE, ORANGE)):
        in_class = probability[diagnosis.targets == value]
        ax.hist(in_class, edges, color=colour, alpha=0.55, label=f"{target} = {labels[value]}")
    ax.axvline(0.5, color=GREY, lw=0.7, ls=":")
    ax.set(title="test rows", xlabel=f"probability of {target} = {labels[1]}", ylabel="rows")
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_calibration(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw observed shares against the shares that the model promises.

    The shares are those of class 1 in bins of predicted probabilities or, if targets are not
    classes, those of targets in central intervals.
    """
    assert diagnosis.calibration is not None
    promised = diagnosis.calibration["promised"]
    observed = diagnosis.calibration["observed"]
    rows = diagnosis.calibration["rows"]
    is_binary = diagnosis.model.schema.labels is not None
    # The area of a point shows the number of rows in its bin; all intervals have the same rows.
    areas = 60 * rows / rows.max() if is_binary else 7
    ax.plot([0, 1], [0, 1], "-", color=ORANGE, lw=0.9)
    ax.plot(promised, observed, "-", color=BLUE, lw=0.7)
    ax.scatter(promised, observed, s=areas, color=BLUE, lw=0, zorder=3, clip_on=False)
    ax.set(
        title="calibration (area: rows)" if is_binary else "calibration of central intervals",
        xlabel="predicted probability" if is_binary else "promised share",
        ylabel="observed share",
        xlim=(0, 1),
        ylim=(0, 1),
    )


def _draw_against_beta(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw the validation and the test metric against beta, with a line at the model's beta."""
    betas = diagnosis.betas["beta"]
    for name, colour, marker in (("validation", BLUE, "s"), ("test", ORANGE, "o")):
        if np.isfinite(diagnosis.betas[name]).any():
            ax.plot(betas, diagnosis.betas[name], f"{marker}-", color=colour, ms=2.6, label=name)
    cell = diagnosis.model.cell
    if cell.beta is not None:
        ax.axvline(cell.beta, color=GREY, lw=0.8, ls=":", label=f"this model, β = {cell.beta:.3g}")
    positive = betas[betas > 0]
    if len(positive) and (betas == 0).any():
        # A log scale has no position for 0.
        ax.set_xscale("symlog", linthresh=positive.min())
    elif len(positive):
        ax.set_xscale("log")
    metric = metric_label(diagnosis.metric)
    units = " (normalised targets)" if cell.task == "regression" else ""
    ax.set(title=f"{metric} against β{units}", xlabel="β", ylabel=metric)


def _draw_training(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw the objective during training.

    The frame holds the last 95 % of the iterations, as the first values may be far above.
    """
    objective = diagnosis.objective
    ax.plot(np.arange(1, len(objective) + 1), objective, "-", color=BLUE)
    later = objective[len(objective) // 20 :]
    low = float(np.nanmin(later))
    high = float(np.nanmax(later))
    span = high - low
    if span == 0:
        span = 1.0  # a frame needs a height
    ax.set(
        title="training",
        xlabel="iteration",
        ylabel="objective / n",
        ylim=(low - 0.05 * span, high + 0.1 * span),
    )


def _draw_over_feature(ax: Axes, diagnosis: Diagnosis) -> None:
    """Draw the prediction over the only feature, with training rows and inducing inputs."""
    curve = diagnosis.curve
    schema = diagnosis.model.schema
    assert curve is not None
    if schema.labels is None:
        column = "mean"
        legend_label = "mean"
        axis_label = schema.target
    else:
        column = f"probability_{schema.labels[1]}"
        legend_label = "probability"
        axis_label = f"probability of {schema.target} = {schema.labels[1]}"
    x = curve["x"]
    ax.plot(curve["rows"], curve["targets"], "o", ms=1.8, mew=0, color=GREY, label="training rows")
    ax.plot(x, curve[column], "-", color=BLUE, label=legend_label)
    if "lower_95" in curve:
        lower = curve["lower_95"]
        upper = curve["upper_95"]
        ax.fill_between(x, lower, upper, color=BLUE, alpha=0.2, lw=0, label="95 %")
    # Inducing inputs stand on the lower edge of the frame, which must not move when they are drawn.
    bottom, _ = ax.get_ylim()
    _draw_inducing_inputs(ax, curve["inducing"], low=x[0], high=x[-1], height=bottom)
    ax.set(title="over its one feature", xlabel=schema.features[0], ylabel=axis_label)
    ax.set_ylim(bottom=bottom)


def _draw_inducing_inputs(
    ax: Axes, inducing: np.ndarray, low: float, high: float, height: float
) -> None:
    """Draw the inducing inputs between two values as triangles at a height."""
    visible = inducing[(inducing >= low) & (inducing <= high)]
    ax.plot(
        visible,
        np.full(len(visible), height),
        "^",
        color=ORANGE,
        ms=4,
        clip_on=False,
        label="inducing inputs",
        zorder=5,
    )
