"""The report in a browser: on a phone, on a screen and on paper, with the pointer over its plots."""

import re

import pytest
from browser import open_page

from sysid_ros.reports.report import report_html

pytestmark = pytest.mark.processes
BOX = "(e => { e.scrollIntoView(); const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })"
SMALLEST = """Math.min(...[...document.querySelectorAll('svg.plot')].map(e =>
    11 * e.getBoundingClientRect().width / e.viewBox.baseVal.width))"""
OUTSIDE = """[...document.querySelectorAll('main > *, section > *')].filter(e =>
    !e.classList.contains('scroll') && e.getBoundingClientRect().right > innerWidth + 1).length"""
CUT = """[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e =>
    e.textContent.trim().slice(0, 40))"""


@pytest.fixture(scope="module")
def page(result, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(report_html(result), encoding="utf-8")
    with open_page(path.as_uri(), folder) as page:
        yield page


@pytest.mark.parametrize("width", [400, 1200])
def test_everything_is_readable_without_scrolling_sideways(page, width):
    page.resize(width, 900)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OUTSIDE) == 0
    assert page.evaluate(SMALLEST) >= 8.0, "labels of plots are too small to read [px]"
    assert page.evaluate(CUT) == [], "a table is wider than the page"
    assert page.log == []


def test_the_pointer_reads_out_the_same_time_in_all_plots_of_a_group(page, result):
    page.resize(1200, 900)
    x, y, width, height = page.evaluate(f"{BOX}(document.querySelector('svg.plot'))")
    page.move(x + 0.6 * width, y + 0.5 * height)
    plots = "[...document.querySelectorAll('.plots svg.plot')]"
    texts = f"{plots}.map(e => [...e.querySelectorAll('.hover text')].map(t => t.textContent))"
    shown = page.evaluate(texts)
    first = shown[0]
    assert re.fullmatch(r"[\d.]+ s", first[0]) and [text.split()[0] for text in first[1:]] == [
        "upper",
        "estimate",
        "lower",
    ]
    seconds = float(first[0].split()[0])
    upper, estimate, lower = (float(text.split()[1]) for text in first[1:])
    k = result.history.time.searchsorted(seconds, side="right") - 1
    assert upper == pytest.approx(result.history.upper[k, 0], abs=0.02)
    assert lower == pytest.approx(result.history.lower[k, 0], abs=0.02)
    assert lower < estimate < upper
    assert [texts[0] for texts in shown if texts] == [first[0]] * 10
    page.move(1, 1)
    assert not any(page.evaluate(texts))


def test_the_arm_turns_under_the_pointer(page):
    x, y, width, height = page.evaluate(f"{BOX}(document.querySelector('svg.picture'))")
    place = "document.querySelector('svg.picture [data-part=\"5\"]').getAttribute('cx')"
    before = page.evaluate(place)
    page.move(x + 0.5 * width, y + 0.5 * height)
    assert page.evaluate(place) == before, "moving alone turns nothing"
    page.move(x + 0.7 * width, y + 0.5 * height, buttons=1)
    assert page.evaluate(place) != before


def test_on_paper_it_takes_few_pages(page, tmp_path):
    page.print(tmp_path / "report.pdf")
    text = (tmp_path / "report.pdf").read_bytes()
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", text)) <= 10
