"""`dlmexp plot` from the command line's side."""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from dlmexp import catalogue
from dlmexp.cli import plot
from dlmexp.errors import UserError
from dlmexp.figures.notes import notes_below
from dlmexp.figures.plot import Request, measured
from dlmexp.figures.registry import FIGURES
from dlmexp.records.results import load
from tests.support.made_up import cell, fill, sweep

FOUR = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    plot.add_parser(parser.add_subparsers())
    args = parser.parse_args(["plot", *arguments])
    return args.run(args)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "results", sweep("ringnorm_drawn", FOUR, [100, 500], range(3), 3))
    return tmp_path / "results"


@pytest.mark.slow
def test_draws_what_there_is_and_says_what_there_is_not(folder: Path, capsys) -> None:
    assert run("--results", str(folder), "--format", "png") == 0
    assert sorted(path.name for path in (folder / "figures").iterdir()) == ["default.csv", "default.png"]
    said = capsys.readouterr().out
    assert "default: " in said
    assert "no results yet for: selection, reg-log" in said
    others, experiments = said.rpartition("; ")[2].rstrip(")\n").split(": those of ")
    assert "calibration" in others
    assert not {*others.split(", ")} & {*catalogue.experiments()}
    assert {*experiments.split(", ")} <= {*catalogue.experiments()}


def test_a_figure_asked_for_is_drawn_even_if_empty(folder: Path, tmp_path: Path, capsys) -> None:
    assert run("reg-sq", "--results", str(folder), "--format", "png", "--out", str(tmp_path / "out")) == 0
    assert (tmp_path / "out" / "reg-sq.png").exists()
    assert "missing: pol: nothing run  ->  dlmexp run experiment=reg-sq dataset=pol" in capsys.readouterr().out


def test_by_dataset_draws_stand_ins_under_their_own_name(folder: Path, capsys) -> None:
    assert run("class-log", "--by", "dataset=ringnorm_drawn", "--results", str(folder), "--format", "png") == 0
    assert (folder / "figures" / "class-log-ringnorm_drawn.png").exists()
    assert not (folder / "figures" / "class-log.png").exists()


def test_compare(folder: Path, tmp_path: Path) -> None:
    fill(tmp_path / "other", sweep("ringnorm_drawn", ("elbo",), [100], range(2), 1))
    arguments = ["default", "--results", str(folder), "--compare", str(tmp_path / "other"), "--format", "png"]
    assert run(*arguments) == 0
    assert "other" in (folder / "figures" / "default.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["clas-log"], "class-log"),
        (["--by", "nonsense"], "field=value"),
        (["--by", "sed=0"], "did you mean seed"),
        (["--by", "kernel=matern52"], "say --where kernel=matern52"),
        (["--by", "dataset=ringnrm"], "ringnorm"),
        (["reg-log", "--by", "dataset=flights"], "has no panel in"),
        (["--by", "seed=17"], "there are 0, 1, 2"),
        (["--where", "nonsense"], "setting=value"),
        (["--where", "training.lrr=0.1"], "there is no setting 'training.lrr': did you mean training.lr"),
        (["--where", "training.lr=0.3"], "no record has this value; there are 0.1"),
        (["--where", "kernel=matern52"], "there are rbf"),
        (["--protocol", "relesed"], "no record was made under protocol 'relesed': there are paper"),
        (["--compare-protocols"], "all records are of protocol paper"),
        (["--format", "bmp"], "valid: pdf, png, svg"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(folder: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        run(*arguments, "--results", str(folder))
    assert not (folder / "figures").exists()


def test_list_without_and_with_results(folder: Path, tmp_path: Path, capsys) -> None:
    assert run("--list", "--results", str(tmp_path / "nowhere")) == 0
    assert "reg-learning" in capsys.readouterr().out
    assert run("--list", "--results", str(folder)) == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "complete" in listed["default"]
    assert "not run" in listed["airline"]
    assert not (folder / "figures").exists()


@pytest.mark.processes
def test_neither_torch_nor_hydra_is_loaded(folder: Path) -> None:
    code = (
        "import sys, argparse; from dlmexp.cli import plot, claims, report\n"
        "p = argparse.ArgumentParser(); s = p.add_subparsers()\n"
        "[m.add_parser(s) for m in (plot, claims, report)]\n"
        "assert 'matplotlib' not in sys.modules and 'pandas' not in sys.modules, 'help would be slow'\n"
        f"for line in (['plot', 'default', '--format', 'png'], ['claims'], ['report']):\n"
        f"    a = p.parse_args([*line, '--results', {str(folder)!r}]); assert a.run(a) == 0\n"
        "assert 'torch' not in sys.modules and 'hydra' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


@pytest.mark.processes
def test_many_figures_are_shared_among_processes(tmp_path: Path, monkeypatch) -> None:
    """Two processes give the same files as one."""
    from dlmexp.figures import plot as plotting
    from dlmexp.records.results import load
    from tests.support.made_up import paper

    fill(tmp_path, (one for one in paper(range(2), 2) if one.dataset in ("banana", "abalone")))
    monkeypatch.setattr(plotting, "MIN_FOR_PROCESSES", 2)
    ids = ["class-log", "count-log"]
    for jobs in (1, 2):
        list(plotting.plot([load(tmp_path)], ids, tmp_path / f"jobs-{jobs}", ["svg"], jobs=jobs))
    one, two = (sorted((tmp_path / f"jobs-{jobs}").iterdir()) for jobs in (1, 2))
    assert [path.name for path in one] == [path.name for path in two]
    assert len(one) > 2
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))


def test_a_dataset_of_ones_own(tmp_path: Path) -> None:
    fill(tmp_path, (cell("<mine>", task="binary", seed=seed) for seed in range(2)))
    assert run("class-log", "--by", "dataset=<mine>", "--results", str(tmp_path), "--format", "png") == 0


@pytest.mark.slow
def test_says_how_to_draw_data_that_no_figure_shows(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "my results"
    fill(folder, (cell("twonorm_drawn", task="binary", seed=seed) for seed in range(2)))
    assert run("--results", str(folder)) == 0
    command = f"dlmexp plot --by dataset=twonorm_drawn --results '{folder}'"
    assert f"your records on twonorm_drawn are not in these figures; to draw them: {command}" in capsys.readouterr().out
    assert run(*shlex.split(command)[2:], "--format", "png") == 0
    assert "not in these figures" not in capsys.readouterr().out
    assert (folder / "figures" / "class-log-twonorm_drawn.png").exists()


@pytest.mark.slow
def test_datasets_that_are_drawn_are_not_reported_as_left_out(folder: Path, capsys) -> None:
    assert run("--results", str(folder), "--format", "png") == 0
    assert "not in these figures" not in capsys.readouterr().out


@pytest.mark.parametrize("out", ["afile", "afile/x"])
def test_a_folder_that_cannot_be_written_is_refused_before_drawing(folder: Path, out: str, monkeypatch) -> None:
    monkeypatch.setattr("dlmexp.figures.plot.plot", lambda *_: pytest.fail("time was spent"))
    (folder / "afile").write_text("")
    with pytest.raises(UserError, match=f"can't write to '{folder / out}': choose another path with --out"):
        run("class-log", "--results", str(folder), "--out", str(folder / out))


@pytest.mark.processes
def test_an_interrupt_while_processes_draw_is_one_line(folder: Path) -> None:
    """Ctrl-C goes to every process of a terminal's group; only the first may speak."""
    code = (
        "import os, signal, sys; from dlmexp.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored below a shell's background job\n"
        "if __name__ == '__main__':\n"
        "    os.sched_getaffinity = lambda _: range(4); sys.exit(main(sys.argv[1:]))\n"
    )
    script = folder / "script.py"
    script.write_text(code)
    with subprocess.Popen(
        [sys.executable, "-u", script, "plot", *FIGURES, "--results", folder, "--format", "png"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "selection" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "dlmexp: interrupted\n")


def test_the_processes_that_draw_never_hear_of_an_interrupt() -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from dlmexp.figures.plot import without_interrupts

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with without_interrupts():
            asked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, [])
        assert signal.SIGINT in asked.result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.slow
def test_one_method_alone(tmp_path: Path, capsys) -> None:
    """`--by method=` takes what was asked for under a method: the beta = 1 fit of the ELBO is no beta-ELBO, and methods
    that nobody asks for are not missing."""
    fill(tmp_path, sweep("banana", FOUR, [100, 500], range(3), 3))
    assert run("class-log", "--by", "method=elbo", "--results", str(tmp_path)) == 0
    numbers = pd.read_csv(tmp_path / "figures" / "class-log-method=elbo.csv")
    assert set(numbers["method"]) == {"elbo"}
    assert not re.search("β-ELBO|DLM", capsys.readouterr().out)
    with pytest.raises(UserError, match="--by method=elbow: it was not run; there are beta_elbo, elbo"):
        run("class-log", "--by", "method=elbow", "--results", str(tmp_path))


def test_a_beta_is_chosen_of_methods_that_have_one(tmp_path: Path, capsys) -> None:
    """The ELBO has beta = 1 by definition: it stays, and its fit does not come back as a candidate of beta-ELBO."""
    fill(tmp_path, sweep("banana", FOUR, [100], range(3), 3))
    grid = [100 / 3**k for k in range(3)]
    assert run("class-log", "--by", f"beta={grid[1]}", "--results", str(tmp_path), "--format", "png") == 0
    said = capsys.readouterr().out
    assert "no ELBO" not in said
    (csv,) = (tmp_path / "figures").glob("class-log-beta=*.csv")
    numbers = pd.read_csv(csv, dtype={"betas": str}).query("dataset == 'banana'")
    assert set(numbers["method"]) == set(FOUR)
    for method, betas in zip(numbers["method"], numbers["betas"].str.split(), strict=True):
        assert set(betas) == ({"1"} if method == "elbo" else {f"{grid[1]:.4g}"})
    request = Request({"beta": [str(grid[1])], "seed": ["0", "1"]})
    (drawn,) = measured([load(tmp_path)], ["class-log"], request)
    said = f"Only records with beta = {grid[1]} of methods that have one to choose, seed = 0 or 1."
    assert said in notes_below(drawn)
    with pytest.raises(UserError, match="--by beta=17: no record has this value"):
        run("class-log", "--by", "beta=17", "--results", str(tmp_path))
