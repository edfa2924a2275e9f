"""The report in a real browser: it opens quietly, sorts, filters, zooms, and hostile text stays text."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib.image
import pytest

from dlmexp.records.results import load
from dlmexp.report.page import page
from tests.support.chromium import Browser
from tests.support.hostile import NAME

pytestmark = pytest.mark.browser

VISIBLE = "return [...document.querySelectorAll('#table tbody tr')].filter(r => r.offsetParent !== null)"


@pytest.fixture(scope="module")
def browser(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver, binary = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not binary:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    where = tmp_path_factory.mktemp("browser")
    (where / "report.html").write_text(page(load(folder), "results"), encoding="utf-8")
    with Browser(driver, binary, where / "profile") as one:
        one.resize(1200, 1000)
        one.open(where / "report.html")
        yield one


def test_opens_without_errors_and_without_network(browser: Browser) -> None:
    assert browser.log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # By our page, not by the empty tab that the browser starts with: itself and pictures that lie in it, nothing else.
    asked = [request["request"]["url"] for request in sent if request["documentURL"].startswith("file:")]
    assert any(url.startswith("file:") for url in asked)
    assert all(url.startswith(("file:", "data:")) for url in asked), asked


def test_hostile_names_stay_text(browser: Browser) -> None:
    assert browser.run("return document.title") == "dlmexp report: results"
    assert browser.run("return document.querySelectorAll('script').length") == 1
    assert browser.run("return document.querySelectorAll('img[src=x]').length") == 0
    assert NAME in browser.run("return document.querySelector('#results').textContent")


def test_pages_of_fifty(browser: Browser) -> None:
    total = browser.run("return document.querySelectorAll('#table tbody tr').length")
    assert total > 50
    assert browser.run(VISIBLE + ".length") == 50
    assert browser.run("return document.querySelector('#count').textContent") == f"{total} of {total} rows, page 1 of 2"
    browser.run("document.querySelector('#next').click()")
    assert browser.run(VISIBLE + ".length") == total - 50
    browser.run("document.querySelector('#all').click()")
    assert browser.run(VISIBLE + ".length") == total
    browser.run("document.querySelector('#all').click(); document.querySelector('#previous').click()")


def column(browser: Browser, title: str) -> list[str]:
    index = browser.run(
        "return [...document.querySelectorAll('#table th')].findIndex(h => h.textContent === arguments[0])", title
    )
    return browser.run(
        VISIBLE + ".map(r => r.cells[arguments[0]].dataset.v ?? r.cells[arguments[0]].textContent)", index
    )


def click(browser: Browser, title: str) -> None:
    browser.run(
        "[...document.querySelectorAll('#table th button')].find(b => b.textContent === arguments[0]).click()", title
    )


def test_sorting(browser: Browser) -> None:
    browser.run("document.querySelector('#all').click()")
    click(browser, "n")
    numbers = [int(value) for value in column(browser, "n")]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 5
    click(browser, "n")
    assert [int(value) for value in column(browser, "n")] == sorted(numbers, reverse=True)
    click(browser, "NLL")
    values = column(browser, "NLL")
    finite = [float(value) for value in values if value not in ("", "nan")]
    assert finite == sorted(finite)
    assert values[-1] in ("", "nan")  # what is missing comes last
    click(browser, "dataset")
    names = column(browser, "dataset")
    assert names[-1].startswith(("twonorm", "thyroid"))
    state = (
        "return [...document.querySelectorAll('#table th')].filter(h => h.ariaSort !== 'none').map(h => h.textContent)"
    )
    assert browser.run(state) == ["dataset"]
    browser.run("document.querySelector('#all').click()")


def type_filter(browser: Browser, text: str) -> None:
    browser.run(
        "const f = document.querySelector('#filter'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))", text
    )


def test_filtering(browser: Browser) -> None:
    type_filter(browser, "banana JOINT")
    assert set(column(browser, "dataset")) == {"banana"}
    assert set(column(browser, "method")) == {"joint DLM"}
    assert len(column(browser, "method")) == 5
    type_filter(browser, "no such thing")
    assert column(browser, "dataset") == []
    assert browser.run("return document.querySelector('#count').textContent").startswith("0 of ")
    type_filter(browser, "<script>")
    assert column(browser, "dataset") == [NAME]
    type_filter(browser, "")


def test_zoom(browser: Browser) -> None:
    browser.run("document.querySelector('#figure-class-log .zoom').click()")
    assert browser.run("return document.querySelector('#viewer').open") is True
    before = browser.run("return document.querySelector('#viewer img').getBoundingClientRect().width")
    browser.run("document.querySelector('[data-zoom=\"1.25\"]').click()")
    after = browser.run("return document.querySelector('#viewer img').getBoundingClientRect().width")
    assert after == pytest.approx(1.25 * before, rel=0.02)
    browser.run("document.querySelector('#close').click()")
    assert browser.run("return document.querySelector('#viewer').open") is False


def test_pictures_are_drawn(browser: Browser) -> None:
    browser.run("for (const i of document.querySelectorAll('.zoom img')) i.loading = 'eager'")
    wait = "return Promise.all([...document.querySelectorAll('.zoom img')].map(i => i.decode())).then(() => true)"
    assert browser.run(wait) is True
    sizes = browser.run("return [...document.querySelectorAll('.zoom img')].map(i => [i.complete, i.naturalWidth])")
    assert len(sizes) >= 2
    assert all(complete and width > 100 for complete, width in sizes)


def test_a_claim_unfolds_to_its_figures(browser: Browser) -> None:
    """Pictures lie once in the page; a claim that is opened shows them too, and they can be enlarged there."""
    before = browser.run("return document.querySelectorAll('.zoom').length")
    browser.run("for (const i of document.querySelectorAll('.zoom img')) i.loading = 'lazy'")  # as the page has them
    browser.run("document.querySelector('#claim-7').open = true")
    shown = "return [...document.querySelectorAll('#claim-7 .zoom img')].map(i => i.alt.split(':')[0])"
    assert browser.run(f"return new Promise(r => setTimeout(() => r((() => {{ {shown} }})()), 200))") == [
        "class-log",
        "class-log-unwhitened",
    ]
    assert browser.run("return document.querySelectorAll('.zoom').length") == before + 2
    loaded = "i => i.loading === 'eager' && i.complete && i.naturalWidth > 100"
    every = f"return [...document.querySelectorAll('#claim-7 .zoom img')].every({loaded})"
    assert browser.run(every), "also before anybody scrolls there"
    browser.run("document.querySelector('#claim-7 .zoom').click()")
    assert browser.run("return document.querySelector('#viewer').open") is True
    browser.run("document.querySelector('#close').click(); document.querySelector('#claim-7').open = false")


def test_dark_and_light(browser: Browser) -> None:
    rules = browser.run("return [...document.styleSheets[0].cssRules].map(r => r.conditionText).filter(Boolean)")
    assert "(prefers-color-scheme: dark)" in rules


def test_fits_a_phone(browser: Browser) -> None:
    browser.resize(500, 900)  # the narrowest window that Chromium makes
    try:
        assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        wrapped = """
            const verdicts = document.querySelector('#claim-7 .verdicts > span');
            const added = document.createElement('span');
            added.className = 'stand-in';
            added.textContent = 'stand-ins: undecidable';
            verdicts.append(added);
            verdicts.style.width = '14rem';
            const [first, second] = [verdicts.querySelector('.verdict'), added].map(e => e.getBoundingClientRect());
            added.remove();
            verdicts.style.width = '';
            return second.top > first.top && Math.abs(second.left - first.left) < 1
        """
        assert browser.run(wrapped)
    finally:
        browser.resize(1200, 1000)


def test_everything_is_printed(browser: Browser) -> None:
    """Paper has neither pages of the table nor folds."""
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return document.querySelectorAll('details:not([open])').length") == 0
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run("return document.querySelectorAll('details[open]').length") == 0


def test_screenshot_is_not_blank(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    path.write_bytes(base64.b64decode(browser.screenshot()))
    image = matplotlib.image.imread(path)
    assert image[..., :3].std() > 0.05
    assert browser.log("browser") == []  # nothing above made the page complain
