"""Read the published numbers (`published.csv`), with what is known about their sources."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from dlmexp.common.reading.tables import read_table

PUBLISHED = Path(__file__).with_name("published.csv")
EXACT_GP = "exact GP"
# For each method of the sources, the method of ours that is compared with it.
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
# Methods that we do not have. They are compared with our closest method, which shows users what
# they get instead.
WITHOUT_COUNTERPART = (
    "PrO, particles, shared inducing points",
    "PrO, particles, no inducing points",
    "dropout network",
)
# The alpha of power EP, by method. It is compared with the beta of our results, which is alpha for
# `power_ep`. "T-PEP 0.5" is not listed, because `t_pep` has no beta: its alpha is an option of the
# method, and is 0.5 by default.
ALPHAS = {"PEP 0.5": 0.5}
# The source with this name trained all methods by Adam with these settings.
ADAM_SOURCE = "github callum-kl/non-parametric-pro"
ADAM_SETTINGS = {"lr": 0.01, "minibatch": 512, "max_iterations": 10_000}
# The numbers of this suite are in units of the target, while those of others are for standardised
# targets.
TARGET_UNITS_SUITE = "uci_hl"
# This suite has other splits than ours, except for these data sets.
SAME_SPLITS = ("uci_kin8nm", "uci_naval", "uci_power")
# The data sets of this suite with another target column than ours, so that their numbers cannot be
# met.
OTHER_TARGETS = {
    "uci_wine": "their target is the quality, ours the alcohol",
    "uci_yacht": "their target is the resistance, ours its logarithm",
}


@dataclass(frozen=True)
class PublishedNumber:
    """A published mean over splits of a data set.

    Attributes:
        source: Where it was published.
        suite: The collection of data sets that it belongs to.
        dataset: Our name of the data set.
        method: The name of the method in the source.
        kernel: The kernel, such as `rbf ard`; None where the source does not say.
        M: The number of inducing inputs; None where the source does not say.
        rows: The number of training rows; None where the source does not say.
        splits: The number of splits.
        metric: The metric.
        value: The published mean.
        error: The standard error of this mean; NaN where none was published.
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
        """The method of ours that is compared with the number."""
        return COUNTERPARTS[self.method]

    @property
    def is_same_method(self) -> bool:
        """Whether `counterpart` is the method of the number, and not only our closest method."""
        return self.method not in WITHOUT_COUNTERPART

    @property
    def is_exact(self) -> bool:
        """Whether the method is a Gaussian process without inducing inputs."""
        return self.method == EXACT_GP

    @property
    def is_in_target_units(self) -> bool:
        """Whether the number is in units of the target, and not of a standardised target."""
        return self.suite == TARGET_UNITS_SUITE

    @property
    def has_other_splits(self) -> bool:
        """Whether the source has other splits of the data set than we have."""
        return self.suite == TARGET_UNITS_SUITE and self.dataset not in SAME_SPLITS

    @property
    def other_target_text(self) -> str | None:
        """How the target of the source differs from ours; None if it does not."""
        if self.suite != TARGET_UNITS_SUITE:
            return None
        return OTHER_TARGETS.get(self.dataset)


@cache
def published() -> pd.DataFrame:
    """Return the published numbers as a table, with a row each."""
    table = read_table(PUBLISHED).to_pandas()
    return table.assign(dataset="uci_" + table["dataset"])


def published_numbers() -> list[PublishedNumber]:
    """Return the published numbers in the order of the file."""
    return [_number(row) for row in published().to_dict("records")]


def _number(row: Mapping[Hashable, Any]) -> PublishedNumber:
    """Return the published number of a row of the file."""
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
    """Return a number as an integer; None for NaN."""
    return None if pd.isna(value) else int(value)
