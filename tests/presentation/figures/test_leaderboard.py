"""Figures of leaderboards: what is joined, what lies on the front, and what files say."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.cli import main
from dlmexp.presentation.figures.leaderboard import (
    BOARD_FIGURES,
    MAX_FOREST_METHODS,
    cliques,
    draw_boards,
    looks_of,
    pareto_front,
)
from dlmexp.presentation.figures.panels import LEADERBOARD_FIGURES
from dlmexp.presentation.ranking.board import main_boards
from tests.support.cells import ELBO, candidates, fill
from tests.support.tidy import Made, fits

MEANS = {"elbo": 0.5, "fitc": 0.4, "joint_log_dlm": 0.1}
MANY = {f"mine_{k}": 0.1 * k for k in range(MAX_FOREST_METHODS + 1)}


FEW = ("pol", "song")
MORE = ("pol", "song", "cadata", "sarcos", "sarcos_test")  # than `MAX_DATA_SETS_WITH_PANELS`


def main_boards_of(means, datasets=FEW):
    rows = []
    for dataset in datasets:
        for number, (method, mean) in enumerate(means.items()):
            seconds = 1.0 + number
            for row in fits(dataset, method, mean, sizes=(100,), seconds=seconds):
                rows.append(row | {"test_mse": row["test_nll"] ** 2})
    return main_boards(Made(rows))


def drawn(name, means=MEANS, datasets=FEW):
    (figure,) = draw_boards(BOARD_FIGURES[name], main_boards_of(means, datasets))
    return figure


def test_bars_join_methods_of_which_none_are_separated():
    better = np.zeros((5, 5), dtype=bool)
    assert cliques(better) == [(0, 4)]
    better[0, 2] = better[0, 3] = better[0, 4] = better[1, 4] = True
    assert cliques(better) == [(0, 1), (1, 3), (2, 4)]
    assert cliques(np.triu(np.ones((3, 3), dtype=bool), 1)) == []


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=12))
def test_front_has_the_points_that_no_other_beats(points):
    seconds, losses = np.array(points, dtype=float).T
    front = {tuple(map(int, point)) for point in np.array(points)[pareto_front(seconds, losses)]}
    for point in set(points):
        beaten = any(
            other != point and other[0] <= point[0] and other[1] <= point[1] for other in points
        )
        assert (point in front) == (not beaten)


def test_ranks_have_a_panel_for_each_metric():
    figure = drawn("ranks")
    titles = [ax.get_title(loc="left") for ax in figure.picture.axes]
    assert titles == ["NLL, 2 data sets", "RMSE, 2 data sets"]
    first = figure.picture.axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == ["joint DLM", "FITC", "ELBO"]
    assert figure.numbers["mean_rank"].tolist() == [1.0, 2.0, 3.0] * 2


def test_gains_are_differences_to_the_reference():
    figure = drawn("gains")
    of_dlm = figure.numbers.query("metric == 'nll' and method == 'joint DLM'")
    assert of_dlm["difference"].to_numpy() == pytest.approx([-0.4, -0.4], abs=0.01)
    assert of_dlm["won"].all()
    assert "ELBO" not in set(figure.numbers["method"])


def test_many_methods_on_many_data_sets_are_a_heat_map():
    forest = drawn("gains", datasets=MORE)
    heat_map = drawn("gains", MEANS | MANY, MORE)
    assert not any(ax.images for ax in forest.picture.axes)
    assert any(ax.images for ax in heat_map.picture.axes)


def test_heat_map_tells_better_from_worse_without_colours():
    means = {"elbo": 0.5, "fitc": 0.9} | MANY
    axes = drawn("gains", means, MORE).picture.axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    columns = {
        line.get_marker(): set(line.get_xdata()) for line in axes.lines if len(line.get_xdata())
    }
    assert columns == {
        ".": set(range(len(MANY))) - {labels.index("mine 5")},
        "x": {labels.index("FITC")},
    }


def test_heat_maps_of_all_metrics_have_one_order_of_methods():
    axes = drawn("gains", MEANS | MANY, MORE).picture.axes
    first, second = [ax for ax in axes if ax.images][:2]
    orders = [[label.get_text() for label in ax.get_xticklabels()] for ax in (first, second)]
    assert orders[0] == orders[1]


def test_many_methods_on_few_data_sets_have_a_row_each():
    axes = drawn("gains", MEANS | MANY).picture.axes
    assert [ax.get_title(loc="left") for ax in axes] == ["pol", "pol", "song", "song"]
    labels = [label.get_text() for label in axes[0].get_yticklabels()]
    drawn_at = [np.asarray(line.get_ydata()) for line in axes[0].lines]
    heights = {float(values[0]) for values in drawn_at if len(values) == 1}
    assert "ELBO" not in labels
    assert heights == set(range(len(labels)))


def test_a_difference_off_the_scale_is_written_at_the_edge():
    axes = drawn("gains", {"far": -90.0} | MEANS | MANY).picture.axes[0]
    (text,) = axes.texts
    assert text.get_text() == "◂ -90.5"


def test_cost_marks_the_front():
    figure = drawn("cost", {"elbo": 0.5, "fitc": 0.9, "joint_log_dlm": 0.1})
    on_front = dict(zip(figure.numbers["method"], figure.numbers["on_front"], strict=True))
    assert on_front == {"ELBO": True, "FITC": False, "joint DLM": True}


def test_seconds_of_cost_are_written_as_plain_numbers():
    picture = drawn("cost").picture
    picture.draw_without_rendering()
    (axes,) = picture.axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels
    assert [label for label in labels if not label.replace(".", "").isdigit()] == []


@pytest.mark.parametrize("name", LEADERBOARD_FIGURES)
def test_caption_says_rows_kernel_and_metric(name):
    text = drawn(name).text
    for words in ("NLL", "kernel rbf", "trained on 100 rows"):
        assert words in text


def test_methods_without_a_look_of_their_own_differ():
    boards = main_boards_of({"elbo": 0.5, "mine": 0.4, "yours": 0.3})
    ((board, *_),) = boards.values()
    assert len({look.colour for look in looks_of(board)}) == 3


def test_command_draws_them_and_refuses_what_they_do_not_take(tmp_path, capsys):
    from msgspec.structs import replace

    cells = [replace(ELBO, seed=seed) for seed in range(3)]
    others = [replace(cell, objective="fitc", beta=None) for cell in cells]
    groups = [candidates("elbo", [cell]) for cell in cells]
    fill(tmp_path, *groups, *[candidates("fitc", [cell]) for cell in others])
    assert main(["plot", "ranks", "cost", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "ranks.png").stat().st_size > 1000
    assert (tmp_path / "figures" / "cost.csv").read_text().startswith("method,seconds,nll")
    capsys.readouterr()
    assert main(["plot", "ranks", "--by", "seed=0", "--results", str(tmp_path)]) == 2
    assert "over all datasets" in capsys.readouterr().err
