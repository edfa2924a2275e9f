"""A report on a table with something of everything, and hostile names: the page as text, its
numbers, and in a real browser, where it opens quietly, switches protocols, sorts, filters and
zooms, and fits a phone."""

# A made-up table stands where results are expected.
# pyright: reportArgumentType=false

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from matplotlib.figure import Figure

from dlmexp.cli import main
from dlmexp.presentation.claims.columns import VerdictColumn
from dlmexp.presentation.report import findings, leaderboards, page, picture
from tests.support.tidy import Made, fits

NAME = "<script>document.title='owned'<script>"
REASON = "<img src=x onerror=\"document.title='owned'\"> & NaN"
SIZES = (100, 200, 500, 1000, 2000)
VISIBLE = (
    "return [...document.querySelectorAll('#table tbody tr')].filter(r => r.offsetParent !== null)"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="module")
def made() -> Made:
    rows = []
    for protocol, dlm in (("paper", 0.2), ("released", 0.7)):
        for dataset in ("banana", "ringnorm", "sarcos_test"):
            for method, mean in (
                ("elbo", 0.5),
                ("beta_elbo", 0.4),
                ("joint_log_dlm", dlm),
                ("fixed_log_dlm", dlm),
            ):
                rows += fits(
                    dataset,
                    method,
                    mean,
                    sizes=SIZES,
                    protocol=protocol,
                    command=f"dlmexp run {protocol}",
                )
    rows += fits(NAME, "elbo", 0.3, sizes=(100,), seeds=2)
    rows += fits("thyroid", "elbo", 0.3, sizes=(100,), seeds=7, status="failed", reason=REASON)
    return Made(rows)


@pytest.fixture(scope="module")
def html(made: Made) -> str:
    """The page, with one small picture in place of all figures."""
    canvas = Figure((2, 1))
    canvas.subplots().plot([0, 1])
    with pytest.MonkeyPatch.context() as patch:
        about = {
            "title": "A title",
            "caption": f"About {NAME}.",
            "notes": ["a note"],
            "commands": ["dlmexp plot"],
        }
        pictures = [
            page.Picture(id=name, source=picture.png_address(canvas), **about)
            for name in ("selection", "class-log")
        ]
        patch.setattr(page, "pictures", lambda results, column: pictures)
        return page.page(made)


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
    assert {
        "findings",
        "verdicts",
        "claims",
        "figures",
        "results",
        "failures",
        "made",
        "claim-22",
    } <= ids
    assert text.count("sarcos_test") == text.count("sarcos_test (stand-in for sarcos)") > 5
    assert "/" not in html[html.index("<title>") + 7 : html.index("</title>")], "no path is a title"


def test_the_same_table_gives_the_same_numbers(made):
    table = page.result_rows(made)
    row = table.query(
        "dataset == 'banana' and n == 100 and method == 'joint DLM' and protocol == 'paper'"
    ).iloc[0]
    values = made.table.query(
        "dataset == 'banana' and n == 100 and method == 'joint_log_dlm' and protocol == 'paper'"
    )
    expected = values["test_nll"].agg(["mean", "std"]).tolist()
    assert row[["test_nll_mean", "test_nll_std"]].tolist() == pytest.approx(expected)
    assert page.origins(made)["command"][row["origin"]] == "dlmexp run paper"
    assert page.failures(made)[0][:2] == (REASON, 7)
    assert page.overview(made).failed == 7


def test_findings_are_the_best_methods_against_elbo(made):
    paper, released = (
        findings.findings(made, VerdictColumn(name)) for name in ("paper", "released")
    )
    assert {one.dataset for one in paper} == {
        "banana",
        "ringnorm",
        "sarcos_test (stand-in for sarcos)",
    }
    assert {one.method for one in paper} <= {"joint DLM", "fixed DLM"}
    assert {one.method for one in released} == {"β-ELBO"}
    assert [one.difference for one in paper] == pytest.approx([0.3] * 3, abs=0.01)
    assert [page.number(value) for value in (float("nan"), float("inf"), 0.123456)] == [
        "–",
        "not finite",
        "0.1235",
    ]


def test_leaderboards_have_ranks_by_all_metrics(made):
    (board,) = leaderboards.leaderboards(made)
    assert board.title == "binary, 2 data sets, kernel rbf"
    assert board.headers[:4] == ["method", "NLL rank", "NLL mean rank", "mean NLL"]
    best = [cell.text for cell in board.rows[0]]
    assert best[0] in ("joint DLM, paper", "fixed DLM, paper")
    assert best[-1] == "2 of 3"
    assert len(board.rows) == 8


def test_folder_without_two_methods_has_no_leaderboard():
    assert leaderboards.leaderboards(Made(fits("banana", "elbo", 0.5))) == []


def test_page_without_scripts_shows_what_a_script_would(html):
    noscript = re.search(r"<noscript>(.*?)</noscript>", html)
    assert noscript
    assert ".controls, #switch { display: none; }" in noscript[1]
    assert "[data-under][hidden] { display: revert !important; }" in noscript[1]
    assert not re.search(r"<tr[^>]* hidden", html)


@pytest.mark.slow
def test_command(made, tmp_path, capsys, refused, monkeypatch):
    monkeypatch.setattr(
        "dlmexp.experiment.records.results.ResultsFolder", lambda folder, pack_folders: made
    )
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
        refused(["report", "--out", str(wrong)], str(wrong))


class Browser:
    """One page in one window, through chromedriver's plain HTTP interface (W3C WebDriver): no
    further packages."""

    def __init__(self, port: str):
        self.root, self.opener = f"http://127.0.0.1:{port}/session", build_opener(ProxyHandler({}))

    def send(self, path: str, method: str = "POST", **body: Any) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = Request(
            self.root + path, data, {"Content-Type": "application/json"}, method=method
        )
        with self.opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a piece of JavaScript returns in the page."""
        return self.send("/execute/sync", script=script, args=list(arguments))

    def log(self, kind: str) -> list[dict]:
        return self.send("/se/log", type=kind)


@pytest.fixture(scope="module")
def browser(html: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver, binary = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not binary:
        pytest.skip(
            "needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"
        )
    folder: Path = tmp_path_factory.mktemp("browser")
    (folder / "report.html").write_text(html, encoding="utf-8")
    options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
    wanted = {
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }
    quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([driver, "--port=0"], **quiet) as process:  # it is waited for
        try:
            lines = (
                re.search(r"started successfully on port (\d+)", line)
                for line in process.stdout or ()
            )
            one = Browser(next(filter(None, lines))[1])
            one.root += "/" + one.send("", capabilities={"alwaysMatch": wanted})["sessionId"]
            one.send("/window/rect", width=1280, height=1000)
            one.send("/url", url=(folder / "report.html").as_uri())
            yield one
            one.send("", method="DELETE")
        finally:
            process.terminate()


@pytest.mark.browser
def test_opens_without_errors_and_without_network(browser: Browser) -> None:
    assert browser.log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = [
        request["request"]["url"] for request in sent if request["documentURL"].startswith("file:")
    ]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked), asked
    assert browser.run("return document.querySelectorAll('img[src=x]').length") == 0


@pytest.mark.browser
def test_protocols_sorting_and_filtering(browser: Browser) -> None:
    def column(index: int) -> list[str]:
        return browser.run(VISIBLE + ".map(r => r.cells[arguments[0]].textContent)", index)

    verdict = "document.querySelector('#claim-7 summary [data-under]:not([hidden])')"
    shown = f"return {verdict}.textContent.trim()"
    switch = "document.querySelector('#switch input[value=' + arguments[0] + ']').click()"
    before = browser.run(shown)
    browser.run(switch, "released")
    assert browser.run(shown) != before
    assert browser.run(VISIBLE + ".every(r => r.dataset.protocol === 'released')")
    browser.run(switch, "paper")
    assert browser.run(shown) == before
    for reverse in (False, True):
        browser.run("document.querySelectorAll('#table th button')[1].click()")
        assert column(1) == sorted(column(1), key=int, reverse=reverse)
    typed = (
        "const filter = document.querySelector('#filter'); filter.value = arguments[0]; "
        "filter.dispatchEvent(new Event('input'))"
    )
    browser.run(typed, "banana JOINT")
    assert column(2) == ["joint DLM"] * 5
    browser.run(typed, "")


@pytest.mark.browser
def test_leaderboards_are_sorted_and_filtered(browser: Browser) -> None:
    rows = "[...document.querySelectorAll('#leaderboard-1 tbody tr')]"
    values = f"return {rows}.map(r => Number(r.cells[3].dataset.v))"
    for reverse in (False, True):
        browser.run("document.querySelectorAll('#leaderboard-1 th button')[3].click()")
        found = browser.run(values)
        assert found == sorted(found, reverse=reverse)
    typed = (
        "const filter = document.querySelector('[data-filters=leaderboard-1]'); "
        "filter.value = arguments[0]; filter.dispatchEvent(new Event('input'))"
    )
    browser.run(typed, "joint PAPER")
    names = f"return {rows}.filter(r => !r.hidden).map(r => r.cells[0].textContent)"
    assert browser.run(names) == ["joint DLM, paper"]
    browser.run(typed, "")
    assert len(browser.run(names)) == 8


@pytest.mark.browser
def test_pictures_links_a_phone_and_paper(browser: Browser) -> None:
    browser.run("document.querySelector('#figure-selection .zoom').click()")
    assert browser.run("return document.querySelector('#viewer').open") is True
    assert (
        browser.run("return document.querySelector('#viewer img').decode().then(() => true)")
        is True
    )
    browser.run("document.querySelector('#close').click(); location.hash = '#claim-7'")
    opened = (
        "return new Promise(r => setTimeout(() => r(document.querySelector('#claim-7').open), 200))"
    )
    assert browser.run(opened) is True
    browser.send("/window/rect", width=500, height=900)  # the narrowest window that Chromium makes
    assert browser.run(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return document.querySelectorAll('details:not([open])').length") == 0
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.log("browser") == []
