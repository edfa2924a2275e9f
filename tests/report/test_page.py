"""The page as text: whole, self-contained, escaped. How it behaves is tested in a browser."""

import argparse
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dlmexp.claims import judge as judging
from dlmexp.claims.rules import Verdict
from dlmexp.cli import report
from dlmexp.errors import UserError
from dlmexp.records.results import load
from dlmexp.records.settings import Setting
from dlmexp.report.page import number, page
from tests.support.hostile import NAME, REASON
from tests.support.made_up import fill, sweep

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return page(load(folder), "results")


class Outline(HTMLParser):
    """Tags with their attributes, and text by section."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_nothing_from_elsewhere(html: str) -> None:
    outline = Outline(html)
    for tag, attributes in outline.tags:
        address = attributes.get("src") or attributes.get("href") or ""
        assert address.startswith(("data:", "#")) or not address, (tag, address)
    assert [tag for tag, _ in outline.tags].count("script") == 1
    assert "default-src 'none'" in html


def test_everything_is_there(html: str) -> None:
    outline = Outline(html)
    ids = {attributes.get("id") for _, attributes in outline.tags}
    assert {"claims", "figures", "results", "failures", "made", "reproduce", "figure-class-log"} <= ids
    assert len(re.findall(r"data:image/(?:svg.xml|png);base64,", html)) == len(re.findall(r"<figure ", html)) >= 2
    for text in ("22 claims:", "dlmexp run experiment=class-log dataset=ringnorm", "made-up", "dlmexp plot class-log"):
        assert text in outline.text


def test_every_verdict_and_statistic_is_defined(html: str) -> None:
    text = " ".join(Outline(html[html.index('id="reading"') : html.index('class="claims"')]).text.split())
    for verdict in Verdict:
        assert verdict in text or verdict is Verdict.NOT_RUN
    for word in ("5 % of what the model explains", "level 0.05 after Holm's", "neither", "p is that", "d is the mean"):
        assert word in text


def test_one_name_for_what_a_stand_in_stands_for_and_one_for_each_mse(tmp_path: Path) -> None:
    fill(tmp_path, sweep("peds1_left", ("elbo",), [100], range(2), 1))
    fill(tmp_path, sweep("pol", ("elbo",), [100], range(2), 1))
    text = Outline(page(load(tmp_path), "results")).text
    assert "peds1_left for peds1" in " ".join(text.split())
    assert "MSE (β by NLL)" in text


def test_names_and_reasons_are_text(html: str) -> None:
    assert NAME not in html
    assert REASON not in html
    text = Outline(html).text
    assert NAME in text
    assert REASON in text


def test_what_is_not_finite_is_said(html: str) -> None:
    assert "1 lost" in Outline(html).text
    assert number(None) == "–"
    assert number(float("nan")) == number(float("inf")) == "not finite"
    assert number(0.123456) == "0.1235"


def test_a_claim_without_data_says_what_it_is_judged_on(html: str) -> None:
    claim = html[html.index('id="claim-17"') : html.index('id="claim-18"')]
    assert "Evidence: a grid, no data" in " ".join(Outline(claim).text.split())


def test_the_same_records_give_the_same_page(folder: Path, html: str) -> None:
    assert page(load(folder), "results") == html


def test_command(folder: Path, tmp_path: Path, capsys) -> None:
    parser = argparse.ArgumentParser()
    report.add_parser(parser.add_subparsers())
    out = tmp_path / "page.html"
    args = parser.parse_args(["report", "--results", str(folder), "--out", str(out)])
    assert args.run(args) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert str(out) in capsys.readouterr().out
    wrongs = {tmp_path: "is a folder", tmp_path / "no" / "page.html": "there is no folder"}
    wrongs[Path("/proc/x.html")] = "can't write to '/proc/x.html': choose another path with --out"
    for wrong, says in wrongs.items():
        args = parser.parse_args(["report", "--results", str(folder), "--out", str(wrong)])
        with pytest.raises(UserError, match=says):
            args.run(args)


def test_protocols_side_by_side(folder: Path, monkeypatch) -> None:
    found = load(folder)
    both = {name: (Setting(name), found) for name in ("paper", "released")}
    monkeypatch.setattr(judging, "by_setting", lambda results, wanted: both)
    text = Outline(page(found, "results")).text
    assert "Protocol released: 22 claims" in text
    assert "Under released" in text
    assert "claimverdict, protocol paperverdict, protocol released" in text
    assert "Figures: class-log, class-log-unwhitened" in " ".join(text.split())
