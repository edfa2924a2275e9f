"""Names, colours, markers and line styles: the same for a method wherever it appears.

Colours are Okabe and Ito's (distinguishable for colour-blind readers); each line also has its own marker or dashes, so
that figures can be printed in grey. An estimator has one hue and marker; lightness, dashes and fill show its samples L.
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


@dataclass(frozen=True)
class Look:
    """How one line is drawn."""

    label: str
    colour: str
    marker: str
    dashes: Dashes
    filled: bool = True


METHODS = {
    "elbo": Look("ELBO", "#000000", "o", "-"),
    "beta_elbo": Look("β-ELBO", "#0072B2", "s", "--"),
    "fitc": Look("FITC", "#CC79A7", "v", ":"),
    "joint_log_dlm": Look("joint DLM", "#D55E00", "D", "-"),
    "fixed_log_dlm": Look("fixed DLM", "#E69F00", "^", "--"),
    "joint_sq_dlm": Look("joint sq-DLM", "#009E73", "P", "-."),
    "fixed_sq_dlm": Look("fixed sq-DLM", "#56B4E9", "X", ":"),
}
# Three shades per estimator: few, some, many samples.
ESTIMATORS = {
    "bmc": ("bMC", "s", ("#7CC4EE", "#0072B2", "#003554")),
    "ups": ("uPS", "D", ("#F0B429", "#D55E00", "#6E2C00")),
    "smooth_bmc": ("smooth-bMC", "^", ("#74D3B2", "#009E73", "#00503B")),
}
BETA_DASHES: dict[float, Dashes] = {0.1: ":", 1.0: "-", 10.0: "--"}
FOLDER_DASHES: tuple[Dashes, ...] = ("-", "--", ":", "-.")
METRIC_LABELS = {
    "nll": "NLL", "mse": "MSE", "error": "error rate", "mre": "MRE",
    "crps": "CRPS", "brier": "Brier score", "ece": "ECE",
    **{f"coverage_{level}": f"{level} % coverage" for level in (50, 90, 95)},
    **{f"width_{level}": f"{level} % width" for level in (50, 90, 95)},
}  # fmt: skip


def of_method(method: str) -> Look:
    """The look of a method; a method that is not in METHODS is dark grey, labelled with its name."""
    return METHODS.get(method, Look(method.replace("_", " "), "#555555", "*", "-."))


def of_estimator(estimator: str, samples: int | None) -> Look:
    """The look of an estimator at L samples: `exact`, `bMC-10`, `uPS-1`, `smooth-bMC-100`."""
    if estimator not in ESTIMATORS or samples is None:
        return Look(estimator, "#000000", "o", "-")
    name, marker, shades = ESTIMATORS[estimator]
    level = 0 if samples < 10 else 1 if samples < 100 else 2
    dashes: tuple[Dashes, ...] = (":", "--", "-")
    return Look(f"{name}-{samples}", shades[level], marker, dashes[level], filled=level > 0)


def at_beta(look: Look, beta: float) -> Look:
    """The look of a method at one of several betas: colour and marker of the method, dashes of the beta."""
    label = f"{look.label}, β={beta:g}"
    return replace(look, label=label, dashes=BETA_DASHES.get(beta, "-."), filled=beta == 1.0)


def in_folder(look: Look, position: int, folder: str) -> Look:
    """The look of a line from the `position`-th of several results folders."""
    dashes = FOLDER_DASHES[position % len(FOLDER_DASHES)]
    return replace(look, label=f"{look.label} [{folder}]", dashes=dashes, filled=position == 0)


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

    if not Path(page.style).is_file():
        raise UserError(f"--style {page.style}: there is no such file")
    problems: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: problems.append(record.getMessage())
    logger = logging.getLogger("matplotlib")
    logger.addHandler(handler)
    try:
        with use(page.style):
            pass
    except (OSError, ValueError, UnicodeDecodeError) as error:
        problems.append(str(error))
    finally:
        logger.removeHandler(handler)
    if problems:
        first = " ".join(problems[0].split())
        raise UserError(f"--style {page.style}: it is not a style file of matplotlib: {first}")
