"""Figures beyond the paper's: calibration, the anatomy of DLM - ELBO, and the default job."""

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.figures.effects import lines
from dlmexp.figures.panels import Figure, Panel
from dlmexp.figures.paper import BINARY_LOG, LOG, counts_vs_n
from dlmexp.figures.registry import FIGURES

EFFECTS = lines("whole", "beta", "objective", "coordinates", "noise", "fitc")
ANATOMY = {
    "pol": "reg", "cadata": "reg", "sarcos_test": "reg", "banana": "class", "ringnorm": "class", "abalone": "count",
    "peds1_left": "count",
}  # fmt: skip


def of_regression(dataset: str, *metrics: str) -> tuple[Panel, ...]:
    return tuple(Panel("sizes", dataset, metric, LOG, "reg-log") for metric in metrics)


def of_binary(dataset: str) -> tuple[Panel, ...]:
    return (
        Panel("reliability", dataset, "reliability", BINARY_LOG, "class-log"),
        *(Panel("sizes", dataset, metric, BINARY_LOG, "class-log") for metric in ("ece", "brier")),
    )


def of_counts(dataset: str) -> tuple[Panel, ...]:
    return tuple(counts_vs_n(dataset, metric, "count-log") for metric in ("coverage_95", "width_95", "crps"))


def effects(dataset: str, kind: str) -> Panel:
    own = EFFECTS if kind == "reg" else EFFECTS[:4]  # noise and FITC: regression alone
    return Panel("effects", dataset, "nll", own, f"anatomy-{kind}")


def add(name: str, title: str, caption: str, columns: int, *panels: Panel) -> None:
    FIGURES.add(name, Figure(name, panels, columns, caption, title))


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
    *(effects(dataset, kind) for dataset, kind in ANATOMY.items()),
)  # fmt: skip
add(
    "default", "The default job",
    "DLM and ELBO on ringnorm as drawn from its definition: test NLL against training size, with the difference to the "
    "ELBO of the same repetition below.",
    1,
    Panel("sizes", "ringnorm_drawn", "nll", BINARY_LOG, "default"),
)  # fmt: skip
