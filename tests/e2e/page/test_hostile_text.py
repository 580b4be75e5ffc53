"""What a model writes is shown as text: it runs nothing, fetches nothing, leads nowhere unseen."""

from collections.abc import Iterator

import pytest

from tests.support.page.browser import Browser
from tests.support.page.page_user import LAST, PageUser
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.scripted_server import scripted_server

_SET = "window.hacked = true"
_HTML = (
    f"<script>{_SET}</script>",
    f"<img src=x onerror='{_SET}'>",
    f"<svg/onload='{_SET}'>",
    f'<a href="javascript:{_SET}">x</a>',
    "<iframe src='https://example.org'></iframe>",
    f"<details open ontoggle='{_SET}'>",
    "<style>body { display: none }</style>",
    "<base href='https://example.org/'>",
    "<form action='https://example.org'><input name=a></form>",
)
_LINKS = (
    f"[x](javascript:{_SET})",
    f"[x](JaVaScRiPt:{_SET})",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](//example.org)",
    "[x](/slots)",
    f"<javascript:{_SET}>",
    f"[x](&#106;avascript:{_SET})",
    f"[x][y]\n\n[y]: javascript:{_SET}",
)
# None of them may end a test that the page survives.
_ODD = {
    "a huge line": "x" * 20000,
    "a huge line of marks": "*_`[<" * 3000,
    "deep quotes": ">" * 2000 + " x",
    "deep lists": "\n".join(" " * n + "- x" for n in range(200)),
    "an unclosed fence": "```python\nprint(1)\n" * 100,
    "an unclosed fence in a list": "- a\n  ```\n  code",
    "halves": "\ufffd\x00\x1b[31m\x7f\u2028",
    "a wide table": "|" + "a|" * 800 + "\n|" + "-|" * 800 + "\n",
}


@pytest.fixture
def user(browser: Browser) -> Iterator[PageUser]:
    with scripted_server(FakeEngine(n_ctx=200000)) as server:
        yield PageUser(browser, server)


def answer(user: PageUser, text: str) -> None:
    """The model writes a text, in two pieces."""
    sequence = user.ask("a", 1)
    user.write(sequence, text[: len(text) // 2])
    user.browser.until(f"return document.querySelector('{LAST} .figures').textContent")
    user.end(sequence, text[len(text) // 2 :])


@pytest.mark.parametrize("where", ["", "```html\n", "# ", "| a |\n|---|\n| ", "- ", "> "])
def test_html_is_shown_as_it_is_written(user: PageUser, where: str) -> None:
    browser = user.browser
    for text in _HTML[:1] if where else ():
        answer(user, where + text)
        user.see(text)
    if not where:
        answer(user, "\n\n".join(_HTML))
        for text in _HTML:
            user.see(text)
    odd = "script:not([src]),svg:not(.icon),iframe,form,style,base,img"
    assert user.count(f"#output :is({odd})") == 0
    assert browser.run("return window.hacked") is None


def test_the_end_of_a_line_is_the_only_html(user: PageUser) -> None:
    answer(user, "| a |\n|---|\n| x<br>y<BR />z<br onclick=f> |\n\n`<br>`")
    user.see("z<br onclick=f>", "#output td")
    lines = user.browser.run("return document.querySelector('#output td').innerText")
    assert lines == "x\ny\nz<br onclick=f>"
    assert user.browser.text("#output code") == "<br>"


def test_only_addresses_of_the_web_can_be_followed(user: PageUser) -> None:
    text = "\n\n".join((*_LINKS, "https://example.org/a", "[ok](https://example.org/b)"))
    answer(user, text)
    user.see("ok")
    script = "return [...document.querySelectorAll('#output a')].map(a => [a.href, a.rel])"
    rel = "noopener noreferrer nofollow"
    addresses = [[f"https://example.org/{name}", rel] for name in "ab"]
    assert user.browser.run(script) == addresses
    user.browser.run("document.querySelectorAll('#output .dead-link').forEach(e => e.click())")
    assert user.browser.run("return window.hacked") is None


def test_no_image_is_fetched(user: PageUser) -> None:
    answer(user, f"![secret]({user.server.url}/picture.png?q=secret) ![x](https://example.org/x)")
    user.see("secret")
    assert user.count("#output img") == 0
    names = user.browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert not [name for name in names if "picture" in name or "example.org" in name]


def test_text_never_becomes_html_even_if_the_page_wanted_to(user: PageUser) -> None:
    script = (
        "try { document.getElementById('output').innerHTML = arguments[0]; return 'was set'; }"
        "catch (error) { return error.name; }"
    )
    assert user.browser.run(script, "<b>x</b>") == "TypeError"


def test_characters_that_reorder_are_seen_in_code(user: PageUser) -> None:
    code = "`a\u202eb`\n\n```python\nx = 'a\u2066b'\n```\n\n"
    answer(user, code + "\u05e9\u05dc\u05d5\u05dd\u202eabc\n\nlater")
    user.see("later")
    assert user.browser.text(".reordering").split() == ["U+202E", "U+2066"]
    assert user.browser.text("#output p[dir=auto]")
    # What a paragraph reorders ends with it.
    style = "return getComputedStyle(document.querySelector('.turn-body')).unicodeBidi"
    assert user.browser.run(style) == "isolate"


@pytest.mark.parametrize("name", _ODD)
def test_the_page_goes_on_after_odd_text(user: PageUser, name: str) -> None:
    answer(user, _ODD[name])
    user.until_idle()
    width = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
    assert user.browser.run(width) == 0
    user.end(user.ask("b", 2), "still here")
    user.see("still here")


def test_code_is_coloured_without_losing_a_character(user: PageUser) -> None:
    code = 'def f(x):  # <b>\n    return "\\u202e" + `x` & 1\n'
    answer(user, f"```python\n{code}```\n")
    user.browser.until("return document.querySelector('.code-block .hl-keyword')")
    assert user.browser.text(".code-block code") == code
