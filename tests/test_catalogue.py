"""What is looked up in `conf/` by name."""

from dlmexp import catalogue as conf
from dlmexp.objectives import OBJECTIVES


def test_methods_are_those_of_the_paper_and_ppgpr() -> None:
    assert set(conf.methods()) == {
        "elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm", "joint_sq_dlm", "fixed_sq_dlm", "ppgpr",
        "power_ep",
    }  # fmt: skip
    assert conf.methods()["ppgpr"] == {**conf.methods()["joint_log_dlm"], "select": False}
    assert conf.methods()["elbo"] == {"objective": "elbo", "variant": "joint", "select": False}
    assert {name for name, method in conf.methods().items() if not method["select"]} == {"elbo", "fitc", "ppgpr"}
    for name, method in conf.methods().items():
        assert method["objective"] in OBJECTIVES
        assert method["variant"] == ("fixed" if name.startswith("fixed") else "joint")


def test_papers_datasets_are_configured_and_stand_for_nothing() -> None:
    assert set(conf.PAPER) <= set(conf.datasets())
    assert all(conf.stands_for(name) is None for name in conf.PAPER)


def test_stand_ins() -> None:
    assert conf.stands_for("flights") == "airline"
    assert "flights" in conf.stand_ins("airline")
    assert "sarcos_test" in conf.stand_ins("sarcos")
    # One direction of Peds1 stands in for whichever direction a panel shows.
    assert all("peds1_left" in conf.stand_ins(f"peds1_dir{k}") for k in range(3))
    assert conf.stand_ins("pol") == []


def test_run_command_is_the_shortest_that_serves() -> None:
    assert conf.run_command("reg-log", "sarcos_test") == "dlmexp run experiment=reg-log dataset=sarcos_test"
    assert conf.run_command("reg-log", "song") == "dlmexp run experiment=reg-log dataset=song"
    assert conf.run_command("airline", "airline") == "dlmexp run experiment=airline"
    assert conf.run_command("airline", "nycflights13") == "dlmexp run experiment=airline dataset=nycflights13"


def test_users_folders_follow_ours(tmp_path, monkeypatch) -> None:
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("objective: elbo\nvariant: joint\nselect: true\n")
    monkeypatch.setenv("DLMEXP_CONFIG_DIRS", str(tmp_path))
    assert list(conf.methods())[-1] == "mine"
    monkeypatch.delenv("DLMEXP_CONFIG_DIRS")
    assert "mine" not in conf.methods()
