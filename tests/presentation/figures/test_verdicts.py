"""The figure of claims by data set: a mark for each test, by its outcome."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false

from matplotlib.lines import Line2D
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.presentation.claims.claim import claims
from dlmexp.presentation.claims.judge import judge
from dlmexp.presentation.claims.rules import Outcome
from dlmexp.presentation.figures.verdicts import MARKS, draw_verdicts
from tests.support.cells import ELBO, candidates, fill
from tests.support.tidy import Made
from tests.support.verdicts import lines

ROWS = [
    *lines("ringnorm", elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.2),
    *lines("banana", elbo=0.5, beta_elbo=0.5, joint_log_dlm=0.8, fixed_log_dlm=0.5),
]
RELEASED = [row | {"protocol": "released"} for row in ROWS]


def drawn(rows, number):
    """Return the figures of one claim on a table of these rows."""
    return draw_verdicts(judge(Made(rows), [number]))


def test_every_test_that_counts_has_a_mark_of_its_outcome():
    (figure,) = drawn(ROWS, 7)
    (ax,) = figure.picture.axes
    for outcome, style in MARKS.items():
        marks = [line for line in ax.lines if line.get_marker() == style["marker"]]
        count = sum(len(line.get_xdata()) for line in marks if isinstance(line, Line2D))
        assert count == figure.numbers[str(outcome)].sum()
    by_data = figure.numbers.set_index("dataset")
    assert by_data.loc["ringnorm", str(Outcome.SUPPORTED)] == 6
    assert by_data.loc["banana", str(Outcome.CONTRADICTED)] == 3


def test_outcomes_differ_in_shape_and_not_in_colour_alone():
    assert len({style["marker"] for style in MARKS.values()}) == len(Outcome)


def test_a_data_set_that_is_not_available_has_a_box_and_a_stand_in_a_star():
    rows = lines("sarcos_test", beta_elbo=0.5, elbo=0.5, joint_log_dlm=0.2, fixed_log_dlm=0.5)
    rows = [row | {"stands_for": "sarcos"} for row in rows]
    (figure,) = drawn(rows, 1)
    words = {text.get_text() for text in figure.picture.axes[0].texts}
    assert {"sarcos_test*", "song", "pol"} <= words
    assert len(figure.picture.axes[0].patches) == 2


def test_sentences_are_whole_and_the_picture_names_protocol_and_stand_ins():
    (figure,) = drawn(ROWS, 7)
    texts = [text.get_text() for text in figure.picture.axes[0].texts]
    (sentence,) = [text for text in texts if text.startswith("7 ")]
    (claim,) = [claim for claim in claims() if claim.number == 7]
    assert sentence.replace("\n", " ") == f"7  {claim.text}"
    (explanation,) = [text for text in texts if text.startswith("Protocol")]
    assert explanation.startswith("Protocol: paper.")
    assert "* stand-in" in explanation


def test_verdicts_of_hundreds_of_tests_stay_in_the_picture():
    (figure,) = drawn(ROWS, 7)
    (ax,) = figure.picture.axes
    (verdict,) = [text for text in ax.texts if " of " in text.get_text() and "," in text.get_text()]
    verdict.set_text("reproduced, 234 of 234")
    verdict.set_fontweight("bold")
    assert verdict.get_window_extent().x1 <= figure.picture.bbox.x1


def test_each_protocol_has_a_figure_the_first_with_the_plain_name():
    assert [figure.name for figure in drawn(ROWS + RELEASED, 7)] == ["claims", "claims-released"]


def test_plot_writes_the_figure_and_refuses_to_choose_data(tmp_path, capsys):
    fill(tmp_path, *[candidates("elbo", [replace(ELBO, seed=seed)]) for seed in range(3)])
    assert main(["plot", "claims", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "claims.png").stat().st_size > 1000
    capsys.readouterr()
    assert main(["plot", "claims", "--by", "seed=0", "--results", str(tmp_path)]) == 2
    assert "over all datasets" in capsys.readouterr().err
