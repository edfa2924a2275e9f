"""Figures as `dlmexp plot` makes them: protocols, parameterisations, names of files, files."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.figures.plot import (
    Request,
    draw,
    drawings,
    no_results,
    parse_formats,
    save,
)
from tests.support.drawings import made
from tests.support.tidy import sweep

UNWHITENED: dict[str, Any] = {"parameterisation": "unwhitened"}


def names(rows, *ids: str, **fields) -> list[str]:
    """Return the names of the files of figures that have results."""
    drawn = drawings(made(rows), ids or ("class-log",), Request(**fields))
    return [figure.name for figure in drawn if figure.panels_with_results]


def test_the_paper_protocol_is_drawn_where_it_was_run():
    rows = [*sweep(seeds=range(1)), *sweep(protocol="released", seeds=range(5))]
    assert names(rows) == ["class-log"]


def test_else_the_protocol_with_most_results_is_drawn():
    rows = [*sweep(seeds=range(1), protocol="annealed"), *sweep(protocol="released")]
    assert names(rows) == ["class-log-released"]


def test_a_protocol_that_is_asked_for_is_drawn():
    rows = [*sweep(), *sweep(protocol="released")]
    assert names(rows, protocol="released") == ["class-log-released"]


def test_protocols_side_by_side_have_one_figure_with_ours_first():
    rows = [*sweep(protocol="mine"), *sweep(protocol="released"), *sweep()]
    (drawn,) = drawings(made(rows), ["class-log"], Request(compare_protocols=True))
    assert drawn.name == "class-log-protocols"
    assert drawn.protocols == ("paper", "released", "mine")
    requested = [measured.requested_protocol for measured in drawn.measured_panels]
    assert requested[:3] == ["paper", "released", "mine"]


def test_protocols_side_by_side_are_those_run_in_the_wanted_coordinates():
    rows = [
        *sweep(),
        *sweep(protocol="released", **UNWHITENED),
        *sweep(protocol="mine", **UNWHITENED),
    ]
    request = Request(compare_protocols=True, parameterisation="unwhitened")
    (drawn,) = drawings(made(rows), ["class-log"], request)
    assert drawn.protocols == ("released", "mine")


def test_both_parameterisations_have_a_figure_each():
    rows = [*sweep(), *sweep(**UNWHITENED)]
    assert names(rows) == ["class-log", "class-log-unwhitened"]
    assert names(sweep()) == ["class-log"]


def test_a_parameterisation_that_is_asked_for_has_the_only_figure():
    rows = [*sweep(), *sweep(**UNWHITENED)]
    assert names(rows, parameterisation="unwhitened") == ["class-log-unwhitened"]
    assert names(rows, parameterisation="whitened") == ["class-log"]


def test_parameterisations_must_both_be_run_in_every_panel_for_a_second_figure():
    rows = [*sweep(), *sweep(dataset="thyroid"), *sweep(**UNWHITENED)]
    drawn = list(drawings(made(rows), ["class-log"], Request()))
    assert [figure.name for figure in drawn] == ["class-log"]


def test_regression_has_no_second_figure():
    rows = [*sweep(dataset="pol"), *sweep(dataset="pol", **UNWHITENED)]
    assert names(rows, "reg-log") == ["reg-log"]


def test_names_of_files_have_what_was_asked_for():
    rows = [*sweep(protocol="released", changes={"training.lr": 0.01}, lr=0.01)]
    fields: dict[str, Any] = {
        "by": {"dataset": ["banana"], "seed": ["0", "1"]},
        "where": {"lr": ["0.01"]},
    }
    assert names(rows, **fields) == ["class-log-banana-released-seed=0+1-lr=0.01"]


def test_names_of_files_have_no_signs_that_shells_take_apart():
    rows = sweep(changes={"beta.values": [1, 10]})
    fields: dict[str, Any] = {"where": {"beta.values": ["[1,10]"]}}
    (name,) = names(rows, **fields)
    assert name == "class-log-beta.values=_1_10_"


def test_the_protocol_of_own_data_is_not_in_names_of_files():
    assert names(sweep(dataset="houses", protocol="own"), "own-houses") == ["own-houses"]


def test_a_figure_of_which_nothing_was_run_is_refused_with_what_computes_it():
    with pytest.raises(UserError, match="no results for reg-sq; what computes them: dlmexp run"):
        draw(made(sweep()), "reg-sq")


def test_a_message_names_each_command_once():
    assert no_results(["a", "b"], ["x", "y", "x"]) == (
        "there are no results for a, b; what computes them: x; y"
    )
    assert no_results(["a"], []) == "there are no results for a"


def test_formats_are_read_without_repeats_and_case():
    assert parse_formats("PNG, pdf,png") == ["png", "pdf"]
    with pytest.raises(UserError, match="--format png,bmp: there is no 'bmp'"):
        parse_formats("png,bmp")


def save_figure(folder: Path, formats: list[str]) -> str:
    """Save a made-up figure, and return the line that names its files."""
    drawn = draw(made(sweep(("elbo",))), "class-log")
    return save(folder, "mine", drawn.picture, drawn.csv, drawn.text, formats)


def test_a_figure_is_saved_as_pictures_numbers_and_caption(tmp_path):
    line = save_figure(tmp_path, ["png", "pdf"])
    assert line == f"mine: {tmp_path / 'mine'}.{{png,pdf,csv,md}}"
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine.png",
        "mine.pdf",
        "mine.csv",
        "mine.md",
    }
    assert (tmp_path / "mine.md").read_text().startswith("# Classification, log loss\n")


@pytest.mark.parametrize("format", ["svg", "pdf", "png"])
def test_the_same_numbers_give_the_same_bytes(tmp_path, format):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        save_figure(tmp_path / name, [format])
    files = [(tmp_path / name / f"mine.{format}").read_bytes() for name in ("first", "second")]
    assert files[0] == files[1]


def test_numbers_are_saved_with_six_digits(tmp_path):
    drawn = draw(made(sweep(("elbo",))), "class-log")
    table = pd.DataFrame({"x": [1.23456789]})
    save(tmp_path, "mine", drawn.picture, table, "", [])
    assert (tmp_path / "mine.csv").read_text() == "x\n1.23457\n"
