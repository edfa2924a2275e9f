"""What distinguishes one kind of panel from another, and all kinds by name.

The facts are here, in a module that loads quickly: whoever declares a figure or completes a command
line needs no pandas and no matplotlib. The module that measures and draws is imported when a panel
is measured.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from dlmexp.common.registry import Registry
from dlmexp.presentation import labels

MODULES = "dlmexp.presentation.figures.kinds"
LOSSES = ("nll", "mse", "error", "mre")
STATISTICS = {
    "condition_i": "(i) g·G/|G|²",
    "condition_ii": "(ii) |g|²/|G|²",
    "error": "|g − G|²/|G|²",
}
# The methods of which differences are effects.
EFFECT_METHODS = ("elbo", "beta_elbo", "fitc", "ppgpr", "joint_log_dlm")


@dataclass(frozen=True)
class PanelKind:
    """Facts about a kind of panel, and the module that measures and draws it.

    That module has `measure(panel, line, rows, results) -> Series`, which makes the numbers of a
    line from its rows (`numbers.Series`), and `draw(tiles)`, which draws all panels that share a
    scale (`axes.Tile`: axes with their numbers).
    """

    module: str
    metrics: tuple[str, ...]
    x: str = ""  # what lies on the x-axis; '': Panel.x
    role: str = "fit"  # of the rows that lines are drawn from
    every_beta: bool = False  # drawn from all candidates instead of the selected ones
    at_one_size: bool = True  # drawn from the rows of one training size
    by_selection: bool = False  # of each group the row that was selected for the metric is drawn
    methods: tuple[str, ...] = ()  # which every line compares; (): that of the line alone
    has_n_in_title: bool = True
    has_intervals: bool = True
    # Entries of the legend: lines with or without their markers, lines that are told apart by beta
    # alone, or those that the function `legend` of the module returns.
    legend: Literal["markers", "lines", "betas", "module"] = "markers"
    # Which panels share a scale: one panel under several protocols, or all of one metric or task.
    scale: Literal["panel", "metric", "task"] = "panel"
    shared_limits: Literal["x", "y", "xy"] = "y"
    height: float = 0.0  # of a panel, in inches; 0: that of most panels
    has_strip: bool = False  # against n, differences of losses to the ELBO are drawn below

    @property
    def compares_methods(self) -> bool:
        """Whether a line is a difference between methods."""
        return bool(self.methods)

    def load(self) -> Any:
        """Return the module that measures and draws panels of this kind."""
        return import_module(self.module)


PANEL_KINDS: Registry[PanelKind] = Registry("panel")
PANEL_KINDS.add(
    "sizes",
    PanelKind(
        f"{MODULES}.sizes",
        metrics=tuple(labels.METRICS),
        at_one_size=False,
        by_selection=True,
        shared_limits="xy",
        has_strip=True,
    ),
)
PANEL_KINDS.add(
    "forest",
    PanelKind(
        f"{MODULES}.forest",
        metrics=LOSSES,
        at_one_size=False,
        by_selection=True,
        legend="module",
        scale="metric",
        shared_limits="x",
        height=2.0,
    ),
)
PANEL_KINDS.add(
    "betas",
    PanelKind(f"{MODULES}.betas", metrics=(*LOSSES, "excess_nll"), x="beta", every_beta=True),
)
PANEL_KINDS.add(
    "curve",
    PanelKind(f"{MODULES}.curves", metrics=LOSSES, role="curve", legend="betas"),
)
PANEL_KINDS.add(
    "histogram",
    PanelKind(
        f"{MODULES}.histograms",
        metrics=tuple(STATISTICS),
        x="samples",
        role="gradient",
        has_n_in_title=False,
        has_intervals=False,
        legend="lines",
        scale="metric",
    ),
)
PANEL_KINDS.add(
    "reliability",
    PanelKind(f"{MODULES}.reliability", metrics=("reliability",), x="predicted", by_selection=True),
)
PANEL_KINDS.add(
    "effects",
    PanelKind(
        f"{MODULES}.effects",
        metrics=LOSSES,
        x="effect",
        role="anatomy",
        by_selection=True,
        methods=EFFECT_METHODS,
        legend="module",
        scale="task",
        shared_limits="x",
        height=2.5,
    ),
)
