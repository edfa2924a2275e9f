"""Whole figures: places of panels, titles, legends, and what panels share."""

import pytest
from matplotlib.axes import Axes

from dlmexp.presentation.figures.layout import _arrange, _entries_across, _in_reading_order, render
from dlmexp.presentation.figures.looks import COLUMN_WIDTH, PAGE_HEIGHT, TEXT_WIDTH, paper_style
from dlmexp.presentation.figures.numbers import MeasuredPanel, Series
from dlmexp.presentation.figures.panels import Figure, Line, Panel, methods
from dlmexp.presentation.figures.plot import Request, drawings
from tests.support.drawings import made, points
from tests.support.tidy import sweep

LINES = methods("elbo", "joint_log_dlm")


def panel(dataset: str, **fields) -> Panel:
    """Return a panel of NLL against n on a dataset."""
    return Panel("sizes", dataset, "nll", LINES, "class-log", **fields)


def measured(
    of: Panel, protocol: str = "paper", mean: float = 1.0, n: int | None = None
) -> MeasuredPanel:
    """Return numbers of a panel: two points of each line, the second one higher than the first."""
    series = [Series(line, points([100, 200], [mean, mean + 1])) for line in of.lines]
    return MeasuredPanel(of, protocol, [], series, protocol=protocol, task="binary", n=n)


def without_results(of: Panel, protocol: str = "paper") -> MeasuredPanel:
    """Return numbers of a panel of which nothing was run."""
    return MeasuredPanel(of, protocol, [], [Series(line) for line in of.lines])


def drawn_axes(
    figure: Figure, numbers: list[MeasuredPanel], protocols: tuple[str, ...] = ()
) -> list[Axes]:
    """Return the axes of panels, without those of legends."""
    with paper_style():
        picture = render(figure, numbers, protocols)
    return [ax for ax in picture.axes if ax.get_legend() is None]


def places(
    figure: Figure, numbers: list[MeasuredPanel], protocols: tuple[str, ...] = ()
) -> list[tuple[str, int, int]]:
    """Return dataset, row and column of each place."""
    arranged = _arrange(figure, numbers, protocols)
    return [(place.panel.dataset, place.row, place.column) for place in arranged]


def figure_of(*panels: Panel, columns: int = 2, **fields) -> Figure:
    """Return a figure of these panels."""
    return Figure("mine", panels, columns, "Mine.", **fields)


def test_titles_have_one_size_also_where_one_of_them_is_too_long():
    long = "a title that is far too long for a panel of a column and for the page beside it"
    panels = [panel("banana"), panel("thyroid", title=long)]
    axes = drawn_axes(figure_of(*panels), [measured(each) for each in panels])
    titles = [ax.title if ax.get_title() else ax._left_title for ax in axes]  # pyright: ignore[reportAttributeAccessIssue]
    sizes = {title.get_fontsize() for title in titles if title.get_text()}
    assert len(sizes) == 1
    assert sizes.pop() < 7  # pyright: ignore[reportOperatorIssue]


def test_panels_fill_rows_in_reading_order():
    panels = [panel(name) for name in ("banana", "thyroid", "twonorm", "ringnorm")]
    numbers = [measured(each) for each in panels]
    assert places(figure_of(*panels), numbers) == [
        ("banana", 0, 0),
        ("thyroid", 0, 1),
        ("twonorm", 1, 0),
        ("ringnorm", 1, 1),
    ]


def test_three_panels_stand_in_one_row():
    panels = [panel(name) for name in ("banana", "thyroid", "twonorm")]
    rows = [row for _, row, _ in places(figure_of(*panels), [measured(each) for each in panels])]
    assert rows == [0, 0, 0]


def test_panels_without_results_leave_no_gap():
    panels = [panel(name) for name in ("banana", "thyroid", "twonorm")]
    numbers = [measured(panels[0]), without_results(panels[1]), measured(panels[2])]
    assert places(figure_of(*panels), numbers) == [("banana", 0, 0), ("twonorm", 0, 1)]


def test_a_panel_with_a_column_of_its_own_stands_there():
    names = ("banana", "thyroid", "twonorm", "ringnorm")
    panels = [panel(name, column=2 if name in ("thyroid", "ringnorm") else None) for name in names]
    numbers = [measured(each) for each in panels]
    assert places(figure_of(*panels, columns=3), numbers) == [
        ("banana", 0, 0),
        ("thyroid", 0, 2),
        ("twonorm", 1, 0),
        ("ringnorm", 1, 2),
    ]


def test_side_by_side_a_panel_has_a_row_and_a_protocol_a_column():
    panels = [panel("banana"), panel("thyroid")]
    protocols = ("paper", "released")
    numbers = [measured(each, protocol) for each in panels for protocol in protocols]
    assert places(figure_of(*panels), numbers, protocols) == [
        ("banana", 0, 0),
        ("banana", 0, 1),
        ("thyroid", 1, 0),
        ("thyroid", 1, 1),
    ]


def test_side_by_side_effects_have_a_row_for_each_protocol():
    line = Line("joint_log_dlm", effect="whole")
    effects = Panel("effects", "pol", "nll", (line,), "anatomy-reg")
    numbers = [measured(effects, protocol) for protocol in ("paper", "released")]
    assert places(figure_of(effects), numbers, ("paper", "released")) == [
        ("pol", 0, 0),
        ("pol", 1, 0),
    ]


def test_titles_have_letters_datasets_sizes_and_what_stand_ins_stand_for():
    panels = [panel("banana", x="M", title="short"), panel("sarcos_test", x="M")]
    axes = drawn_axes(figure_of(*panels), [measured(panels[0], n=500), measured(panels[1])])
    titles = [ax.get_title(loc="left") for ax in axes]
    assert titles == ["(a) banana, short, n = 500", "(b) sarcos_test (for sarcos)"]


def test_a_single_panel_has_no_letter_and_the_width_of_a_column():
    only = panel("banana")
    with paper_style():
        picture = render(figure_of(only), [measured(only)], ())
    assert picture.get_figwidth() == COLUMN_WIDTH
    assert picture.axes[-1].get_title(loc="left") == "banana"


def test_panels_side_by_side_have_the_width_of_the_text():
    panels = [panel("banana"), panel("thyroid")]
    with paper_style():
        picture = render(figure_of(*panels), [measured(each) for each in panels], ())
    assert picture.get_figwidth() == TEXT_WIDTH


def test_no_figure_is_taller_than_a_page():
    panels = [panel("banana", title=str(number)) for number in range(20)]
    with paper_style():
        picture = render(figure_of(*panels), [measured(each) for each in panels], ())
    assert picture.get_figheight() == PAGE_HEIGHT


def test_side_by_side_panels_share_limits_and_numbers_at_the_first_axis():
    only = panel("banana")
    numbers = [measured(only, "paper", 1.0), measured(only, "released", 5.0)]
    first, second = drawn_axes(figure_of(only), numbers, ("paper", "released"))
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] < 1.0
    assert first.get_ylim()[1] > 6.0
    assert (first.get_ylabel(), second.get_ylabel()) == ("test NLL", "")
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == (
        "banana, paper",
        "released",
    )


def test_side_by_side_a_panel_without_results_says_so():
    only = panel("banana")
    numbers = [measured(only, "paper"), without_results(only, "released")]
    _, second = drawn_axes(figure_of(only), numbers, ("paper", "released"))
    assert [text.get_text() for text in second.texts] == ["not run under\nthis protocol"]
    assert len(second.patches) == 1, "a light box"


def test_titles_have_the_repetitions_where_panels_differ_in_them():
    panels = [panel("banana"), panel("thyroid")]
    numbers = [measured(each) for each in panels]
    for series in numbers[1].series:
        series.points["repetitions"] = 20
    titles = [ax.get_title(loc="left") for ax in drawn_axes(figure_of(*panels), numbers)]
    assert [title.partition(", ")[2] for title in titles] == ["R = 3", "R = 20"]
    alike = [measured(each) for each in panels]
    titles = [ax.get_title(loc="left") for ax in drawn_axes(figure_of(*panels), alike)]
    assert not any("R =" in title for title in titles)


def legends(figure: Figure, numbers: list[MeasuredPanel]) -> list[list[str]]:
    """Return the labels of each legend from left to right and from top to bottom."""
    with paper_style():
        picture = render(figure, numbers, ())
    found = [legend for ax in picture.axes if (legend := ax.get_legend()) is not None]
    return [[text.get_text() for text in legend.get_texts()] for legend in found]


def test_a_legend_names_each_line_once_in_the_order_of_methods():
    reversed_panel = Panel("sizes", "thyroid", "nll", LINES[::-1], "class-log")
    panels = [panel("banana"), reversed_panel]
    numbers = [measured(each) for each in panels]
    assert legends(figure_of(*panels), numbers) == [["ELBO", "joint DLM"]]


def test_every_row_has_a_legend_of_its_own_where_the_figure_wants_it():
    fitc = Panel("sizes", "pol", "nll", methods("fitc"), "reg-log")
    panels = [panel("banana"), panel("thyroid"), fitc, fitc]
    figure = figure_of(*panels, legend="row")
    numbers = [measured(each) for each in (panels[0], panels[1])]
    numbers += [measured(fitc), measured(Panel("sizes", "cadata", "nll", fitc.lines, "reg-log"))]
    assert legends(figure, numbers) == [["ELBO", "joint DLM"], ["FITC"]]


def test_lines_of_curves_are_in_the_legend_only_where_beta_tells_them_apart():
    by_beta = Line("joint_log_dlm", beta=0.1, names="beta")
    labelled = Line("joint_log_dlm", "bmc", 1, 0.1, names="estimator")
    for line, expected in ((by_beta, [["joint DLM"]]), (labelled, [])):
        curve = Panel("curve", "airline", "nll", (line,), "airline", x="epochs")
        assert legends(figure_of(curve), [measured(curve)]) == expected


def test_bars_are_labelled_at_their_axis_instead_of_in_a_legend():
    only = panel("banana")
    series = [Series(line, points([100], [1.0])) for line in only.lines]
    numbers = MeasuredPanel(only, "paper", [], series, protocol="paper", task="binary")
    assert legends(figure_of(only), [numbers]) == []


@pytest.mark.parametrize(("width", "across"), [(6.75, 5), (3.25, 3), (0.5, 1)])
def test_as_many_entries_stand_side_by_side_as_fit(width, across):
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label="x" * 13) for _ in range(5)]
    assert _entries_across(handles, width) == across


def test_entries_of_a_legend_are_read_line_by_line():
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label) for label in "abcde"]
    ordered = [entry.get_label() for entry in _in_reading_order(handles, 3)]
    assert ordered == ["a", "d", "b", "e", "c", " "], "matplotlib fills columns"


@pytest.mark.slow
def test_protocols_side_by_side_have_a_letter_per_row_and_fit_on_a_page():
    rows = []
    for dataset in ("banana", "ringnorm"):
        for protocol in ("paper", "released"):
            rows += sweep(dataset=dataset, protocol=protocol)
    anatomy = [row | {"role": "anatomy"} for row in rows if row["beta"] == 1.0]
    ppgpr = [row | {"method": "ppgpr"} for row in anatomy if row["method"] == "joint_log_dlm"]
    results = made([*rows, *anatomy, *ppgpr])
    for drawn in drawings(results, ["class-log", "anatomy"], Request(compare_protocols=True)):
        titles = [ax.get_title(loc="left") for ax in drawn.picture.axes]
        assert [title[:3] for title in titles if title.startswith("(")] == ["(a)", "(b)"]
        assert sum("released" in title for title in titles) == 2
        assert drawn.picture.get_figheight() <= PAGE_HEIGHT
        assert set(drawn.csv["setting"]) == {"paper", "released"}


@pytest.mark.parametrize(("letters", "is_smaller"), [(5, False), (90, True)])
def test_a_title_that_would_leave_the_figure_is_set_smaller(letters, is_smaller):
    only = panel("banana", title="x" * letters)
    (ax, *_) = drawn_axes(figure_of(only), [measured(only)])
    title = ax._left_title  # pyright: ignore[reportAttributeAccessIssue]
    assert (title.get_fontsize() < 7) == is_smaller
