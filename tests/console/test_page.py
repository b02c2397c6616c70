"""The page in a real browser: an idle, a busy and a failed job, hostile names, keyboard, phone, dark.

`SHMJET_PICTURES=folder` keeps the pictures that these tests take, for a person to look at.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `console` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `console` is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")

import shmjet  # noqa: E402
from shmjet import Execution, JetConfig, JetInstance, JobConfig  # noqa: E402
from tests.console.conftest import TOKEN, endless_dag, failing_dag  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<script>alert(1)</script>"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)"),
    pytest.mark.slow,
]
Wait = Callable[..., None]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.getuid() == 0 else [])]
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture(scope="module")
def url(jet: JetInstance) -> Iterator[str]:
    with shmjet.console.serve(jet, token=TOKEN) as console:
        yield console.url


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """`open_page(viewport, job=id)` opens the page; at the end it must have violated no policy and raised nothing."""
    complaints: list[str] = []
    expected = "status of 401"  # Chromium notes every wrong token

    def note(message: Any) -> None:
        if message.type in ("error", "warning") and expected not in message.text:
            complaints.append(message.text)

    contexts = []

    def open_one(viewport: dict[str, int] = DESKTOP, job: str | None = None, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: request.url.startswith(url) or complaints.append(request.url))
        page.add_init_script(
            "window.violations = [];"
            "addEventListener('securitypolicyviolation',"
            " (e) => violations.push(e.violatedDirective + ' ' + e.blockedURI))"
        )
        page.goto(url + (f"#job={job}" if job else ""))
        page.wait_for_selector("#connection[data-state=live]")
        return page

    yield open_one
    for context in contexts:
        for page in context.pages:
            complaints += page.evaluate("violations")
        context.close()
    assert complaints == []


def picture(page: Any, name: str) -> None:
    folder = os.environ.get("SHMJET_PICTURES")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True, animations="disabled")


def has_no_sideways_scroll(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def until(page: Any, expression: str) -> None:
    """Wait until an expression is true; Playwright's own way of waiting would need what the page's policy forbids."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"not within 30 s: {expression}"
        page.wait_for_timeout(20)


def text(page: Any, selector: str) -> str:
    return str(page.text_content(selector))


def contrast(page: Any, selector: str) -> float:
    """Return the contrast of a text against the first opaque background behind it, as WCAG counts it."""
    return float(
        page.evaluate(
            """(selector) => {
              const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
              const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255)
                .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
              const element = document.querySelector(selector);
              let behind = element;
              const isClear = (one) => (rgb(getComputedStyle(one).backgroundColor)[3] ?? 1) === 0;
              while (behind && isClear(behind)) behind = behind.parentElement;
              const back = getComputedStyle(behind ?? document.documentElement).backgroundColor;
              const pair = [getComputedStyle(element).color, back].map((c) => luminance(rgb(c))).sort((a, b) => b - a);
              return (pair[0] + 0.05) / (pair[1] + 0.05);
            }""",
            selector,
        )
    )


def test_an_idle_engine_says_so(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.wait_for_selector(".worker")
    assert text(page, "#empty-title") == "Nothing has run yet"
    assert page.locator("#job").is_hidden()
    assert page.locator(".worker").count() == 2
    assert "core" in text(page, ".worker-name")
    picture(page, "idle")
    page.set_viewport_size(PHONE)
    assert has_no_sideways_scroll(page)
    picture(page, "idle-phone")


@pytest.fixture
def busy(jet: JetInstance, eventually: Wait) -> Iterator[Execution]:
    job = jet.new_job(endless_dag(), JobConfig(name=HOSTILE))
    execution = job.execute()
    execution.job_id = job.id  # type: ignore[attr-defined]
    yield execution
    execution.cancel()
    eventually(execution.done, 30)


def test_a_busy_job_shows_what_moves_and_what_holds_it_up(open_page: Callable[..., Any], busy: Execution) -> None:
    page = open_page()
    page.wait_for_selector(".vertex.is-bottleneck[data-vertex=transform] .vertex-tag")
    assert page.locator("#graph .vertex").count() == 4
    assert page.locator("#graph .chip").count() == 3
    assert text(page, "#job-status") == "running"
    width = "Number(document.querySelector('[data-vertex=%s] .vertex-box').getAttribute('width'))"
    until(page, f"{width % 'transform'} > 1.1 * {width % 'numbers'}")
    received = "document.querySelector('#vertices tr:last-child td:nth-child(5)').textContent"
    before = page.evaluate(received)
    until(page, f"{received} !== {before!r}")
    until(page, "document.querySelector('.chart-line').getAttribute('d').split('L').length > 3")
    picture(page, "busy")


def test_a_hostile_name_is_text(open_page: Callable[..., Any], busy: Execution) -> None:
    page = open_page()
    page.wait_for_selector(".is-bottleneck")
    assert text(page, "#job-title") == HOSTILE
    assert text(page, ".job-row[aria-current] .job-row-name") == HOSTILE
    assert page.title().startswith(HOSTILE)
    assert page.locator("body script").count() == 0


def test_a_phone_and_the_dark_show_the_same(open_page: Callable[..., Any], busy: Execution) -> None:
    page = open_page(PHONE, color_scheme="dark", has_touch=True)
    page.wait_for_selector(".is-bottleneck .vertex-tag")
    assert has_no_sideways_scroll(page)
    assert page.locator("#graph .vertex").count() == 4
    heights = page.evaluate("[...document.querySelectorAll('.vertex')].map((v) => v.getBoundingClientRect().top)")
    assert heights == sorted(heights)  # the picture stands upright where there is no width
    assert heights[0] < heights[-1]
    picture(page, "busy-phone-dark")
    page.set_viewport_size(DESKTOP)
    until(page, "document.querySelector('.graph-picture').clientHeight < 250")
    picture(page, "busy-dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        for selector in ("#job-facts", "#job-status", ".job-row-facts", ".tile dt", "thead th", ".chart-axis"):
            assert contrast(page, selector) >= 4.5, (selector, scheme)
    assert page.evaluate(background) != dark


def test_a_failed_job_shows_the_users_traceback(jet: JetInstance, open_page: Callable[..., Any]) -> None:
    job = jet.new_job(failing_dag(), JobConfig(name="nightly import"))
    with pytest.raises(shmjet.JobFailedError):
        job.run(60)
    page = open_page(job=job.id)
    page.wait_for_selector("#failure-text")
    assert text(page, "#failure-title") == "ValueError"
    assert "parse <b>" in text(page, "#failure-where")
    assert 'raise ValueError(f"cannot parse item {item}")' in text(page, "#failure-text")
    assert text(page, "#job-status") == "failed"
    assert text(page, ".is-failed .vertex-tag text") == "failed here"
    assert page.locator("#cancel").is_disabled()
    until(page, "document.querySelector('#vertices td:nth-child(6)').textContent !== '0'")
    picture(page, "failed")
    page.set_viewport_size(PHONE)
    assert has_no_sideways_scroll(page)
    picture(page, "failed-phone")


def test_all_can_be_done_with_the_keyboard(
    jet: JetInstance, open_page: Callable[..., Any], busy: Execution, eventually: Wait
) -> None:
    page = open_page()
    page.wait_for_selector(".is-bottleneck")
    focused = "document.activeElement"
    page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.className") == "skip"
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        shown = page.evaluate(f"{focused} !== document.body && getComputedStyle({focused}).outlineStyle !== 'none'")
        reached.append(page.evaluate(f"{focused}.id || {focused}.className"))
        assert shown, f"no visible focus on {reached[-1]}"
        if reached[-1] == "cancel":
            break
    assert reached[-1] == "cancel"
    assert "job-row" in reached
    page.keyboard.press("Enter")  # asks for the token first
    page.wait_for_selector("#token-dialog[open]")
    page.keyboard.type("not the token at all")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#token-wrong').textContent.includes('not the token')")
    picture(page, "token")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#cancel-dialog[open]")
    assert HOSTILE in text(page, "#cancel-text")
    assert not busy.done()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    eventually(busy.cancelled, 30)
    until(page, "document.querySelector('#job-status').textContent === 'cancelled'")
    until(page, "document.querySelector('[role=status]').textContent.includes('cancel')")
    assert TOKEN not in page.url
    assert page.evaluate("localStorage.length") == 0


def test_numbers_are_told_as_people_read_them(open_page: Callable[..., Any]) -> None:
    page = open_page()
    told = page.evaluate(
        """import('./static/format.js').then((f) => [
          f.count(0), f.count(9999), f.count(12345), f.count(999999), f.count(1234567),
          f.rate(0), f.rate(0.04), f.rate(7.26), f.rate(99.96), f.rate(1049), f.rate(2.5e6),
          f.bytes(999), f.bytes(5 * 2 ** 20), f.percent(0.456),
          f.duration(0.0421), f.duration(7.25), f.duration(59.9), f.duration(185),
          f.duration(7800), f.duration(180000)])"""
    )
    assert told == [
        "0", "9,999", "12.3 k", "1.00 M", "1.23 M",
        "0", "<0.1", "7.3", "100", "1.05 k", "2.50 M",
        "999 B", "5.0 MiB", "46%",
        "42 ms", "7.3 s", "59 s", "3 min 05 s", "2 h 10 min", "2 d 2 h",
    ]  # fmt: skip


def test_a_private_console_shows_nothing_before_it_has_the_token(browser: Any, jet: JetInstance) -> None:
    with shmjet.console.serve(jet, token=TOKEN, private=True) as console:
        context = browser.new_context(viewport=DESKTOP)
        try:
            page = context.new_page()
            page.goto(console.url)
            page.wait_for_selector("#connection[data-state=locked]")
            assert page.locator(".worker").count() == 0
            assert text(page, "#empty-title") == "This console is private"
            assert page.locator("#members-section").is_hidden()
            picture(page, "locked")
            page.click("#unlock")
            page.fill("#token-input", TOKEN)
            page.click("#token-send")
            page.wait_for_selector(".worker")
            assert page.get_attribute("#connection", "data-state") == "live"
            assert page.locator("#unlock").is_hidden()
        finally:
            context.close()


def test_the_page_says_when_it_has_lost_the_console_and_finds_it_again(browser: Any, jet: JetInstance) -> None:
    console = shmjet.console.serve(jet)
    context = browser.new_context(viewport=DESKTOP)
    try:
        page = context.new_page()
        page.goto(console.url)
        page.wait_for_selector("#connection[data-state=live]")
        console.close()
        page.wait_for_selector("#connection[data-state=lost]")
        lost = text(page, "#connection")
        console = shmjet.console.serve(jet, port=int(console.url.rstrip("/").rpartition(":")[2]))
        page.wait_for_selector("#connection[data-state=live]")
        assert text(page, "#connection") != lost
        assert page.locator(".worker").count() > 0
    finally:
        context.close()
        console.close()
