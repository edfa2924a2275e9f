"""What people type, and what it means."""

from contextlib import suppress

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.config import KINDS
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.plan.overrides import spelled_out
from dlmexp.running.sweep import prepare_sweep


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("beta=0.1", ["beta=list", "beta.values=[0.1]"]),
        ("beta=[0.1,1]", ["beta=list", "beta.values=[0.1,1]"]),
        ("beta=0.1,1", ["beta=list", "beta.values=[0.1,1]"]),
        ("beta=short", ["beta=short"]),
        ("beta.values=2", ["beta.values=[2]"]),
        ("seeds=5", ["seeds=[0,1,2,3,4]"]),
        ("seeds=3,5", ["seeds=[3,5]"]),
        ("sizes=1000", ["sizes=[1000]"]),
        ("sizes=5%", ["sizes=[5%]"]),
        ("method=elbo,fitc", ["method=[elbo,fitc]"]),
        ("parameterisation=whitened", ["parameterisation=[whitened]"]),
        ("csv.sep=;", ["csv.sep=';'"]),
        ("csv.path=it's (1).csv", [r"csv.path='it\'s (1).csv'"]),
        ("csv.path=a.csv", ["csv.path='a.csv'"]),
        ("beta=[]", ["beta=list", "beta.values=[]"]),
        ("training.initial.noise=2", [f"++training.{kind}.initial.noise=2" for kind in KINDS]),
        ("lengthscale=2", [f"++training.{kind}.initial.lengthscale=2" for kind in KINDS]),
        ("training.epochs=3", [f"training.{kind}.epochs=3" for kind in KINDS]),
        ("training.binary.lr=0.1", ["training.binary.lr=0.1"]),
        ("+x.y=1", ["+x.y=1"]),
        ("~training.binary", ["~training.binary"]),
        ("results=~/runs", ["results='/home/ada/runs'"]),  # shells would not: a folder called `~`
        ("csv.target=~y", ["csv.target='~y'"]),
    ],
)
def test_what_is_meant(typed, meant, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert spelled_out([typed]) == meant
    assert spelled_out(spelled_out([typed])) == meant


@pytest.mark.parametrize("typed", ["seeds=0", "seeds=100000"])
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "note"), [("", ""), ("sizes=[20,1000000]", "1000000"), ("sizes=[20,40,90] M=40", "M = n in place of 40")]
)
def test_what_is_not_done_as_typed_is_said(words, note):
    tiny = ["dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "method=elbo", "seeds=1", "sizes=20"]
    notes = prepare_sweep(compose(spelled_out([*tiny, *words.split()]))).notes
    assert (note in "".join(notes), len(notes)) == (True, len(note) > 0)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hydra.launcher.partition=a,b", "hydra.launcher.partition='a,b'"),
        ("hydra.launcher.partition='a,b'", "hydra.launcher.partition='a,b'"),
        ("hydra.launcher.setup=module load cuda", "hydra.launcher.setup=[module load cuda]"),
        ("hydra.launcher.setup=['echo a, b']", "hydra.launcher.setup=['echo a, b']"),
        ("seeds=0,1", "seeds=[0],[1]"),
        ("sizes=9,20", "sizes=[9],[20]"),
        ("dataset=pol,cadata", "dataset=pol,cadata"),
    ],
)
def test_commas_in_a_multirun_are_jobs_but_for_settings_of_the_launcher(typed, meant):
    (spelled,) = spelled_out([typed], multirun=True)
    assert spelled == meant
    assert OverridesParser.create().parse_override(spelled).is_sweep_override() == (not typed.startswith("hydra"))
