"""Which figures are drawn from which rows, and what is said about the rest."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import argparse
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dlmexp.cli import plot as cli
from dlmexp.errors import UserError
from dlmexp.figures import style
from dlmexp.figures.panels import Figure, Line, Panel, methods
from dlmexp.figures.plot import Request, draw, drawings
from dlmexp.figures.registry import FIGURES
from dlmexp.models.diagnosis import Diagnosis
from dlmexp.records import results as records
from tests.figures.made_up import MadeUp, sweep

PUBLISHED = Path(__file__).parents[2] / "results" / "paper"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`dlmexp plot` on made-up results."""

    def command(results: MadeUp, *words: str) -> int:
        monkeypatch.setattr(records, "load", lambda folder, label="": results)
        (tmp_path / "results").mkdir(exist_ok=True)
        results.store = SimpleNamespace(keys_with_models=set)
        parser = argparse.ArgumentParser()
        cli.add_parser(parser.add_subparsers())
        args = parser.parse_args(["plot", *words, "--results", str(tmp_path / "results")])
        return args.run(args)

    return command


def shown(results: MadeUp, *ids: str, **asked) -> dict[str, list[str]]:
    found = drawings([results], [*ids], Request(**asked))
    return {one.name: [cell.panel.dataset for cell in one.cells if not cell.empty] for one in found if not one.empty}


def test_a_dataset_without_results_gives_its_panels_to_a_stand_in() -> None:
    rows = sweep(dataset="sarcos_test", stands_for="sarcos", task="regression")
    assert shown(MadeUp(rows), "reg-log") == {"reg-log": ["sarcos_test"]}
    drawn = draw(MadeUp(sweep(dataset="sarcos_test", stands_for="sarcos", task="regression")), "reg-log")
    assert any("sarcos_test for the paper's sarcos" in note for note in drawn.notes)


def test_data_drawn_from_a_definition_does_not_pose_as_the_papers() -> None:
    results = MadeUp(sweep(dataset="ringnorm_drawn", stands_for="ringnorm"))
    assert shown(results) == {"default": ["ringnorm_drawn"]}
    assert shown(results, "class-log", by={"dataset": ["ringnorm_drawn"]}) == {
        "class-log-ringnorm_drawn": ["ringnorm_drawn"]
    }


def test_own_data_has_a_figure_of_its_own() -> None:
    results = MadeUp(sweep(dataset="houses", task="regression", metric="mse"))
    drawn = draw(results, "own-houses")
    assert [panel.metric for panel in drawn.figure.panels] == ["nll", "mse", "nll"]
    assert [panel.kind for panel in drawn.figure.panels] == ["sizes", "sizes", "betas"]
    assert drawn.commands == ["dlmexp run experiment=made-up"]
    assert "houses" in drawn.caption
    with pytest.raises(UserError, match="own-houses"):
        draw(results, "own-house")


def test_by_filters_columns() -> None:
    results = MadeUp(sweep())
    assert draw(results, "class-log", by={"seed": ["1"]}).cells[0].series[0].points["repetitions"].tolist() == [1, 1]
    assert {s.line.method for s in draw(results, "class-log", by={"method": ["elbo"]}).cells[0].series} == {"elbo"}
    at_beta = draw(results, "class-log", by={"beta": ["10"]})
    means = {s.line.method: s.points["mean"].iloc[0] for s in at_beta.cells[0].series}
    plain = {s.line.method: s.points["mean"].iloc[0] for s in draw(results, "class-log").cells[0].series}
    assert means["elbo"] == plain["elbo"], "the ELBO has no beta to choose"
    assert means["beta_elbo"] == pytest.approx(plain["beta_elbo"] + 0.02)


def test_what_is_not_run_and_what_is_left_out_is_said() -> None:
    rows = [*sweep(("elbo", "joint_log_dlm")), *sweep(("elbo",), protocol="released")]
    notes = draw(MadeUp(rows), "class-log").notes
    assert any("β-ELBO, fixed DLM" in note and "experiment=class-log dataset=banana" in note for note in notes)
    assert any("--protocol released" in note for note in notes)
    assert any("Not run: thyroid" in note for note in notes)
    released = draw(MadeUp(rows), "class-log", "released")
    assert released.name == "class-log-released"
    assert "protocol=released" in released.commands[0]


def test_where_draws_changed_settings() -> None:
    rows = [*sweep(), *sweep(("elbo",), changes="training.lr=0.01", lr=0.01, shift=5.0)]
    drawn = draw(MadeUp(rows), "class-log", where=["training.lr=0.01"])
    assert drawn.name == "class-log-lr=0.01"
    assert drawn.cells[0].series[0].points["mean"].min() > 5
    assert "with training.lr=0.01" in drawn.notes[0]


def test_a_preset_is_never_drawn_as_the_papers() -> None:
    drawn = draw(MadeUp(sweep(protocol="quick")), "class-log")
    assert drawn.name == "class-log-quick"
    assert "preset quick" in drawn.notes[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["clas-log"], "class-log"),
        (["--by", "nonsense"], "field=value"),
        (["--by", "sed=0"], "seed"),
        (["--by", "kernel=matern52"], "--where kernel=matern52"),
        (["--by", "dataset=bananna"], "banana"),
        (["--by", "seed=17"], "0, 1, 2"),
        (["reg-log", "--by", "dataset=banana"], "has no panel in reg-log"),
        (["--where", "training.lrr=0.1"], "lr"),
        (["--where", "training.lr=0.3"], "0.1"),
        (["--protocol", "relesed"], "paper"),
        (["--compare-protocols"], "paper"),
        (["--format", "bmp"], "png"),
        (["reg-sq"], "experiment=reg-sq"),
        (["--width", "0.1"], "inches"),
        (["--style", "nowhere.mplstyle"], "nowhere.mplstyle"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(run, tmp_path: Path, words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        run(MadeUp(sweep()), *words)
    assert not (tmp_path / "results" / "figures").exists()


def test_files_captions_and_list(run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = MadeUp(sweep())
    assert run(results, "class-log", "--captions") == 0
    names = sorted(path.name for path in (tmp_path / "results" / "figures").iterdir())
    assert names == ["class-log.csv", "class-log.md", "class-log.png"]
    said = capsys.readouterr().out
    assert FIGURES["class-log"].caption in said
    assert "Repetitions: 3" in said
    assert run(results, "--list") == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "of 16 lines" in listed["class-log"]
    assert "not run" in listed["airline"]


@pytest.mark.parametrize(
    ("panel", "says"),
    [
        (Panel("sizs", "banana", "nll", methods("elbo"), ""), "sizes"),  # pyright: ignore[reportArgumentType]
        (Panel("sizes", "banana", "nlll", methods("elbo"), ""), "nll"),
        (Panel("sizes", "banana", "nll", (), ""), "no lines"),
    ],
)
def test_a_plugins_figure_is_checked_when_it_is_added(panel: Panel, says: str) -> None:
    with pytest.raises(UserError, match=says):
        FIGURES.add("mine", Figure("mine", (panel,), 1, "Mine."))
    assert "mine" not in FIGURES


def test_a_plugins_figure_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = Panel("sizes", "waves", "nll", (Line("elbo"), Line("tempered")), "waves")
    monkeypatch.setitem(FIGURES._found, "mine", Figure("mine", (panel,), 1, "Mine."))
    with pytest.raises(UserError, match="there is no method 'tempered'"):
        draw(MadeUp(sweep()), "mine")
    rows = sweep(("elbo", "tempered"), dataset="waves")
    assert [s.line.method for s in draw(MadeUp(rows), "mine").cells[0].series if not s.empty] == ["elbo", "tempered"]


@pytest.mark.parametrize("rows", [10, 500])
def test_predictions_of_many_rows_have_their_intervals_in_bins(rows: int) -> None:
    from dlmexp.figures.predictions import numbers, render

    y = np.linspace(0, 1, rows)
    columns = {"mean": y + 0.1, "lower_95": y - 1, "upper_95": y + 1}
    found = Diagnosis(
        row=SimpleNamespace(beta=1.0, task="regression"), title="a model", target="price", features=("a", "b"),
        labels=None, columns=columns, targets=y, calibration=None, metric="nll", line=None,
        betas={"beta": np.array([1.0, 0.1]), "validation": np.array([1.0, 2.0]), "test": np.array([1.0, 2.0])},
        objective=np.linspace(2, 1, 30),
    )  # fmt: skip
    with style.use():
        canvas = render(found)
    assert len(canvas.axes) == 4
    intervals = canvas.axes[0].collections
    assert len(intervals) == 1
    paths = intervals[0].get_paths()
    assert len(paths) == (rows if rows == 10 else 1), "a line each, or a band"
    assert [*numbers(found)] == ["price", "mean", "lower_95", "upper_95"]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published results are not here")
def test_the_published_results_are_drawn_without_torch(tmp_path: Path) -> None:
    words = ["plot", "count-mre", "--results", str(PUBLISHED), "--out", str(tmp_path)]
    code = f"import sys; from dlmexp.cli import main; assert main({words}) == 0; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=240)
    assert (tmp_path / "count-mre-unwhitened.png").exists()
