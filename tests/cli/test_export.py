"""`dlmexp export`: which model, into which files, and one sentence for every mistake."""

from pathlib import Path

import pytest
import torch

from dlmexp.cli import main
from tests.cli.test_predict import fill


@pytest.mark.parametrize(
    "words", [["KEY", "model.pt"], ["--where", "seed=1", "model.pt"], ["model.pt", "--where", "seed=1"]]
)
def test_the_model_that_is_asked_for(here, capsys, words):
    key = fill(seeds=(0, 1))[1, 1.0].cell.key
    assert main(["export", *(word.replace("KEY", key[:10]) for word in words)]) == 0
    assert key in capsys.readouterr().out
    assert torch.load("model.pt")["key"] == key
    assert Path("model.py").is_file()


def test_the_best_one(here, capsys):
    key = fill(seeds=(0, 1))[0, 1.0].cell.key
    assert main(["export", "model.pt"]) == 0
    assert torch.load("model.pt")["key"] == key


MISTAKES = {
    "no file": ([], ["name the file to write"]),
    "too many words": (["a", "b", "c.pt"], ["name the file to write"]),
    "another suffix": (["model.onnx"], ["model.onnx", ".pt"]),
    "no such folder": (["no/model.pt"], ["can't write"]),
    "an unknown key": (["xyz", "model.pt"], ["key=xyz"]),
    "an unknown field": (["--where", "sede=1", "model.pt"], ["sede", "seed"]),
    "no results": (["--results", "nowhere", "model.pt"], ["there is no folder 'nowhere'"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, here, capsys):
    fill()
    words, expected = MISTAKES[mistake]
    before = sorted(here.rglob("*"))
    assert main(["export", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dlmexp: ")
    assert said.count("\n") == 1
    for part in expected:
        assert part in said
    assert sorted(here.rglob("*")) == before
