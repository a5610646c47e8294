"""The site of the documentation in a real browser; ``make test-site`` builds it before."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.browser import WINDOWS, asked_for, show

pytest.importorskip("mkdocs", reason="make test-site")
SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(page.name for page in SITE.glob("*.html")) or ["index.html"]
FIRST = "index.html", "tutorial.html", "did_it_work.html", "comparison.html", "training.html"
ILLUSTRATED = "index.html", "tutorial.html", "rows.html", "training.html", "law.html"
BROKEN = "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
SCROLLED = """
return [...document.querySelectorAll('.md-typeset__scrollwrap')]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 60))
"""
# The height of the smallest letters of each picture; a PNG is drawn as 340 pixels with letters of
# 10.5.
LETTERS = """
return Promise.all([...document.querySelectorAll('.md-content img')].map(async image => {
    let [size, width] = [10.5, 340];
    if (image.src.endsWith('.svg')) {
        const text = await (await fetch(image.src)).text();
        size = Math.min(...[...text.matchAll(/font(?:-size)?: ?([\\d.]+)px/g)].map(one => one[1]));
        width = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement
            .viewBox.baseVal.width;
    }
    return [image.src, size * image.getBoundingClientRect().width / width];
}))
"""
SEARCH = """
document.querySelector('[data-md-component=search-query]').focus();
document.querySelector('[data-md-component=search-query]').value = 'mega-batches';
document.querySelector('[data-md-component=search-query]').dispatchEvent(new Event('keyup'));
document.querySelector('[data-md-component=search-query]').dispatchEvent(new Event('input'));
"""


@pytest.fixture(scope="module")
def address():
    """Of a server of the site, as a search needs one."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(params=WINDOWS, ids=str)
def window(request):
    return request.param


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_and_loads_nothing_from_elsewhere(page, window, chromium, address):
    show(chromium, address + page, *window)
    wide = chromium.execute_script("return document.documentElement.scrollWidth")
    assert wide <= window[0]
    assert chromium.execute_script(BROKEN) == []
    asked = asked_for(chromium)
    assert address + page in asked
    assert [one for one in asked if not one.startswith((address, "data:", "blob:"))] == []
    assert chromium.get_log("browser") == []


@pytest.mark.parametrize("page", FIRST)
def test_tables_need_no_scrolling(page, window, chromium, address):
    show(chromium, address + page, *window)
    assert chromium.execute_script(SCROLLED) == []


@pytest.mark.parametrize("page", ILLUSTRATED)
def test_labels_of_pictures_can_be_read(page, window, chromium, address):
    show(chromium, address + page, *window)
    letters = dict(chromium.execute_script(LETTERS))
    assert letters
    assert {name: size for name, size in letters.items() if not size or size < 9} == {}


def test_the_colours_are_those_of_the_system(window, chromium, address):
    show(chromium, address, *window)
    colour = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
    red = int(colour.partition("(")[2].partition(",")[0])
    assert (red < 60) == (window[1] == "dark")


def test_search_finds(chromium, address):
    from selenium.webdriver.support.wait import WebDriverWait

    show(chromium, address, 1280, "light")
    chromium.execute_script(SEARCH)
    links = "return [...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
    found = WebDriverWait(chromium, 30).until(lambda driver: driver.execute_script(links))
    assert any("planners.html" in one for one in found)


def test_every_public_name_is_in_the_reference(chromium, address):
    import batchplan
    import batchplan.training

    show(chromium, address + "api.html", 1280, "light")
    names = set(
        chromium.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    )
    for package in (batchplan, batchplan.training):
        public = {name for name in package.__all__ if not name.startswith("_")}
        assert {f"{package.__name__}.{name}" for name in public} <= names
