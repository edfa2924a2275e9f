"""The anatomy of DLM - ELBO: made-up records with known effects show just those effects."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dlmexp import catalogue
from dlmexp.cli import main
from dlmexp.figures import style
from dlmexp.figures.compose import render
from dlmexp.figures.effect_axes import ROWS
from dlmexp.figures.effects import EFFECTS, effect_records
from dlmexp.figures.effects import panel_effects as effects_of
from dlmexp.figures.families.anatomy import DATASETS
from dlmexp.figures.measure import measure
from dlmexp.figures.notes import notes_below
from dlmexp.figures.panels import Panel
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.series import Series
from dlmexp.figures.variants import Drawing
from dlmexp.plan.compose import compose, parts
from dlmexp.records.manifest import Asked, Manifest
from dlmexp.records.results import Results, load
from dlmexp.records.schema import Record
from dlmexp.records.settings import Setting
from dlmexp.records.wanted import ANY
from tests.support.made_up import failed, fill, fit, method_cell

# What each step adds to the NLL. Choosing beta and the objective interact: together they give 0.1 more than the sum.
BETA, OBJECTIVE, TOGETHER, FITC = -0.4, -0.3, -0.1, -0.25
SLOW_ELBO, SLOW_DLM, FLOOR_DLM = 0.5, 0.2, 0.05
EXPECTED = {
    "whole": BETA + OBJECTIVE + TOGETHER, "beta": BETA + TOGETHER / 2, "objective": OBJECTIVE + TOGETHER / 2,
    "coordinates": SLOW_DLM - SLOW_ELBO, "noise": FLOOR_DLM, "fitc": FITC,
}  # fmt: skip
PARTS = {
    ("beta", "elbo"): BETA, ("beta", "joint_log_dlm"): BETA + TOGETHER,
    ("objective", "ppgpr"): OBJECTIVE, ("objective", "beta_elbo"): OBJECTIVE + TOGETHER,
    ("coordinates", "elbo"): SLOW_ELBO, ("coordinates", "joint_log_dlm"): SLOW_DLM,
    ("noise", "elbo"): 0.0, ("noise", "joint_log_dlm"): FLOOR_DLM,
}  # fmt: skip
STEP = {
    "elbo": 0.0, "beta_elbo": BETA, "ppgpr": OBJECTIVE, "joint_log_dlm": BETA + OBJECTIVE + TOGETHER, "fitc": FITC,
}  # fmt: skip
GRID = (8.0, 2.0)  # 2 is the better one, on validation and on test


def level_of(method: str, q: str, floor: float | None, beta: float) -> float:
    dlm = method in ("ppgpr", "joint_log_dlm")
    slow = (SLOW_DLM if dlm else SLOW_ELBO) if q == "unwhitened" else 0.0
    return STEP[method] + slow + (FLOOR_DLM if floor and dlm else 0.0) + (0.7 if beta == GRID[0] else 0.0)


def records(dataset: str, seeds: range, noise: float = 0.0) -> tuple[list[Record], list[Asked]]:
    """The factorial on one dataset, as the experiment asks for it; splits are far apart."""
    random = np.random.default_rng(1)
    regression = catalogue.datasets()[dataset]["task"] == "regression"
    found: list[Record] = []
    asked: list[Asked] = []
    for seed in seeds:
        split = 3.0 * random.normal()
        for method in STEP:
            closed = regression and method in ("elbo", "beta_elbo", "fitc")
            if method == "fitc" and not regression:
                continue
            for q in ("whitened",) if closed else ("whitened", "unwhitened"):
                for floor in (None, 0.01) if regression else (None,):
                    betas = GRID if method in ("beta_elbo", "joint_log_dlm") else (1.0,)
                    cells = [
                        method_cell(method, dataset, n=500, seed=seed, parameterisation=q, noise_floor=floor)
                        if method == "fitc"
                        else method_cell(
                            method, dataset, n=500, seed=seed, parameterisation=q, noise_floor=floor, beta=b
                        )
                        for b in betas
                    ]
                    for cell, beta in zip(cells, betas, strict=True):
                        nll = split + level_of(method, q, floor, beta) + noise * random.normal()
                        found.append(fit(cell, nll=nll))
                    asked.append(Asked(method, "8, 2" if len(betas) > 1 else "1", tuple(cell.key for cell in cells)))
    return found, asked


def read(folder: Path, *several: tuple[list[Record], list[Asked]]) -> Results:
    together = [record for found, _ in several for record in found]
    asked = [one for _, wanted in several for one in wanted]
    fill(folder, together, Manifest("anatomy", {record.key: "" for record in together}, asked))
    return load(folder)


def panel_effects(one: Panel, results: Results) -> list[Series]:
    return effects_of(one, results, effect_records(one, results, ANY))


def panel(dataset: str) -> Panel:
    return next(panel for panel in FIGURES["anatomy"].panels if panel.dataset == dataset)


@pytest.mark.parametrize("dataset", ["pol", "banana", "abalone"])
def test_known_effects_are_found_in_every_repetition(tmp_path: Path, dataset: str) -> None:
    found = {one.line.effect: one for one in panel_effects(panel(dataset), read(tmp_path, records(dataset, range(4))))}
    regression = dataset == "pol"
    assert set(found) == (set(EXPECTED) if regression else set(EXPECTED) - {"noise", "fitc"})
    elbo_in_closed_form = {("coordinates", "elbo"): 0.0} if regression else {}
    for effect, series in found.items():
        points = series.points.set_index("part")
        expected = SLOW_DLM if regression and effect == "coordinates" else EXPECTED[effect]
        # The splits are 3 nats apart, and nothing of that is left in the differences.
        shown = series.points.iloc[0][["mean", "low", "high"]].to_list()
        assert shown == pytest.approx([expected] * 3, abs=1e-12)
        assert (points["repetitions"] == 4).all()
        parts_of = {part: value for (name, part), value in {**PARTS, **elbo_in_closed_form}.items() if name == effect}
        assert points["mean"].drop("effect").to_dict() == pytest.approx(parts_of, abs=1e-12)
        assert series.n == 500


def test_the_parts_add_up_to_the_whole_whatever_the_numbers(tmp_path: Path) -> None:
    found = {one.line.effect: one for one in panel_effects(panel("pol"), read(tmp_path, records("pol", range(5), 0.3)))}
    whole, beta, objective = (found[name].points["mean"].iloc[0] for name in ("whole", "beta", "objective"))
    assert beta + objective == pytest.approx(whole)


def test_the_interval_is_wide_enough_nineteen_times_of_twenty(tmp_path: Path) -> None:
    inside = 0
    for trial in range(60):
        one = np.random.default_rng(trial).normal(EXPECTED["whole"], 0.2, 5)
        cells = {m: [method_cell(m, "banana", n=500, seed=s) for s in range(5)] for m in ("elbo", "joint_log_dlm")}
        cells["ppgpr"] = cells["joint_log_dlm"]
        made = [fit(cell, nll=0.0) for cell in cells["elbo"]]
        made += [fit(cell, nll=float(value)) for cell, value in zip(cells["joint_log_dlm"], one, strict=True)]
        asked = [Asked(m, "1", (cell.key,)) for m, several in cells.items() for cell in several]
        point = panel_effects(panel("banana"), read(tmp_path / str(trial), (made, asked)))[0].points.iloc[0]
        inside += point["low"] <= EXPECTED["whole"] <= point["high"]
    assert 52 <= inside <= 60


def test_a_repetition_that_failed_is_left_out_and_counted(tmp_path: Path) -> None:
    found, asked = records("banana", range(4))
    lost = next(r for r in found if r.cell.objective == "elbo" and r.cell.beta == 1.0 and r.cell.seed == 2)
    assert lost.cell.parameterisation == "whitened"
    found = [failed(r.cell) if r.key == lost.key else r for r in found]
    series = {one.line.effect: one for one in panel_effects(panel("banana"), read(tmp_path, (found, asked)))}
    point = series["whole"].points.iloc[0]
    assert (point["repetitions"], point["failed"], point["mean"]) == (3, 1, pytest.approx(EXPECTED["whole"]))


def test_an_effect_without_records_is_no_effect(tmp_path: Path) -> None:
    found, asked = records("pol", range(3))
    keys = {r.key for r in found if r.cell.noise_floor is None}
    some = ([r for r in found if r.key in keys], [one for one in asked if set(one.keys) <= keys])
    series = {one.line.effect: one for one in panel_effects(panel("pol"), read(tmp_path, some))}
    assert series["noise"].empty
    assert not series["whole"].empty
    figure = FIGURES["anatomy"]
    with style.use():
        (ax,) = render(measure(Drawing(figure, figure.id, figure.panels), [load(tmp_path)])).axes
    assert [text.get_text() for text in ax.texts if text.get_position()[1] == ROWS.index("noise")] == ["not run"]
    assert all(len(text.get_text()) < 10 for text in ax.texts), "a narrow panel has no room for more"


@pytest.mark.slow
def test_the_command_writes_the_effects_and_draws_them(tmp_path: Path, capsys) -> None:
    read(tmp_path, *(records(dataset, range(3)) for dataset in DATASETS))
    assert main(["plot", "anatomy", "--results", str(tmp_path), "--format", "png"]) == 0
    assert "3 of 20 repetitions" in capsys.readouterr().out
    numbers = pd.read_csv(tmp_path / "figures" / "anatomy.csv")
    assert set(numbers["dataset"]) == set(DATASETS)
    shown = numbers[numbers["part"] == "effect"].set_index(["dataset", "effect"])["mean"]
    assert shown["banana"].to_dict() == pytest.approx({name: EXPECTED[name] for name in list(EXPECTED)[:4]})
    assert shown["cadata"]["beta"] == pytest.approx(EXPECTED["beta"])
    assert numbers["n"].unique().tolist() == [500]


@pytest.mark.slow
def test_bars_are_as_long_as_the_effects(tmp_path: Path) -> None:
    figure = FIGURES["anatomy"]
    found = measure(Drawing(figure, figure.id, figure.panels), [read(tmp_path, records("banana", range(3)))])
    with style.use():
        canvas = render(found)
    (ax,) = canvas.axes
    assert ax.get_title(loc="left") == "Binary\nbanana\nn = 500"
    widths = {round(bar.get_y()): bar.get_width() for bar in ax.patches}  # pyright: ignore
    assert {ROWS[row]: width for row, width in widths.items()} == pytest.approx(
        {name: EXPECTED[name] for name in ("whole", "beta", "objective", "coordinates")}
    )
    (legend,) = canvas.legends
    assert "PPGPR (joint DLM, β = 1) − ELBO" in [text.get_text() for text in legend.get_texts()]


def test_panels_of_one_task_have_one_scale_and_nothing_covers_ppgpr(tmp_path: Path) -> None:
    several = [records("banana", range(3)), records("ringnorm", range(3)), records("abalone", range(3), 0.3)]
    figure = FIGURES["anatomy"]
    found = measure(Drawing(figure, figure.id, figure.panels), [read(tmp_path, *several)])
    with style.use():
        canvas = render(found)
    banana, ringnorm, abalone = canvas.axes
    assert banana.get_xlim() == ringnorm.get_xlim() != abalone.get_xlim()
    for ax in canvas.axes:
        (mark,) = (line for line in ax.lines if line.get_label() == "_ppgpr")
        assert mark.get_zorder() == max(line.get_zorder() for line in ax.lines)
        (name,) = (text for text in ax.texts if text.get_text() == "PPGPR")
        assert name.get_position()[0] == mark.get_xdata()[0]  # pyright: ignore
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert "Counts: trained with the exact log loss" in " ".join(notes_below(found))


def test_the_caption_says_where_methods_start_differently(tmp_path: Path) -> None:
    figure = FIGURES["anatomy"]
    found = measure(Drawing(figure, figure.id, figure.panels), [read(tmp_path, records("pol", range(2)))])
    assert "start from other values" not in " ".join(notes_below(found))
    for series in found.series:
        for one in series:
            one.setting = Setting("released")
    (said,) = (note for note in notes_below(found) if "start from other values than ELBO" in note)
    assert said.startswith("Under released, β-ELBO")
    assert "joint DLM" in said


def test_the_experiment_asks_for_every_level_of_the_figure() -> None:
    """Objective x beta x coordinates x floor, each dataset at one size, 5 repetitions (binary, counts: 20)."""
    spans = parts(compose(["experiment=anatomy"]))
    assert {name for one in spans for name in one.dataset} == set(DATASETS)
    for one in spans:
        floors = {
            part.training["regression"].noise_floor for part in spans if part.dataset.keys() == one.dataset.keys()
        }
        regression = "pol" in one.dataset
        assert floors == ({None, 0.01} if regression else {None})
        assert len(one.seeds) == (5 if regression else 20)
        assert len(one.sizes or []) == 1
        assert one.parameterisation == ["whitened", "unwhitened"]
        wanted = {level.method for effect in EFFECTS for _, level in effect.weights} - (
            set() if regression else {"fitc"}
        )
        assert set(one.method) == wanted


def test_what_the_user_types_holds_for_all_parts() -> None:
    spans = parts(compose(["experiment=anatomy", "seeds=[3]", "beta.ratio=8"]))
    assert len(spans) == 4
    assert all(one.seeds == [3] and one.beta.ratio == 8 for one in spans)
