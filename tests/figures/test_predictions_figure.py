"""The figure `predictions`: its numbers are those of the record, its panels what the data allows; style and width."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import imread

import dlmexp
from dlmexp.cli import main
from dlmexp.errors import UserError
from dlmexp.figures import style
from dlmexp.figures.predictions import NARROWEST, ONE_COLUMN, _against_true, render
from dlmexp.models.choose import chosen
from dlmexp.models.diagnosis import LEVELS, diagnose
from dlmexp.records.provenance import COMMAND
from dlmexp.records.results import read_results
from tests.models.test_predictor import table, trained
from tests.support import made_up

OWN = "dlmexp run dataset=csv csv.path=own.csv csv.target={task} csv.task={task} csv.name=own"
WORDS = ["seeds=[0]", "method=[joint_log_dlm]", "keep=selected"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "binary", "count"])
def test_numbers_and_panels(here, capsys, monkeypatch, task):
    monkeypatch.setenv(COMMAND, OWN.format(task=task))  # what a record says of its run; here it is pytest's
    trained(table(), task, *WORDS)
    capsys.readouterr()
    assert main(["plot", "predictions", "--format", "png,svg"]) == 0
    said = capsys.readouterr().out
    results = read_results("results")
    (record,) = chosen(results, [])
    assert record.key in said
    folder = Path("results/figures")
    assert sorted(path.name for path in folder.iterdir()) == [f"predictions-own.{end}" for end in ("csv", "png", "svg")]
    rows = pd.read_csv(folder / "predictions-own.csv")
    if task == "binary":
        assert (rows["binary"] != rows["label"]).mean() == pytest.approx(record.result.test["error"])
    elif task == "count":
        error = (rows["mean"] - rows["count"]).abs() / rows["count"].clip(lower=1)
        assert error.mean() == pytest.approx(record.result.test["mre"], rel=1e-6)
    else:
        mse = ((rows["mean"] - rows["regression"]) ** 2).mean() / (record.result.y_std or 1) ** 2
        assert mse == pytest.approx(record.result.test["mse"], rel=1e-6)
    found = diagnose(results, record)
    assert found.calibration is not None
    if task == "regression":
        observed = dict(zip(LEVELS.round(2), found.calibration["observed"], strict=True))
        assert observed[0.5] == pytest.approx(record.result.test["coverage_50"])
        assert observed[0.95] == pytest.approx(record.result.test["coverage_95"])
    if task == "binary":
        p, y, count = (found.calibration[name] for name in ("promised", "observed", "rows"))
        assert count.sum() == len(found.targets)
        assert (y * count).sum() == pytest.approx(found.targets.sum())
        assert ((p >= 0) & (p <= 1)).all()
    assert list(found.betas["beta"]) == [5.0, 0.5]
    assert found.line is None
    assert [ax.get_title() for ax in dlmexp.plot("predictions", "results").axes][-1] == "training"


@pytest.mark.slow
def test_one_feature_has_mean_band_and_inducing_inputs(here, monkeypatch):
    frame = table().assign(sort="a", age=1.0).drop(columns=["sort", "age"])
    betas: dict[str, Any] = {"beta.values": [1]}
    found = dlmexp.run(
        frame[["rooms", "regression"]], "joint_log_dlm", target="regression", task="regression", sizes=[40], seeds=[0],
        beta="list", verbose=False, training={"regression": {"max_iterations": 30}}, **betas,
    )  # fmt: skip
    figure = dlmexp.plot("predictions", found.folder)
    assert figure.axes[0].get_title() == "over its one feature"
    assert figure.axes[0].get_xlabel() == "rooms"
    results = read_results("results")
    diagnosis = diagnose(results, chosen(results, [])[0])
    monkeypatch.setattr("dlmexp.figures.predictions.SHOWN", 3)
    for width, columns in ((NARROWEST, 1), (ONE_COLUMN, 2)):
        with style.use():
            canvas = render(diagnosis, width)
            canvas.savefig(
                io.BytesIO(), format="png"
            )  # a layout that does not fit is a warning, which is an error here
        assert len({round(ax.get_position().x0, 3) for ax in canvas.axes}) == columns
        canvas.draw_without_rendering()
        titles = [ax.title.get_window_extent() for ax in canvas.axes]
        assert all(title.x0 >= 0 and title.x1 <= canvas.bbox.x1 for title in titles)
    line = diagnosis.line
    assert line is not None
    model = found.model()._models[0]
    assert len(line["inducing"]) == model.cell.M
    again = found.model().predict(line["x"][:, None])
    np.testing.assert_allclose(again["mean"], line["mean"])
    assert (line["lower_95"] < line["mean"]).all()
    assert (line["mean"] < line["upper_95"]).all()


@pytest.mark.slow
def test_data_that_is_gone_or_has_changed(here, capsys, monkeypatch):
    monkeypatch.setenv(COMMAND, OWN.format(task="regression"))
    trained(table(), "regression", *WORDS)
    table(170)[["rooms", "sort", "age", "regression"]].to_csv("own.csv", index=False)
    with pytest.raises(UserError, match="the file has changed"):
        dlmexp.plot("predictions", "results")
    for option in ("--by", "--where"):
        assert main(["plot", "predictions", option, "method=elbo"]) == 2
        assert f"{option} method=elbo" in capsys.readouterr().err
    assert main(["plot", "predictions", "--protocol", "released"]) == 2
    assert "protocol=released: no record" in capsys.readouterr().err
    Path("own.csv").unlink()
    capsys.readouterr()
    assert main(["plot", "predictions"]) == 2
    assert "own.csv" in capsys.readouterr().err
    assert not Path("results/figures").exists()


def test_intervals_that_do_not_hold_the_mean():
    """Of counts that are hardly ever above 0, the 95 % interval is 0 to 0."""
    columns = {"mean": np.array([0.02, 3.0]), "lower_95": np.array([0, 1]), "upper_95": np.array([0, 7])}
    found: Any = SimpleNamespace(columns=columns, targets=np.array([0.0, 2.0]), target="n")
    ax = Figure().subplots()
    _against_true(ax, found)
    drawn = [segment[:, 0].tolist() for one in ax.collections for segment in cast(LineCollection, one).get_segments()]
    assert sorted(drawn) == [[0.0, 0.0], [1.0, 7.0]]


@pytest.fixture
def folder(tmp_path):
    made_up.fill(tmp_path / "results", list(made_up.sweep("ringnorm", ("elbo",), [100, 200], range(2), 1)))
    return tmp_path / "results"


def test_the_data_root_of_the_run_can_be_given(folder, monkeypatch):
    roots = []

    def diagnose(results, record, root=None):
        roots.append(root)
        raise UserError("that is enough")

    monkeypatch.setattr("dlmexp.models.choose.chosen", lambda results, *_, **__: list(results.records.values())[:1])
    monkeypatch.setattr("dlmexp.models.diagnosis.diagnose", diagnose)
    assert main(["plot", "predictions", "--results", str(folder), "--data-root", "there"]) == 2
    with pytest.raises(UserError, match="that is enough"):
        dlmexp.plot("predictions", folder, data_root="there")
    assert roots == ["there", "there"]


def test_width_and_style(folder, capsys):
    def size(*words):
        assert main(["plot", "class-log", "--results", str(folder), "--format", "png", *words]) == 0
        return imread(folder / "figures" / "class-log.png").shape

    plain = size()
    wide = size("--width", "13.5")
    assert wide[1] == 13.5 * 200
    assert wide[0] == pytest.approx(plain[0] * wide[1] / plain[1], abs=2)
    own = folder / "my.mplstyle"
    own.write_text("savefig.dpi: 100\n")
    assert size("--style", str(own))[1] == plain[1] / 2


MISTAKES = {
    "no style file": (["--style", "no.mplstyle"], ["no.mplstyle", "no such file"]),
    "not a style file": (["--style", "bad.mplstyle"], ["bad.mplstyle", "not a style file"]),
    "no width": (["--width", "wide"], ["wide"]),
    "a negative width": (["--width", "-1"], ["--width -1"]),
    "a width that is no number": (["--width", "nan"], ["--width nan"]),
    "predictions and another": (["predictions", "class-log"], ["of one model"]),
    "predictions and a list": (["predictions", "--list"], ["of one model", "--list"]),
    "predictions of all protocols": (["predictions", "--compare-protocols"], ["of one model", "--compare-protocols"]),
    "predictions on a stamp": (["predictions", "--width", "2"], ["--width 2", "3 inches"]),
    "predictions with a typo": (["predictons"], ["no figure 'predictons'", "did you mean predictions"]),
    "predictions without a model": (["predictions"], ["no models"]),
    "predictions of an unknown field": (["predictions", "--by", "sede=1"], ["--by sede=1", "seed"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    Path("bad.mplstyle").write_text("this is no style: at all\n")
    words, expected = MISTAKES[mistake]
    assert main(["plot", *words, "--results", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dlmexp: ")
    assert said.count("\n") == 1
    for part in expected:
        assert part in said
    assert not (folder / "figures").exists()
