"""A beta grid of one's own ends in a point of the figure and in the claims, as soon as it is complete."""

import math
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dlmexp.claims.evidence import selected
from dlmexp.cli import main
from dlmexp.data.dataset import Dataset
from dlmexp.figures.measure import measure
from dlmexp.figures.plot import measured
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.variants import Drawing
from dlmexp.plan import grid
from dlmexp.plan.cell import Candidates
from dlmexp.plan.compose import compose
from dlmexp.records.manifest import Manifest, manifest
from dlmexp.records.results import load
from tests.support.made_up import asked, fill, fit, plausible
from tests.support.made_up import cell as made_up
from tests.support.series import panel_series

CONFIGS = {
    "beta.smallest=0.1": [100 / 2**k for k in range(10)],
    "beta.ratio=4": [100 / 4**k for k in range(7)],
    "beta=list beta.values=[100,50]": [100, 50],
    "beta=short": [100, 10, 1, 0.1, 0.01],
}
WORDS = [
    "dataset=ringnorm_drawn",
    "method=[elbo,beta_elbo,joint_log_dlm,fixed_log_dlm]",
    "seeds=[0,1,2]",
    "sizes=[100]",
]
SELECTING = {"beta_elbo": "β-ELBO", "joint_log_dlm": "joint DLM", "fixed_log_dlm": "fixed DLM"}
BEST = -2  # the place in the grid of the beta with the lowest validation NLL


def asked_for(words: str) -> list[Candidates]:
    cfg = compose([*WORDS, *words.split()])
    random = np.random.default_rng(0)
    X, y = random.normal(size=(600, 2)), random.integers(0, 2, 600).astype(float)
    return list(grid.candidates(cfg, cfg.dataset["ringnorm_drawn"], Dataset("ringnorm_drawn", "binary", X, y, "sum")))


def run(folder: Path, several: list[Candidates], lacking: int = 0, seeds: tuple[int, ...] = (0, 1, 2)) -> None:
    """Records of all cells but `lacking` betas of joint DLM in these seeds; the manifest asks for all of them."""
    records = {}
    for some in several:
        best = [cell.beta or 1.0 for cell in some.cells][BEST:][0]
        for place, cell in enumerate(some.cells):
            if some.method != "joint_log_dlm" or cell.seed not in seeds or place >= lacking:
                off = abs(math.log((cell.beta or 1.0) / best))
                records[cell.key] = fit(cell, nll=0.5 + 0.1 * cell.seed + off, error=0.1)
    fill(folder, records.values(), manifest("mine", several))


def lines(folder: Path) -> dict:
    return {one.line.look.label: one for one in panel_series(FIGURES["default"].panels[0], load(folder))}


@pytest.mark.parametrize("words", CONFIGS)
def test_a_point_at_the_selected_beta(tmp_path: Path, words: str) -> None:
    run(tmp_path, asked_for(words))
    betas = CONFIGS[words]
    series = lines(tmp_path)
    assert list(series["ELBO"].points["repetitions"]) == [3]
    for method, label in SELECTING.items():
        (point,) = series[label].points.to_dict("records")
        assert point["betas"] == " ".join([f"{betas[BEST]:.4g}"] * 3)
        assert (point["x"], point["repetitions"], point["failed"]) == (100, 3, 0)
        assert point["mean"] == pytest.approx(0.6)
        assert point["fewest_candidates"] == point["most_candidates"] == len(betas)
        assert series[label].notes == []
        found = selected(load(tmp_path), "ringnorm_drawn", method, "nll")
        assert found.values == pytest.approx({(100, seed): 0.5 + 0.1 * seed for seed in range(3)})
        assert found.lost == 0
        assert len(found.records) == 3 * len(betas)


@pytest.mark.parametrize("words", CONFIGS)
def test_a_grid_that_is_not_complete_draws_no_point_and_says_what_is_missing(tmp_path: Path, words: str) -> None:
    run(tmp_path, asked_for(words), lacking=1)
    series = lines(tmp_path)
    assert series["joint DLM"].empty
    assert series["joint DLM"].notes == [
        "joint DLM, n = 100: 1 beta has no record yet in 3 repetitions, which are not drawn"
    ]
    assert not series["fixed DLM"].empty
    found = selected(load(tmp_path), "ringnorm_drawn", "joint_log_dlm", "nll")
    assert (found.values, found.lost, found.records) == ({}, 0, [])


def test_only_the_repetitions_that_are_not_complete_are_left_out(tmp_path: Path) -> None:
    run(tmp_path, asked_for("beta.ratio=4"), lacking=3, seeds=(1,))
    series = lines(tmp_path)["joint DLM"]
    (point,) = series.points.to_dict("records")
    assert (point["repetitions"], point["failed"]) == (2, 0)
    assert point["mean"] == pytest.approx(0.6)
    assert series.notes == ["joint DLM, n = 100: 3 betas have no record yet in 1 repetition, which is not drawn"]
    assert selected(load(tmp_path), "ringnorm_drawn", "joint_log_dlm", "nll").values.keys() == {(100, 0), (100, 2)}


def test_of_two_grids_in_one_folder_the_figures_own_is_drawn_and_the_other_is_named(tmp_path: Path) -> None:
    for words in ("beta=short", "beta.ratio=4"):
        run(tmp_path, asked_for(words))
    series = lines(tmp_path)["joint DLM"]
    (point,) = series.points.to_dict("records")
    assert point["most_candidates"] == 5
    assert point["betas"] == "0.1 0.1 0.1"
    figure = FIGURES["default"]
    drawn = measure(Drawing(figure, "default", figure.panels), [load(tmp_path)])
    (left,) = drawn.left_out
    assert left.words == "54 cells with other settings (paper, beta=n, n/4, ... >= 0.01)"
    where = ["--where", "training.max_iterations=3000", "--where", "beta=n, n/4, ... >= 0.01"]  # the figure's: 1000
    assert left.command == shlex.join(["dlmexp", "plot", "default", *where, "--results", str(tmp_path)])


@pytest.mark.slow
def test_the_command_draws_the_point_and_says_what_is_missing(tmp_path: Path, capsys) -> None:
    run(tmp_path, asked_for("beta=list beta.values=[100,50]"), lacking=1, seeds=(2,))
    assert main(["plot", "default", "--results", str(tmp_path), "--format", "png"]) == 0
    numbers = pd.read_csv(tmp_path / "figures" / "default.csv").set_index("method")
    assert numbers.loc["joint_log_dlm", "betas"] == "100 100"
    assert "joint DLM, n = 100: 1 beta has no record yet in 1 repetition, which is not drawn" in capsys.readouterr().out
    assert main(["plot", "default", "--results", str(tmp_path), "--format", "png", "--by", "seed=2"]) == 0
    assert "joint_log_dlm" not in (tmp_path / "figures" / "default-seed=2.csv").read_text()


def test_two_grids_of_learning_curves_on_own_data_stay_apart(tmp_path: Path) -> None:
    """Every panel, that of the curves too, shows one grid; the other is counted and named."""
    grids = {"5, 0.1": (5.0, 0.1), "1, 0.01": (1.0, 0.01)}
    several = [
        [plausible(made_up("mall", "count", evaluate="10", objective=objective, beta=beta, seed=seed))
         for objective, beta in (("elbo", 1.0), *(("log_dlm", beta) for beta in betas)) for seed in (0, 1)]
        for betas in grids.values()
    ]  # fmt: skip
    for (rule, _), things in zip(grids.items(), several, strict=True):
        records = [one[0] if isinstance(one, tuple) else one for one in things]
        cells = {record.key: record.cell.describe() for record in records}
        wanted = [one for one in asked(records, rule) if one.method in ("elbo", "joint_log_dlm")]
        fill(tmp_path, things, Manifest(rule, cells, wanted))
    (drawn,) = (one for one in measured([load(tmp_path)], ["own-mall"]))
    kinds = [panel.kind for panel in drawn.drawing.panels]
    assert {"sizes", "betas", "curve"} <= {*kinds}
    assert drawn.numbers["repetitions"].max() == 2
    assert {one.setting.label for series in drawn.series for one in series if one.setting} == {"paper, beta=1, 0.01"}
    (curve,) = (one for one in drawn.series[kinds.index("curve")] if one.line.method == "joint_log_dlm")
    assert curve.line.beta in grids["1, 0.01"]
    (left,) = drawn.left_out
    assert left.words == "4 cells with other settings (paper, beta=5, 0.1)"


def test_a_method_without_a_learning_curve_stands_beside_the_ends_of_those_with_one(results) -> None:
    curves = [made_up("mall", "regression", evaluate="10", objective="log_dlm", beta=beta) for beta in (1.0, 0.1)]
    found = results(*curves, made_up("mall", "regression", objective="sq_dlm", variant="fixed"))
    (drawn,) = measured([found], ["own-mall"])
    methods = {}
    for panel, several in zip(drawn.drawing.panels, drawn.series, strict=True):
        methods.setdefault((panel.kind, panel.metric), set()).update(
            one.line.method for one in several if not one.empty
        )
    assert methods["sizes", "mse"] == {"joint_log_dlm", "fixed_sq_dlm"}
    assert methods["sizes", "nll"] == methods["betas", "nll"] == methods["curve", "nll"] == {"joint_log_dlm"}
