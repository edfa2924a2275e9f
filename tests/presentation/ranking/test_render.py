"""Leaderboards as text and as JSON."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false

import json

import pytest
from msgspec.structs import replace
from rich.console import Console

from dlmexp.cli import main
from dlmexp.presentation.ranking.board import boards
from dlmexp.presentation.ranking.metrics import METRICS
from dlmexp.presentation.ranking.render import (
    as_json,
    board_table,
    caption,
    data_set_caption,
    data_set_tables,
    distinct_labels,
    title,
)
from tests.support.cells import ELBO, candidates, fill
from tests.support.tidy import Made, fits


@pytest.fixture
def board():
    made = []
    for dataset in ("pol", "song"):
        made += fits(dataset, "elbo", 0.5, sizes=(100,), converged=False)
        made += fits(dataset, "fitc", 0.3, sizes=(100,))
    (only,) = boards(Made(made), METRICS["nll"])
    return only


def text(table) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_every_table_says_rows_kernel_and_metric(board):
    for lines in (caption(board), data_set_caption(board)):
        words = " ".join([title(board), *lines])
        assert "NLL" in words
        assert "kernel rbf" in words
        assert "trained on 100 rows" in words
        assert "protocol paper" in words
        assert "5 splits" in words


def test_title_of_one_split_with_an_inducing_input_for_every_row():
    made = []
    for method in ("elbo", "fitc"):
        made += fits("pol", method, 0.5, seeds=1, sizes=(100,), M=100)
    (board,) = boards(Made(made), METRICS["nll"])
    assert "1 split in common" in title(board)
    assert title(board).endswith("; M = n")


def test_fits_that_stopped_at_their_limit_are_named(board):
    assert "stopped at their limit of iterations: ELBO 10 of 10 fits" in data_set_caption(board)
    (elbo,) = [line for line in text(board_table(board)).splitlines() if "ELBO" in line]
    assert "100 %" in elbo


def test_table_has_a_row_for_each_method(board):
    first, second = [line for line in text(board_table(board)).splitlines() if " of 2" in line]
    assert "FITC" in first
    assert "2/0/0" in first
    assert "+22." in first
    assert "ELBO" in second


def test_scores_by_data_set_mark_the_best(board):
    (table,) = data_set_tables(board, 80)
    (line,) = [line for line in text(table).splitlines() if "pol" in line]
    assert line.split()[:3] == ["pol", "100", "5"]
    assert line.split()[3].endswith("*")
    assert not line.split()[4].endswith("*")


def test_methods_that_do_not_fit_into_the_terminal_have_a_further_table(board):
    tables = data_set_tables(board, 40)
    assert [len(table.columns) for table in tables] == [4, 4]
    assert "FITC" in text(tables[0])
    assert "ELBO" in text(tables[1])


def changed(changes):
    return [
        row
        for name in ("pol", "song")
        for row in fits(name, "elbo", 0.4, sizes=(100,), changes=changes)
    ]


def test_labels_have_the_settings_that_namesakes_do_not_share():
    made = changed({"M": 50}) + changed({"M": 50, "training.lr": 0.01})
    made += [row | {"method": "fitc"} for row in changed({"M": 50})]
    (board,) = boards(Made(made), METRICS["nll"])
    assert sorted(distinct_labels(board)) == ["ELBO", "ELBO, training.lr=0.01", "FITC"]
    assert "the same for all: estimator exact, q whitened, protocol paper, M=50" in caption(board)
    assert "M=50" not in text(board_table(board))


def test_one_data_set_has_no_interval_over_data_sets():
    made = fits("pol", "elbo", 0.5, sizes=(100,)) + fits("pol", "fitc", 0.3, sizes=(100,))
    (board,) = boards(Made(made), METRICS["nll"])
    assert "1.0 to 1.0" not in text(board_table(board))


def test_json_is_plain_and_has_every_score(board):
    (values,) = json.loads(json.dumps(as_json([board]), allow_nan=False))
    assert [method["method"] for method in values["methods"]] == ["fitc", "elbo"]
    (first, _) = values["methods"][0]["by_data_set"]
    assert first["score"] == pytest.approx(0.3, abs=0.01)
    assert first["difference"] == pytest.approx(0.2, abs=0.01)
    assert values["against"] == "elbo"


def test_command_ranks_records(tmp_path, capsys):
    cells = [replace(ELBO, seed=seed) for seed in range(3)]
    others = [replace(cell, objective="fitc", beta=None) for cell in cells]
    groups = [candidates("elbo", [cell]) for cell in cells]
    groups += [candidates("fitc", [cell]) for cell in others]
    fill(tmp_path, *groups)
    assert main(["rank", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "FITC" in shown
    assert "on 1 binary data set, 3 splits" in shown
    assert main(["rank", "--results", str(tmp_path), "--by", "dataset"]) == 0
    assert "banana" in capsys.readouterr().out
    assert main(["rank", "--results", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["kernel"] == "rbf"


def test_unknown_metric_is_refused_in_one_line(tmp_path, capsys):
    assert main(["rank", "--metric", "nlll"]) == 2
    assert "nll" in capsys.readouterr().err.strip()
