"""The numbers in print (`published.csv`), and what is known about their sources."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from dlmexp.common.reading.tables import read_table

PUBLISHED = Path(__file__).with_name("published.csv")
EXACT_GP = "exact GP"
# The method of a source -> ours that is compared with it. Networks and particles have no
# counterpart: the closest of ours says what a reader gets here.
COUNTERPARTS = {
    "SVGP": "elbo",
    "SGPR": "elbo",
    "T-SGPR (tighter bound)": "tighter",
    "block bound, 10 blocks": "block_tighter",
    "PEP 0.5": "power_ep",
    "T-PEP 0.5": "t_pep",
    "PPGPR beta 1": "ppgpr",
    EXACT_GP: "exact",
    "PrO, particles, shared inducing points": "mixture_log_dlm",
    "PrO, particles, no inducing points": "mixture_log_dlm",
    "dropout network": "joint_log_dlm",
}
WITHOUT_COUNTERPART = (
    "PrO, particles, shared inducing points",
    "PrO, particles, no inducing points",
    "dropout network",
)
# Alpha of power EP, by method.
ALPHAS = {"PEP 0.5": 0.5}
# This source trained all methods by Adam with these settings. Methods that have a closed form over
# q are trained on all rows here.
ADAM_SOURCE = "github callum-kl/non-parametric-pro"
ADAM_SETTINGS = {"lr": 0.01, "minibatch": 512, "max_iterations": 10_000}
# A suite whose numbers are in units of the target, on splits of its own.
TARGET_UNITS_SUITE = "uci_hl"
# The data sets of that suite on which we have the same splits.
SAME_SPLITS = ("uci_kin8nm", "uci_naval", "uci_power")
# Those of that suite whose target is another one than ours, so that no number can be met.
OTHER_TARGETS = {
    "uci_wine": "their target is the quality, ours the alcohol",
    "uci_yacht": "their target is the resistance, ours its logarithm",
}


@dataclass(frozen=True)
class PublishedNumber:
    """A mean over splits of a data set that is in print.

    Attributes:
        source: Where it was published.
        suite: The collection of data sets that it belongs to.
        dataset: The data set, as we name it.
        method: The method, as the source names it.
        kernel: Kernel, such as `rbf ard`; None where the source does not say.
        M: Inducing inputs; None where the source does not say.
        rows: Training rows; None where the source does not say.
        splits: Number of splits.
        metric: What the number is.
        value: The number.
        error: Its standard error; NaN where there is none in print.
    """

    source: str
    suite: str
    dataset: str
    method: str
    kernel: str | None
    M: int | None
    rows: int | None
    splits: int
    metric: str
    value: float
    error: float

    @property
    def counterpart(self) -> str:
        """The method of ours that is compared with it."""
        return COUNTERPARTS[self.method]

    @property
    def has_counterpart(self) -> bool:
        """Whether the method is one of ours, and not only the closest to one."""
        return self.method not in WITHOUT_COUNTERPART

    @property
    def is_exact(self) -> bool:
        """Whether it is of a Gaussian process without inducing inputs."""
        return self.method == EXACT_GP

    @property
    def is_in_target_units(self) -> bool:
        """Whether it is in units of the target; others are of standardised targets."""
        return self.suite == TARGET_UNITS_SUITE

    @property
    def has_other_splits(self) -> bool:
        """Whether its splits of the data set are others than ours."""
        return self.suite == TARGET_UNITS_SUITE and self.dataset not in SAME_SPLITS

    @property
    def other_target(self) -> str | None:
        """How its target differs from ours; None where it does not."""
        if self.suite != TARGET_UNITS_SUITE:
            return None
        return OTHER_TARGETS.get(self.dataset)


@cache
def published() -> pd.DataFrame:
    """Return the published numbers, a row each."""
    table = read_table(PUBLISHED).to_pandas()
    return table.assign(dataset="uci_" + table["dataset"])


def published_numbers() -> list[PublishedNumber]:
    """Return the published numbers in the order of the file."""
    return [_number(row) for row in published().to_dict("records")]


def _number(row: Mapping[Hashable, Any]) -> PublishedNumber:
    """Return the number of a row of the file."""
    return PublishedNumber(
        source=row["source"],
        suite=row["suite"],
        dataset=row["dataset"],
        method=row["method"],
        kernel=None if pd.isna(row["kernel"]) else row["kernel"],
        M=_whole_number(row["M"]),
        rows=_whole_number(row["rows_used"]),
        splits=int(row["splits"]),
        metric=row["metric"],
        value=float(row["value"]),
        error=float(row["standard_error"]),
    )


def _whole_number(value: float) -> int | None:
    return None if pd.isna(value) else int(value)
