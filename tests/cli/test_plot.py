"""`dlmexp plot`: what is listed, and what it refuses to draw."""

import re

import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from tests.support.cells import ELBO, candidates, fill

pytestmark = pytest.mark.slow
SIZES = (100, 200)


@pytest.fixture
def elbo_on_ringnorm(here):
    """Results with one line of one panel of the figure class-log."""
    fits = [replace(ELBO, dataset="ringnorm", n=n, seed=0, beta=1.0) for n in SIZES]
    fill(here / "results", *[candidates("elbo", [fit]) for fit in fits])
    return here


def state_of(figure: str, printed: str) -> str:
    """Return the second column of a figure in `dlmexp plot --list`."""
    (line,) = [line for line in printed.splitlines() if line.startswith(f"{figure} ")]
    return line[29:45].strip()


def test_list_says_how_much_of_a_figure_has_results(elbo_on_ringnorm, capsys):
    assert main(["plot", "--list"]) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"1 of \d\d lines", state_of("class-log", printed))
    assert state_of("reg-log", printed) == "not run"
    assert state_of("predictions", printed) == "0 models"


def test_list_without_results_has_every_figure(here, capsys):
    assert main(["plot", "--list"]) == 0
    printed = capsys.readouterr().out
    assert state_of("predictions", printed) == state_of("class-log", printed) == "not run"


@pytest.mark.parametrize(
    "words", ["predictions class-log", "predictions --list", "predictions --compare-protocols"]
)
def test_predictions_are_drawn_alone(elbo_on_ringnorm, refused, words):
    refused(["plot", *words.split()], "draw them without other figures")


def test_folder_that_cannot_be_written_is_refused(elbo_on_ringnorm, refused):
    (elbo_on_ringnorm / "file").write_text("")
    refused(["plot", "class-log", "--out", "file/figures"], "file/figures", "--out")


def test_figures_without_results_are_refused_or_mentioned(elbo_on_ringnorm, refused, capsys):
    refused(["plot", "reg-log"], "reg-log", "dlmexp run experiment=reg-log")
    assert main(["plot", "reg-log", "class-log"]) == 0
    printed = capsys.readouterr().out
    assert "there are no results for reg-log; what computes them" in printed
    assert main(["plot"]) == 0
    assert re.search(
        r"no results yet for \d+ other figures: dlmexp plot --list", capsys.readouterr().out
    )


def test_caption_is_printed_on_request(elbo_on_ringnorm, capsys):
    from dlmexp.presentation.figures.panels import FIGURES

    caption = FIGURES["class-log"].caption
    assert main(["plot", "class-log"]) == 0
    assert caption not in capsys.readouterr().out
    assert main(["plot", "class-log", "--captions"]) == 0
    assert caption in capsys.readouterr().out


def test_empty_protocol_is_refused_in_one_line(elbo_on_ringnorm, refused):
    refused(["claims", "--protocol", ""], "--protocol : nothing was run under it", "paper")
