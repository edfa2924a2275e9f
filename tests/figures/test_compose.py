"""What is on the axes, read from the figure and not from pixels."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure as Canvas

from dlmexp.figures import style
from dlmexp.figures.compose import render
from dlmexp.figures.measure import measure
from dlmexp.figures.plot import choose
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.variants import Drawing
from dlmexp.records.schema import Record
from tests.support.made_up import curves, failed, fit, method_cell, paper, plausible, sweep

pytestmark = pytest.mark.slow

FOUR = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")


def drawn(results, figure: str, error: str = "std", **changes) -> tuple[Canvas, dict]:
    """The canvas, and its axes by title."""
    one = FIGURES[figure]
    several = results if isinstance(results, list) else [results]
    with style.use():
        canvas = render(measure(Drawing(one, one.id, one.panels, **changes), several, error))
    return canvas, {ax.get_title(loc="left"): ax for ax in canvas.axes}


def notes(canvas: Canvas) -> str:
    """What is written below the panels."""
    return canvas._supxlabel.get_text().replace("\n", " ")  # pyright: ignore


def bars(ax) -> dict[str, ErrorbarContainer]:
    return {str(c.get_label()): c for c in ax.containers if isinstance(c, ErrorbarContainer)}


def points(container: ErrorbarContainer) -> list[tuple[float, float]]:
    line = container.lines[0]
    return list(zip(*(np.asarray(v, dtype=float) for v in line.get_data()), strict=True))


def heights(container: ErrorbarContainer) -> list[float]:
    """Half the length of every error bar."""
    segments = container.lines[2][0].get_segments()
    return [float(np.ptp(segment[:, 1])) / 2 for segment in segments]


def banana(values: dict[tuple[str, int], list[float]]) -> list[Record]:
    return [
        fit(method_cell(method, "banana", n=n, seed=seed), nll=value, error=value / 2)
        for (method, n), several in values.items()
        for seed, value in enumerate(several)
    ]


def test_points_and_error_bars_are_mean_and_deviation(results) -> None:
    found = results(*banana({("joint_log_dlm", 100): [1.0, 2.0, 3.0], ("joint_log_dlm", 200): [1.0, 1.0, 1.0]}))
    _, axes = drawn(found, "class-log")
    line = bars(axes["banana"])["joint DLM"]
    assert points(line) == [(100.0, 2.0), (200.0, 1.0)]
    assert heights(line) == pytest.approx([1.0, 0.0])


def test_standard_error_on_request(results) -> None:
    found = results(*banana({("joint_log_dlm", 100): [1.0, 2.0, 3.0]}))
    canvas, axes = drawn(found, "class-log", error="sem")
    assert heights(bars(axes["banana"])["joint DLM"]) == pytest.approx([1 / np.sqrt(3)])
    assert "standard error over 3 repetitions" in notes(canvas)


def test_each_panel_has_the_lines_of_its_methods_in_their_colours(results) -> None:
    found = results(*sweep("banana", FOUR, [100, 200], range(3), 3))
    _, axes = drawn(found, "class-log")
    lines = bars(axes["banana"])
    assert list(lines) == ["ELBO", "β-ELBO", "joint DLM", "fixed DLM"]
    for method in FOUR:
        look = style.of_method(method)
        line = lines[look.label].lines[0]
        assert (to_hex(line.get_color()), line.get_marker()) == (look.colour.lower(), look.marker)


def test_a_single_repetition_has_no_error_bar_and_says_so(results) -> None:
    canvas, axes = drawn(results(*banana({("elbo", 100): [1.0], ("elbo", 200): [0.5]})), "class-log")
    line = bars(axes["banana"])["ELBO"]
    assert not line.has_yerr
    assert "A single repetition: no error bars." in notes(canvas)


@pytest.mark.parametrize("how", ["failed", "nan", "inf"])
def test_a_lost_repetition_is_written_beside_its_point(results, how: str) -> None:
    records = banana({("elbo", 100): [1.0, 3.0], ("elbo", 200): [1.0, 1.0, 1.0]})
    lost = method_cell("elbo", "banana", n=100, seed=2)
    records.append(failed(lost) if how == "failed" else fit(lost, nll=float(how), validation=0.1))
    canvas, axes = drawn(results(*records), "class-log")
    ax = axes["banana"]
    assert points(bars(ax)["ELBO"])[0] == (100.0, 2.0)
    assert "2/3" in [text.get_text() for text in ax.texts]
    assert "k/m beside a point" in notes(canvas)


def test_a_point_with_every_repetition_lost_is_a_cross_at_the_top(results) -> None:
    records = banana({("elbo", 200): [1.0, 1.0]}) + [failed(method_cell("elbo", "banana", seed=s)) for s in range(2)]
    _, axes = drawn(results(*records), "class-log")
    ax = axes["banana"]
    assert points(bars(ax)["ELBO"]) == [(100.0, pytest.approx(np.nan, nan_ok=True)), (200.0, 1.0)]
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[100]]
    assert "0/2" in [text.get_text() for text in ax.texts]


def test_a_panel_in_which_everything_failed_shows_just_that(results) -> None:
    found = results(
        *(failed(method_cell("joint_log_dlm", "banana", n=n, seed=s)) for n in (100, 200) for s in range(2))
    )
    _, axes = drawn(found, "class-log")
    ax = axes["banana"]
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "x"] == [[100], [200]]
    low, high = ax.get_xlim()
    assert 0 < low < 100
    assert high > 200
    assert bars(ax) == {}


def test_curves_of_which_every_one_failed(results) -> None:
    of = [method_cell("joint_log_dlm", "abalone", n=2000, seed=s, beta=0.1, estimator="bmc", samples=1, evaluate="10")
          for s in range(2)]  # fmt: skip
    _, axes = drawn(results(*map(failed, of)), "count-learning")
    assert "bMC-1: 0/2" in [text.get_text() for text in axes["abalone, S = 1"].texts]


def test_an_outlier_does_not_flatten_the_rest(results) -> None:
    found = results(*banana({("elbo", 100): [0.3, 0.3], ("joint_log_dlm", 100): [80.0, 80.0]}))
    _, axes = drawn(found, "class-log")
    assert axes["banana"].get_yscale() == "log"


def test_panels_without_records_are_left_out_and_named(results) -> None:
    canvas, axes = drawn(results(*sweep("ringnorm", FOUR, [100], range(2), 2)), "class-log")
    assert [title for title in axes if title] == ["ringnorm"], "the only panel needs no letter"
    assert "Not run: banana, thyroid, twonorm." in notes(canvas)


def test_what_no_panel_shows_is_not_explained(results) -> None:
    """Of figure 1, ringnorm alone: no betas, learning curves or sampled gradients in the legend and below."""
    found, one = results(*sweep("ringnorm", FOUR, [100, 200], range(3), 2)), FIGURES["selection"]
    panels = tuple(replace(panel, dataset="flights") if panel.dataset == "airline" else panel for panel in one.panels)
    with style.use():
        canvas = render(measure(Drawing(one, one.id, panels), [found]))
    assert [text.get_text() for text, _ in _legend(canvas)] == ["ELBO", "β-ELBO", "joint DLM", "fixed DLM"]
    for word in ("Circles", "learning curve may leave", "stands in", "Grey in the legend"):
        assert word not in notes(canvas)
    assert "Not run: " in notes(canvas)
    assert "flights" in notes(canvas)


def test_repetitions_are_said_by_task_where_they_differ(results) -> None:
    made = [*sweep("sarcos", ("elbo",), [149], range(2), 1), *sweep("ringnorm", ("elbo",), [100], range(3), 1)]
    canvas, _ = drawn(results(*made), "selection")
    assert "over 2 (regression) or 3 (binary) repetitions" in notes(canvas)
    assert "seed" not in notes(canvas), "there are no draws of gradients"


def test_letters_have_no_gaps(results) -> None:
    found = results(*sweep("banana", FOUR, [100], range(2), 2), *sweep("ringnorm", FOUR, [100], range(2), 2))
    _, axes = drawn(found, "class-log")
    assert [title for title in axes if title] == ["(a) banana", "(b) ringnorm"]


def test_a_figure_without_any_records_is_grey_and_says_what_to_run(results) -> None:
    _, axes = drawn(results(*sweep("pol", ("elbo",), [100], range(2), 1)), "class-log")
    texts = [text.get_text() for text in axes["(b) thyroid"].texts]
    assert texts == ["not run", "dlmexp run\nexperiment=class-log\ndataset=thyroid"]
    assert len(axes["(b) thyroid"].lines) == 0


def test_missing_lines_are_grey_in_the_legend_and_named_in_the_panel(results) -> None:
    canvas, axes = drawn(results(*sweep("banana", ("elbo",), [100], range(2), 1)), "class-log")
    labels = {text.get_text(): handle for text, handle in _legend(canvas)}
    assert to_hex(labels["joint DLM"].get_color()) == "#cccccc"
    assert to_hex(labels["ELBO"].get_color()) == "#000000"
    assert "not run: β-ELBO, joint DLM, fixed DLM" in [text.get_text() for text in axes["banana"].texts]


def _legend(canvas: Canvas) -> list:
    (legend,) = canvas.legends
    return list(zip(legend.get_texts(), legend.get_lines(), strict=True))


def test_beta_panel_has_its_circle_at_the_lowest_validation(results) -> None:
    records = [
        fit(method_cell("joint_log_dlm", "cadata", n=691, beta=beta, seed=s), nll=test, mse=1.0, validation=validation)
        for beta, test, validation in ((0.5, 0.1, 3.0), (2.0, 0.2, 1.0), (8.0, 0.3, 2.0))
        for s in range(2)
    ] + [fit(method_cell("fitc", "cadata", n=691, seed=s), nll=0.7, mse=1.0) for s in range(2)]
    canvas, axes = drawn(results(*records), "reg-log")
    assert "Grey: β = 1; horizontal: FITC, without a β." in notes(canvas)
    assert "are set side by side" in notes(canvas)
    ax = axes["(b) cadata, n = 691"]
    circle = next(line for line in ax.lines if line.get_label() == "_lowest validation metric")
    assert (list(circle.get_xdata()), list(circle.get_ydata())) == ([2.0], [0.2])
    fitc = next(line for line in ax.lines if line.get_label() == "FITC")
    assert list(fitc.get_ydata()) == pytest.approx([0.7, 0.7])
    assert ax.get_xscale() == "log"


def test_curves_have_lines_and_bands(results) -> None:
    _, axes = drawn(results(*curves("abalone", 2000, range(3))), "count-learning")
    ax = axes["(a) abalone, S = 1"]
    assert [line.get_label() for line in ax.lines if not line.get_label().startswith("_")] == ["bMC-1", "uPS-1"]
    assert list(ax.lines[0].get_xdata()) == list(range(10, 610, 10))
    assert len(ax.collections) == 2
    assert ax.get_xlabel() == "iteration"


def test_a_failed_curve_is_written_in_the_panel(results) -> None:
    of = [method_cell("joint_log_dlm", "abalone", n=2000, seed=s, beta=0.1, estimator="bmc", samples=1, evaluate="10")
          for s in range(3)]  # fmt: skip
    _, axes = drawn(results(*of[:2], failed(of[2])), "count-learning")
    assert "bMC-1: 2/3" in [text.get_text() for text in axes["abalone, S = 1"].texts]


def test_different_learning_rates_and_a_run_that_ends_off_the_frame_are_said(results) -> None:
    found = [
        method_cell("joint_log_dlm", "abalone", n=2000, beta=0.1, estimator=name, samples=1, evaluate="10", lr=lr)
        for name, lr in (("bmc", 0.1), ("ups", 0.01))
    ]
    made = [plausible(one) for one in found]
    made[0][1]["test_nll"][-1] = 99.0
    canvas, axes = drawn(results(*made), "count-learning")
    assert "Learning rate: 0.01 with uPS, 0.1 with bMC." in notes(canvas)
    (mark,) = (line for line in axes["abalone, S = 1"].lines if line.get_label() == "_ends above")
    assert mark.get_color() == style.of_estimator("bmc", 1).colour


ENDS = "A curve ends where its last repetition stopped; one that stopped earlier keeps its last value."


@pytest.mark.parametrize(
    ("estimators", "seeds", "said"),
    [(["ups"], [0], False), (["ups"], [0, 1], True), (["bmc", "ups"], [0, 1], False)],
    ids=["one of two repetitions", "one of two curves", "a whole panel"],
)
def test_a_curve_that_ends_before_others_of_its_panel_is_explained(results, estimators, seeds, said: bool) -> None:
    made = [plausible(one) for one in curves("abalone", 2000, range(2))]
    for record, arrays in made:
        if record.cell.samples == 1 and record.cell.estimator in estimators and record.cell.seed in seeds:
            arrays.update({name: arrays[name][:5] for name in ("evaluated_at", "test_nll")})
    canvas, _ = drawn(results(*made), "count-learning")
    assert (ENDS in notes(canvas)) == said


def test_sizes_of_which_some_are_not_run_are_no_curves(results) -> None:
    made = [
        *sweep("ringnorm", ("elbo",), [100, 200], range(2), 1),
        *sweep("ringnorm", ("beta_elbo",), [100], range(2), 2),
    ]
    canvas, _ = drawn(results(*made), "class-log")
    assert ENDS not in notes(canvas)


def test_histograms_show_shares_of_all_draws(results) -> None:
    cells = [
        method_cell("fixed_log_dlm", "abalone", kind="gradient", n=2000, beta=0.1, estimator="ups", samples=L, seed=s)
        for L in (1, 10, 100)
        for s in range(2)
    ]
    made = [plausible(one) for one in cells]
    for record, _ in made:
        record.result.bias, record.result.bias_quadrature = 0.4, 0.0  # |G|² is 40: G is a tenth of its length off
    canvas, axes = drawn(results(*made), "bias")
    outlines = [p for p in axes["(c) abalone, uPS"].patches if p.get_label() in ("uPS-1", "uPS-10", "uPS-100")]
    assert len(outlines) == 3
    assert "(f) abalone, bMC" not in axes
    exact = [
        sorted(line.get_xdata()[0] for line in axes[f"({letter}) abalone, uPS"].lines if line.get_linestyle() == "-.")
        for letter in "abc"
    ]
    assert exact == [pytest.approx([0.9, 1.1]), pytest.approx([0.81, 1.21]), pytest.approx([0.01])]
    assert {str(line.get_marker()) for line in canvas.legends[0].get_lines()} <= {"", "None"}, "histograms have none"
    for word in ("G: the gradient by 10 000 bMC samples", "grey at 1", "(i) is bounded", "in (i) and (ii) the ends"):
        assert word in notes(canvas)


def test_folders_are_told_apart_by_dashes(results) -> None:
    two = [
        results(*banana({("elbo", 100): [1.0, 1.2]}), label="ours"),
        results(*banana({("elbo", 100): [2.0, 2.2]}), label="theirs"),
    ]
    canvas, axes = drawn(two, "class-log")
    lines = bars(axes["banana"])
    assert {label: points(line) for label, line in lines.items() if label.startswith("ELBO")} == {
        "ELBO [ours]": [(100.0, pytest.approx(1.1))],
        "ELBO [theirs]": [(100.0, pytest.approx(2.1))],
    }
    dashes = [lines[f"ELBO [{name}]"].lines[0].get_linestyle() for name in ("ours", "theirs")]
    assert dashes == ["-", "--"]
    assert {"ours", "theirs"} <= {text.get_text() for text, _ in _legend(canvas)}


def test_stand_ins_are_named_and_never_the_papers_name(results) -> None:
    found = results(*sweep("sarcos_test", ("elbo", "joint_log_dlm"), [149, 298], range(2), 2))
    (drawing,) = choose([found], ["reg-log"])
    with style.use():
        canvas = render(measure(drawing, [found]))
    titles = [ax.get_title(loc="left") for ax in canvas.axes]
    assert "sarcos_test (for sarcos)" in titles
    assert not any(title.endswith(" sarcos") for title in titles)
    assert "sarcos_test stands in for the paper's sarcos." in notes(canvas)


def test_unwhitened_is_said(results) -> None:
    found = results(*sweep("banana", ("elbo",), [100], range(2), 1, parameterisation="unwhitened"))
    canvas, _ = drawn(found, "class-log", parameterisation="unwhitened")
    assert "q unwhitened" in notes(canvas)


def test_numbers_are_those_drawn(results) -> None:
    found = results(*banana({("joint_log_dlm", 100): [1.0, 2.0, 3.0]}))
    one = FIGURES["class-log"]
    numbers = measure(Drawing(one, one.id, one.panels), [found]).numbers
    (row,) = numbers.to_dict("records")
    assert (row["dataset"], row["method"], row["x"], row["mean"], row["std"]) == ("banana", "joint_log_dlm", 100, 2, 1)


def test_every_figure_can_be_drawn_and_nothing_overlaps_the_edge(results) -> None:
    """One drawing of each figure: no text leaves the canvas, no legend lies on a panel."""
    found = results(*paper(seeds=range(2), betas=2))
    everything = choose([found], [])
    chosen = {drawing.figure.id: drawing for drawing in everything if drawing.parameterisation == "whitened"}
    assert set(chosen) == set(FIGURES)
    for drawing in chosen.values():
        with style.use():
            canvas = render(measure(drawing, [found]))
            renderer = FigureCanvasAgg(canvas).get_renderer()
            box = canvas.bbox
            (legend,) = canvas.legends
            legend_box = legend.get_window_extent(renderer)
            assert legend_box.x0 >= box.x0 - 1, drawing.name
            assert legend_box.x1 <= box.x1 + 1, drawing.name
            for ax in canvas.axes:
                tight = ax.get_tightbbox(renderer)
                assert tight is not None
                assert tight.y1 <= legend_box.y0 + 1.5, drawing.name
                assert tight.x0 >= box.x0 - 1, drawing.name
                assert tight.x1 <= box.x1 + 2, drawing.name
