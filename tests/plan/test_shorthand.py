"""What people type, and what it means."""

from contextlib import suppress

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.plan.shorthand import KINDS, spelled_out
from dlmexp.running.sweep import prepare_sweep

TINY = ["dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "method=[elbo]", "seeds=1", "sizes=20"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("beta=0.1", ["beta=list", "beta.values=[0.1]"]),
        ("beta=1e-3", ["beta=list", "beta.values=[1e-3]"]),
        ("beta=[0.1,1]", ["beta=list", "beta.values=[0.1,1]"]),
        ("beta=0.1,1", ["beta=list", "beta.values=[0.1,1]"]),
        ("beta=short", ["beta=short"]),
        ("beta.values=2", ["beta.values=[2]"]),
        ("seeds=5", ["seeds=[0,1,2,3,4]"]),
        ("seeds=0-4", ["seeds=[0,1,2,3,4]"]),
        ("seeds=[0-2,7]", ["seeds=[0,1,2,7]"]),
        ("seeds=3,5", ["seeds=[3,5]"]),
        ("seeds=[3]", ["seeds=[3]"]),
        ("sizes=1000", ["sizes=[1000]"]),
        ("sizes=5%", ["sizes=[5%]"]),
        ("sizes=null", ["sizes=null"]),
        ("method=elbo,fitc", ["method=[elbo,fitc]"]),
        ("dataset=pol", ["dataset=pol"]),
        ("parameterisation=whitened", ["parameterisation=[whitened]"]),
        ("csv.drop=a", ["csv.drop=[a]"]),
        ("csv.sep=;", ["csv.sep=';'"]),
        ("csv.path=it's (1).csv", [r"csv.path='it\'s (1).csv'"]),
        ("csv.path=a.csv", ["csv.path=a.csv"]),
        ("csv.arrays={X: A, y: b}", ["++csv.arrays={X: A, y: b}"]),
        ("lengthscale=2", ["init.lengthscale=2"]),
        ("M=50", ["M=50"]),
        ("training.epochs=3", [f"training.{kind}.epochs=3" for kind in KINDS]),
        ("training.binary.lr=0.1", ["training.binary.lr=0.1"]),
        ("+x.y=1", ["+x.y=1"]),
        ("~training.binary", ["~training.binary"]),
        ("nonsense", ["nonsense"]),
    ],
)
def test_what_is_meant(typed, meant):
    assert spelled_out([typed]) == meant
    assert spelled_out(spelled_out([typed])) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("seeds=0,1", "seeds=[0],[1]"),
        ("sizes=100,200", "sizes=[100],[200]"),
        ("dataset=pol,cadata", "dataset=pol,cadata"),
    ],
)
def test_commas_in_a_multirun_are_jobs(typed, meant):
    assert spelled_out([typed], multirun=True) == [meant]


@pytest.mark.parametrize("typed", ["seeds=0", "seeds=4-0", "seeds=100000", "seeds=0-99999999"])
def test_seeds_that_mean_nothing(typed):
    with pytest.raises(UserError, match="seeds="):
        spelled_out([typed])


@given(st.text(max_size=30))
def test_anything_can_be_typed(text):
    assert spelled_out([text])
    assert spelled_out([f"csv.path={text}"])[0].startswith("csv.path=")
    with suppress(UserError):
        assert spelled_out([f"seeds={text}"])[0].startswith("seeds=")


def test_a_learning_rate_for_all_kinds_of_data():
    cfg = compose(spelled_out(["training.binary.lr=0.5", "training.lr=0.01", "dataset=banana"]))
    assert cfg.training["binary"].lr == 0.5, "what is said of one kind wins, wherever it stands"
    for kind in ("regression", "count", "large"):
        assert (cfg.training[kind].lr, cfg.training[kind].minibatch_lr) == (0.01, 0.01)
    assert cfg.training["count"].estimator_lr == {"ups": 0.01}


def cells(*words: str):
    return {cell.key: cell for cell in prepare_sweep(compose(spelled_out([*TINY, *words]))).cells}


def test_initial_values_and_inducing_points_are_part_of_the_key():
    (plain,), (longer,), (few,) = (cells(*words).values() for words in ([], ["lengthscale=2"], ["M=7"]))
    assert longer.initial == {"lengthscale": 2.0}
    assert plain.initial == {}
    assert few.M == 7
    assert len({plain.key, longer.key, few.key}) == 3
    assert cells("lengthscale=1").keys() == {plain.key}, "the paper's own value is no change"


def test_fixed_variants_start_from_the_fit_with_these_initial_values():
    found = cells("lengthscale=2", "method=[fixed_log_dlm]", "beta=1").values()
    base = next(cell for cell in found if cell.base is None)
    assert base.initial == {"lengthscale": 2.0}
    assert {cell.base for cell in found} == {None, base.key}


@pytest.mark.parametrize("typed", ["lengthscale=0", "noise=-1", "M=0", "largest=0", "lengthscale=nan"])
def test_values_that_can_not_be(typed):
    with pytest.raises(UserError, match="give a number > 0"):
        cells(typed)


def test_sizes_beyond_the_data_are_said():
    sweep = prepare_sweep(compose(spelled_out([*TINY, "sizes=[20,1000000]"])))
    assert {cell.n for cell in sweep.cells} == {20, 90}
    assert sweep.notes == ["ringnorm_drawn: there are 90 rows to train on, so n = 90 in place of 1000000"]


def test_more_inducing_inputs_than_rows_are_said():
    sweep = prepare_sweep(compose(spelled_out([*TINY, "sizes=[20,40,90]", "M=40"])))
    assert {(cell.n, cell.M) for cell in sweep.cells} == {(20, 20), (40, 40), (90, 40)}
    assert sweep.notes == ["ringnorm_drawn: no more inducing inputs than rows: M = n in place of 40 with n = 20"]


def test_a_noise_that_changes_nothing_is_said():
    notes = prepare_sweep(compose(spelled_out([*TINY, "noise=0.5"]))).notes
    assert notes == ["ringnorm_drawn: its likelihood has no noise, so noise=0.5 changes nothing"]


def test_largest_leaves_out_sizes():
    assert {cell.n for cell in cells("sizes=[20,40,80]", "largest=50").values()} == {20, 40}
    assert {cell.n for cell in cells("sizes=[40,80]", "largest=30").values()} == {30}
    notes = prepare_sweep(compose(spelled_out([*TINY, "sizes=[20,40,80]", "largest=50"]))).notes
    assert notes == ["ringnorm_drawn: n = 20, 40 without 80 because of largest=50; largest=null takes all sizes"]


def test_arrays_of_an_npz_file_are_named(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "two.npz", X_extra=rng.normal(size=(80, 3)), y_extra=rng.normal(size=80), other=np.ones(7))
    words = [
        "dataset=csv",
        f"csv.path={tmp_path / 'two.npz'}",
        "csv.arrays={X: X_extra, y: y_extra}",
        "csv.task=regression",
    ]
    sweep = prepare_sweep(compose(spelled_out([*words, "method=elbo", "seeds=1", "sizes=20"])))
    assert [cell.n for cell in sweep.cells] == [20]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hydra.launcher.partition=a,b", "hydra.launcher.partition='a,b'"),
        ("hydra.launcher.partition='a,b'", "hydra.launcher.partition='a,b'"),
        ("hydra.launcher.partition=a", "hydra.launcher.partition=a"),
        ("hydra.launcher.setup=[a,b]", "hydra.launcher.setup=['a','b']"),
    ],
)
def test_settings_of_the_launcher_are_no_values_of_jobs(typed, meant):
    (found,) = spelled_out([typed], multirun=True)
    assert found == meant
    assert not OverridesParser.create().parse_override(found).is_sweep_override()


def test_home_is_spelled_out_in_paths(monkeypatch: pytest.MonkeyPatch):
    """Shells do not: `results=~/runs` would be a folder called `~`."""
    monkeypatch.setenv("HOME", "/home/ada")
    assert spelled_out(["results=~/runs", "csv.path=~/t.csv", "csv.target=~y"]) == [
        "results=/home/ada/runs", "csv.path=/home/ada/t.csv", "csv.target='~y'",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        ("[module load cuda]", ["module load cuda"]),
        ("module load cuda", ["module load cuda"]),
        ("[export A=1,cd /scratch]", ["export A=1", "cd /scratch"]),
        ("['echo a, b']", ["echo a, b"]),
        ("[]", []),
    ],
)
def test_shell_lines_of_a_launcher_need_no_inner_quotes(typed: str, lines: list[str]):
    (override,) = spelled_out([f"hydra.launcher.setup={typed}"], multirun=True)
    value = OverridesParser.create().parse_override(override).value()
    assert isinstance(value, list)
    assert list(map(str, value)) == lines
