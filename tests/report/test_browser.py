"""The report in a real browser: it opens quietly, switches protocols, sorts, filters and zooms, and fits a phone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chromium import Browser

pytestmark = pytest.mark.browser
VISIBLE = "return [...document.querySelectorAll('#table tbody tr')].filter(r => r.offsetParent !== null)"


@pytest.fixture(scope="module")
def browser(html: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver, binary = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not binary:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    folder: Path = tmp_path_factory.mktemp("browser")
    (folder / "report.html").write_text(html, encoding="utf-8")
    with Browser(driver, binary, folder / "profile") as one:
        one.resize(1280, 1000)
        one.open(folder / "report.html")
        yield one


def test_opens_without_errors_and_without_network(browser: Browser) -> None:
    assert browser.log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = [request["request"]["url"] for request in sent if request["documentURL"].startswith("file:")]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked), asked
    assert browser.run("return document.querySelectorAll('img[src=x]').length") == 0


def test_protocols_sorting_and_filtering(browser: Browser) -> None:
    def column(index: int) -> list[str]:
        return browser.run(VISIBLE + ".map(r => r.cells[arguments[0]].textContent)", index)

    shown = "return document.querySelector('#claim-7 summary [data-under]:not([hidden])').textContent.trim()"
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
    typed = "const f = document.querySelector('#filter'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))"
    browser.run(typed, "banana JOINT")
    assert column(2) == ["joint DLM"] * 5
    browser.run(typed, "")


def test_pictures_links_a_phone_and_paper(browser: Browser) -> None:
    browser.run("document.querySelector('#figure-selection .zoom').click()")
    assert browser.run("return document.querySelector('#viewer').open") is True
    assert browser.run("return document.querySelector('#viewer img').decode().then(() => true)") is True
    browser.run("document.querySelector('#close').click(); location.hash = '#claim-7'")
    opened = "return new Promise(r => setTimeout(() => r(document.querySelector('#claim-7').open), 200))"
    assert browser.run(opened) is True
    browser.resize(500, 900)  # the narrowest window that Chromium makes
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return document.querySelectorAll('details:not([open])').length") == 0
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.log("browser") == []
