"""Where the difference between DLM and ELBO comes from, on seven datasets at one size each."""

from dlmexp.figures.effects import lines
from dlmexp.figures.panels import Figure, Panel

LINES = lines("whole", "beta", "objective", "coordinates", "noise", "fitc")
DATASETS = {
    "pol": "reg", "cadata": "reg", "sarcos_test": "reg", "banana": "class", "ringnorm": "class", "abalone": "count",
    "peds1_left": "count",
}  # fmt: skip


def effects(dataset: str, kind: str) -> Panel:
    own = LINES if kind == "reg" else LINES[:4]  # noise and FITC: regression alone
    return Panel("effects", dataset, "nll", own, f"anatomy-{kind}")


FAMILY = (
    Figure(
        "anatomy",
        tuple(effects(dataset, kind) for dataset, kind in DATASETS.items()),
        columns=len(DATASETS),
        caption="Anatomy of DLM − ELBO: how much is choosing β, how much the objective, how much optimisation.",
    ),
)
