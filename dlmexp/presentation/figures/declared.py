"""All figures (docs/SPEC.md, section 8): the paper's in its order, then calibration, anatomy, and
what DLM is worth.

A figure is its panels (one `Panel` each, or the functions below for a panel per dataset or metric),
a caption of at most two sentences, and a line `add(id, title, columns, panels, caption)`."""

from collections.abc import Iterable
from typing import Any

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.figures.panels import (
    FIGURES,
    STATISTICS,
    Figure,
    Line,
    Panel,
    estimators,
    methods,
)
from dlmexp.presentation.labels import ESTIMATORS

Lines = tuple[Line, ...]
LOG = methods("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm")
SQUARE = (*LOG, *methods("joint_sq_dlm", "fixed_sq_dlm"))
BETA = methods("beta_elbo", "joint_log_dlm", "fixed_log_dlm", "fitc")
BINARY_LOG = methods("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
COUNT_LOG = (
    *methods("elbo", "beta_elbo"),
    *methods("joint_log_dlm", "fixed_log_dlm", estimator="bmc", samples=10),
)
AIRLINE_BETAS = (0.1, 1.0, 10.0)
THREE_BETAS = tuple(
    Line(line.method, beta=beta, names="beta") for line in BETA[:3] for beta in AIRLINE_BETAS
)
SEVEN = dict.fromkeys(("pol", "cadata", "sarcos_test"), "reg") | dict.fromkeys(
    ("banana", "ringnorm"), "class"
)
SEVEN |= dict.fromkeys(
    ("abalone", "peds1_left"), "count"
)  # the datasets of anatomy and of inducing, with their kinds
NINE = {**SEVEN, **dict.fromkeys(("thyroid", "twonorm"), "class")}  # the datasets of rivals
DRAWN = ("ringnorm_drawn", "twonorm_drawn")
BELOW = "with the difference to the ELBO of the same repetition below"
EPOCHS = "A stand-in takes as many steps as airline's 20 epochs."
BINS = "bserved minus predicted shares of class 1 in bins of equal numbers of test rows, ECE and Brier score"
WHOLE = "end on whole numbers, so they cover at least what they promise."


def add(
    name: str, title: str, columns: int, panels: Iterable[Panel], caption: str, **more: Any
) -> None:
    FIGURES.add(
        name, Figure(name, tuple(panels), columns, " ".join(caption.split()), title, **more)
    )


def against_n(metrics: str, lines: Lines, experiment: str, *datasets: str) -> list[Panel]:
    """A panel per dataset and metric; that of reliability is at one size."""
    pairs = [(name, metric) for name in datasets for metric in metrics.split()]
    return [Panel("reliability" if metric == "reliability" else "sizes", name, metric, lines, experiment,
                  log=metric == "mse") for name, metric in pairs]  # fmt: skip


def against_beta(size: str) -> Panel:
    return Panel("betas", "cadata", "nll", BETA, "reg-log", n=size, column=2)


def by_epoch(lines: Lines, experiment: str, *metrics: str) -> list[Panel]:
    """A panel per metric."""
    title = f"β = {lines[0].beta:g}" if lines[0].names == "estimator" else ""
    return [
        Panel("curve", "airline", metric, lines, experiment, x="epochs", title=title)
        for metric in metrics
    ]


def sampling(beta: float, *kinds: tuple[str, Iterable[int | None]]) -> Lines:
    """The joint DLM with exact, bMC and other gradients at one beta."""
    return estimators("joint_log_dlm", beta, ("exact", (None,)), ("bmc", (1, 10, 100)), *kinds)


def histogram(estimator: str, statistic: str) -> Panel:
    lines = estimators("fixed_log_dlm", 0.1, (estimator, (1, 10, 100)))
    return Panel("histogram", "abalone", statistic, lines, "bias", title=ESTIMATORS[estimator])


def anatomy(dataset: str, kind: str) -> Panel:
    """What makes up DLM - ELBO; noise and FITC in regression alone."""
    names = (
        "whole",
        "beta",
        "objective",
        "coordinates",
        *(("noise", "fitc") if kind == "reg" else ()),
    )
    lines = tuple(
        Line("fitc" if name == "fitc" else "joint_log_dlm", effect=name) for name in names
    )
    return Panel("effects", dataset, "nll", lines, f"anatomy-{kind}")


FIGURE_1 = [
    *against_n("nll", LOG, "reg-sq", "sarcos"),  # which computes what this panel needs as well
    *against_n("mse", SQUARE, "reg-sq", "sarcos"),
    against_beta("5%"),
    *against_n("nll", BINARY_LOG, "class-log", "ringnorm"),
    *against_n("nll", COUNT_LOG, "count-log", "peds1_dir2"),
    *by_epoch(THREE_BETAS, "airline", "nll"),
    histogram("bmc", "error"),
    histogram("ups", "error"),
    *by_epoch(sampling(0.1, ("ups", (1, 10))), "airline-sampling-0.1", "nll"),
]
caption = """Final test loss against training size and β, learning curves, and errors of sampled gradients. Strips show
the difference to the ELBO of the same repetition; circles mark the β with the lowest mean validation NLL."""
add("selection", "The paper's figure 1", 3, FIGURE_1, caption, legend="row")  # fig:selection

panels = against_n("nll", LOG, "reg-log", *REGRESSION)
panels = [*panels[:2], against_beta("5%"), *panels[2:], against_beta("80%")]
caption = f"""Test NLL against training size, {BELOW}, and against β on cadata. Circles mark the β with the lowest mean
validation NLL; FITC has no β."""
add("reg-log", "Regression, log loss", 3, panels, caption)  # fig:reg-log

panels = against_n("mse", SQUARE, "reg-sq", *REGRESSION)
caption = f"Test MSE against training size, β selected by MSE, {BELOW}."
add("reg-sq", "Regression, square loss", 2, panels, caption)  # fig:reg-sq

panels = [Panel("curve", name, "nll", sampling(0.1), "reg-learning") for name in REGRESSION]
caption = "Learning curves of the joint DLM at β = 0.1 with exact and bMC gradients."
add(
    "reg-learning", "Regression, exact and sampled gradients", 2, panels, caption
)  # fig:regression-learning

BY_NLL, BMC_10 = ", β selected by NLL", ", DLM with bMC-10"
for (
    name,
    title,
    metric,
    lines,
    datasets,
    words,
    how,
) in (  # fig:class-log, fig:class-err, fig:poisson-log, -mre
    ("class-log", "Classification, log loss", "nll", BINARY_LOG, BINARY, "Test NLL", ""),
    (
        "class-err",
        "Classification, error rate",
        "error",
        BINARY_LOG,
        BINARY,
        "Test error rate",
        BY_NLL,
    ),
    ("count-log", "Counts, log loss", "nll", COUNT_LOG, COUNTS, "Test NLL", BMC_10),
    (
        "count-mre",
        "Counts, relative error",
        "mre",
        COUNT_LOG,
        COUNTS,
        "Mean relative error",
        BMC_10 + BY_NLL,
    ),
):
    add(
        name,
        title,
        2,
        against_n(metric, lines, name, *datasets),
        f"{words} against training size{how}, {BELOW}.",
    )

pairs = [(dataset, samples) for dataset in ("abalone", "peds1_dir2") for samples in (1, 10, 100)]
for name, rival in (
    ("count-learning", "ups"),
    ("count-smooth", "smooth_bmc"),
):  # fig:poisson-learning-curve, -smooth-
    both = f"{ESTIMATORS[rival]} and bMC gradients"
    panels = [
        Panel("curve", dataset, "nll", estimators("joint_log_dlm", 0.1, ("bmc", (samples,)), (rival, (samples,))),
              name, title=f"S = {samples}", median=True)
        for dataset, samples in pairs
    ]  # fmt: skip
    caption = f"Learning curves of the joint DLM at β = 0.1 with {both} of S samples: median and quartiles."
    add(name, f"Counts, {both}", 3, panels, caption)

panels = by_epoch(THREE_BETAS, "airline", "nll", "error")
caption = f"Learning curves of ELBO, β-ELBO and both DLMs, each labelled with its β. {EPOCHS}"
add("airline", "Large classification data, three values of β", 2, panels, caption)  # fig:airlineA

for beta in AIRLINE_BETAS:  # fig:airlineB1, B2, B3
    panels = by_epoch(
        sampling(beta, ("ups", (1, 10))), f"airline-sampling-{beta:g}", "nll", "error"
    )
    caption = f"Learning curves of the joint DLM at β = {beta:g} with exact, bMC and uPS gradients. {EPOCHS}"
    title = f"Large classification data, gradients at β = {beta:g}"
    add(f"airline-sampling-{beta:g}", title, 2, panels, caption)

panels = by_epoch(sampling(0.1, ("smooth_bmc", (1, 10, 100))), "airline-smooth", "nll", "error")
caption = f"Learning curves of the joint DLM at β = 0.1 with exact, bMC and smooth-bMC gradients. {EPOCHS}"
add(
    "airline-smooth", "Large classification data, smooth-bMC", 2, panels, caption
)  # fig:airline-smooth-bMC

panels = [
    histogram(name, statistic) for name in ("ups", "bmc", "smooth_bmc") for statistic in STATISTICS
]
caption = """Draws g of the gradient in the mean of q after initialisation (fixed DLM, β = 0.1, one split) against G
from 10 000 bMC samples. Stochastic gradients converge if (i) is bounded from below and (ii) from above; both are 1
where g = G."""
add("bias", "Sampled gradients", 3, panels, caption, legend="row")  # fig:PoissonGradMean

OF_BINARY = ("reliability ece brier", BINARY_LOG, "class-log")
OF_COUNTS = ("coverage_95 width_95 crps", COUNT_LOG, "count-log")
panels = against_n("coverage_50 coverage_95 crps", LOG, "reg-log", "cadata")
panels += [*against_n(*OF_BINARY, "banana", "ringnorm"), *against_n(*OF_COUNTS, "abalone")]
caption = f"""Coverage of central intervals minus nominal, their width and CRPS; o{BINS} (β selected by NLL). Intervals
of counts {WHOLE}"""
add("calibration", "Calibration", 3, panels, caption)

caption = """Coverage of central 50, 90 and 95 % intervals minus nominal, width of 95 % intervals and CRPS against
training size (β selected by NLL)."""
panels = against_n("coverage_50 coverage_90 coverage_95 width_95 crps", LOG, "reg-log", *REGRESSION)
add("calibration-reg", "Calibration in regression", 5, panels, caption)
panels = against_n(*OF_BINARY, *BINARY)
add(
    "calibration-class", "Calibration in classification", 3, panels, f"O{BINS} (β selected by NLL)."
)
caption = f"""Coverage of 95 % intervals minus nominal, their width and CRPS, DLM with bMC-10. The intervals {WHOLE}"""
add("calibration-count", "Calibration of counts", 3, against_n(*OF_COUNTS, *COUNTS), caption)

panels = [anatomy(dataset, kind) for dataset, kind in SEVEN.items()]
caption = """The difference in test NLL between joint DLM and ELBO as a sum of choosing β and the objective, and by how
much it changes with q unwhitened or noise kept above 0.01 (negative: DLM gains). Marks are the same change in one
method alone (PPGPR: joint DLM at β = 1); numbers in grey: the interval holds 0."""
add("anatomy", "Anatomy of DLM − ELBO", len(SEVEN), panels, caption)

lines = methods("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm", "fitc", role="inducing")
for metric, kinds in (
    ("nll", ("reg", "class", "count")),
    ("mse", ("reg",)),
    ("crps", ("reg", "count")),
):
    places = [
        (x, *pair)
        for x in ("M", "predict_seconds")
        for pair in SEVEN.items()
        if x == "M" or pair[1] == "reg"
    ]
    panels = [Panel("sizes", name, metric, lines if kind == "reg" else lines[:4], f"inducing-{kind}", x=x)
              for x, name, kind in places if kind in kinds]  # fmt: skip
    caption = f"""Test {metric.upper()} against the number of inducing inputs M at one training size, β selected on
validation. In regression also against the time to predict 10 000 rows, where it was measured."""
    name, columns = ("inducing", 5) if metric == "nll" else (f"inducing-{metric}", 3)
    add(name, f"How many inducing inputs, {metric.upper()}", columns, panels, caption)

corners = methods("elbo", "elbo_q", "fixed_log_dlm", "dlm_elbo_q", "dlm_q", "ppgpr", role="gain")
panels = [Panel("sizes", name, "nll", tuple(line for line in corners if kind != "reg" or line.method != "dlm_elbo_q"),
                f"gain-{kind}") for name, kind in SEVEN.items()]  # fmt: skip
caption = f"""Test NLL with hyperparameters and q learned by ELBO or by DLM: hyperparameters at β = 1, the β of q
selected, {BELOW}. In regression q by ELBO with DLM's hyperparameters is far above (2 to 10) and not drawn."""
add("gain", "Where the gain comes from", 4, panels, caption)

both = [
    line
    for version in ("", "recalibrated", "train")
    for line in methods("elbo", role="rivals", version=version)
]
both += methods("beta_elbo", "joint_log_dlm", role="rivals")
fitc = [
    line for version in ("", "train") for line in methods("fitc", role="rivals", version=version)
]
panels = [
    Panel("sizes", name, "nll", (*both, *fitc, *methods("exact", role="rivals")) if kind == "reg" else tuple(both),
          f"rivals-{kind}") for name, kind in NINE.items()
]  # fmt: skip
caption = f"""Test NLL of methods that use the same validation rows: to select β, to recalibrate by one number, or to
train on, {BELOW}."""
add("rivals", "Fair rivals", 3, panels, caption)

pairs = [
    (dataset, kind, beta) for beta in (1.0, 0.1) for dataset, kind in SEVEN.items() if kind != "reg"
]
panels = [
    Panel("sizes", dataset, "nll", (Line("beta_elbo", beta=beta, role="samples"),
                                    Line("joint_log_dlm", "bmc", beta=beta, names="estimator", role="samples"),
                                    Line("joint_log_dlm", beta=beta, role="samples")),
          f"samples-{kind}", x="samples", title=f"β = {beta:g}")
    for dataset, kind, beta in pairs
]  # fmt: skip
caption = """Test NLL of the joint DLM trained on 500 rows with bMC gradients of S samples, at equal β: an objective of
its own, between the ELBO (in expectation that of S = 1) and the exact DLM."""
add("samples", "bMC as an objective", 4, panels, caption)

lines = [
    line
    for word in ("", "short")
    for line in methods("beta_elbo", "joint_log_dlm", role="edges", version=word)
]
panels = against_n(
    "nll", (*methods("elbo", role="edges"), *lines), "edges", "pol", *BINARY[1:], "peds1_left"
)
caption = f"""Test NLL with β selected from n down to 1e-4 (solid), or from those of at least 0.01, as in the paper's
grids (dashed), {BELOW}."""
add("edges", "Smaller values of β", 3, panels, caption)

panels = against_n("excess_nll", BINARY_LOG, "class-log", *DRAWN)
panels += [
    Panel("betas", name, "excess_nll", BINARY_LOG[1:], "class-log", n="500", log=True)
    for name in DRAWN
]
caption = """Test NLL minus that of the true class probabilities, on data drawn from their definition: against training
size with β selected, and against β at 500 rows. Circles mark the β with the lowest mean validation NLL."""
add("truth", "Known truth", 2, panels, caption, needs_all=True)

panels = against_n("nll", BINARY_LOG, "default", DRAWN[0])
caption = f"DLM and ELBO on ringnorm as drawn from its definition: test NLL against training size, {BELOW}."
add("default", "The default job", 1, panels, caption)
