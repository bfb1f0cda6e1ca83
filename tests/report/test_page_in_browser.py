"""The page in headless Chromium: it plays, takes the keyboard, fits a phone, and has no console error."""

import itertools
import os
import shutil

import pytest
from typer.testing import CliRunner

from looptaps.cli.main import app

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        reason = "chromium is not installed; `make browser` installs it (Debian, as root)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(out), "--title", "Telling <b>&"])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture
def visit(chromium, page_file):
    """visit(width, scheme): the loaded page; what it says on the console, and asks of the network, must be nothing."""
    said, contexts = [], []

    def go(width=1200, scheme="light", **options):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(("file:", "data:", "blob:"))
                else said.append(request.url))
        page.goto(page_file.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_function("document.getElementById('where').textContent.startsWith('loop 0')")
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


def board(page, side):
    return page.locator(f"#{side}-text").text_content().split("\n", 1)[1]


def test_it_plays_to_the_end_and_marks_what_changes(visit):
    page = visit()
    before = board(page, "left")
    assert before.count(".") > 40, "loop 0 is the puzzle"
    page.locator("#speed").select_option("200")
    page.locator("#play").click()
    page.wait_for_function("document.getElementById('where').textContent === 'loop 3 of 8'")
    assert page.locator("#left-board .changed").count() > 0
    page.wait_for_function("document.getElementById('where').textContent === 'loop 8 of 8'")
    assert page.locator("#play").text_content() == "Play"
    assert board(page, "left") != before
    assert page.locator("#eta-chart .cursor").get_attribute("d") == "M8 0V100"


def test_boards_are_those_of_the_traces_for_every_policy_and_loop(visit, folder):
    from looptaps.evaluation.records import load_run

    page = visit()
    place = 5
    page.locator("#puzzle").select_option(str(place))
    options = page.locator("#right option").all_text_contents()
    assert {"unit", "taps-gd", "gd-exit"} <= set(options)
    for name in ("taps-gd", "gd-exit", "unit"):
        page.locator("#right").select_option(label=name)
        page.wait_for_function(f"document.getElementById('right-name').textContent === '{name}'")
        traces = load_run(folder / name).traces
        page.locator("#player-box").press("End")
        shown = [letter for letter in board(page, "right") if letter in ".123456789"]
        boards = [row for row in traces["boards"][place] if row[0] != 255]
        assert shown == [".123456789"[token - 1] for token in boards[-1]], name


def test_the_keyboard_alone_is_enough(visit):
    page = visit()
    for _ in range(40):  # Tab reaches the player by itself
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "player-box":
            break
    assert page.evaluate("document.activeElement.id") == "player-box"
    for key, where in (("ArrowRight", "1"), ("ArrowRight", "2"), ("ArrowLeft", "1"), ("End", "8"), ("Home", "0")):
        page.keyboard.press(key)
        assert page.locator("#where").text_content() == f"loop {where} of 8", key
    page.keyboard.press("Space")
    assert page.locator("#play").text_content() == "Pause"
    page.keyboard.press("Space")
    assert page.locator("#play").text_content() == "Play"


def test_a_screen_reader_is_told_what_is_seen(visit):
    page = visit()
    page.locator("#forward").click()
    status = page.locator("#status")
    assert status.get_attribute("role") == "status"
    assert "Loop 1 of 8. unit:" in status.text_content()
    assert "Board of unit after loop 1: " in page.locator("#left-board").get_attribute("aria-label")
    unnamed = page.evaluate("""[...document.querySelectorAll('button, select, input, svg[role=img], [role=img]')]
        .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map((e) => e.id)""")
    assert unnamed == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(visit, scheme):
    """WCAG AA: 4.5 to 1 for text."""
    page = visit(scheme=scheme)
    ratios = page.evaluate("""(() => {
      const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
      const rgb = (c) => { paint.fillStyle = c; paint.fillRect(0, 0, 1, 1);
        return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3); };
      const light = (c) => rgb(c).map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
      const paper = light(getComputedStyle(document.body).backgroundColor);
      return ['.verdict', '.note', '.caption', 'td', 'nav a', '#left-name', '.facts'].map((query) => {
        const ink = light(getComputedStyle(document.querySelector(query)).color);
        return [query, (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)]; });
    })()""")
    assert [query for query, ratio in ratios if ratio < 4.5] == []


def test_it_fits_a_phone(visit):
    page = visit(width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    boards = page.locator("#left-board").bounding_box(), page.locator("#right-board").bounding_box()
    assert min(box["width"] for box in boards) > 120
    assert boards[0]["y"] == boards[1]["y"], "side by side"


def test_captions_and_legends_can_be_read_on_a_phone(visit):
    page = visit(width=390)
    widths = page.evaluate("[...document.querySelectorAll('.caption')].map((e) => e.getBoundingClientRect().right)")
    assert len(widths) > 3
    assert max(widths) <= 390, "a caption is cut off"
    described = page.evaluate("""[...document.querySelectorAll('table')].map((e) =>
        document.getElementById(e.getAttribute('aria-describedby')).textContent)""")
    assert "64 puzzles (" in described[0]
    sizes = page.evaluate("""[...document.querySelectorAll('.drawing text')].map((e) => {
        const scale = e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width;
        return parseFloat(getComputedStyle(e).fontSize) * scale; })""")
    assert min(sizes) > 9.5, "letters of a figure are too small, in pixels"


def test_without_scripts_the_verdict_and_the_tables_are_there(visit):
    page = visit(java_script_enabled=False)
    assert "On 64 puzzles with 8 loops, unit solves" in page.locator("#verdict").text_content()
    assert page.locator("#comparison tbody tr").count() >= 18
    assert page.locator("h1").text_content() == "Telling <b>&"
