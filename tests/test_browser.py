"""The pages in a real Chromium, offline: nothing is asked for, nothing of a stranger's runs, everything can be used.

Screenshots of the main states go to the folder named in SCREENSHOTS, to be looked at: `SCREENSHOTS=docs/images` makes
those of the documentation anew.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobrrr import units
from gobrrr.report.view import step_view
from reported import HOSTILE, bert, compared, cured, everything_wrong, hostile, kept_lab, odd, predicted

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
if not CHROMIUM:
    pytest.skip("no Chromium on this machine", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright, which drives the browser")
pytest.importorskip("vl_convert", reason="no vl-convert-python, which brings the charts' library")

from gobrrr.report.pages import comparison, lab, predictions, step, treatment  # noqa: E402 (only where they can be seen)

expect = playwright.expect
SCREENSHOTS = os.environ.get("SCREENSHOTS")
SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit:
    """A page that is open, with all that went wrong on it.

    What comes a moment later is awaited by `expect` alone: `wait_for_function` evaluates its text in the page as soon
    as it has to look twice, which the pages' own policy forbids.
    """

    def __init__(self, browser, path: Path, scheme: str, size: str) -> None:
        self.context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, offline=True)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on("request", lambda request: self._asked(request.url, path))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def _asked(self, url: str, path: Path) -> None:
        if url != path.as_uri():
            self.problems.append(f"asked for {url[:80]}")

    def draw_all(self) -> None:
        for chart in self.page.query_selector_all(".chart"):
            chart.scroll_into_view_if_needed()
        self.all_drawn()
        self.page.evaluate("scrollTo(0, 0)")

    def all_drawn(self) -> None:
        expect(self.page.locator(".chart:not([data-drawn])")).to_have_count(0)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def column(self, number: int) -> list[str]:
        return self.page.eval_on_selector_all(
            f"#op-table tbody td:nth-child({number})", "cells => cells.map((cell) => cell.textContent)"
        )

    def bubbles(self) -> int:
        return self.page.evaluate("document.querySelector('#roofline').dataset.bubbles * 1")

    def shot(self, name: str, selector: str | None = None) -> None:
        """What is in sight, or one element of the page."""
        if SCREENSHOTS:
            self.page.mouse.move(0, 0)
            shown = self.page if selector is None else self.page.locator(selector)
            shown.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a page; at the end nothing may have gone wrong on any."""
    visits: list[Visit] = []

    def open_page(html: str, scheme: str = "light", size: str = "desk") -> Visit:
        path = tmp_path / f"{len(visits)}.html"
        path.write_text(html, encoding="utf-8")
        visits.append(Visit(browser, path, scheme, size))
        return visits[-1]

    yield open_page
    problems = [problem for one in visits for problem in one.problems]
    for one in visits:
        one.context.close()
    assert problems == []


@pytest.fixture(scope="module")
def bert_page() -> str:
    return step.render(bert())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_nothing_runs_over_the_edge(visit, bert_page, scheme, size):
    one = visit(bert_page, scheme, size)
    one.draw_all()
    assert one.page.evaluate("document.documentElement.dataset.theme") == scheme
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if (scheme, size) == ("light", "desk"):
        one.shot("verdict")
        one.shot("roofline", "#roofline-section")
        one.shot("factory", "#factory")
    if (scheme, size) == ("dark", "phone"):
        one.shot("phone")


def test_everything_that_is_wrong_with_a_step_stands_on_one_page(visit):
    """Its verdict and its findings alone are the README's first picture."""
    one = visit(step.render(everything_wrong()))
    shown = set(
        one.page.eval_on_selector_all("#findings summary", "all => all.map((each) => each.innerText.slice(0, 4))")
    )
    assert shown >= {"B102", "B104", "B201", "B202", "B207", "B208", "B301", "B302"}
    one.page.add_style_tag(content="section:not(#verdict, #findings), nav { display: none }")
    one.shot("everything-wrong", "main")


def test_the_other_pages_draw(visit):
    pages = {
        "comparison": comparison.render(compared()),
        "predictions": predictions.render(predicted()),
        "lab": lab.render(kept_lab()),
        "treatment": treatment.render(cured()),
    }
    for name, html in pages.items():
        one = visit(html)
        one.draw_all()
        one.shot(name)


@pytest.mark.parametrize("name", odd())
def test_a_page_that_lacks_something_works(visit, name):
    visit(step.render(odd()[name])).draw_all()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_run_no_script_and_can_be_read(visit, text):
    one = visit(step.render(hostile(text)))
    one.draw_all()
    one.page.click("#op-table tbody .name")
    assert one.page.evaluate("window.owned") is None
    if text.startswith("<script>"):
        assert text[:30] in one.text("#picked")


def test_a_click_on_a_bubble_shows_its_op_module_line_and_findings(visit, bert_page):
    one = visit(bert_page)
    one.draw_all()
    one.page.locator("#roofline").scroll_into_view_if_needed()
    before = one.text("#picked")
    box = one.page.locator("#roofline canvas").bounding_box()
    for x in range(40, int(box["width"]), 6):  # along a line through the picture until a bubble is hit
        one.page.mouse.click(box["x"] + x, box["y"] + box["height"] * 0.545)
        if one.text("#picked") != before:
            break
    picked = one.text("#picked")
    assert picked != before
    assert "of ceiling" in picked
    assert ".py:" in picked


def test_hovering_names_what_is_under_the_pointer(visit, bert_page):
    one = visit(bert_page)
    one.draw_all()
    one.page.locator("#timeline").scroll_into_view_if_needed()
    box = one.page.locator("#timeline canvas").bounding_box()
    one.page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + 65)
    tip = one.page.locator("#tip")
    expect(tip).to_contain_text("of the step")
    one.page.mouse.move(box["x"] + box["width"] * 0.91, box["y"] + 65)
    expect(tip).to_contain_text("waits for the host to ask for")
    one.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    expect(tip).to_have_text(re.compile("^backward"))


def test_an_op_leads_to_its_finding_by_keyboard_alone(visit, bert_page):
    one = visit(bert_page)
    one.page.keyboard.press("/")
    one.page.keyboard.type("_to_copy modeling_bert.py:335")
    one.page.focus("#op-table tbody .name")
    one.page.keyboard.press("Enter")
    assert "B204" in one.text("#picked")
    one.page.focus("#picked a[href='#B204']")
    one.page.keyboard.press("Enter")
    assert one.page.evaluate("document.getElementById('B204').open")
    assert one.page.evaluate("location.hash") == "#B204"


def test_search_and_filters_narrow_table_and_roofline_alike(visit, bert_page):
    one = visit(bert_page)
    one.draw_all()
    everything = one.bubbles()
    one.page.fill("#search", "addmm")
    assert set(one.column(1)) == {"addmm"}
    assert 0 < one.bubbles() < everything
    one.page.click("button[type=reset]")
    expect(one.page.locator("#roofline")).to_have_attribute("data-bubbles", str(everything))
    one.page.click(".chip[data-regime=bandwidth]")
    one.page.select_option("#phase", "optimizer")
    assert set(one.column(8)) == {"optimizer"}
    assert "of 95 ops" in one.text("#matched")


def test_a_module_filters_what_ran_in_it(visit, bert_page):
    one = visit(bert_page)
    one.page.click("[data-module$='cls.predictions']")
    assert not one.text("#matched").startswith("95 of")
    one.page.click("#op-table tbody .name")
    assert "cls.predictions" in one.text("#picked")


def test_numbers_are_written_as_everywhere_else(visit, bert_page):
    """The page's script has rules of its own to write them: those of `units`."""
    one = visit(bert_page)
    lines = step_view(bert().diagnosis).ops[:10]
    assert one.column(3) == [units.seconds(line.seconds) for line in lines]
    assert one.column(4) == [units.percent(line.of_floor, 0) for line in lines]
    assert one.column(6) == [units.flops_per_s(line.flops_per_s) for line in lines]
    assert one.column(7) == [units.bytes_per_s(line.bytes_per_s) for line in lines]


def test_headings_sort_both_ways(visit, bert_page):
    one = visit(bert_page)
    one.page.click("#more")
    one.page.click("[data-sort=calls]")
    calls = [int(text) for text in one.column(2)]
    assert calls == sorted(calls, reverse=True)
    one.page.click("[data-sort=calls]")
    assert [int(text) for text in one.column(2)] == sorted(calls)
    assert one.page.get_attribute("th:has([data-sort=calls])", "aria-sort") == "ascending"


def test_the_timeline_zooms_by_wheel_and_by_button_and_comes_back(visit, bert_page):
    one = visit(bert_page)
    one.draw_all()
    shown = "document.querySelector('#timeline').dataset.shown"
    whole = one.page.evaluate(shown)
    one.page.locator("#timeline").scroll_into_view_if_needed()
    one.page.click("[aria-label='zoom in']")
    half = one.page.evaluate(shown)
    box = one.page.locator("#timeline canvas").bounding_box()
    one.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    one.page.mouse.wheel(0, -300)
    expect(one.page.locator("#timeline")).not_to_have_attribute("data-shown", half)
    assert whole != half
    one.page.click("[data-zoom='0']")
    assert one.page.evaluate(shown) == whole
    one.shot("timeline", "#timeline-section")


def test_the_theme_can_be_switched(visit, bert_page):
    one = visit(bert_page)
    one.draw_all()
    light = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
    one.page.click("#theme")
    assert one.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert one.page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_modules_fold_and_unfold(visit, bert_page):
    one = visit(bert_page)
    rows = "[...document.querySelectorAll('.tree tbody tr')].filter((row) => !row.hidden).length"
    before = one.page.evaluate(rows)
    one.page.click(".tree button.fold[aria-expanded=false] >> nth=0")
    assert one.page.evaluate(rows) > before
    one.page.click(".tree button.fold >> nth=0")
    assert one.page.evaluate(rows) < before


def test_it_prints_with_everything_open(visit, bert_page, tmp_path):
    one = visit(bert_page)
    one.page.emulate_media(media="print")
    one.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    one.all_drawn()
    assert one.page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
    assert len(one.page.pdf()) > 10_000
