"""Pictures: what lies where, what is written, and what is not."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import re
import warnings
from copy import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text

from dlmexp.errors import UserError
from dlmexp.figures import style
from dlmexp.figures.declared import anatomy, binary_vs_n, histogram, nll_vs_beta
from dlmexp.figures.panels import Figure, Panel, at_betas, estimators, methods
from dlmexp.figures.plot import Drawn, Request, draw, drawings, encode, save
from dlmexp.figures.registry import FIGURES
from tests.figures.made_up import BETAS, GROUP, METHODS, MadeUp, curves, nll, sweep

BASELINE = Path(__file__).with_name("baseline.png")


@cache
def everything(protocols: tuple[str, ...] = ("paper",)) -> MadeUp:
    """Rows and arrays for every panel of every figure."""
    rows: dict[tuple, dict] = {}
    arrays: dict[str, dict[str, np.ndarray]] = {}

    def add(row: dict, **own: np.ndarray) -> None:
        what = tuple(str(row.get(name)) for name in (*GROUP, "beta", "size"))  # panels share cells
        key = rows.setdefault(what, {**row, "key": f"key{len(rows)}"})["key"]
        arrays.setdefault(key, {}).update({name: np.asarray(values) for name, values in own.items()})

    panels = dict.fromkeys(panel for name in FIGURES for panel in FIGURES[name].panels)
    tasks = {"pol": "regression", "cadata": "regression", "sarcos": "regression", "song": "regression"}
    tasks |= {"sarcos_test": "regression", "abalone": "count", "peds1_left": "count"}
    tasks |= {f"peds1_dir{i}": "count" for i in range(3)}
    random, x = np.random.default_rng(0), np.arange(0.0, 40.0)
    for protocol in protocols:
        for panel in panels:
            task = tasks.get(panel.dataset, "binary")
            about = {"dataset": panel.dataset, "task": task, "protocol": protocol}
            for line in panel.lines:
                one = about | {"method": line.method, "estimator": line.estimator, "samples": line.samples or np.nan}
                for seed in range(2):
                    row = one | {"seed": seed, "beta": line.beta or 1.0}
                    if panel.kind == "curve":
                        value = 0.6 + 0.01 * seed + 0.1 / (line.samples or 100) + np.exp(-x / 5)
                        about_x = {"evaluated_at": x, "epochs": x}
                        add(row | {"role": "curve", "evaluate": "10"}, test_nll=value, test_error=value, **about_x)
                    elif panel.kind == "histogram":
                        own = {"role": "gradient", "norm2_G": 2.0, "bias": 0.1, "bias_quadrature": 0.01, "base": "b"}
                        add(row | own, **{panel.metric: random.lognormal(size=30) * 3 / (line.samples or 1)})
                    elif panel.kind == "effects":
                        for method in ("elbo", "beta_elbo", "fitc", "ppgpr", "joint_log_dlm"):
                            for how in ("whitened", "unwhitened"):
                                test = {"test_nll": nll(method, 100, seed, 1.0), "parameterisation": how}
                                add(row | {"role": "anatomy", "method": method, "estimator": "exact"} | test)
                    else:
                        p = np.array([0.01, 0.4, 0.98])
                        for n, size in ((100, "5%"), (500, "80%")):
                            for beta in BETAS:
                                value = nll(line.method, n, seed, beta)
                                names = ("nll", "mse", "error", "mre", "crps", "brier", "ece", "coverage_50")
                                names += ("coverage_90", "coverage_95", "width_95")
                                more = {f"test_{name}": value for name in names} | {"validation_nll": value}
                                add(
                                    row | {"n": n, "size": size, "beta": beta} | more,
                                    reliability_p=p,
                                    reliability_y=p + 0.01,
                                )
    return MadeUp(rows.values(), arrays)


@cache
def drawn(name: str) -> Drawn:
    return draw(everything(), name)


@pytest.mark.parametrize("name", FIGURES.names())
def test_every_figure_is_drawn_with_a_caption_beside_it(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canvas = drawn(name).canvas
    words = " ".join(text.get_text() for text in canvas.findobj(Text))
    caption = drawn(name).caption
    assert caption[:40] not in words
    assert len(re.findall(r"\.(?:\s|$)", caption)) <= 2, "at most two sentences"
    assert canvas.get_figheight() <= style.PAGE
    assert drawn(name).notes[0].startswith("Setting: protocol paper")


def test_protocols_side_by_side_have_a_letter_per_row_and_fit_on_a_page() -> None:
    results = everything(("paper", "released"))
    for one in drawings([results], ["class-log", "anatomy", "calibration-class"], Request(compare_protocols=True)):
        titles = [ax.get_title(loc="left") for ax in one.canvas.axes]
        letters = [title[:3] for title in titles if title.startswith("(")]
        shown = sum(not all(cell.empty for column in panel for cell in column) for panel in one.measured)
        assert len(letters) == len(set(letters)) == (shown if shown > 1 else 0)
        assert sum("released" in title for title in titles) == shown
        assert one.canvas.get_figheight() <= style.PAGE
        assert set(one.csv["setting"]) == {"paper", "released"}


def test_points_lie_at_their_n() -> None:
    canvas = draw(MadeUp(sweep()), "class-log").canvas
    lines = [line for ax in canvas.axes for line in ax.lines if line.get_label() in ("ELBO", "joint DLM")]
    assert lines
    for line in lines:
        assert [*line.get_xdata()] in ([100, 500], [])
        assert line.get_transform() == line.axes.transData if line.axes and len(line.get_xdata()) else True


def test_one_size_is_drawn_as_bars_with_numbers() -> None:
    canvas = draw(MadeUp(sweep(sizes=(100,))), "class-log").canvas
    above, below = canvas.axes
    assert len(above.patches) == 4
    assert len(below.patches) == 3
    assert above.patches[0].get_width() == pytest.approx(np.mean([nll("elbo", 100, seed, 1.0) for seed in range(3)]))
    assert {label.get_text() for label in above.get_yticklabels()} == {"ELBO", "β-ELBO", "joint DLM", "fixed DLM"}


def test_strips_are_labelled_and_hold_their_means() -> None:
    figure = draw(MadeUp(sweep(metric="error")), "class-err")
    (strip,) = [ax for ax in figure.canvas.axes if "vs ELBO" in ax.get_ylabel()]
    assert strip.get_ylabel().startswith("Δ error rate")
    low, high = strip.get_ylim()
    for one in figure.cells[0].series:
        if "minus_elbo" in one.points:
            assert one.points["minus_elbo"].between(low, high).all()


def test_histograms_of_a_statistic_share_their_scale() -> None:
    panels = [ax for ax in drawn("bias").canvas.axes if ax.get_ylabel() == "share of draws"]
    assert len(panels) == 9
    for column in range(3):
        assert len({ax.get_xlim() for ax in panels[column::3]}) == 1
        for ax in panels[column::3]:
            assert ax.patches


def test_curve_ends_are_labelled_apart() -> None:
    ax = next(ax for ax in drawn("airline").canvas.axes if ax.lines)
    labels = [text for text in ax.texts if text.get_text().startswith("β")]
    assert len(labels) == 9
    places = sorted(text.get_position()[1] for text in labels)
    assert np.diff(places).min() > 0.02


def test_reg_log_keeps_its_beta_panels_in_the_right_column() -> None:
    results = copy(everything())
    for name in ("table", "candidates"):
        frame = getattr(results, name)
        setattr(results, name, frame[frame["dataset"] != "song"])
    canvas = draw(results, "reg-log").canvas
    left = [ax.get_position().x0 for ax in canvas.axes if ax.get_xlabel() == "β"]
    assert len(left) == 2
    assert left[0] == pytest.approx(left[1])
    assert left[0] > 0.6


def test_csv_of_curves_has_no_constant_columns(tmp_path: Path) -> None:
    one = drawn("airline-smooth")
    assert "dataset" not in one.csv
    assert one.constants["dataset"] == "airline"
    assert all(one.csv[name].nunique() > 1 for name in one.csv)
    paths = save(one, tmp_path, ["png"])
    assert {path.suffix for path in paths} == {".png", ".csv", ".md"}, "PDF only where it is asked for"
    assert "dataset = airline" in (tmp_path / "airline-smooth.md").read_text()


def test_files_are_the_same_for_the_same_numbers() -> None:
    first, second = (draw(MadeUp(sweep()), "class-log").canvas for _ in range(2))
    with style.use():
        assert encode(first, "svg") == encode(second, "svg")


def test_compared_folders_have_dashes_of_their_own() -> None:
    several = [MadeUp(sweep(), label="mine"), MadeUp(sweep(shift=0.1), label="other")]
    (one, *_) = drawings(several, ["class-log"], Request())
    dashes = {line.get_linestyle() for line in one.canvas.axes[1].lines if line.get_label() == "joint DLM"}
    assert dashes == {"-", "--"}
    assert set(one.csv["folder"]) == {"mine", "other"}


def test_nothing_run_is_said_with_the_command() -> None:
    with pytest.raises(UserError, match="experiment=reg-sq"):
        draw(MadeUp(sweep()), "reg-sq")


def test_error_of_another_kind_is_named() -> None:
    assert any("standard deviation" in note for note in draw(MadeUp(sweep()), "class-log", error="std").notes)


KINDS = (
    binary_vs_n("banana", "nll", "class-log"),
    nll_vs_beta("cadata", "5%"),
    Panel("curve", "airline", "nll", at_betas((0.1, 1.0), "beta_elbo", "joint_log_dlm"), "airline", x="epochs"),
    histogram("bmc", "error"),
    Panel("reliability", "banana", "reliability", methods(*METHODS), "class-log"),
    Panel("curve", "abalone", "nll", estimators("joint_log_dlm", 0.1, ("bmc", (1,)), ("ups", (1,))), "x", median=True),
    anatomy("pol", "reg"),
)


def test_kinds_of_panels_look_as_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One picture with a panel of every kind; effects, which have labels of their own, in a second one beside it."""
    from PIL import Image

    parts = []
    for name, panels in (("kinds", KINDS[:-1]), ("effects", KINDS[-1:])):
        monkeypatch.setitem(FIGURES._found, name, Figure(name, panels, 3, "Made-up numbers."))
        save(draw(everything(), name), tmp_path, ["png"])
        parts.append(Image.open(tmp_path / f"{name}.png").convert("RGB"))
    whole = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
    for place, part in enumerate(parts):
        whole.paste(part, (0, parts[0].height * place))
    whole.save(tmp_path / "kinds.png")
    assert compare_images(str(BASELINE), str(tmp_path / "kinds.png"), tol=12) is None


def test_learning_curves_of_median_show_quartiles() -> None:
    (one, *_) = drawings([curves([("bmc", 1), ("ups", 1)])], ["count-learning"], Request())
    assert {"median", "q25", "q75"} <= {*one.csv}
