"""A figure with its numbers: rows of the CSV, the caption file, commands and notes."""

import numpy as np
import pytest

from dlmexp.presentation.figures.drawn import DrawnFigure
from dlmexp.presentation.figures.panels import FIGURES, Figure, Line, Panel
from dlmexp.presentation.figures.plot import Request, draw
from tests.support.drawings import made
from tests.support.tidy import sweep


def curves(**facts) -> DrawnFigure:
    """Return a drawn figure with the learning curve of one line."""
    line = Line("joint_log_dlm", beta=0.1, names="beta")
    panel = Panel("curve", "flights", "nll", (line,), "airline")
    row = {"dataset": "flights", "method": "joint_log_dlm", "role": "curve", "beta": 0.1, "n": 500}
    arrays = {"key0": {"evaluated_at": np.arange(3), "test_nll": np.array([3.0, 2.0, 1.0])}}
    FIGURES._items["curves"] = Figure("curves", (panel,), 1, "Curves.")
    return draw(made([row | facts], arrays), "curves")


@pytest.fixture(autouse=True)
def _figures_are_restored(monkeypatch):
    monkeypatch.setattr(FIGURES, "_items", {name: FIGURES[name] for name in FIGURES})


def test_every_point_is_a_row_with_what_it_is_of():
    drawn = draw(made(sweep(("elbo", "joint_log_dlm"))), "class-log")
    row = drawn.csv.iloc[-1]
    assert len(drawn.csv) == 4
    assert row["dataset"] == "banana"
    assert row["metric"] == "nll"
    assert row["against"] == "n"
    assert row["method"] == "joint_log_dlm"
    assert row["x"] == 500
    assert row["setting"] == "paper"
    assert "beta" not in drawn.csv, "a column without any value"


def test_a_changed_setting_is_named_in_every_row():
    drawn = draw(made(sweep(("elbo",), changes={"training.lr": 0.01})), "class-log")
    assert set(drawn.csv["setting"]) == {"paper with training.lr=0.01"}


def test_the_version_of_a_line_is_part_of_its_method():
    drawn = draw(made(sweep(("elbo",), role="rivals", test_recalibrated_nll=1.0)), "rivals")
    assert set(drawn.csv["method"]) == {"elbo", "elbo recalibrated"}


def test_what_all_points_of_curves_share_is_named_once():
    drawn = curves()
    assert drawn.constants["n"] == 500
    assert "n" not in drawn.csv
    assert drawn.csv["x"].tolist() == [0, 1, 2]
    assert drawn.csv["mean"].tolist() == [3.0, 2.0, 1.0]
    assert drawn.notes[-1].startswith("In all rows of the CSV: dataset = flights, metric = nll")


def test_other_panels_have_all_columns():
    drawn = draw(made(sweep(("elbo",))), "class-log")
    assert drawn.constants == {}
    assert set(drawn.csv["dataset"]) == {"banana"}


def test_the_caption_file_has_title_caption_and_notes():
    drawn = draw(made(sweep()), "class-log")
    lines = drawn.text.splitlines()
    assert lines[0] == "# Classification, log loss"
    assert lines[2] == FIGURES["class-log"].caption
    assert lines[4:] == [f"- {note}" for note in drawn.notes]
    assert drawn.text.endswith("\n")


def test_notes_begin_with_setting_and_repetitions():
    notes = draw(made(sweep()), "class-log").notes
    assert notes[0] == "Setting: protocol paper."
    assert notes[1] == "Repetitions: 3. Bands: 95 % interval of the mean (Student's t)."


def test_what_is_not_run_and_what_is_left_out_is_said():
    rows = [*sweep(("elbo", "joint_log_dlm")), *sweep(("elbo",), protocol="released")]
    notes = draw(made(rows), "class-log").notes
    (gap,) = [note for note in notes if "β-ELBO, fixed DLM" in note]
    assert gap.endswith("-> dlmexp run experiment=class-log dataset=banana")
    assert any(note.endswith("plot class-log --protocol released") for note in notes)
    assert any(note.startswith("Not run: thyroid ->") for note in notes)


def test_every_command_is_given_once_in_the_order_of_panels():
    commands = draw(made(sweep()), "class-log").commands
    datasets = [command.rpartition("=")[2] for command in commands]
    assert datasets == ["banana", "thyroid", "twonorm", "ringnorm"]


def test_commands_keep_the_protocol_that_is_drawn():
    rows = [*sweep(("elbo",)), *sweep(("elbo",), protocol="released")]
    drawn = draw(made(rows), "class-log", Request(protocol="released"))
    assert all("protocol=released" in command for command in drawn.commands)
