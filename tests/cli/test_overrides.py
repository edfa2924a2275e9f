"""A thousand overrides: whatever is typed, `dlmexp run` answers with a plan or with one sentence and exit code 2, and
writes nothing. `scripts/fuzz MINUTES overrides` tries more of them."""

import random
from pathlib import Path

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig

from dlmexp.catalogue import names
from dlmexp.plan import compose
from tests.support import overrides
from tests.support.launcher import Launcher


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLMEXP_DATA", str(tmp_path / "nowhere"))


@pytest.fixture
def composed_once(monkeypatch):
    """Hydra reads its files once for each protocol, and applies single settings to what it read: a thousand times the
    same files would take minutes. Other selections of groups are still composed from the files."""
    whole = compose._composed
    bases = {word: whole([*overrides.BASE, word]) for word in (f"protocol={name}" for name in names("protocol"))}
    bases[""] = whole(overrides.BASE)

    def apply(words: list[str], hydra_too: bool = False) -> DictConfig:
        added = list(words)[len(overrides.BASE) :]
        protocol = added.pop() if added and added[-1] in bases else ""  # as the plans under other protocols have it
        parsed = compose.parsed(added)
        if hydra_too or any("/" in one.key_or_group or one.key_or_group in overrides.GROUPS for one in parsed):
            return whole(words, hydra_too)
        found = bases[protocol].copy()
        with compose.as_sentences(words):
            ConfigLoaderImpl._apply_overrides_to_config(parsed, found)
        return found

    monkeypatch.setattr(compose, "_composed", apply)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("settings", 900), ("groups", 100)])
def test_whatever_is_typed(kind, count, composed_once, tmp_path):
    answers = {" ".join(words): overrides.wrong([*overrides.BASE, *words])
               for words in getattr(overrides, kind)(random.Random(0), count)}  # fmt: skip
    assert not {words: problem for words, problem in answers.items() if problem}
    assert not list(tmp_path.iterdir())


REAL = (
    ["beta.values=[[1]]"], ["estimator.ups.samples=[[1]]"], ["~training.binary"], ["sizes=['1e9999999%']"],
    ["dataset.ringnorm_drawn.options.checks=5"], ["dataset=csv", "csv.task=binary", "csv.path=a", "csv.target=y",
                                                  "csv.name=" + "x" * 300],
)  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("words", REAL, ids=lambda words: words[-1][:40])
def test_in_a_process_of_its_own(words: list[str], tmp_path: Path, launcher: Launcher):
    folder = tmp_path / "folder"
    folder.mkdir()
    code, said = launcher.run(folder, "run", *overrides.BASE, *words, log=tmp_path / "log")
    assert code == 2
    assert said.count("\n") == 1
    assert said.startswith("dlmexp: ")
    assert not list(folder.iterdir())
