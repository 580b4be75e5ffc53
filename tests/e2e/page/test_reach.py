"""The page on a phone, by keyboard alone, in the dark."""

import pytest

from tests.support.page.browser import ENTER, ESCAPE, TAB
from tests.support.page.page_user import PageUser, prompt_of

_FOCUS = "const e = document.activeElement; return e.id || e.getAttribute('aria-label') || ''"
_READ = "return document.querySelector(arguments[0]).innerText"
_WIDE = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
_SEEN = (
    "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
    "return b.left >= 0 && b.right <= innerWidth && b.top >= 0 && b.bottom <= innerHeight"
)
# Words of a table that stand in more than one line.
_BROKEN = """
const cells = [...document.querySelectorAll('#output :is(th, td)')];
const words = cells.filter(e => /^\\S+$/.test(e.textContent));
const lines = (e) => { const range = document.createRange(); range.selectNodeContents(e);
  return range.getClientRects().length; };
return words.filter(e => lines(e) !== 1).map(e => e.textContent);
"""
_TABLE = """
| Country | Capital | Population | What the weather is like there |
|---|---|---|---|
| Norway | Oslo | 5,550,000 | cold and wet, dark for months in winter |
| Chile | Santiago | 19,600,000 | long |
"""
_TEXT = "# T\n\n```\n" + "x" * 300 + "\n```\n\n|" + "wide cell|" * 12 + "\n|" + "-|" * 12 + "\n"


def test_nothing_is_wider_than_a_phone(user: PageUser) -> None:
    browser = user.browser
    browser.show(360, 640)
    browser.type("#prompt", "word " * 40)
    browser.click("#send")
    user.end(user.begun(1), _TEXT)
    assert browser.run(_WIDE) == 0
    for css in ("#prompt", "#send", "#settings", "#live-tab", "#menu"):
        assert browser.run(_SEEN, css), css
    assert not browser.run(_SEEN, "#new")
    browser.click("#menu")
    browser.until(_SEEN, "#new")
    browser.click("#new")
    browser.until("return !document.body.classList.contains('with-sidebar')")
    assert browser.text("#output") == ""
    for view in ("text", "live"):
        browser.click(f"#{view}-tab")
        assert browser.run(_WIDE) == 0
    browser.click("#settings")
    assert browser.run(_WIDE) == 0


def test_a_touch_screens_enter_begins_a_line(user: PageUser) -> None:
    browser = user.browser
    assert "Shift+Enter" in browser.run(_READ, "#welcome")
    browser.show(360, 640)
    assert "Enter" not in browser.run(_READ, "#welcome")
    browser.type("#prompt", "one" + ENTER + "two")
    assert user.count(".turn") == 0
    browser.click("#send")
    sequence = user.begun(1)
    assert "one\ntwo" in prompt_of(sequence)
    user.write(sequence, "HALF")
    user.see("HALF")
    browser.run("document.activeElement.blur()")
    browser.click("#stop")
    user.until_idle()
    assert browser.run(_FOCUS) != "prompt"  # its keyboard would cover the answer


def test_a_table_on_a_phone_keeps_its_words_whole(user: PageUser) -> None:
    browser = user.browser
    user.end(user.ask("a", 1), _TABLE)
    browser.show(360, 640)
    assert user.count("#output td") == 8
    assert browser.run(_BROKEN) == []
    assert browser.run(_WIDE) == 0


def test_the_live_view_has_two_figures_in_a_row_on_a_phone(user: PageUser) -> None:
    browser = user.browser
    browser.show(390, 780)
    browser.click("#live-tab")
    shown = "[...document.querySelectorAll('.tile:not([hidden])')]"
    browser.until(f"return {shown}.length > 3")
    tops = f"return {shown}.map(e => e.getBoundingClientRect().top)"
    first, second, third, *_ = browser.run(tops)
    assert first == second < third
    assert browser.run(_WIDE) == 0


def test_settings_begin_at_their_beginning(user: PageUser) -> None:
    browser = user.browser
    browser.show(390, 600)
    for _ in range(2):
        browser.click("#settings")
        assert browser.run("return document.getElementById('settings-dialog').scrollTop") == 0
        browser.run("document.getElementById('settings-dialog').scrollTop = 300")
        browser.click("#settings-close")


def test_everything_is_reached_by_keyboard(user: PageUser) -> None:
    browser = user.browser
    assert browser.run(_FOCUS) == "prompt"
    user.end(user.ask("a", 1), "text\n\n```\ncode\n```\n")
    reached = set()
    for _ in range(40):
        browser.press(TAB)
        reached.add(browser.run(_FOCUS))
    wanted = {"new", "search", "chat-tab", "text-tab", "live-tab", "settings", "prompt"}
    wanted |= {"Copy the code", "Another answer", "Edit and ask again", "Delete", "Rename"}
    assert wanted - reached == set()
    browser.run("document.getElementById('settings').focus()")
    browser.press(ENTER)
    browser.until("return document.getElementById('settings-dialog').open")
    browser.press(ESCAPE)
    browser.until("return !document.getElementById('settings-dialog').open")
    assert browser.run(_FOCUS) == "settings"


def test_escape_stops(user: PageUser) -> None:
    sequence = user.ask("a", 1)
    user.write(sequence, "HALF")
    user.see("HALF")
    user.browser.press(ESCAPE)
    user.until_idle()
    user.see("Stopped")
    user.server.await_cancel(sequence)


@pytest.mark.parametrize("theme", ["", "light", "dark"])
def test_text_can_be_read_in_light_and_dark(user: PageUser, theme: str) -> None:
    """WCAG's contrast of 4.5 for the text there is."""
    browser = user.browser
    if theme:
        browser.click("#settings")
        user.set("#theme", theme)
        browser.click("#settings-close")
    user.end(user.ask("question", 1), "text `code`\n\n```python\n# c\ndef f(): return 1\n```\n")
    browser.until("return document.querySelector('.hl-comment')")
    for dark in (False, True):
        browser.show(1200, 800, dark=dark)
        is_dark = theme == "dark" or (dark and not theme)
        assert (browser.run(_LUMINANCE_OF_BACK) < 0.1) is is_dark
        for css in (".turn-body", "p code", ".figures", ".hl-comment", ".hl-keyword", "#model"):
            assert browser.run(_CONTRAST, css) >= 4.5, (css, dark)


_COLOURS = """
const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
const read = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const part = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const luminance = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const back = (e) => { for (; e; e = e.parentElement) {
  const found = read(getComputedStyle(e).backgroundColor); if (found[3] === 255) return found; } };
"""
_LUMINANCE_OF_BACK = _COLOURS + "return luminance(back(document.body))"
_CONTRAST = (
    _COLOURS
    + """
const element = document.querySelector(arguments[0]);
const both = [luminance(read(getComputedStyle(element).color)), luminance(back(element))].sort();
return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
"""
)
