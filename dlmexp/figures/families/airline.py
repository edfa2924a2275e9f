"""The large classification data: ELBO and DLM at three betas, and exact against sampled gradients."""

from dlmexp.figures.panels import Figure, Line, Panel, at_betas, estimators

BETAS = (0.1, 1.0, 10.0)
METHODS = at_betas(BETAS, "beta_elbo", "joint_log_dlm", "fixed_log_dlm")


def sampling(beta: float) -> tuple[Line, ...]:
    return estimators("joint_log_dlm", beta, ("exact", ()), ("bmc", (1, 10, 100)), ("ups", (1, 10)))


SMOOTH = estimators("joint_log_dlm", 0.1, ("exact", ()), ("bmc", (1, 10, 100)), ("smooth_bmc", (1, 10, 100)))


def by_epoch(metric: str, lines: tuple[Line, ...], experiment: str) -> Panel:
    betas = {line.beta for line in lines}
    title = f"β = {betas.pop():g}" if len(betas) == 1 else ""
    return Panel("curve", "airline", metric, lines, experiment, x="epochs", title=title)


def _pair(lines: tuple[Line, ...], experiment: str) -> tuple[Panel, Panel]:
    return by_epoch("nll", lines, experiment), by_epoch("error", lines, experiment)


FAMILY = (
    Figure(
        "airline",
        _pair(METHODS, "airline"),
        columns=2,
        caption="Large classification data: ELBO and both DLMs at three values of β.",
        of_paper="fig:airlineA",
    ),
    *(
        Figure(
            f"airline-sampling-{beta:g}",
            _pair(sampling(beta), f"airline-sampling-{beta:g}"),
            columns=2,
            caption=f"Large classification data, joint DLM at β = {beta:g}: exact, bMC and uPS gradients.",
            of_paper=f"fig:airlineB{number}",
        )
        for number, beta in enumerate(BETAS, 1)
    ),
    Figure(
        "airline-smooth",
        _pair(SMOOTH, "airline-smooth"),
        columns=2,
        caption="Large classification data, joint DLM at β = 0.1: exact, bMC and smooth-bMC gradients.",
        of_paper="fig:airline-smooth-bMC",
    ),
)
