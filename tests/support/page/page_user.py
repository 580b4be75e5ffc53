"""Somebody who uses the page at GET / in a browser, on an engine that the test plays."""

from typing import Any, Final

from engine_ext import FinishReason
from tests.support.page.browser import ENTER, Browser
from tests.support.scripted.fake_engine import FakeSequence
from tests.support.scripted.scripted_server import ScriptedServer

LAST: Final = ".turn[data-role=assistant]:last-child"


class PageUser:
    """One visitor of one server; every server has a port, and so a storage, of its own."""

    def __init__(self, browser: Browser, server: ScriptedServer) -> None:
        self.browser = browser
        self.server = server
        browser.open(server.url)
        self.until_ready()

    def until_ready(self) -> None:
        """The page knows its server, and the conversations of before are there."""
        self.browser.until("return document.getElementById('state').dataset.kind === 'ready'")
        self.browser.until("return document.querySelector('#conversations') !== null")

    def ask(self, text: str, n: int) -> FakeSequence:
        """Send a message; the engine's n-th sequence, which is this one, started."""
        self.browser.type("#prompt", text + ENTER)
        return self.begun(n)

    def begun(self, n: int) -> FakeSequence:
        """The engine's n-th sequence, started."""
        sequence = self.server.submitted(n)
        self.server.play(sequence.start)
        return sequence

    def write(self, sequence: FakeSequence, text: str) -> None:
        """The engine makes these tokens."""
        self.server.play(lambda: sequence.tokens(text.encode()))

    def end(
        self, sequence: FakeSequence, text: str = "", reason: FinishReason = FinishReason.EOS
    ) -> None:
        """The engine makes these tokens and no more; the page has noticed."""
        self.write(sequence, text)
        self.server.play(lambda: sequence.finish(reason))
        self.until_idle()

    def until_idle(self) -> None:
        """No answer is being written."""
        self.browser.until("return document.getElementById('stop').hidden")

    def see(self, text: str, css: str = LAST) -> None:
        """Wait until one of these elements has a text in it; unless it is said, the last answer."""
        found = "[...document.querySelectorAll(arguments[0])]"
        script = f"return {found}.some((one) => one.textContent.includes(arguments[1]))"
        self.browser.until(script, css, text)

    def count(self, css: str) -> int:
        """Elements that match."""
        return int(self.browser.run("return document.querySelectorAll(arguments[0]).length", css))

    def set(self, css: str, value: Any) -> None:
        """Fill in a field of the settings, which are open, as somebody who then leaves it."""
        script = (
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind))"
        )
        self.browser.run(script, css, value)


def prompt_of(sequence: FakeSequence) -> str:
    """What the engine was asked."""
    return bytes(token for token in sequence.request.prompt if token < 256).decode()
