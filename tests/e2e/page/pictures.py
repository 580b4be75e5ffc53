"""Takes the pictures of the page in docs/images, with a real browser.

`python -m tests.e2e.page.pictures [--out docs/images]`. The chat's answer is played by a scripted
engine, whose figures mean nothing; the live view is a real server's on the demo model, with two
clients.
"""

import argparse
import threading
import time
from pathlib import Path
from typing import Final

from tests.support.page.browser import Browser, browsing
from tests.support.page.page_user import PageUser, prompt_of
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.scripted_server import scripted_server
from tests.support.server import Server, serving

_WATCHED_S: Final = 60  # until the lines of the live view show something
_SIZE: Final = (1180, 800)
_TEMPLATE: Final = (
    "{% for m in messages %}{{ m.content }}<think>a</think>{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
)
_EARLIER: Final = ("Why is the sky blue?", "A packing list for Norway", "Explain this traceback")
_QUESTION: Final = "How do I count the words of a text in Python?"
_ANSWER: Final = '''They want Python and want it short: a Counter.</think>

Count them with a `Counter`, which the standard library has:

```python
import re
from collections import Counter

def count_words(text: str) -> Counter[str]:
    """Words of a text, whatever their case."""
    return Counter(re.findall(r"\\w+", text.lower()))

print(count_words("To be, or not to be").most_common(2))
# [('to', 2), ('be', 2)]
```

1. `\\w+` ends a word at an apostrophe: *don't* becomes `don` and `t`.
2. For a **large file**, go through it line by line and `update` the counter.
'''


def main() -> int:
    """0; the pictures are written."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.page.pictures")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with browsing() as browser:
        _take_chat(browser, out)
        _take_live(browser, out)
    return 0


def _take_chat(browser: Browser, out: Path) -> None:
    with scripted_server(FakeEngine(n_ctx=8192), chat_template=_TEMPLATE) as server:
        browser.show(*_SIZE)
        user = PageUser(browser, server)
        for n, question in enumerate((*_EARLIER, _QUESTION), 1):
            browser.click("#new")
            sequence = user.ask(question, n)
            assert question in prompt_of(sequence)
            for word in _ANSWER.split(" "):
                user.write(sequence, word + " ")
                time.sleep(0.004)
            user.end(sequence)
        browser.until("return document.querySelector('.hl-keyword')")
        _take(browser, out / "page-light.png")
        browser.show(*_SIZE, dark=True)
        _take(browser, out / "page-dark.png")
        browser.show(390, 780, scale=1.5)
        _take(browser, out / "page-phone.png")


def _take_live(browser: Browser, out: Path) -> None:
    with serving("-np", "4", "-c", "4096") as server:
        browser.show(*_SIZE)
        browser.open(f"{server.url}/#live")
        is_over = threading.Event()
        clients = [threading.Thread(target=_tell, args=(server, is_over, n)) for n in range(2)]
        for client in clients:
            client.start()
        try:
            browser.run("document.body.style.cursor = 'none'")
            time.sleep(_WATCHED_S)
            _take(browser, out / "page-live.png")
        finally:
            is_over.set()
            for client in clients:
                client.join()


def _tell(server: Server, is_over: threading.Event, n: int) -> None:
    """Stories with pauses, so that there is something to see."""
    story = f"Once upon a time client {n} asked for a story."
    while not is_over.is_set():
        server.complete(prompt=story, n_predict=200 + 200 * n, ignore_eos=True)
        time.sleep(0.2 + 0.3 * n)


def _take(browser: Browser, file: Path) -> None:
    time.sleep(0.5)  # what moves has come to rest
    file.write_bytes(browser.picture())
    print(f"{file}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    raise SystemExit(main())
