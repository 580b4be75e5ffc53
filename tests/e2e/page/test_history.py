"""Conversations that the browser keeps: several, across visits, and the one being written."""

from tests.support.page.browser import ENTER, Browser
from tests.support.page.page_user import PageUser, prompt_of
from tests.support.scripted.scripted_server import ScriptedServer

_NAMES = "#conversations .name"
# What the browser keeps opens late, as where a disk is busy.
_LATE_ARCHIVE = """
const open = IDBFactory.prototype.open;
IDBFactory.prototype.open = function (...given) {
  const real = open.apply(this, given), late = {};
  real.onupgradeneeded = () => { late.result = real.result; late.onupgradeneeded(); };
  real.onsuccess = () => setTimeout(() => { late.result = real.result; late.onsuccess(); }, 800);
  return late;
};
"""


def titles(user: PageUser) -> list[str]:
    return user.browser.text(_NAMES).split("\n") if user.count(_NAMES) else []


def choose(user: PageUser, title: str) -> None:
    user.browser.click(f"{_NAMES}[title='{title}']")


def test_a_conversation_is_there_after_a_reload(user: PageUser) -> None:
    user.end(user.ask("first", 1), "**ONE**")
    user.browser.reload()
    user.see("ONE")
    user.see("tok/s", ".figures")
    sequence = user.ask("second", 2)
    assert "first" in prompt_of(sequence) and "ONE" in prompt_of(sequence)
    user.end(sequence, "TWO")


def test_who_asks_does_not_wait_for_what_the_browser_keeps(user: PageUser) -> None:
    user.end(user.ask("before", 1), "ONE")
    with user.browser.running_first(_LATE_ARCHIVE):
        user.browser.reload()
        sequence = user.ask("early", 2)
        assert "before" not in prompt_of(sequence)
        user.end(sequence, "TWO")
        user.browser.until("return document.querySelectorAll(arguments[0]).length === 2", _NAMES)
        user.see("TWO")
    user.browser.reload()
    user.see("TWO")
    assert sorted(titles(user)) == ["before", "early"]


def test_what_was_being_written_is_there_after_a_reload(user: PageUser) -> None:
    sequence = user.ask("question", 1)
    user.write(sequence, "HALF")
    user.see("HALF")
    user.browser.run("return new Promise((resolve) => setTimeout(resolve, 800))")
    user.browser.reload()
    user.see("HALF")
    user.see("The page was left while this was being written")
    user.until_idle()
    user.browser.click("[aria-label='Another answer']")
    user.end(user.begun(2), "WHOLE")
    user.see("WHOLE")


def test_conversations_do_not_mix_while_both_are_written(user: PageUser) -> None:
    first = user.ask("FIRSTQUESTION", 1)
    user.write(first, "FIRSTANSWER")
    user.see("FIRSTANSWER")
    user.browser.click("#new")
    assert user.browser.text("#output") == ""
    second = user.ask("SECONDQUESTION", 2)
    assert "FIRST" not in prompt_of(second)
    user.write(first, " goes on")
    user.end(second, "SECONDANSWER")
    assert "FIRST" not in user.browser.text("#output")
    choose(user, "FIRSTQUESTION")
    user.see("FIRSTANSWER goes on")
    assert "SECOND" not in user.browser.text("#output")
    user.end(first, " to its end")
    user.see("to its end")
    user.browser.reload()
    user.see("FIRSTANSWER goes on to its end")
    assert titles(user) == ["SECONDQUESTION", "FIRSTQUESTION"]


def test_conversations_are_found_renamed_and_deleted(user: PageUser) -> None:
    for n, word in enumerate(("apple", "banana"), 1):
        user.browser.click("#new")
        user.end(user.ask(word, n), f"about {word}s")
    user.browser.type("#search", "about APPLE")
    assert titles(user) == ["apple"]
    user.browser.run("document.getElementById('search').value = ''")
    user.browser.type("#search", " ")
    user.browser.click("#conversations li.current .name")  # the pointer shows its buttons
    user.browser.click("#conversations li.current [aria-label=Rename]")
    user.browser.type("#conversations input", "FRUIT" + ENTER)
    user.see("FRUIT", _NAMES)
    user.browser.run("window.confirm = () => true")
    user.browser.click("#conversations li.current .name")
    user.browser.click("#conversations li.current [aria-label=Delete]")
    user.browser.until(f"return document.querySelectorAll('{_NAMES}').length === 1")
    user.browser.reload()
    user.until_ready()
    assert titles(user) == ["apple"]


def test_the_key_is_kept_nowhere_but_in_the_tab(browser: Browser, server: ScriptedServer) -> None:
    user = PageUser(browser, server)
    browser.click("#settings")
    user.set("#key", "CANARYKEY")
    browser.click("#settings-close")
    user.end(user.ask("a", 1), "x")
    assert "CANARYKEY" not in browser.run("return JSON.stringify(localStorage)")
    assert "CANARYKEY" not in browser.run("return document.documentElement.outerHTML")
    assert "CANARYKEY" not in browser.run("return location.href")
    everything = (
        "return new Promise((done) => { const r = indexedDB.open('unpaced', 1); r.onsuccess = () =>"
        " { const n = 'conversations', all = r.result.transaction(n).objectStore(n).getAll();"
        " all.onsuccess = () => done(JSON.stringify(all.result)); }; })"
    )
    assert "CANARYKEY" not in browser.run(everything)
