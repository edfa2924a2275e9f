"""Margins, columns and settings, what is said where something is missing, text, Markdown, JSON and the command."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import json

import numpy as np
import pytest

from dlmexp.claims import judge as judging
from dlmexp.claims.claim import CLAIMS
from dlmexp.claims.evidence import Evidence
from dlmexp.claims.render import changes
from dlmexp.cli import main
from dlmexp.errors import UserError
from tests.support.tidy import Made, fits, judged

GOOD = fits("ringnorm", "elbo", 0.5) + fits("ringnorm", "joint_log_dlm", 0.2) + fits("ringnorm", "fixed_log_dlm", 0.2)


def under(protocol: str, changed: str = "", gap: float = 0.0) -> list[dict]:
    rows = [row | {"protocol": protocol, "changes": changed} for row in GOOD]
    return [row | {"test_nll": row["test_nll"] + gap * (row["method"] != "elbo")} for row in rows]


def columns(rows: list[dict], **options) -> dict[str, str]:
    found = judged(rows, 7, **options).verdicts
    return dict(zip(found["column"], found["words"], strict=True))


def test_protocols_are_columns_and_never_mix_nor_do_other_contents_of_a_dataset():
    both = columns(under("released", gap=0.6) + under("paper"))
    assert both == {"paper": "holds on 1 of 4", "released": "fails on 1 of 4"}
    other = [row | {"data": "other", "test_nll": 9.0} for row in under("paper") if row["seed"] < 2]
    assert columns(under("paper") + other) == {"paper": "holds on 1 of 4"}


def test_changed_settings_are_columns_only_when_asked_for():
    rows = under("paper") + under("paper", "training.lr=0.01", gap=0.6) + under("paper", "M=50", gap=0.6)
    assert columns(rows) == {"paper": "holds on 1 of 4"}
    assert judged(rows, 7).left_out == ["--protocol paper --where training.lr=0.01", "--protocol paper --where M=50"]
    assert columns(rows, where=["training.lr=0.01"]) == {"paper, training.lr=0.01": "fails on 1 of 4"}
    assert columns(under("paper", "M=50")) == {"paper, M=50": "holds on 1 of 4"}  # there is nothing else


def test_what_was_asked_for_and_is_not_there():
    with pytest.raises(UserError, match=r"annealed.*paper"):
        columns(under("paper"), protocol="annealed")
    with pytest.raises(UserError, match="lr=7"):
        columns(under("paper"), where=["lr=7"])
    with pytest.raises(UserError, match="'23'"):
        CLAIMS["23"]


def test_commands_for_what_was_not_run():
    found = judged(under("released"), 7).verdicts["missing"].iloc[0]
    assert found[0] == "dlmexp run experiment=class-log dataset=banana protocol=released"
    assert len(found) == 3
    found = judged(under("paper"), 8).verdicts["missing"].iloc[0]
    assert found[-1] == "dlmexp run experiment=count-mre dataset=peds1_dir2"


def test_a_verdict_that_overlapping_splits_would_change_is_listed():
    rows = fits("ringnorm", "elbo", 0.5, scatter=0.08) + fits("ringnorm", "joint_log_dlm", 0.35, scatter=0.01)
    found = judged(rows, 7)
    assert (found.verdicts["verdict"].iloc[0], found.verdicts["corrected"].iloc[0]) == ("holds", "undecided")
    assert any("undecided" in text and "overlapping" in text for text in changes(found))
    for row in found.parts["comparisons"].iloc[0]:
        assert row["p_corrected"] > row["p"]


def test_both_coordinates_of_q_are_parts():
    other = [row | {"parameterisation": "unwhitened"} for row in under("paper", gap=0.6)]
    found = judged(under("paper") + other, 7)
    assert found.verdicts["words"].tolist() == ["mixed on 1 of 4"]
    assert any("ringnorm" in text and "coordinates of q" in text for text in changes(found))


@pytest.fixture
def run(monkeypatch, capsys):
    """What `dlmexp claims` prints on made-up results."""
    both = Made(under("paper") + under("released", gap=0.6))
    monkeypatch.setattr("dlmexp.records.results.load", lambda folder: both)

    def call(*words: str, status: int = 0) -> str:
        assert main(["claims", *words]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return call


@pytest.mark.slow
def test_command(run):
    """Markdown and JSON in full are those of the published claims (tests/cli/test_published.py)."""
    assert len([line for line in run().splitlines() if line[:4].strip().isdigit()]) == 22
    some = run("7", "18", "--details")
    assert [line.split(".")[0] for line in some.splitlines() if line.startswith("## ")] == ["## 7", "## 18"]
    assert "margin 0.025" in some  # 5 % of what ELBO explains
    first, second = json.loads(run("18", "7", "--json"))
    assert (first["number"], second["number"]) == (7, 18)
    part = next(each for each in first["protocols"]["paper"]["parts"] if each["dataset"] == "ringnorm")
    assert part["states"] == {"100": "supported", "200": "supported", "500": "supported"}
    numbers = [value for row in part["comparisons"] for value in row.values() if isinstance(value, float)]
    assert numbers
    assert all(float(f"{value:.6g}") == value for value in numbers), "six digits"
    assert "nosuch" in run("7", "--where", "nosuch=1", status=2)


def evidence(rows: list[dict]) -> Evidence:
    made = Made(rows)
    frames = [judging.rows_of(frame, judging.Column("paper")) for frame in (made.table, made.candidates)]
    return Evidence(made, *frames)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("dataset", "metric", "elbo", "trivial", "margin"),
    [
        ("banana", "nll", 0.5, 0.7, 0.01),  # 5 % of what is explained
        ("ringnorm", "nll", 0.05, 0.7, 0.005),  # 10 % of ELBO's NLL: 5 % of what is explained is half of it
        ("ringnorm", "error", 0.02, 0.5, 0.002),
        ("pol", "nll", 0.0, 1.4, 0.07),  # the NLL of a density has no zero: at 0 and below it is as good as elsewhere
        ("pol", "nll", -0.6, 1.4, 0.1),
        ("pol", "mse", 0.1, 1.0, 0.01),
        ("banana", "nll", 0.8, 0.7, np.nan),  # ELBO explains nothing
    ],
)
def test_margin(dataset, metric, elbo, trivial, margin):
    rows = fits(dataset, "elbo", elbo, metric=metric, scatter=0, trivial=trivial)
    assert evidence(rows).margin(dataset, metric) == pytest.approx(np.full(3, margin), nan_ok=True)


def test_failed_repetitions_are_left_out_and_counted():
    rows = fits("ringnorm", "elbo", 0.2) + fits("ringnorm", "joint_log_dlm", 0.1)
    rows += fits("ringnorm", "fixed_log_dlm", 0.1)
    rows[-1] |= {"status": "failed", "test_nll": np.nan}
    rows[-2] |= {"test_nll": np.inf}
    parts = judged(rows, 7).parts.query("dataset == 'ringnorm'")
    assert list(parts["repetitions"]) == [5, 3]
    assert list(parts["verdict"]) == ["holds", "holds"]
    assert "2 failed" in parts["reason"].iloc[1]


def test_too_few_repetitions_and_a_rival_that_was_not_run_are_said():
    rows = fits("ringnorm", "elbo", 0.2, seeds=2) + fits("ringnorm", "joint_log_dlm", 0.1, seeds=2)
    assert judged(rows, 7).verdicts["words"].tolist() == ["too few repetitions (2 of 3)"]
    rows = fits("pol", "elbo", 0.5) + fits("pol", "joint_log_dlm", 0.1) + fits("pol", "beta_elbo", 0.5)
    part = judged(rows, 1).parts.query("dataset == 'pol'").iloc[0]
    assert part["verdict"] == "undecidable"
    assert "FITC" in part["reason"]
