"""The page at GET /, in a real browser, on an engine that answers when the test says so."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine_ext import FinishReason
from tests.support.browser import ENTER, RELEASE, SHIFT, Browser, browsing, why_no_browser
from tests.support.scripted.fake_engine import FakeEngine, FakeSequence
from tests.support.scripted.scripted_server import ScriptedServer, scripted_server
from tests.support.server import serving

pytestmark = pytest.mark.skipif(bool(why_no_browser()), reason=why_no_browser() or "no browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(FakeEngine(n_ctx=4096)) as running:
        yield running


def prompt_of(sequence: FakeSequence) -> str:
    return bytes(token for token in sequence.request.prompt if token < 256).decode()


def ask(browser: Browser, server: ScriptedServer, text: str, n: int) -> FakeSequence:
    """Send a prompt; the sequence that the engine gets for it, started."""
    browser.type("#prompt", text + ENTER)
    sequence = server.submitted(n)
    server.play(sequence.start)
    return sequence


def see(browser: Browser, text: str, css: str = ".turn[data-role=assistant]:last-child") -> None:
    """Wait until the last answer has a text in it."""
    script = "return document.querySelector(arguments[0])?.textContent.includes(arguments[1])"
    browser.until(script, css, text)


def end(browser: Browser, server: ScriptedServer, sequence: FakeSequence, text: bytes) -> None:
    server.play(lambda: sequence.tokens(text))
    server.play(sequence.finish)
    browser.until("return !document.getElementById('send').disabled")


def test_enter_sends_and_shift_enter_begins_a_line(
    browser: Browser, server: ScriptedServer
) -> None:
    browser.open(server.url)
    browser.type("#prompt", "one" + SHIFT + ENTER + RELEASE + "two")
    assert browser.run("return document.getElementById('prompt').value") == "one\ntwo"
    assert browser.text(".turn") == ""
    sequence = ask(browser, server, "", 1)
    end(browser, server, sequence, b"fine")
    see(browser, "fine")
    assert "one\ntwo" in prompt_of(sequence)
    composing = "document.getElementById('prompt').dispatchEvent(new KeyboardEvent('keydown', "
    browser.run("document.getElementById('prompt').value = 'x'")
    browser.run(composing + "{key: 'Enter', isComposing: true, bubbles: true}))")
    assert browser.run("return document.querySelectorAll('.turn').length") == 2


def test_what_is_cleared_in_mid_stream_is_in_no_later_prompt(
    browser: Browser, server: ScriptedServer
) -> None:
    browser.open(server.url)
    first = ask(browser, server, "OLDQUESTION", 1)
    server.play(lambda: first.tokens(b"OLDANSWER"))
    see(browser, "OLDANSWER")
    browser.click("#clear")
    assert browser.text("#output") == ""
    # At once, while the old stream may still be ending.
    second = ask(browser, server, "NEWQUESTION", 2)
    assert "NEWQUESTION" in prompt_of(second)
    assert "OLD" not in prompt_of(second)
    end(browser, server, second, b"new")
    third = ask(browser, server, "more", 3)
    assert "NEWQUESTION" in prompt_of(third)
    assert "OLD" not in prompt_of(third)
    assert "OLD" not in browser.text("#output")
    end(browser, server, third, b"x")


def test_a_stopped_answer_stays_in_the_conversation(
    browser: Browser, server: ScriptedServer
) -> None:
    browser.open(server.url)
    first = ask(browser, server, "question", 1)
    server.play(lambda: first.tokens(b"HALF"))
    see(browser, "HALF")
    browser.click("#stop")
    browser.until("return !document.getElementById('send').disabled")
    second = ask(browser, server, "go on", 2)
    assert "HALF" in prompt_of(second)
    assert prompt_of(second).index("question") < prompt_of(second).index("HALF")
    end(browser, server, second, b"x")


def test_the_end_stays_in_sight_unless_somebody_reads_further_up(
    browser: Browser, server: ScriptedServer
) -> None:
    left = "const e = document.documentElement; return e.scrollHeight - e.clientHeight - "
    browser.open(server.url)
    sequence = ask(browser, server, "long", 1)
    server.play(lambda: sequence.tokens(b"line\n" * 200))
    see(browser, "line\n" * 200)
    assert browser.run(left + "e.scrollTop") < 2
    assert browser.run("return document.documentElement.scrollTop") > 1000
    browser.run("document.documentElement.scrollTop = 0")
    server.play(lambda: sequence.tokens(b"more\n" * 50))
    see(browser, "more\n" * 50)
    assert browser.run("return document.documentElement.scrollTop") == 0
    browser.click("#stop")  # can be reached from wherever one is


def test_a_question_without_an_answer_says_so_and_comes_back(
    browser: Browser, server: ScriptedServer
) -> None:
    browser.open(server.url)
    failing = ask(browser, server, "LOST", 1)
    server.play(lambda: failing.finish(FinishReason.EXCEPTION))
    see(browser, "the engine failed after 0 tokens")
    see(browser, "not part of the conversation", ".turn[data-role=user]")
    assert browser.run("return document.getElementById('prompt').value") == "LOST"
    browser.run("document.getElementById('prompt').value = ''")
    sequence = ask(browser, server, "next", 2)
    assert "LOST" not in prompt_of(sequence)
    end(browser, server, sequence, b"x")


def test_an_answer_that_was_cut_says_so(browser: Browser, server: ScriptedServer) -> None:
    browser.open(server.url)
    end(browser, server, ask(browser, server, "a", 1), b"tale")
    see(browser, "tale [cut: ")
    browser.click("#text-mode")
    end(browser, server, ask(browser, server, "Once", 2), b" upon")
    see(browser, "Once upon [cut: ")


def test_choosing_the_mode_that_is_chosen_keeps_the_conversation(
    browser: Browser, server: ScriptedServer
) -> None:
    browser.open(server.url)
    end(browser, server, ask(browser, server, "a", 1), b"kept")
    see(browser, "kept")
    browser.click("#chat-mode")
    see(browser, "kept")


@pytest.mark.parametrize("flags", [(), ("--api-key", "k1")])
def test_the_real_server_answers_it(browser: Browser, flags: tuple[str, ...]) -> None:
    with serving("-t", "1", "-np", "1", *flags) as running:
        browser.open(running.url)
        if flags:
            browser.until(
                "return document.getElementById('model').textContent == 'Invalid API Key'"
            )
            browser.type("#key", "k1")
            browser.run("document.getElementById('key').dispatchEvent(new Event('change'))")
        see(browser, "demo.gguf", "#model")
        script: Any = "return document.querySelector('.answer')?.textContent.length > 20"
        browser.type("#prompt", "Tell me a story." + ENTER)
        browser.until(script)
        see(browser, "tokens at", "#figures")
        browser.run("sessionStorage.clear()")
