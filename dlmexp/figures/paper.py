"""The paper's figures (docs/SPEC.md, section 8), in the paper's order."""

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
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


def add(name: str, of_paper: str, title: str, caption: str, columns: int, *panels: Panel, by_row: bool = False) -> None:
    FIGURES.add(name, Figure(name, panels, columns, caption, title, of_paper, "row" if by_row else "figure"))


add(
    "selection", "fig:selection (figure 1)", "The paper's figure 1",
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
    by_row=True,
)  # fmt: skip
add(
    "reg-log", "fig:reg-log", "Regression, log loss",
    "Test NLL against training size, with the difference to the ELBO of the same repetition below, and against β on "
    "cadata. Circles mark the β with the lowest mean validation NLL; FITC has no β.",
    3,
    *(nll_vs_n(dataset) for dataset in REGRESSION[:2]), nll_vs_beta("cadata", "5%"),
    *(nll_vs_n(dataset) for dataset in REGRESSION[2:]), nll_vs_beta("cadata", "80%"),
)  # fmt: skip
add(
    "reg-sq", "fig:reg-sq", "Regression, square loss",
    "Test MSE against training size, β selected by MSE, with the difference to the ELBO of the same repetition below.",
    2,
    *(mse_vs_n(dataset) for dataset in REGRESSION),
)  # fmt: skip
add(
    "reg-learning", "fig:regression-learning", "Regression, exact and sampled gradients",
    "Learning curves of the joint DLM at β = 0.1 with exact and bMC gradients.",
    2,
    *(Panel("curve", dataset, "nll", REG_LEARNING, "reg-learning") for dataset in REGRESSION),
)  # fmt: skip
add(
    "class-log", "fig:class-log", "Classification, log loss",
    "Test NLL against training size, with the difference to the ELBO of the same repetition below.",
    2,
    *(binary_vs_n(dataset, "nll", "class-log") for dataset in BINARY),
)  # fmt: skip
add(
    "class-err", "fig:class-err", "Classification, error rate",
    "Test error rate against training size, β selected by NLL, with the difference to the ELBO of the same repetition "
    "below.",
    2,
    *(binary_vs_n(dataset, "error", "class-err") for dataset in BINARY),
)  # fmt: skip
add(
    "count-log", "fig:poisson-log", "Counts, log loss",
    "Test NLL against training size, DLM with bMC-10, with the difference to the ELBO of the same repetition below.",
    2,
    *(counts_vs_n(dataset, "nll", "count-log") for dataset in COUNTS),
)  # fmt: skip
add(
    "count-mre", "fig:poisson-mre", "Counts, relative error",
    "Mean relative error against training size, DLM with bMC-10, β selected by NLL, with the difference to the ELBO of "
    "the same repetition below.",
    2,
    *(counts_vs_n(dataset, "mre", "count-mre") for dataset in COUNTS),
)  # fmt: skip
add(
    "count-learning", "fig:poisson-learning-curve", "Counts, uPS and bMC gradients",
    "Learning curves of the joint DLM at β = 0.1 with uPS and bMC gradients of S samples: median and quartiles.",
    3,
    *count_curves("count-learning", "bmc", "ups"),
)  # fmt: skip
add(
    "count-smooth", "fig:poisson-smooth-learning-curve", "Counts, smooth-bMC and bMC gradients",
    "Learning curves of the joint DLM at β = 0.1 with smooth-bMC and bMC gradients of S samples: median and quartiles.",
    3,
    *count_curves("count-smooth", "bmc", "smooth_bmc"),
)  # fmt: skip
add(
    "airline", "fig:airlineA", "Large classification data, three values of β",
    f"Learning curves of ELBO, β-ELBO and both DLMs, each labelled with its β. {STAND_IN_EPOCHS}",
    2,
    *(by_epoch(metric, THREE_BETAS, "airline") for metric in ("nll", "error")),
)  # fmt: skip
for number, beta in enumerate(AIRLINE_BETAS, 1):
    add(
        f"airline-sampling-{beta:g}", f"fig:airlineB{number}", f"Large classification data, gradients at β = {beta:g}",
        f"Learning curves of the joint DLM at β = {beta:g} with exact, bMC and uPS gradients. {STAND_IN_EPOCHS}",
        2,
        *(by_epoch(metric, sampling(beta), f"airline-sampling-{beta:g}") for metric in ("nll", "error")),
    )  # fmt: skip
add(
    "airline-smooth", "fig:airline-smooth-bMC", "Large classification data, smooth-bMC",
    f"Learning curves of the joint DLM at β = 0.1 with exact, bMC and smooth-bMC gradients. {STAND_IN_EPOCHS}",
    2,
    *(by_epoch(metric, AIRLINE_SMOOTH, "airline-smooth") for metric in ("nll", "error")),
)  # fmt: skip
add(
    "bias", "fig:PoissonGradMean", "Sampled gradients",
    "Draws g of the gradient in the mean of q after initialisation (fixed DLM, β = 0.1, one split) against G from "
    "10 000 bMC samples. Stochastic gradients converge if (i) is bounded from below and (ii) from above; both are 1 "
    "where g = G.",
    3,
    *(histogram(name, statistic) for name in ("ups", "bmc", "smooth_bmc") for statistic in STATISTICS),
    by_row=True,
)  # fmt: skip
