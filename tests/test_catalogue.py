"""What is looked up in `conf/` by name."""

from pathlib import Path

import pytest

from dlmexp import catalogue as conf
from dlmexp.errors import UserError
from dlmexp.objectives import OBJECTIVES

LAUGHS = "a0: &a0 [1]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(9))


def test_methods() -> None:
    methods = conf.entries("method")
    assert methods["ppgpr"] == {**methods["joint_log_dlm"], "select": False}
    assert methods["elbo"] == {"objective": "elbo", "variant": "joint", "select": False}
    assert {name for name, method in methods.items() if not method["select"]} == {"elbo", "fitc", "ppgpr", "exact"}
    for method in methods.values():
        assert method["objective"] in OBJECTIVES
        assert method["variant"] == "joint" or method.get("base", "elbo") in ("elbo", "ppgpr")


def test_papers_datasets_are_configured_and_stand_for_nothing() -> None:
    assert set(conf.PAPER) <= set(conf.entries("dataset"))
    assert all(conf.stands_for(name) is None for name in conf.PAPER)


def test_stand_ins() -> None:
    assert conf.stands_for("flights") == "airline"
    assert "flights" in conf.stand_ins("airline")
    assert "sarcos_test" in conf.stand_ins("sarcos")
    # One direction of Peds1 stands in for whichever direction a panel shows.
    assert all("peds1_left" in conf.stand_ins(f"peds1_dir{k}") for k in range(3))
    assert conf.stand_ins("pol") == []


def test_users_folders_follow_ours(tmp_path, monkeypatch) -> None:
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("objective: elbo\nvariant: joint\nselect: true\n")
    monkeypatch.setenv("DLMEXP_CONFIG_DIRS", str(tmp_path))
    assert list(conf.entries("method"))[-1] == "mine"
    monkeypatch.delenv("DLMEXP_CONFIG_DIRS")
    assert "mine" not in conf.entries("method")


@pytest.mark.parametrize("text", ["a: [1", "- a\n- b\n", LAUGHS], ids=["broken", "list", "anchors"])
def test_a_settings_file_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        conf.read_settings(tmp_path / "mine.yaml")
