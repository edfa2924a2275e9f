"""Define the properties of the kinds of panels, and the registry of all kinds by name.

This module imports neither pandas nor matplotlib, so that declaring figures and completing command
lines takes little time. The module that measures and draws panels of a kind is imported when a
panel needs it.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from dlmexp.common.registry import Registry
from dlmexp.presentation import labels

PACKAGE_OF_KINDS = "dlmexp.presentation.figures.kinds"
LOSSES = ("nll", "mse", "error", "mre")
# The statistics of a gradient draw g, where G is the reference gradient, with their labels.
STATISTICS = {
    "condition_i": "(i) g·G/|G|²",
    "condition_ii": "(ii) |g|²/|G|²",
    "error": "|g − G|²/|G|²",
}
# The methods whose differences are effects (module `effects`).
EFFECT_METHODS = ("elbo", "beta_elbo", "fitc", "ppgpr", "joint_log_dlm")


@dataclass(frozen=True)
class PanelKind:
    """The properties of a kind of panel, and the name of the module that measures and draws it.

    The module has two functions. `measure(panel, line, rows, results)` returns the numbers of a
    line, computed from its rows, as a `Series` (module `numbers`). `draw(tiles)` draws all panels
    that share a scale; a `Tile` is a panel with its axes and numbers (module `axes`).

    Attributes:
        module: The import path of the module.
        metrics: The metrics of which there are panels of this kind.
        x: What lies on the x-axis; '' means what the panel says (`Panel.x`).
        role: The role of the rows that lines are drawn from, a value of the column `role` of the
            results table: `fit` for evaluation at the end of training, `curve` for evaluation
            during training, `gradient` for statistics of gradients, or the role that an experiment
            names, such as `anatomy`. A line may have another role (`Line.role`).
        every_beta: Whether lines are drawn from the rows of all candidates, with every beta. Lines
            with a fixed beta always are. Otherwise lines are drawn from the table of selected
            results, where a group of candidates has a row for each metric that selects: NLL and, if
            candidates have one, MSE.
        at_one_size: Whether a panel is drawn from the rows of one training size.
        by_selection: Whether each group of candidates gives a single row of the table of selected
            results: in panels of MSE the one selected by MSE, in others the one selected by NLL.
            Otherwise all rows of the group are used.
        methods: The methods that every line compares; empty where a line shows its own method.
        has_n_in_title: Whether the title names the training size.
        has_intervals: Whether the points have intervals over repetitions.
        legend: What the legend shows:
            - `markers`: lines with markers,
            - `lines`: lines without markers,
            - `betas`: the methods of lines that differ in beta (other lines have labels in the
              panel),
            - `module`: the entries that the function `legend()` of the module returns.
        scale: The panels that share a scale, and so are drawn by one call of `draw`:
            - `panel`: a panel as drawn for each of several protocols,
            - `metric`: all panels of the same metric,
            - `task`: all panels of the same task.
        shared_limits: With the scale `panel` or `task`, the axes on which these panels get the same
            limits. With the scale `metric`, `draw` sets the limits.
        height: The height of a panel in inches; 0 means the usual height.
        has_strip: Whether a panel of a loss against n has the differences to the ELBO below it.
    """

    module: str
    metrics: tuple[str, ...]
    x: str = ""
    role: str = "fit"
    every_beta: bool = False
    at_one_size: bool = True
    by_selection: bool = False
    methods: tuple[str, ...] = ()
    has_n_in_title: bool = True
    has_intervals: bool = True
    legend: Literal["markers", "lines", "betas", "module"] = "markers"
    scale: Literal["panel", "metric", "task"] = "panel"
    shared_limits: Literal["x", "y", "xy"] = "y"
    height: float = 0.0
    has_strip: bool = False

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
        f"{PACKAGE_OF_KINDS}.sizes",
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
        f"{PACKAGE_OF_KINDS}.forest",
        metrics=LOSSES,
        at_one_size=False,
        by_selection=True,
        legend="module",
        scale="metric",
        height=2.0,
    ),
)
PANEL_KINDS.add(
    "betas",
    PanelKind(
        f"{PACKAGE_OF_KINDS}.betas", metrics=(*LOSSES, "excess_nll"), x="beta", every_beta=True
    ),
)
PANEL_KINDS.add(
    "curve",
    PanelKind(f"{PACKAGE_OF_KINDS}.curves", metrics=LOSSES, role="curve", legend="betas"),
)
PANEL_KINDS.add(
    "histogram",
    PanelKind(
        f"{PACKAGE_OF_KINDS}.histograms",
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
    PanelKind(
        f"{PACKAGE_OF_KINDS}.reliability",
        metrics=("reliability",),
        x="predicted",
        by_selection=True,
    ),
)
PANEL_KINDS.add(
    "effects",
    PanelKind(
        f"{PACKAGE_OF_KINDS}.effects",
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
