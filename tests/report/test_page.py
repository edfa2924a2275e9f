"""The page as text: whole, self-contained, escaped; and the numbers on it."""

import re
from html import unescape
from pathlib import Path

import pytest

from dlmexp.claims.judge import Column
from dlmexp.cli import main
from dlmexp.report import page
from tests.report.conftest import NAME, REASON


def test_the_page_is_whole_self_contained_and_escaped(html):
    tags, text = re.findall(r"<[a-z][^>]*>", html), unescape(re.sub(r"<[^>]*>", "", html))
    addresses = re.findall(r'(?:href|src)="([^"]*)"', " ".join(tags))
    assert all(address.startswith(("data:", "#")) for address in addresses if address)
    assert sum(tag.startswith("<script") for tag in tags) == 1
    for words in (NAME, REASON):
        assert words not in html
        assert words in text
    ids = set(re.findall(r'id="?([^"\s>]*)', " ".join(tags)))
    assert {address[1:] for address in addresses if address.startswith("#")} <= ids
    assert {"findings", "verdicts", "claims", "figures", "results", "failures", "made", "claim-22"} <= ids
    assert text.count("sarcos_test") == text.count("sarcos_test (stand-in for sarcos)") > 5
    assert "/" not in html[html.index("<title>") + 7 : html.index("</title>")], "no path is a title"


def test_the_same_table_gives_the_same_numbers(made):
    table = page.rows(made)  # pyright: ignore[reportArgumentType]
    row = table.query("dataset == 'banana' and n == 100 and method == 'joint DLM' and protocol == 'paper'").iloc[0]
    values = made.table.query("dataset == 'banana' and n == 100 and method == 'joint_log_dlm' and protocol == 'paper'")
    expected = values["test_nll"].agg(["mean", "std"]).tolist()
    assert row[["test_nll_mean", "test_nll_std"]].tolist() == pytest.approx(expected)
    assert page.made(made)["command"][row["made"]] == "dlmexp run paper"  # pyright: ignore[reportArgumentType]
    assert page.failures(made)[0][:2] == (REASON, 7)  # pyright: ignore[reportArgumentType]
    assert page.overview(made)["failed"] == 7  # pyright: ignore[reportArgumentType]


def test_findings_are_the_best_methods_against_elbo(made):
    paper, released = (page.findings(made, Column(name)) for name in ("paper", "released"))  # pyright: ignore[reportArgumentType]
    assert {one["dataset"] for one in paper} == {"banana", "ringnorm", "sarcos_test (stand-in for sarcos)"}
    assert {one["method"] for one in paper} <= {"joint DLM", "fixed DLM"}
    assert {one["method"] for one in released} == {"β-ELBO"}
    assert [one["difference"] for one in paper] == pytest.approx([0.3] * 3, abs=0.01)
    assert [page.number(value) for value in (float("nan"), float("inf"), 0.123456)] == ["–", "not finite", "0.1235"]


@pytest.mark.slow
def test_command(made, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("dlmexp.records.results.load", lambda folder: made)
    monkeypatch.setattr(page, "pictures", lambda results, column: [])
    elsewhere, out = tmp_path / "elsewhere.html", tmp_path / "page.html"
    elsewhere.write_text("mine")
    out.symlink_to(elsewhere)
    assert main(["report", "--out", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert elsewhere.read_text() == "mine"  # a link is replaced, not followed
    assert str(out) in capsys.readouterr().out
    assert main(["report", "--out", str(tmp_path / "page")]) == 0
    for wrong in (tmp_path, tmp_path / "no" / "page.html", Path("/proc/x.html")):
        assert main(["report", "--out", str(wrong)]) == 2
        assert str(wrong) in capsys.readouterr().err
