"""Names, colours, markers and line styles: the same for a method wherever it appears, and never those of another thing.

The methods' colours are Okabe and Ito's (distinguishable for colour-blind readers). Methods and estimators have markers
of their own, so that figures can be printed in grey. An estimator has one hue and marker; lightness and fill show its
samples S. Dashes and fill show beta, or the folder where several are compared; smooth-bMC is dashed, as it often lies
on bMC.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dlmexp.errors import UserError

COLUMN = 3.25  # inches, AISTATS
TEXT = 6.75
MIN_WIDTH, MAX_WIDTH = 1.0, 40.0
MISSING = "#9a9a9a"
STYLE_FILE = Path(__file__).with_name("dlmexp.mplstyle")


Dashes = Literal["-", "--", "-.", ":"]
Fill = Literal["full", "bottom", "none"]  # matplotlib's names for filled, half filled and open markers


@dataclass(frozen=True)
class Look:
    """How one line is drawn."""

    label: str
    colour: str
    marker: str
    dashes: Dashes = "-"
    fill: Fill = "full"


METHODS = {
    "elbo": Look("ELBO", "#000000", "o"),
    "beta_elbo": Look("β-ELBO", "#0072B2", "s"),
    "fitc": Look("FITC", "#CC79A7", "v"),
    "joint_log_dlm": Look("joint DLM", "#D55E00", "D"),
    "fixed_log_dlm": Look("fixed DLM", "#E69F00", "^"),
    "joint_sq_dlm": Look("joint sq-DLM", "#009E73", "P"),
    "fixed_sq_dlm": Look("fixed sq-DLM", "#56B4E9", "X"),
    "ppgpr": Look("PPGPR (joint DLM, β = 1)", "#8B1A1A", "*"),
}
EXACT = Look("exact", "#8C6239", "h")
# Three shades per estimator: few, some, many samples.
ESTIMATORS: dict[str, tuple[str, str, Dashes, tuple[str, str, str]]] = {
    "bmc": ("bMC", "<", "-", ("#BBA6E6", "#7F52D0", "#46199E")),
    "ups": ("uPS", ">", "-", ("#CFCB55", "#8E8A00", "#474500")),
    "smooth_bmc": ("smooth-bMC", "p", "--", ("#93D6D2", "#1FA19B", "#006A66")),
}
FILLS: tuple[Fill, ...] = ("none", "bottom", "full")
EFFECTS = {  # of the figure `anatomy`
    "whole": Look("DLM − ELBO", "#6B6B6B", ""),
    "beta": Look("= choosing β", "#0072B2", ""),
    "objective": Look("+ objective (log loss)", "#D55E00", ""),
    "coordinates": Look("change if q is unwhitened", "#009E73", ""),
    "noise": Look("change if noise > 0.01", "#E69F00", ""),
    "fitc": Look("FITC − ELBO", "#CC79A7", ""),
}
BETAS: dict[float, tuple[Dashes, Fill]] = {0.1: (":", "none"), 1.0: ("-", "full"), 10.0: ("--", "bottom")}
WIDTHS: dict[Dashes, float] = {":": 2.0}  # dots are seen on a solid line of their colour too
FOLDER_DASHES: tuple[Dashes, ...] = ("-", "--", ":", "-.")
METRIC_LABELS = {
    "nll": "NLL", "mse": "MSE", "error": "error rate", "mre": "MRE",
    "crps": "CRPS", "brier": "Brier score", "ece": "ECE",
    **{f"coverage_{level}": f"{level} % coverage" for level in (50, 90, 95)},
    **{f"width_{level}": f"{level} % width" for level in (50, 90, 95)},
}  # fmt: skip


def of_method(method: str) -> Look:
    """The look of a method; a method that is not in METHODS is dark grey, labelled with its name."""
    return METHODS.get(method, Look(method.replace("_", " "), "#555555", "H", "-."))


def of_method_by_beta(method: str, beta: float | None) -> Look:
    """The look of a method where each line has its own beta: at β = 1 the β-ELBO is the ELBO."""
    return of_method("elbo" if method == "beta_elbo" and beta == 1.0 else method)


def of_estimator(estimator: str, samples: int | None) -> Look:
    """The look of an estimator at S samples: `exact`, `bMC-10`, `uPS-1`, `smooth-bMC-100`."""
    if estimator not in ESTIMATORS or samples is None:
        return replace(EXACT, label=estimator)
    name, marker, dashes, shades = ESTIMATORS[estimator]
    level = 0 if samples < 10 else 1 if samples < 100 else 2
    return Look(f"{name}-{samples}", shades[level], marker, dashes, FILLS[level])


def at_beta(look: Look, beta: float) -> Look:
    """The look of a method at one of several betas: colour and marker of the method, dashes and fill of the beta."""
    dashes, fill = BETAS.get(beta, ("-.", "full"))
    return replace(look, label=f"{look.label}, β={beta:g}", dashes=dashes, fill=fill)


def in_folder(look: Look, position: int, folder: str) -> Look:
    """The look of a line from the `position`-th of several results folders."""
    dashes = FOLDER_DASHES[position % len(FOLDER_DASHES)]
    return replace(look, label=f"{look.label} [{folder}]", dashes=dashes, fill="full" if position == 0 else "none")


@dataclass(frozen=True)
class Page:
    """What a user asks of all figures: a width in inches, and a style file of matplotlib on top of ours."""

    width: float | None = None
    style: str | None = None


def use(own: str | None = None) -> AbstractContextManager[None]:
    """The project's matplotlib style, and a user's `own` on top of it, for the time of a `with` block."""
    import matplotlib.style

    return matplotlib.style.context(["default", str(STYLE_FILE), *([own] if own else [])])


def check_page(page: Page) -> None:
    """UserError for a width or a style file that can't be used."""
    if page.width is not None and not MIN_WIDTH <= page.width <= MAX_WIDTH:
        raise UserError(f"--width {page.width:g}: give inches, {MIN_WIDTH:g} to {MAX_WIDTH:g}")
    if page.style is None:
        return
    import logging
    import shutil

    import matplotlib

    if not Path(page.style).is_file():
        raise UserError(f"--style {page.style}: there is no such file")
    problems: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: problems.append(record.getMessage())
    logger = logging.getLogger("matplotlib")
    logger.addHandler(handler)
    try:
        with use(page.style):
            if matplotlib.rcParams["text.usetex"] and shutil.which("latex") is None:
                raise UserError(f"--style {page.style}: text.usetex needs LaTeX, and there is no 'latex' here")
    except (OSError, ValueError, UnicodeDecodeError) as error:
        problems.append(str(error))
    finally:
        logger.removeHandler(handler)
    if problems:
        first = " ".join(problems[0].split())
        raise UserError(f"--style {page.style}: it is not a style file of matplotlib: {first}")
