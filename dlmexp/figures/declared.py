"""All figures (docs/SPEC.md, section 8): the paper's in its order, then calibration, anatomy and the default job."""

from typing import Any

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.figures import effects
from dlmexp.figures.panels import STATISTICS, Figure, Line, Panel, at_betas, estimators, methods
from dlmexp.figures.registry import FIGURES
from dlmexp.labels import ESTIMATORS

LOG = methods("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm")
SQUARE = (*LOG, *methods("joint_sq_dlm", "fixed_sq_dlm"))
BETA = methods("beta_elbo", "joint_log_dlm", "fixed_log_dlm", "fitc")
BINARY_LOG = methods("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
COUNT_LOG = (*methods("elbo", "beta_elbo"), *methods("joint_log_dlm", "fixed_log_dlm", estimator="bmc", samples=10))
AIRLINE_BETAS = (0.1, 1.0, 10.0)
THREE_BETAS = at_betas(AIRLINE_BETAS, "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
BMC = ("bmc", (1, 10, 100))
REG_LEARNING = estimators("joint_log_dlm", 0.1, ("exact", ()), BMC)
AIRLINE_SMOOTH = estimators("joint_log_dlm", 0.1, ("exact", ()), BMC, ("smooth_bmc", (1, 10, 100)))
EFFECTS = effects.lines("whole", "beta", "objective", "coordinates", "noise", "fitc")
ANATOMY = {
    "pol": "reg", "cadata": "reg", "sarcos_test": "reg", "banana": "class", "ringnorm": "class", "abalone": "count",
    "peds1_left": "count",
}  # fmt: skip
STAND_IN_EPOCHS = "A stand-in takes as many steps as airline's 20 epochs."


def sampling(beta: float) -> tuple[Line, ...]:
    """Exact, bMC and uPS gradients of the joint DLM at one beta."""
    return estimators("joint_log_dlm", beta, ("exact", ()), BMC, ("ups", (1, 10)))


def nll_vs_n(dataset: str, experiment: str = "reg-log") -> Panel:
    return Panel("sizes", dataset, "nll", LOG, experiment)


def mse_vs_n(dataset: str) -> Panel:
    return Panel("sizes", dataset, "mse", SQUARE, "reg-sq", log=True)


def nll_vs_beta(dataset: str, size: str) -> Panel:
    return Panel("betas", dataset, "nll", BETA, "reg-log", n=size, column=2)


def binary_vs_n(dataset: str, metric: str, experiment: str) -> Panel:
    return Panel("sizes", dataset, metric, BINARY_LOG, experiment)


def counts_vs_n(dataset: str, metric: str, experiment: str) -> Panel:
    return Panel("sizes", dataset, metric, COUNT_LOG, experiment)


def by_epoch(metric: str, lines: tuple[Line, ...], experiment: str) -> Panel:
    betas = {line.beta for line in lines}
    title = f"β = {betas.pop():g}" if len(betas) == 1 else ""
    return Panel("curve", "airline", metric, lines, experiment, x="epochs", title=title)


def histogram(estimator: str, statistic: str) -> Panel:
    lines = estimators("fixed_log_dlm", 0.1, (estimator, (1, 10, 100)))
    return Panel("histogram", "abalone", statistic, lines, "bias", title=ESTIMATORS[estimator])


def count_curves(experiment: str, *names: str) -> tuple[Panel, ...]:
    """A row per dataset, a column per number of samples S."""
    return tuple(
        Panel(
            "curve", dataset, "nll", estimators("joint_log_dlm", 0.1, *((name, (S,)) for name in names)), experiment,
            title=f"S = {S}", median=True,
        )
        for dataset in ("abalone", "peds1_dir2")
        for S in (1, 10, 100)
    )  # fmt: skip


def of_regression(dataset: str, *metrics: str) -> tuple[Panel, ...]:
    return tuple(Panel("sizes", dataset, metric, LOG, "reg-log") for metric in metrics)


def of_binary(dataset: str) -> tuple[Panel, ...]:
    return (
        Panel("reliability", dataset, "reliability", BINARY_LOG, "class-log"),
        *(Panel("sizes", dataset, metric, BINARY_LOG, "class-log") for metric in ("ece", "brier")),
    )


def of_counts(dataset: str) -> tuple[Panel, ...]:
    return tuple(counts_vs_n(dataset, metric, "count-log") for metric in ("coverage_95", "width_95", "crps"))


def anatomy(dataset: str, kind: str) -> Panel:
    own = EFFECTS if kind == "reg" else EFFECTS[:4]  # noise and FITC: regression alone
    return Panel("effects", dataset, "nll", own, f"anatomy-{kind}")


def add(name: str, title: str, caption: str, columns: int, *panels: Panel, **more: Any) -> None:
    FIGURES.add(name, Figure(name, panels, columns, caption, title, **more))


add(
    "selection", "The paper's figure 1",  # fig:selection
    "Final test loss against training size and β, learning curves, and errors of sampled gradients. Strips show the "
    "difference to the ELBO of the same repetition; circles mark the β with the lowest mean validation NLL.",
    3,
    nll_vs_n("sarcos", "reg-sq"),  # which computes what this panel needs as well
    mse_vs_n("sarcos"),
    nll_vs_beta("cadata", "5%"),
    binary_vs_n("ringnorm", "nll", "class-log"),
    counts_vs_n("peds1_dir2", "nll", "count-log"),
    by_epoch("nll", THREE_BETAS, "airline"),
    histogram("bmc", "error"),
    histogram("ups", "error"),
    by_epoch("nll", sampling(0.1), "airline-sampling-0.1"),
    legend="row",
)  # fmt: skip
add(
    "reg-log", "Regression, log loss",  # fig:reg-log
    "Test NLL against training size, with the difference to the ELBO of the same repetition below, and against β on "
    "cadata. Circles mark the β with the lowest mean validation NLL; FITC has no β.",
    3,
    *(nll_vs_n(dataset) for dataset in REGRESSION[:2]), nll_vs_beta("cadata", "5%"),
    *(nll_vs_n(dataset) for dataset in REGRESSION[2:]), nll_vs_beta("cadata", "80%"),
)  # fmt: skip
add(
    "reg-sq", "Regression, square loss",  # fig:reg-sq
    "Test MSE against training size, β selected by MSE, with the difference to the ELBO of the same repetition below.",
    2,
    *(mse_vs_n(dataset) for dataset in REGRESSION),
)  # fmt: skip
add(
    "reg-learning", "Regression, exact and sampled gradients",  # fig:regression-learning
    "Learning curves of the joint DLM at β = 0.1 with exact and bMC gradients.",
    2,
    *(Panel("curve", dataset, "nll", REG_LEARNING, "reg-learning") for dataset in REGRESSION),
)  # fmt: skip
add(
    "class-log", "Classification, log loss",  # fig:class-log
    "Test NLL against training size, with the difference to the ELBO of the same repetition below.",
    2,
    *(binary_vs_n(dataset, "nll", "class-log") for dataset in BINARY),
)  # fmt: skip
add(
    "class-err", "Classification, error rate",  # fig:class-err
    "Test error rate against training size, β selected by NLL, with the difference to the ELBO of the same repetition "
    "below.",
    2,
    *(binary_vs_n(dataset, "error", "class-err") for dataset in BINARY),
)  # fmt: skip
add(
    "count-log", "Counts, log loss",  # fig:poisson-log
    "Test NLL against training size, DLM with bMC-10, with the difference to the ELBO of the same repetition below.",
    2,
    *(counts_vs_n(dataset, "nll", "count-log") for dataset in COUNTS),
)  # fmt: skip
add(
    "count-mre", "Counts, relative error",  # fig:poisson-mre
    "Mean relative error against training size, DLM with bMC-10, β selected by NLL, with the difference to the ELBO of "
    "the same repetition below.",
    2,
    *(counts_vs_n(dataset, "mre", "count-mre") for dataset in COUNTS),
)  # fmt: skip
add(
    "count-learning", "Counts, uPS and bMC gradients",  # fig:poisson-learning-curve
    "Learning curves of the joint DLM at β = 0.1 with uPS and bMC gradients of S samples: median and quartiles.",
    3,
    *count_curves("count-learning", "bmc", "ups"),
)  # fmt: skip
add(
    "count-smooth", "Counts, smooth-bMC and bMC gradients",  # fig:poisson-smooth-learning-curve
    "Learning curves of the joint DLM at β = 0.1 with smooth-bMC and bMC gradients of S samples: median and quartiles.",
    3,
    *count_curves("count-smooth", "bmc", "smooth_bmc"),
)  # fmt: skip
add(
    "airline", "Large classification data, three values of β",  # fig:airlineA
    f"Learning curves of ELBO, β-ELBO and both DLMs, each labelled with its β. {STAND_IN_EPOCHS}",
    2,
    *(by_epoch(metric, THREE_BETAS, "airline") for metric in ("nll", "error")),
)  # fmt: skip
for beta in AIRLINE_BETAS:
    add(
        f"airline-sampling-{beta:g}", f"Large classification data, gradients at β = {beta:g}",  # fig:airlineB1, B2, B3
        f"Learning curves of the joint DLM at β = {beta:g} with exact, bMC and uPS gradients. {STAND_IN_EPOCHS}",
        2,
        *(by_epoch(metric, sampling(beta), f"airline-sampling-{beta:g}") for metric in ("nll", "error")),
    )  # fmt: skip
add(
    "airline-smooth", "Large classification data, smooth-bMC",  # fig:airline-smooth-bMC
    f"Learning curves of the joint DLM at β = 0.1 with exact, bMC and smooth-bMC gradients. {STAND_IN_EPOCHS}",
    2,
    *(by_epoch(metric, AIRLINE_SMOOTH, "airline-smooth") for metric in ("nll", "error")),
)  # fmt: skip
add(
    "bias", "Sampled gradients",  # fig:PoissonGradMean
    "Draws g of the gradient in the mean of q after initialisation (fixed DLM, β = 0.1, one split) against G from "
    "10 000 bMC samples. Stochastic gradients converge if (i) is bounded from below and (ii) from above; both are 1 "
    "where g = G.",
    3,
    *(histogram(name, statistic) for name in ("ups", "bmc", "smooth_bmc") for statistic in STATISTICS),
    legend="row",
)  # fmt: skip
add(
    "calibration", "Calibration",
    "Coverage of central intervals minus nominal, their width and CRPS; observed minus predicted shares of class 1 in "
    "bins of equal numbers of test rows, ECE and Brier score (β selected by NLL). Intervals of counts end on whole "
    "numbers, so they cover at least what they promise.",
    3,
    *of_regression("cadata", "coverage_50", "coverage_95", "crps"),
    *of_binary("banana"), *of_binary("ringnorm"), *of_counts("abalone"),
)  # fmt: skip
add(
    "calibration-reg", "Calibration in regression",
    "Coverage of central 50, 90 and 95 % intervals minus nominal, width of 95 % intervals and CRPS against training "
    "size (β selected by NLL).",
    5,
    *(
        panel
        for dataset in REGRESSION
        for panel in of_regression(dataset, "coverage_50", "coverage_90", "coverage_95", "width_95", "crps")
    ),
)  # fmt: skip
add(
    "calibration-class", "Calibration in classification",
    "Observed minus predicted shares of class 1 in bins of equal numbers of test rows, ECE and Brier score (β selected "
    "by NLL).",
    3,
    *(panel for dataset in BINARY for panel in of_binary(dataset)),
)  # fmt: skip
add(
    "calibration-count", "Calibration of counts",
    "Coverage of 95 % intervals minus nominal, their width and CRPS, DLM with bMC-10. The intervals end on whole "
    "numbers, so they cover at least what they promise.",
    3,
    *(panel for dataset in COUNTS for panel in of_counts(dataset)),
)  # fmt: skip
add(
    "anatomy", "Anatomy of DLM − ELBO",
    "The difference in test NLL between joint DLM and ELBO as a sum of choosing β and the objective, and by how much "
    "it changes with q unwhitened or noise kept above 0.01 (negative: DLM gains). Marks are the same change in one "
    "method alone (PPGPR: joint DLM at β = 1); numbers in grey: the interval holds 0.",
    len(ANATOMY),
    *(anatomy(dataset, kind) for dataset, kind in ANATOMY.items()),
)  # fmt: skip
add(
    "default", "The default job",
    "DLM and ELBO on ringnorm as drawn from its definition: test NLL against training size, with the difference to the "
    "ELBO of the same repetition below.",
    1,
    Panel("sizes", "ringnorm_drawn", "nll", BINARY_LOG, "default"),
)  # fmt: skip
