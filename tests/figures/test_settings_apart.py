"""Nothing that is shown mixes settings: the default job with a second run of other values beside it, and any folder."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from dlmexp.claims.evidence import selected
from dlmexp.claims.judge import by_setting
from dlmexp.cli import main
from dlmexp.data.dataset import Dataset
from dlmexp.figures import style
from dlmexp.figures.compose import render
from dlmexp.figures.notes import notes_below
from dlmexp.figures.plot import Request, measured
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.series import panel_records, series_of
from dlmexp.plan import grid
from dlmexp.plan.cell import Candidates
from dlmexp.plan.compose import compose
from dlmexp.records.manifest import manifest
from dlmexp.records.results import Results, load
from dlmexp.records.store import Store
from dlmexp.records.wanted import ANY, Wanted
from dlmexp.report.rows import rows
from tests.support.made_up import fill, fit

PANEL = FIGURES["default"].panels[0]
FOUR = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
FIRST = "experiment=default"
SECOND = "experiment=default method=[elbo] training.binary.lr=0.01 training.binary.max_iterations=200 seeds=[0,1,2,3,4]"


@cache
def planned(words: str) -> list[Candidates]:
    """What `dlmexp run` would ask for, at a single size unless others are named."""
    cfg = compose(["sizes=[100]", *words.split()])
    X, y = np.zeros((600, 2)), np.zeros(600)
    return list(grid.candidates(cfg, cfg.dataset["ringnorm_drawn"], Dataset("ringnorm_drawn", "binary", X, y, "sum")))


def record_all(folder: Path, words: str, **nll: float) -> None:
    """The records and the manifest that a run would leave."""
    several = planned(words)
    # A cell of two methods is the ELBO's, which comes first.
    cells = {cell.key: (some.method, cell) for some in reversed(several) for cell in some.cells}
    records = [
        fit(cell, nll=nll[method] + 0.01 * cell.seed + 0.1 * abs(np.log10(cell.beta or 1.0)), error=0.1)
        for method, cell in cells.values()
    ]
    fill(folder, records, manifest("default", several))


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """The default job, then the ELBO once more with another learning rate and fewer iterations: far worse."""
    folder = tmp_path / "results"
    record_all(folder, FIRST, elbo=0.15, beta_elbo=0.12, joint_log_dlm=0.14, fixed_log_dlm=0.13)
    record_all(folder, SECOND, elbo=0.9)
    return folder


def numbers(folder: Path, name: str) -> pd.Series:
    return pd.read_csv(folder / "figures" / f"{name}.csv").set_index("method")["mean"]


@pytest.mark.slow
def test_a_second_run_with_other_values_changes_no_line(story: Path, capsys) -> None:
    assert main(["plot", "default", "--results", str(story), "--format", "png"]) == 0
    said = capsys.readouterr().out
    assert numbers(story, "default")["elbo"] == pytest.approx(0.16), "the mean over seeds 0 to 2 of the first run"
    (left,) = [line for line in said.splitlines() if "left out" in line]
    assert "5 cells with other settings (paper, lr=0.01, max_iterations=200)" in left
    command = shlex.split(left.partition("->  ")[2])
    assert command[:3] == ["dlmexp", "plot", "default"]
    # The command that is printed draws them, and says what it is that it draws.
    assert main([*command[1:], "--format", "png"]) == 0
    said = capsys.readouterr().out
    assert "setting: ringnorm_drawn: paper, lr=0.01, max_iterations=200" in said
    drawn = numbers(story, "default-lr=0.01-max_iterations=200")
    assert dict(drawn) == {"elbo": pytest.approx(0.92)}
    # And what that one leaves out is what the first one shows.
    (left,) = [line for line in said.splitlines() if "left out" in line]
    assert shlex.split(left.partition("->  ")[2])[:3] == ["dlmexp", "plot", "default"]
    assert "--where" not in left.partition("->  ")[2]


def test_every_command_that_is_printed_draws_what_it_says(tmp_path: Path, capsys) -> None:
    """The default job, the same data by the paper's protocol as it stands, by two others, and with another grid."""
    runs = [FIRST, *(f"dataset=ringnorm_drawn seeds=[0,1] {words}" for words in ("", "protocol=released",
            "training.binary.lr=0.01", "beta=short", "dataset.ringnorm_drawn.M=20"))]  # fmt: skip
    for number, words in enumerate(runs):
        record_all(tmp_path, words, **dict.fromkeys(FOUR, float(number)))
    assert main(["plot", "default", "--results", str(tmp_path), "--format", "svg"]) == 0
    left = [line.partition("->  ") for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert len(left) == len(runs) - 1
    seen = {float(int(numbers(tmp_path, "default")["joint_log_dlm"]))}
    for words, _, command in left:
        assert main([*shlex.split(command)[1:], "--format", "svg"]) == 0
        said = capsys.readouterr().out.splitlines()
        name = said[0].partition(":")[0]
        seen.add(float(int(numbers(tmp_path, name)["joint_log_dlm"])))
        if "(" in words:
            label = words.partition("(")[2].rpartition(")")[0]
            assert f"  setting: ringnorm_drawn: {label}" in said
    assert seen == set(map(float, range(len(runs)))), "each run is drawn by one of the commands"


@pytest.mark.parametrize(
    "words",
    ["training.lr=0.01", "lr=1e-2", "training.binary.lr=0.01", "training.max_iterations=200"],
)
def test_one_value_is_enough_to_say_which(story: Path, words: str, capsys) -> None:
    assert main(["plot", "default", "--results", str(story), "--format", "png", "--where", words]) == 0
    assert "setting: ringnorm_drawn: paper, lr=0.01, max_iterations=200" in capsys.readouterr().out


def test_claims_judge_each_setting_apart(story: Path, capsys) -> None:
    found = by_setting(load(story))
    assert list(found) == ["paper, experiment=default", "paper, lr=0.01, max_iterations=200"]
    both = [
        {method: selected(results, "ringnorm_drawn", method, "nll").values for method in FOUR}
        for _, results in found.values()
    ]
    assert np.mean(list(both[0]["elbo"].values())) == pytest.approx(0.16)
    assert np.mean(list(both[1]["elbo"].values())) == pytest.approx(0.92)
    assert not any(both[1][method] for method in FOUR[1:]), "nobody ran them with these values"
    assert main(["claims", "--results", str(story), "--where", "training.lr=0.01"]) == 0
    assert "experiment=default" not in capsys.readouterr().out.splitlines()[0]


def test_the_report_tells_the_two_elbos_apart(story: Path) -> None:
    found = {
        (row.settings["lr"], row.settings["max_iterations"]): row for row in rows(load(story)) if row.method == "ELBO"
    }
    assert {key: row.repetitions for key, row in found.items()} == {("0.1", "1000"): 3, ("0.01", "200"): 5}


def test_protocols_side_by_side(tmp_path: Path) -> None:
    for protocol, level in (("paper", 0.1), ("released", 0.5)):
        record_all(tmp_path, f"{FIRST} protocol={protocol}", **dict.fromkeys(FOUR, level))
    (drawn,) = measured([load(tmp_path)], ["default"], Request(compare_protocols=True))
    assert drawn.drawing.name == "default-protocols"
    assert drawn.drawing.protocols == ("paper", "released")
    means = [one.points["mean"].iloc[0] for several in drawn.series for one in several if one.line.method == "elbo"]
    assert means == pytest.approx([0.11, 0.51])
    assert drawn.left_out == []
    assert drawn.settings == {"ringnorm_drawn [released]": "released with q unwhitened"}
    assert "Protocols side by side: paper; released with q unwhitened." in notes_below(drawn)
    assert set(drawn.numbers["parameterisation"]) == {"whitened", "unwhitened"}
    drawn.settings["other [paper]"] = "paper, M=10, beta=10, 1, 0.1, dtype=float32"
    drawn.settings["third [paper]"] = "paper, M=20"
    said = "paper (other with M=10, beta=[10, 1, 0.1], dtype=float32; third with M=20); released with q unwhitened."
    assert f"Protocols side by side: {said}" in notes_below(drawn)
    with style.use():
        left, right = (ax for ax in render(drawn).axes if ax.get_title(loc="left"))
    assert [ax.get_title(loc="left") for ax in (left, right)] == ["ringnorm_drawn, paper", "ringnorm_drawn, released"]
    assert left.get_ylim() == right.get_ylim()
    (low, high), points = left.get_ylim(), drawn.numbers["mean"]
    assert min(points.min() - low, high - points.max()) > 0.05 * (high - low), "markers at the edge are not cut"


def test_side_by_side_a_size_is_at_one_place(tmp_path: Path) -> None:
    """Where a protocol was run at fewer sizes, its lines are not stretched to the width of the others."""
    for protocol, sizes in (("paper", "[20,40,80]"), ("released", "[20,40]")):
        record_all(tmp_path, f"{FIRST} sizes={sizes} protocol={protocol}", **dict.fromkeys(FOUR, 0.1))
    (drawn,) = measured([load(tmp_path)], ["default"], Request(compare_protocols=True))
    with style.use():
        left, right = (ax for ax in render(drawn).axes if ax.get_title(loc="left"))
    assert left.get_xlim() == right.get_xlim()
    assert left.get_xlim()[0] < 20 < 80 < left.get_xlim()[1]


def test_a_long_title_stays_inside_the_figure(tmp_path: Path) -> None:
    for protocol in ("paper", "released", "converged"):
        record_all(tmp_path, f"{FIRST} protocol={protocol}", **dict.fromkeys(FOUR, 0.1))
    (drawn,) = measured([load(tmp_path)], ["default"], Request(compare_protocols=True))
    *others, last = drawn.drawing.panels
    long = replace(last, title="a title that is far too long for its panel")
    drawn = replace(drawn, drawing=replace(drawn.drawing, panels=(*others, long)))
    with style.use():
        canvas = render(drawn)
        canvas.draw_without_rendering()
        titles = [text for text in canvas.findobj(Text) if isinstance(text, Text) and long.dataset in text.get_text()]
        ends = [text.get_window_extent().x1 for text in titles if text.get_text().startswith(long.dataset)]
    assert len(ends) == 3
    assert max(ends) < canvas.bbox.x1


def test_a_folder_of_another_protocol_alone_is_drawn_and_says_so(tmp_path: Path) -> None:
    record_all(tmp_path, f"{FIRST} protocol=released", **dict.fromkeys(FOUR, 0.5))
    (drawn,) = measured([load(tmp_path)], ["default"])
    assert not drawn.empty
    assert drawn.settings == {"ringnorm_drawn": "released with q unwhitened"}
    assert drawn.commands == ["dlmexp run experiment=default protocol=released"]


@pytest.mark.parametrize("preset", ["quick", "debug"])
def test_a_preset_is_a_protocol_of_its_own(tmp_path: Path, preset: str, capsys) -> None:
    """Beside a whole run under another protocol: nothing is said to be changed, protocols of the preset stand side by
    side, and what computes them is said as `dlmexp run` takes it."""
    both = {preset: "", f"released-{preset}": " protocol=released"}
    for name, words in both.items():
        record_all(tmp_path, f"{FIRST} preset={preset}{words}", **dict.fromkeys(FOUR, float(len(name))))
    results = load(tmp_path)
    settings = [preset, f"released-{preset}, experiment=default"]  # whose betas begin elsewhere than the released ones
    assert list(by_setting(results)) == settings
    assert [one.drawing.name for one in measured([results], ["default"])] == [f"default-{name}" for name in both]
    (drawn,) = measured([results], ["default"], Request(compare_protocols=True))
    assert (drawn.drawing.name, drawn.drawing.protocols) == (f"default-protocols-{preset}", tuple(both))
    assert drawn.commands == [f"dlmexp run experiment=default preset={preset}{words}" for words in both.values()]
    assert [int(several[0].points["mean"].iloc[0]) for several in drawn.series] == [len(name) for name in both]
    assert main(["report", "--results", str(tmp_path)]) == 0
    record_all(tmp_path, FIRST, **dict.fromkeys(FOUR, 1.0))
    assert {one.drawing.name for one in measured([load(tmp_path)], ["default"], Request(compare_protocols=True))} == {
        "default", f"default-protocols-{preset}"
    }  # fmt: skip


def test_a_preset_is_not_compared_with_a_whole_run(tmp_path: Path, capsys) -> None:
    for words in (FIRST, f"{FIRST} preset=quick"):
        record_all(tmp_path, words, **dict.fromkeys(FOUR, 1.0))
    assert main(["plot", "default", "--results", str(tmp_path), "--compare-protocols"]) == 2
    assert "of paper and quick none can stand beside another" in capsys.readouterr().err
    assert main(["report", "--results", str(tmp_path)]) == 0


# Whatever lies in a folder. Each of these is a run that somebody may have made.
RUNS = [
    f"dataset=ringnorm_drawn seeds=[0,1] {words}".strip()
    for words in (
        "", "training.binary.lr=0.01", "training.binary.max_iterations=200", "beta=short",
        "training.binary.lr=0.01 training.binary.max_iterations=200", "training.binary.lr=0.01 beta=short",
        "dataset.ringnorm_drawn.M=20", "protocol=released", "protocol=released training.binary.lr=0.1",
        "training.binary.initial.lengthscale=2", "parameterisation=[unwhitened]", "selection=nll",
    )
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def plans() -> None:
    """All runs are composed before anything is drawn at random, for Hydra draws numbers itself."""
    for words in RUNS:
        planned(words)


def keys_of(words: str) -> set[str]:
    return {cell.key for some in planned(words) for cell in some.cells}


def one_run(keys: Iterable[str]) -> bool:
    """Whether a single run asks for all of these cells: the only thing that may be shown as one."""
    wanted = set(keys)
    return any(wanted <= keys_of(words) for words in RUNS)


@st.composite
def folders(draw: st.DrawFn) -> Results:
    """Some runs, each with some of the methods, all of whose records are there. The value of a record depends on its
    setting alone, so that repetitions of one setting have no deviation."""
    chosen = draw(st.lists(st.sampled_from(RUNS), min_size=1, max_size=4, unique=True))
    several = []
    for words in chosen:
        methods = draw(st.sets(st.sampled_from(FOUR), min_size=1))
        several += [some for some in planned(words) if some.method in (*methods, "elbo")]
    bases = {cell.key: cell for some in several for cell in some.cells}
    records = {}
    for cell in bases.values():
        base = bases[cell.base].group if cell.base else ""
        value = int.from_bytes(repr((cell.group, base, cell.beta)).encode()) % 99991
        records[cell.key] = fit(cell, nll=float(value), error=0.1)
    return Results(Store("nowhere"), records.values(), manifest("any", several).candidates)


@settings(max_examples=60)
@given(
    folders(), st.sampled_from(["whitened", "unwhitened"]), st.sampled_from([ANY, Wanted("released"), Wanted("paper")])
)
def test_no_panel_mixes_settings(found: Results, how: str, wanted: Wanted) -> None:
    records = panel_records(PANEL, found, how, wanted)
    kept = {key for one in records.kept for key in one.keys}
    assert one_run(kept)
    series = series_of(PANEL, found, how, records)
    for one in series:
        assert (one.points["std"].dropna() == 0).all()
        assert (one.points["repetitions"] <= 2).all()
    # What is not shown is counted, each cell once.
    left = [key for keys in records.left_out.values() for key in keys]
    assert len(left) == len(set(left))
    assert kept.isdisjoint(left)


@settings(max_examples=60)
@given(folders())
def test_no_row_mixes_settings(found: Results) -> None:
    table = rows(found)
    assert table
    for row in table:
        measured = row.metrics["nll"]
        assert measured is not None
        assert not measured[1] > 0
        assert row.repetitions <= 2
    # And no two rows look the same.
    seen = [(row.n, row.method, row.estimator, row.q, row.M, *row.settings.values()) for row in table]
    assert len(seen) == len(set(seen))


@settings(max_examples=60)
@given(folders())
def test_no_verdict_mixes_settings(found: Results) -> None:
    for _, results in by_setting(found).values():
        for how in ("whitened", "unwhitened"):
            evidence = [selected(results, "ringnorm_drawn", method, "nll", how) for method in FOUR]
            assert one_run(record.key for one in evidence for record in one.records)
