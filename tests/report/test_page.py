"""The page as text: whole, self-contained, escaped; and the numbers on it."""

import argparse
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dlmexp.claims.judge import Column
from dlmexp.cli import outputs
from dlmexp.errors import UserError
from dlmexp.report import page
from tests.support.hostile import NAME, REASON
from tests.support.tidy import Made, fits


class Outline(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.slow
def test_nothing_from_elsewhere_and_names_are_text(html: str) -> None:
    outline = Outline(html)
    for tag, attributes in outline.tags:
        address = attributes.get("src") or attributes.get("href") or ""
        assert address.startswith(("data:", "#")) or not address, (tag, address)
    assert [tag for tag, _ in outline.tags].count("script") == 1
    for text in (NAME, REASON):
        assert text not in html
        assert text in outline.text


def test_every_link_leads_somewhere(html: str) -> None:
    tags = Outline(html).tags
    ids = {attributes.get("id") for _, attributes in tags}
    links = {attributes["href"][1:] for tag, attributes in tags if tag == "a" and attributes["href"].startswith("#")}
    assert links - ids == set()
    assert {"findings", "verdicts", "claims", "figures", "results", "failures", "made", "claim-22"} <= ids


def test_stand_ins_are_marked_and_no_path_is_a_title(html: str) -> None:
    text = Outline(html).text
    assert text.count("sarcos_test") == text.count("sarcos_test (stand-in for sarcos)") > 5
    assert "/" not in html[html.index("<title>") + 7 : html.index("</title>")]


def test_the_same_table_gives_the_same_numbers(made: Made) -> None:
    table = page.rows(made)  # pyright: ignore[reportArgumentType]
    row = table.query("dataset == 'banana' and n == 100 and method == 'joint DLM' and protocol == 'paper'").iloc[0]
    expected = made.table.query(
        "dataset == 'banana' and n == 100 and method == 'joint_log_dlm' and protocol == 'paper'"
    )
    assert row["test_nll_mean"] == pytest.approx(expected["test_nll"].mean())
    assert row["test_nll_std"] == pytest.approx(expected["test_nll"].std())
    assert page.made(made)["command"][row["made"]] == "dlmexp run paper"  # pyright: ignore[reportArgumentType]
    assert page.failures(made)[0][:2] == (REASON, 7)  # pyright: ignore[reportArgumentType]
    assert page.overview(made)["failed"] == 7  # pyright: ignore[reportArgumentType]


def test_settings_are_rows_of_their_own() -> None:
    rows = fits("banana", "elbo", 0.5, sizes=(100,)) + fits("banana", "elbo", 0.9, sizes=(100,), changes="M=50")
    table = page.rows(Made(rows))  # pyright: ignore[reportArgumentType]
    assert sorted(table["test_nll_mean"].round(1)) == [0.5, 0.9]


def test_findings_are_the_best_methods_against_elbo(made: Made) -> None:
    paper, released = (page.findings(made, Column(name)) for name in ("paper", "released"))  # pyright: ignore[reportArgumentType]
    assert {one["dataset"] for one in paper} == {"banana", "ringnorm", "sarcos_test (stand-in for sarcos)"}
    assert {one["method"] for one in paper} <= {"joint DLM", "fixed DLM"}
    assert {one["method"] for one in released} == {"β-ELBO"}
    assert [one["difference"] for one in paper] == pytest.approx([0.3] * 3, abs=0.01)
    assert [page.number(value) for value in (float("nan"), float("inf"), 0.123456)] == ["–", "not finite", "0.1235"]


@pytest.mark.slow
def test_command(made: Made, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("dlmexp.records.results.load", lambda folder: made)
    monkeypatch.setattr(page, "pictures", lambda results, column: [])
    parser = argparse.ArgumentParser()
    outputs.add_parser(parser.add_subparsers())
    elsewhere, out = tmp_path / "elsewhere.html", tmp_path / "page.html"
    elsewhere.write_text("mine")
    out.symlink_to(elsewhere)
    args = parser.parse_args(["report", "--out", str(out)])
    assert args.run(args) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert elsewhere.read_text() == "mine"  # a link is replaced, not followed
    assert str(out) in capsys.readouterr().out
    for wrong in (tmp_path, tmp_path / "no" / "page.html", Path("/proc/x.html")):
        args = parser.parse_args(["report", "--out", str(wrong)])
        with pytest.raises(UserError, match=str(wrong)):
            args.run(args)
