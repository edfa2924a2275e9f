"""`dlmexp export`: which model, into which files, and one sentence for every mistake."""

import os
import sys
from pathlib import Path
from typing import Any

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
    assert torch.load("model.pt", weights_only=True)["key"] == key
    assert Path("model.py").is_file()


def test_the_best_one(here, capsys):
    key = fill(seeds=(0, 1))[0, 1.0].cell.key
    assert main(["export", "model.pt"]) == 0
    assert torch.load("model.pt", weights_only=True)["key"] == key


@pytest.mark.parametrize("name", ["model.pt", "my-model v1.2.pt", "folder/model.pt"])
def test_what_is_said_to_load_it_does(here, capsys, monkeypatch, name):
    key = fill()[0, 1.0].cell.key
    Path("folder").mkdir()
    assert main(["export", name]) == 0
    code = capsys.readouterr().out.splitlines()[-1].partition(".py: ")[2]
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    found: dict[str, Any] = {}
    exec(code, found)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    assert found["saved"]["key"] == key


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


def test_a_folder_that_cant_be_written_to(here, capsys, monkeypatch):
    fill()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main(["export", "model.pt"]) == 2
    assert "'model.pt': can't write there" in capsys.readouterr().err
