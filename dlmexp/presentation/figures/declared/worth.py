"""Figures of what DLM is worth: where its gain comes from, and how other methods compare."""

from dlmexp.presentation.figures.declared.parts import (
    BINARY_LOG,
    SAMPLED_DATASETS,
    SEVEN_DATASETS,
    WITH_DIFFERENCES,
    Lines,
    against_size,
)
from dlmexp.presentation.figures.panels import Figure, Line, Panel, declare, methods

# The datasets of the figure `rivals`, with their kinds as in `SEVEN_DATASETS`.
NINE_DATASETS = {**SEVEN_DATASETS, "thyroid": "class", "twonorm": "class"}
# Datasets on which the smallest beta of the paper's grids is often selected.
SMALL_BETA_DATASETS = ("pol", "thyroid", "twonorm", "ringnorm", "peds1_left")
ISOTROPIC = "RBF kernel with one lengthscale"
EFFECTS = ("whole", "beta", "objective", "coordinates")
EFFECTS_IN_REGRESSION = (*EFFECTS, "noise", "fitc")


def effects_panel(dataset: str, experiment_kind: str) -> Panel:
    """Return the panel of effects on a dataset; noise and FITC are effects in regression only."""
    effects = EFFECTS_IN_REGRESSION if experiment_kind == "reg" else EFFECTS
    lines: list[Line] = []
    for effect in effects:
        method = "fitc" if effect == "fitc" else "joint_log_dlm"
        lines.append(Line(method, effect=effect))
    return Panel("effects", dataset, "nll", tuple(lines), f"anatomy-{experiment_kind}")


@declare
def anatomy() -> Figure:
    """Return the difference between joint DLM and ELBO as a sum of effects, on seven datasets."""
    return Figure(
        "anatomy",
        tuple(
            effects_panel(dataset, experiment_kind)
            for dataset, experiment_kind in SEVEN_DATASETS.items()
        ),
        columns=len(SEVEN_DATASETS),
        title="Anatomy of DLM − ELBO",
        caption=(
            "The difference in test NLL between joint DLM and ELBO as a sum of choosing β and the "
            "objective, and by how much it changes with q unwhitened or noise kept above 0.01 "
            "(negative: DLM gains). Marks are the same change in one method alone (PPGPR: joint "
            "DLM at β = 1); numbers in grey: the interval holds 0."
        ),
    )


def _against_inducing(dataset: str, experiment_kind: str, metric: str) -> Panel:
    """Return the panel of a metric against M; in regression, with lines of FITC and exact GP."""
    lines = methods("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm", role="inducing")
    if experiment_kind == "reg":
        lines = (*lines, *methods("fitc", role="inducing"), Line("exact", role="rivals"))
    is_mse = metric == "mse"
    return Panel("sizes", dataset, metric, lines, f"inducing-{experiment_kind}", x="M", log=is_mse)


@declare
def inducing() -> Figure:
    """Return NLL, CRPS and MSE of regression against the number of inducing inputs."""
    panels: list[Panel] = []
    for metric in ("nll", "crps", "mse"):
        for dataset, experiment_kind in SEVEN_DATASETS.items():
            if experiment_kind == "reg":
                panels.append(_against_inducing(dataset, experiment_kind, metric))
    return Figure(
        "inducing",
        tuple(panels),
        columns=3,
        title="How many inducing inputs, regression",
        caption=(
            "Test NLL, CRPS and MSE against the number of inducing inputs M at one training size, "
            f"{ISOTROPIC}, β selected on validation. The line across is the exact GP."
        ),
    )


@declare
def inducing_discrete() -> Figure:
    """Return NLL of binary data and counts against the number of inducing inputs."""
    panels: list[Panel] = []
    for dataset, experiment_kind in SEVEN_DATASETS.items():
        if experiment_kind != "reg":
            panel = _against_inducing(dataset, experiment_kind, "nll")
            panels.append(panel)
    return Figure(
        "inducing-discrete",
        tuple(panels),
        columns=4,
        title="How many inducing inputs, binary data and counts",
        caption=(
            "Test NLL against the number of inducing inputs M at one training size, "
            f"{ISOTROPIC}, β selected on validation."
        ),
    )


@declare
def gain() -> Figure:
    """Return NLL with hyperparameters and q learned by ELBO or by DLM."""
    names = ("elbo", "elbo_q", "fixed_log_dlm", "dlm_elbo_q", "dlm_q", "ppgpr")
    lines = methods(*names, role="gain")
    panels: list[Panel] = []
    for dataset, experiment_kind in SEVEN_DATASETS.items():
        panels.append(Panel("sizes", dataset, "nll", lines, f"gain-{experiment_kind}"))
    return Figure(
        "gain",
        tuple(panels),
        columns=4,
        title="Where the gain comes from",
        caption=(
            "Test NLL with hyperparameters and q learned by ELBO or by DLM: hyperparameters at "
            f"β = 1, the β of q selected, {WITH_DIFFERENCES}. Arrows: off the scale, with the "
            "value (in regression, q by ELBO with DLM's hyperparameters)."
        ),
    )


def _rivals(*versions: str, method: str) -> Lines:
    """Return a line for each version of a method (`panels.VERSIONS`; '' is the usual one)."""
    return tuple(Line(method, role="rivals", version=version) for version in versions)


@declare
def rivals() -> Figure:
    """Return NLL minus that of the ELBO, for methods that use the validation rows differently."""
    lines = (
        *_rivals("", "recalibrated", "train", method="elbo"),
        *methods("beta_elbo", "joint_log_dlm", role="rivals"),
    )
    lines_of_regression = (
        *lines,
        *_rivals("", "train", method="fitc"),
        *methods("exact", role="rivals"),
    )
    panels: list[Panel] = []
    for dataset, experiment_kind in NINE_DATASETS.items():
        lines_of_panel = lines_of_regression if experiment_kind == "reg" else lines
        panel = Panel("forest", dataset, "nll", lines_of_panel, f"rivals-{experiment_kind}")
        panels.append(panel)
    return Figure(
        "rivals",
        tuple(panels),
        columns=3,
        title="Fair rivals",
        caption=(
            "Test NLL minus that of the ELBO of the same repetition, for methods that use the same "
            "validation rows: to select β, to recalibrate by one number, or to train on."
        ),
    )


def _against_samples(dataset: str, experiment_kind: str, beta: float) -> Panel:
    """Return the panel of NLL against the number of samples of the joint DLM at one beta."""
    lines = (
        Line("beta_elbo", beta=beta, role="samples"),
        Line("joint_log_dlm", "bmc", beta=beta, names="estimator", role="samples"),
        Line("joint_log_dlm", beta=beta, role="samples"),
    )
    title = f"β = {beta:g}"
    return Panel(
        "sizes", dataset, "nll", lines, f"samples-{experiment_kind}", x="samples", title=title
    )


@declare
def samples() -> Figure:
    """Return NLL of the joint DLM with bMC as an objective, against the number of samples."""
    panels: list[Panel] = []
    for beta in (1.0, 0.1):
        for dataset, experiment_kind in SEVEN_DATASETS.items():
            if experiment_kind != "reg":
                panels.append(_against_samples(dataset, experiment_kind, beta))
    return Figure(
        "samples",
        tuple(panels),
        columns=4,
        title="bMC as an objective",
        caption=(
            "Test NLL of the joint DLM trained on 500 rows with bMC gradients of S samples, at "
            "equal β: an objective of its own, between the ELBO (in expectation that of S = 1) "
            "and the exact DLM."
        ),
    )


@declare
def edges() -> Figure:
    """Return NLL with beta selected from a wide and from a short grid."""
    lines = (
        *methods("elbo", role="edges"),
        *methods("beta_elbo", "joint_log_dlm", role="edges"),
        *methods("beta_elbo", "joint_log_dlm", role="edges", version="short"),
    )
    return Figure(
        "edges",
        against_size(("nll",), lines, "edges", SMALL_BETA_DATASETS),
        columns=3,
        title="Smaller values of β",
        caption=(
            "Test NLL with β selected from n down to 1e-4 (solid), or from those of at least 0.01, "
            f"as in the paper's grids (dashed), {WITH_DIFFERENCES}."
        ),
    )


@declare
def truth() -> Figure:
    """Return NLL minus that of the true class probabilities, where these are known."""
    _, *with_beta = BINARY_LOG  # the first method is the ELBO, which has no beta
    against_beta = tuple(
        Panel("betas", dataset, "excess_nll", tuple(with_beta), "class-log", n="500", log=True)
        for dataset in SAMPLED_DATASETS
    )
    return Figure(
        "truth",
        (*against_size(("excess_nll",), BINARY_LOG, "class-log", SAMPLED_DATASETS), *against_beta),
        columns=2,
        title="Known truth",
        needs_all=True,
        caption=(
            "Test NLL minus that of the true class probabilities, on data drawn from their "
            "definition: against training size with β selected, and against β at 500 rows. "
            "Circles mark the β with the lowest mean validation NLL."
        ),
    )


@declare
def default() -> Figure:
    """Return the figure of the job that `dlmexp run` starts without further arguments."""
    return Figure(
        "default",
        against_size(("nll",), BINARY_LOG, "default", ("ringnorm_drawn",)),
        columns=1,
        title="The default job",
        caption=(
            "DLM and ELBO on ringnorm as drawn from its definition: test NLL against training "
            f"size, {WITH_DIFFERENCES}."
        ),
    )
