"""The figures of the paper, in its order.

The comment above a figure is its label in the paper.
"""

from collections.abc import Iterable

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.figures.declared.parts import (
    AIRLINE_BETAS,
    AIRLINE_LINES,
    BINARY_LOG,
    COUNT_LOG,
    REGRESSION_LOG,
    REGRESSION_SQUARE,
    STEPS_OF_STAND_INS,
    WITH_DIFFERENCES,
    Lines,
    against_size,
    airline_by_epoch,
    airline_sampling,
    cadata_against_beta,
    gradient_estimators,
    gradient_histogram,
)
from dlmexp.presentation.figures.kinds.kind import STATISTICS
from dlmexp.presentation.figures.panels import FIGURES, Figure, Panel, declare, estimators
from dlmexp.presentation.labels import ESTIMATORS


# fig:selection
@declare
def selection() -> Figure:
    """Return the paper's figure 1: final losses, learning curves and errors of gradients."""
    panels = (
        # The experiment reg-sq also computes everything that the panel of NLL needs.
        *against_size(("nll",), REGRESSION_LOG, "reg-sq", ("sarcos",)),
        *against_size(("mse",), REGRESSION_SQUARE, "reg-sq", ("sarcos",)),
        cadata_against_beta("5%"),
        *against_size(("nll",), BINARY_LOG, "class-log", ("ringnorm",)),
        *against_size(("nll",), COUNT_LOG, "count-log", ("peds1_dir2",)),
        *airline_by_epoch(AIRLINE_LINES, "airline", metrics=["nll"]),
        gradient_histogram("bmc", "error"),
        gradient_histogram("ups", "error"),
        *airline_sampling(
            beta=0.1,
            rival=("ups", (1, 10)),
            experiment="airline-sampling-0.1",
            metrics=["nll"],
        ),
    )
    return Figure(
        "selection",
        panels,
        columns=3,
        title="The paper's figure 1",
        legend="row",
        caption=(
            "Final test loss against training size and β, learning curves, and errors of sampled "
            "gradients. Strips show the difference to the ELBO of the same repetition; circles "
            "mark the β with the lowest mean validation NLL."
        ),
    )


# fig:reg-log
@declare
def reg_log() -> Figure:
    """Return NLL of regression against training size, and of cadata against beta."""
    by_dataset = against_size(("nll",), REGRESSION_LOG, "reg-log", REGRESSION)
    # Each row has the panels of two datasets, and cadata against beta in the third column.
    panels = (
        *by_dataset[:2],
        cadata_against_beta("5%"),
        *by_dataset[2:],
        cadata_against_beta("80%"),
    )
    return Figure(
        "reg-log",
        panels,
        columns=3,
        title="Regression, log loss",
        caption=(
            f"Test NLL against training size, {WITH_DIFFERENCES}, and against β on cadata. "
            "Circles mark the β with the lowest mean validation NLL; FITC has no β."
        ),
    )


# fig:reg-sq
@declare
def reg_sq() -> Figure:
    """Return MSE of regression against training size."""
    return Figure(
        "reg-sq",
        against_size(("mse",), REGRESSION_SQUARE, "reg-sq", REGRESSION),
        columns=2,
        title="Regression, square loss",
        caption=f"Test MSE against training size, β selected by MSE, {WITH_DIFFERENCES}.",
    )


# fig:regression-learning
@declare
def reg_learning() -> Figure:
    """Return learning curves of regression with exact and bMC gradients."""
    lines = gradient_estimators(0.1)
    panels = [Panel("curve", dataset, "nll", lines, "reg-learning") for dataset in REGRESSION]
    return Figure(
        "reg-learning",
        tuple(panels),
        columns=2,
        title="Regression, exact and sampled gradients",
        caption="Learning curves of the joint DLM at β = 0.1 with exact and bMC gradients.",
    )


def _metric_against_size(
    name: str,
    *,
    title: str,
    metric: str,
    lines: Lines,
    datasets: Iterable[str],
    beginning_of_caption: str,
) -> Figure:
    """Return a figure of one metric against training size, with the differences to the ELBO.

    Args:
        name: The id of the figure, which is also the name of its experiment.
        title: The title.
        metric: The metric.
        lines: The lines of all panels.
        datasets: The datasets, with a panel for each.
        beginning_of_caption: The words before those on the differences.
    """
    return Figure(
        name,
        against_size((metric,), lines, name, datasets),
        columns=2,
        title=title,
        caption=f"{beginning_of_caption}, {WITH_DIFFERENCES}.",
    )


# fig:class-log
@declare
def class_log() -> Figure:
    """Return NLL of classification against training size."""
    return _metric_against_size(
        "class-log",
        title="Classification, log loss",
        metric="nll",
        lines=BINARY_LOG,
        datasets=BINARY,
        beginning_of_caption="Test NLL against training size",
    )


# fig:class-err
@declare
def class_err() -> Figure:
    """Return the error rate of classification against training size."""
    return _metric_against_size(
        "class-err",
        title="Classification, error rate",
        metric="error",
        lines=BINARY_LOG,
        datasets=BINARY,
        beginning_of_caption="Test error rate against training size, β selected by NLL",
    )


# fig:poisson-log
@declare
def count_log() -> Figure:
    """Return NLL of counts against training size."""
    return _metric_against_size(
        "count-log",
        title="Counts, log loss",
        metric="nll",
        lines=COUNT_LOG,
        datasets=COUNTS,
        beginning_of_caption="Test NLL against training size, DLM with bMC-10",
    )


# fig:poisson-mre
@declare
def count_mre() -> Figure:
    """Return the mean relative error of counts against training size."""
    return _metric_against_size(
        "count-mre",
        title="Counts, relative error",
        metric="mre",
        lines=COUNT_LOG,
        datasets=COUNTS,
        beginning_of_caption=(
            "Mean relative error against training size, DLM with bMC-10, β selected by NLL"
        ),
    )


def _count_curves(name: str, rival: str) -> Figure:
    """Return learning curves of counts with bMC and another estimator's gradients.

    Args:
        name: The id of the figure, which is also the name of its experiment.
        rival: The other estimator.
    """
    gradients = f"{ESTIMATORS[rival]} and bMC gradients"
    panels: list[Panel] = []
    for dataset in ("abalone", "peds1_dir2"):
        for samples in (1, 10, 100):
            lines = estimators("joint_log_dlm", 0.1, ("bmc", (samples,)), (rival, (samples,)))
            title = f"S = {samples}"
            panel = Panel("curve", dataset, "nll", lines, name, title=title, median=True)
            panels.append(panel)
    return Figure(
        name,
        tuple(panels),
        columns=3,
        title=f"Counts, {gradients}",
        caption=(
            f"Learning curves of the joint DLM at β = 0.1 with {gradients} of S samples: median "
            "and quartiles in 20 blocks; after the gap, the mean over the last quarter with its "
            "95 % interval."
        ),
    )


# fig:poisson-learning-curve
@declare
def count_learning() -> Figure:
    """Return learning curves of counts with uPS and bMC gradients."""
    return _count_curves("count-learning", "ups")


# fig:poisson-smooth-learning-curve
@declare
def count_smooth() -> Figure:
    """Return learning curves of counts with smooth-bMC and bMC gradients."""
    return _count_curves("count-smooth", "smooth_bmc")


# fig:airlineA
@declare
def airline() -> Figure:
    """Return learning curves of all methods on airline at three values of beta."""
    return Figure(
        "airline",
        airline_by_epoch(AIRLINE_LINES, "airline", metrics=["nll", "error"]),
        columns=2,
        title="Large classification data, three values of β",
        caption=(
            "Learning curves of ELBO, β-ELBO and both DLMs: dotted β = 0.1, solid 1, dashed 10. "
            f"{STEPS_OF_STAND_INS}"
        ),
    )


def _airline_sampling_figure(beta: float) -> Figure:
    """Return learning curves on airline with exact, bMC and uPS gradients at one beta."""
    name = f"airline-sampling-{beta:g}"
    return Figure(
        name,
        airline_sampling(beta, rival=("ups", (1, 10)), experiment=name, metrics=["nll", "error"]),
        columns=2,
        title=f"Large classification data, gradients at β = {beta:g}",
        caption=(
            f"Learning curves of the joint DLM at β = {beta:g} with exact, bMC and uPS gradients. "
            f"{STEPS_OF_STAND_INS}"
        ),
    )


# fig:airlineB1, B2, B3
for _beta in AIRLINE_BETAS:
    FIGURES.add(f"airline-sampling-{_beta:g}", _airline_sampling_figure(_beta))


# fig:airline-smooth-bMC
@declare
def airline_smooth() -> Figure:
    """Return learning curves on airline with exact, bMC and smooth-bMC gradients."""
    return Figure(
        "airline-smooth",
        airline_sampling(
            beta=0.1,
            rival=("smooth_bmc", (1, 10, 100)),
            experiment="airline-smooth",
            metrics=["nll", "error"],
        ),
        columns=2,
        title="Large classification data, smooth-bMC",
        caption=(
            "Learning curves of the joint DLM at β = 0.1 with exact, bMC and smooth-bMC gradients. "
            f"{STEPS_OF_STAND_INS}"
        ),
    )


# fig:PoissonGradMean
@declare
def bias() -> Figure:
    """Return histograms of three statistics of gradient draws, a row for each estimator."""
    # `STATISTICS` (docs/SPEC.md, section 8) are (i) g.G / |G|^2, (ii) |g|^2 / |G|^2, and the error
    # |g - G|^2 / |G|^2. The caption names the first two by their numbers.
    panels: list[Panel] = []
    for estimator in ("ups", "bmc", "smooth_bmc"):
        panels += [gradient_histogram(estimator, statistic) for statistic in STATISTICS]
    return Figure(
        "bias",
        tuple(panels),
        columns=3,
        title="Sampled gradients",
        legend="row",
        caption=(
            "Draws g of the gradient in the mean of q after initialisation (fixed DLM, β = 0.1, "
            "one split) against G from 10 000 bMC samples. Stochastic gradients converge if (i) "
            "is bounded from below and (ii) from above; both are 1 where g = G."
        ),
    )
