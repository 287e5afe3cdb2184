"""The page as a file: whole, offline, escaped, and it says what is missing. In a browser: test_browser.py."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from gobrrr.report import page
from gobrrr.report.pages import comparison, lab, predictions, step, treatment
from reported import HOSTILE, bert, compared, hostile, kept_lab, odd, predicted, treated

MOST_BYTES = 1_500_000
REAL_BUNDLE = page._bundle
VOID = {"meta", "link", "input", "br", "img", "hr"}


@pytest.fixture(scope="module", autouse=True)
def no_bundle():
    """The library's script is a megabyte and the same in every page: a stand-in, but for the tests that want it."""
    patched = pytest.MonkeyPatch()
    patched.setattr(page, "_bundle", lambda: "/* bundle */")
    yield
    patched.undo()


class Reader(HTMLParser):
    """Tags, and whether they close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


PAGES = {
    "step": lambda: step.render(bert()),
    "comparison": lambda: comparison.render(compared()),
    "predictions": lambda: predictions.render(predicted()),
    "lab": lambda: lab.render(kept_lab()),
    "treatment": lambda: treatment.render(treated()),
    **{name: lambda name=name: step.render(odd()[name]) for name in odd()},
    **{name: lambda text=text: step.render(hostile(text)) for name, text in HOSTILE.items()},
}


@cache
def page_of(name: str) -> str:
    return PAGES[name]()


def data_of(text: str) -> dict:
    packed = re.search(r'id="data">([^<]*)<', text)[1]
    return json.loads(gzip.decompress(b64decode(packed)))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_well_formed_and_asks_nobody_for_anything(name):
    text = page_of(name)
    reader = Reader(text)
    assert reader.open == []
    for tag, attributes in reader.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert not {name for name in attributes if name.startswith("on") or name == "src"}
        assert (attributes.get("href") or "#").startswith("#")


@pytest.mark.parametrize("name", PAGES)
def test_only_the_two_scripts_of_the_page_are_admitted(name):
    text = page_of(name)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    admitted = re.findall(r"'sha256-([^']*)'", policy)
    assert admitted == [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert "unsafe" not in policy.partition("script-src")[2]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text_and_the_page_small(name):
    made = page_of(name)
    assert "<script>owned" not in made
    assert "<img" not in made
    assert "<svg onload" not in made
    assert "49}" not in made
    assert len(made) < 200_000
    made.encode()


def test_sections_say_what_is_missing():
    nothing = page_of("no ops")
    for sentence in ("No op was timed", "No kernel was recorded", "No module is known", "Nothing ran"):
        assert sentence in nothing
    assert "No roofline: no op of known work was timed" in page_of("no program")
    assert "Nothing was asked" not in page_of("predictions")


def test_data_holds_every_op_with_its_numbers():
    data = data_of(page_of("step"))
    assert sum(data["ops"]["calls"]) == len(bert().exam.kernels)
    assert sum(data["ops"]["seconds"]) == pytest.approx(bert().diagnosis.busy_s, rel=1e-3)
    assert set(data["specs"]) == {"roofline", "timeline", "steps"}


def test_every_chart_of_a_page_has_its_place_and_its_spec():
    for name in ("step", "predictions", "lab", "treatment"):
        text = page_of(name)
        places = {attributes["id"] for _, attributes in Reader(text).tags if attributes.get("class") == "chart"}
        assert places == set(data_of(text)["specs"])


def test_the_verdict_stands_first():
    text = page_of("step")
    first = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)[1]
    words = " ".join(re.sub(r"<[^>]*>", "", first).split())
    assert words.startswith("Overhead 57 %. The host limits. You are at 18 % of what this machine can do")


def test_a_page_with_its_library_is_under_its_budget():
    pytest.importorskip("vl_convert", reason="no vl-convert-python, which brings the charts' library")
    assert len(page_of("step").encode()) + len(REAL_BUNDLE().encode()) < MOST_BYTES


def test_nothing_in_the_library_ends_the_script_around_it():
    pytest.importorskip("vl_convert", reason="no vl-convert-python, which brings the charts' library")
    assert "</script" not in REAL_BUNDLE().lower()
    assert "<!--" not in REAL_BUNDLE()
