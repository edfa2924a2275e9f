"""Statistics of sampled gradients on abalone, straight after initialisation."""

from dlmexp.figures.panels import Figure, Panel, estimators
from dlmexp.figures.style import ESTIMATORS

STATISTICS = {"condition_i": "(i) g·G/|G|²", "condition_ii": "(ii) |g|²/|G|²", "error": "|g − G|²/|G|²"}
SAMPLES = (1, 10, 100)


def histogram(estimator: str, statistic: str) -> Panel:
    lines = estimators("fixed_log_dlm", 0.1, (estimator, SAMPLES))
    return Panel("histogram", "abalone", statistic, lines, "bias", title=ESTIMATORS[estimator][0], both=True)


FAMILY = (
    Figure(
        "bias",
        tuple(histogram(name, statistic) for name in ("ups", "bmc", "smooth_bmc") for statistic in STATISTICS),
        columns=3,
        caption="Gradients in the mean of q after initialisation, fixed DLM at β = 0.1: rows uPS, bMC, smooth-bMC; "
        "columns condition (i), (ii), error.",
        of_paper="fig:PoissonGradMean",
    ),
)
