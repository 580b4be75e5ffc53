"""The page's chat: writing, stopping, editing, another answer, thoughts, tools, settings."""

from typing import Final

import pytest

from engine_ext import FinishReason
from tests.support.page.browser import ENTER, RELEASE, SHIFT, UP, Browser
from tests.support.page.page_user import PageUser, prompt_of
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.scripted_server import scripted_server

_VALUE: Final = "return document.getElementById('prompt').value"
_THINKS: Final = (
    "{% for m in messages %}{{ m.content }}<think>a</think>{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
)
_CALLS: Final = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_enter_sends_and_shift_enter_begins_a_line(user: PageUser) -> None:
    browser = user.browser
    browser.type("#prompt", "one" + SHIFT + ENTER + RELEASE + "two")
    assert browser.run(_VALUE) == "one\ntwo"
    assert browser.text(".turn") == ""
    sequence = user.ask("", 1)
    user.end(sequence, "fine")
    user.see("fine")
    assert "one\ntwo" in prompt_of(sequence)
    composing = "document.getElementById('prompt').dispatchEvent(new KeyboardEvent('keydown', "
    browser.type("#prompt", "x")
    browser.run(composing + "{key: 'Enter', isComposing: true, bubbles: true}))")
    assert user.count(".turn") == 2


def test_text_appears_as_it_comes_with_its_figures(user: PageUser) -> None:
    sequence = user.ask("a", 1)
    for word in ("**bold**", " and", " `code`"):
        user.write(sequence, word)
        user.see(word.strip("*` "))
    user.see("tokens", ".turn .figures")
    user.end(sequence)
    user.see("19 tokens", ".turn .figures")
    figures = user.browser.text(".turn .figures")
    assert "tok/s" in figures and "first after" in figures and "prompt" in figures
    assert user.browser.text(".turn strong") == "bold"


def test_a_stopped_answer_stays_in_the_conversation(user: PageUser) -> None:
    first = user.ask("question", 1)
    user.write(first, "HALF")
    user.see("HALF")
    user.browser.click("#stop")
    user.until_idle()
    user.see("Stopped")
    second = user.ask("go on", 2)
    assert prompt_of(second).index("question") < prompt_of(second).index("HALF")
    user.end(second, "x")


def test_a_question_that_is_stopped_at_once_is_back_in_the_box(user: PageUser) -> None:
    user.ask("QUESTION", 1)
    user.browser.click("#stop")
    user.until_idle()
    assert user.browser.run(_VALUE) == "QUESTION"
    assert user.count(".turn") == 0


def test_a_question_that_nothing_answered_is_not_sent_again(user: PageUser) -> None:
    failing = user.ask("LOST", 1)
    user.end(failing, reason=FinishReason.EXCEPTION)
    user.see("the engine failed after 0 tokens")
    sequence = user.ask("next", 2)
    assert "LOST" not in prompt_of(sequence)
    user.end(sequence, "x")


def test_another_answer_stands_beside_the_first(user: PageUser) -> None:
    user.end(user.ask("question", 1), "FIRST")
    user.browser.click("[aria-label='Another answer']")
    second = user.begun(2)
    assert "FIRST" not in prompt_of(second)
    user.end(second, "SECOND")
    user.see("SECOND")
    user.see("2/2", ".place")
    user.browser.click("[aria-label='The one before']")
    user.see("FIRST")
    third = user.ask("more", 3)
    assert "FIRST" in prompt_of(third) and "SECOND" not in prompt_of(third)
    user.end(third, "x")


def test_an_edited_question_is_asked_again(user: PageUser) -> None:
    user.end(user.ask("OLD", 1), "OLDANSWER")
    user.browser.type("#prompt", UP)  # in an empty box: the last question
    user.browser.run("document.querySelector('.edit-field').value = ''")
    user.browser.type(".edit-field", "NEW" + ENTER)
    sequence = user.begun(2)
    assert "NEW" in prompt_of(sequence) and "OLD" not in prompt_of(sequence)
    user.end(sequence, "NEWANSWER")
    user.browser.click(".turn[data-role=user] [aria-label='The one before']")
    user.see("OLDANSWER")


def test_an_answer_that_was_cut_says_so(user: PageUser) -> None:
    user.end(user.ask("a", 1), "tale", FinishReason.TOKEN_LIMIT)
    user.see("Cut: ")


def test_the_end_stays_in_sight_unless_somebody_reads_further_up(user: PageUser) -> None:
    box = "const e = document.getElementById('chat-scroll'); "
    left = box + "return e.scrollHeight - e.clientHeight - e.scrollTop"
    sequence = user.ask("long", 1)
    for n in range(20):
        user.write(sequence, f"line {n}\n\n" * 5)
    user.see("line 19")
    user.browser.until(left + " < 2")
    assert user.browser.run(box + "return e.scrollTop") > 1000
    user.browser.run(box + "e.scrollTop = 0")
    user.browser.until("return !document.getElementById('to-end').hidden")
    user.write(sequence, "\n\nmore" * 20)
    user.see("more")
    assert user.browser.run(box + "return e.scrollTop") == 0
    user.browser.click("#to-end")
    user.browser.until(left + " < 2")
    user.end(sequence)


def test_settings_reach_the_engine_and_last(user: PageUser) -> None:
    user.browser.click("#settings")
    assert user.browser.run("return document.getElementById('top_k').placeholder") == "40"
    user.set("#system", "SYSTEM")
    user.set("#temperature", "0.3")
    user.set("#max_tokens", "77")
    user.set("#more", "{not json")
    user.see("Not used", "#settings-body")
    user.set("#more", '{"seed": 5}')
    user.browser.click("#settings-close")
    for n in (1, 2):
        sequence = user.ask("QUESTION", n)
        assert prompt_of(sequence).index("SYSTEM") < prompt_of(sequence).index("QUESTION")
        request = sequence.request
        assert round(request.sampling.temperature, 3) == 0.3
        assert (request.sampling.seed, request.max_tokens) == (5, 77)
        user.end(sequence, "x")
        user.browser.reload()
        user.until_ready()


def test_thoughts_are_folded(browser: Browser) -> None:
    with scripted_server(FakeEngine(n_ctx=4096), chat_template=_THINKS) as server:
        user = PageUser(browser, server)
        sequence = user.ask("a", 1)
        user.write(sequence, "hm, hm")
        user.see("Thinking…", ".thought summary")
        user.end(sequence, "</think>\n\nANSWER")
        user.see("ANSWER", ".turn-body.markdown")
        user.see("Thoughts", ".thought summary")
        assert browser.run("return document.querySelector('.thought').open") is False
        assert browser.text(".thought-text").strip() == "hm, hm"
        assert "hm" not in browser.text(".turn-body")
        browser.click(".thought summary")
        assert browser.run("return document.querySelector('.thought-text').offsetHeight") > 0


def test_tool_calls_are_shown_and_take_a_result(browser: Browser) -> None:
    tool = '{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}'
    with scripted_server(FakeEngine(n_ctx=8192), chat_template=_CALLS) as server:
        user = PageUser(browser, server)
        browser.click("#settings")
        user.set("#more", f'{{"tools": [{tool}]}}')
        browser.click("#settings-close")
        call = '<tool_call>\n{"name": "f", "arguments": {"city": "Paris"}}\n</tool_call>'
        user.end(user.ask("weather", 1), f"Let me see.\n{call}")
        user.see("f", ".tool-name")
        assert '"city": "Paris"' in browser.text(".tool-call code")
        browser.type(".tool-form textarea", "SUNNY")
        browser.click(".tool-form button")
        sequence = user.begun(2)
        asked = prompt_of(sequence)
        assert asked.index("weather") < asked.index("Paris") < asked.index("SUNNY")
        user.end(sequence, "It is sunny.")
        user.see("It is sunny.")
        assert user.count(".tool-form") == 0


def test_copying_gives_the_text_itself(user: PageUser) -> None:
    user.end(user.ask("a", 1), "# T\n\n```python\nx = 1\n```\n")
    user.see("x = 1")
    user.browser.allow("clipboardReadWrite", "clipboardSanitizedWrite")
    for button, text in ((".code-block .copy", "x = 1\n"), (".turn-foot .copy", "# T")):
        user.browser.click(f"[data-role=assistant] {button}")
        user.browser.until(f"return document.querySelector('{button}[data-copied=true]')")
        copied = user.browser.run("return navigator.clipboard.readText()")
        assert copied == text or (text == "# T" and copied.startswith("# T\n\n```python"))


@pytest.mark.parametrize("flags", [{}, {"api_prefix": "/llm"}])
def test_the_completion_view_goes_on_with_a_text(browser: Browser, flags: dict[str, str]) -> None:
    with scripted_server(FakeEngine(n_ctx=4096), **flags) as server:
        browser.open(f"{server.url}{flags.get('api_prefix', '')}/#text")
        browser.type("#text", "Once")
        browser.click("#text-go")
        sequence = server.submitted(1)
        server.play(lambda: sequence.play(b" upon"))
        browser.until("return document.getElementById('text').value === 'Once upon'")
        browser.until("return !document.getElementById('text-go').disabled")
        assert "5 tokens" in browser.text("#text-figures")
