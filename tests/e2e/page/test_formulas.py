"""Formulas of an answer: drawn where they are TeX, text where they are not, and never a way out."""

from collections.abc import Iterator

import pytest

from tests.support.page.browser import Browser
from tests.support.page.page_user import PageUser
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.scripted_server import scripted_server

_DRAWN = (
    "$E = mc^2$", r"\(a_1 * b_2 * c_3\)", r"$$\int_0^1 x\,dx$$", "\\[\na\n+ b\n= c\n\\]",
    "- one\n  \\[\n  x\n  \\]", "| a |\n|---|\n| $x$ |", r"> $$\begin{cases} 1 \\ 2 \end{cases}$$",
)  # fmt: skip
_TEXT = (
    "It costs $5 and $10.", "from $5-$10", "`$x$`", "```\n$$x$$\n```", r"$\nosuch{x}$", r"\[ x",
    "$$", r"\$x\$",
)  # fmt: skip
_HOSTILE = (
    r"$\href{javascript:window.hacked=true}{x}$",
    r"$\url{javascript:window.hacked=true}$",
    r"$\includegraphics{https://example.org/x.png}$",
    r"$\htmlId{send}{x} \id{send}{x}$",
    r"$$\begin{equation} x \label{send} \end{equation} \eqref{send}$$",
    r"$\text{<img src=x onerror='window.hacked=true'>}$",
    r"$\kern-900em \rule{900em}{900em}$",
    r"$\def\x{\x\x}\x$",
)
_ODD = {
    "deep": "$" + r"\sqrt{" * 700 + "x" + "}" * 700 + "$",
    "many that do not end": r"\( \[ " * 5000,
    "lines that do not end": "\\[\n" * 3000,
    "dollars": "$" * 20000,
    "many": "$x$ " * 2000,
}
_AT_END = """
const box = document.getElementById('chat-scroll');
return box.scrollHeight > 2 * box.clientHeight
  && box.scrollHeight - box.clientHeight - box.scrollTop < 3;
"""
_INSIDE = """
const box = document.getElementById('output').getBoundingClientRect();
const at = document.elementFromPoint(box.left - 20, box.top + 30);
return at === null || at.closest('.formula') === null;
"""


@pytest.fixture
def user(browser: Browser) -> Iterator[PageUser]:
    with scripted_server(FakeEngine(n_ctx=200000)) as server:
        yield PageUser(browser, server)


def answer(user: PageUser, text: str) -> Browser:
    """The model writes a text, in two pieces, and then a word."""
    sequence = user.ask("a", 1)
    user.write(sequence, text[: len(text) // 2])
    user.end(sequence, text[len(text) // 2 :] + "\n\nTHE END")
    user.see("THE END")
    return user.browser


def test_formulas_are_drawn(user: PageUser) -> None:
    browser = answer(user, "\n\n".join(_DRAWN))
    browser.until(f"return document.querySelectorAll('#output math').length === {len(_DRAWN)}")
    assert browser.text("#output li") == "onex"  # no line of a formula is a list's
    assert browser.text("#output em") == ""
    assert browser.run("return document.querySelector('.formula').title") == "E = mc^2"
    one, three = (
        browser.run(
            f"return document.querySelectorAll('.formula')[{n}].classList.contains('displayed')"
        )
        for n in (0, 2)
    )
    assert (one, three) == (False, True)


@pytest.mark.parametrize("text", _TEXT)
def test_what_is_no_formula_is_text(user: PageUser, text: str) -> None:
    browser = answer(user, text)
    assert user.count("#output math") == 0
    wanted = text.strip("`\n").replace(r"\$", "$").replace(r"\[", "[")
    user.see(wanted)
    assert browser.run("return window.hacked") is None


def test_a_formula_leads_nowhere_and_names_nothing(user: PageUser) -> None:
    browser = answer(user, "\n\n".join((*_HOSTILE, "$last$")))
    browser.until("return [...document.querySelectorAll('.formula')].at(-1).querySelector('math')")
    assert user.count(".formula :is(a[href], img, [id], [class*=send])") == 0
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.getElementById('send').tagName") == "BUTTON"
    names = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert not [name for name in names if "example.org" in name]
    assert browser.run(_INSIDE)
    assert (
        browser.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth") == 0
    )


@pytest.mark.parametrize("name", _ODD)
def test_the_page_goes_on_after_odd_formulas(user: PageUser, name: str) -> None:
    answer(user, _ODD[name])
    user.end(user.ask("b", 2), "still here")
    user.see("still here")


def test_the_end_stays_in_sight_when_formulas_are_drawn(user: PageUser) -> None:
    browser = answer(user, "\n\n".join([r"$$\frac{\frac{a}{b}}{\frac{c}{d}}$$"] * 40))
    for _ in range(2):
        browser.until("return document.querySelectorAll('#output math').length === 40")
        browser.until(_AT_END)
        browser.reload()
        user.until_ready()


def test_a_wide_formula_is_scrolled_on_a_phone(user: PageUser) -> None:
    browser = user.browser
    wide = " + ".join(f"x_{{{n}}}" for n in range(60))
    answer(user, f"It is ${wide}$ and\n\n$${wide}$$\n")
    browser.show(360, 640)
    browser.until("return document.querySelectorAll('#output math').length === 2")
    assert (
        browser.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth") == 0
    )
    boxes = "[...document.querySelectorAll('.formula')]"
    assert browser.run(f"return {boxes}.every(e => e.scrollWidth > e.clientWidth)")
    assert browser.run(f"return {boxes}.every(e => getComputedStyle(e).overflowX === 'auto')")
