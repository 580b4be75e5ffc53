"""The page and a real server: keys, the live view, a server that dies and comes back, logs."""

import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from tests.bench.rig.server_process import free_port, running
from tests.support.page.browser import ENTER, Browser
from tests.support.page.page_user import LAST
from tests.support.repeatedly import repeatedly
from tests.support.server import UNPACED, Server, serving

_STATE = "return document.getElementById('state').dataset.kind === arguments[0]"
_FIGURE = "return document.querySelector(`[data-tile='${arguments[0]}'] .tile-figure`).textContent"
_ANSWERED = f"return document.querySelector('{LAST} .turn-body')?.textContent.length > 0"


def test_a_key_opens_the_page_and_appears_nowhere(browser: Browser) -> None:
    with serving("-np", "1", "--api-key", "CANARYKEY") as server:
        browser.open(server.url)
        browser.until(_STATE, "locked")
        browser.type("#unlock-key", "wrong" + ENTER)
        browser.until("return document.getElementById('unlock-key').value === ''")
        browser.type("#unlock-key", "CANARYKEY" + ENTER)
        browser.until(_STATE, "ready")
        assert "demo.gguf" in browser.text("#model")
        browser.type("#prompt", "Tell me a story, CANARYPROMPT." + ENTER)
        browser.until(_ANSWERED)
        browser.until("return document.getElementById('stop').hidden")
        browser.click("#live-tab")
        browser.until("return !document.getElementById('facts-box').hidden")
        assert "CANARY" not in browser.run("return document.getElementById('live-view').innerHTML")
        assert "CANARYKEY" not in browser.run("return document.documentElement.outerHTML")
        entries = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        names = browser.run(entries)
        assert all(name.startswith(server.url) for name in names)
        with httpx.Client(trust_env=False) as client:
            for name in {server.url, *(name for name in names if "/page/" in name)}:
                assert "CANARY" not in client.get(name).raise_for_status().text
        assert "CANARY" not in server.log.read_text()


def test_the_live_view_shows_what_the_server_does(browser: Browser) -> None:
    with serving("-np", "2") as server:
        browser.open(f"{server.url}/#live")
        browser.until("return document.querySelectorAll('.tile:not([hidden])').length >= 8")
        assert "ready" in browser.text("#live-state")
        assert "the host runs the token loop" in browser.text("#live-state")
        with _load(server):
            browser.until(_FIGURE + " === '1'", "Requests")
            browser.until("return Number(" + _FIGURE.removeprefix("return ") + ") !== 0", _SPEED)
            browser.until(_FIGURE + ".endsWith('s')", "Gap between tokens")
            browser.until("return document.querySelector('#slots [data-busy=true]')")
            browser.until("return document.querySelectorAll('.spark-line[points]').length >= 4")
        browser.until(_FIGURE + " === '0'", "Requests")
        browser.until("return !document.querySelector('#slots [data-busy=true]')")
        assert browser.run("return document.querySelectorAll('#slots li').length") == 2
        assert "CPU" in browser.text("#memory") and "on the host" in browser.text("#facts")
        assert "demo.gguf" in browser.text("#facts")  # a phone has no room for it elsewhere
        assert browser.run("return document.getElementById('cards-box').hidden") is True
        browser.click("#chat-tab")
        n_scrapes = 'unpaced_http_requests_total{route="/metrics",status="200"}'
        before = server.metric(n_scrapes)
        browser.run("return new Promise((resolve) => setTimeout(resolve, 1500))")
        assert server.metric(n_scrapes) <= before + 2  # ours, and one that was under way


_SPEED = "Tokens a second"


def _load(server: Server) -> AbstractContextManager[None]:
    """Somebody has stories told, one after the other."""
    return repeatedly(lambda: server.complete(prompt="Once", n_predict=500, ignore_eos=True))


def test_looking_keeps_no_server_awake(browser: Browser) -> None:
    with serving("-np", "1", "--sleep-idle-seconds", "2") as server:
        browser.open(f"{server.url}/#live")
        server.until(lambda: server.client.get("/props").json()["is_sleeping"], 30)
        browser.run("return new Promise((resolve) => setTimeout(resolve, 2500))")
        assert server.client.get("/props").json()["is_sleeping"]


@pytest.mark.parametrize("view", ["chat", "live"])
def test_a_server_that_dies_and_comes_back(browser: Browser, tmp_path: Path, view: str) -> None:
    port = free_port()
    command = [str(UNPACED), "serve", "--port", str(port), "-np", "1", "-t", "1"]
    with running(command, {}, port, tmp_path / "log") as process:
        browser.open(f"http://127.0.0.1:{port}/#{view}")
        browser.until(_STATE, "ready")
        if view == "chat":
            browser.type("#prompt", "Tell me a story." + ENTER)
            browser.until(_ANSWERED)
            browser.until("return document.getElementById('stop').hidden")
        os.kill(process.pid, signal.SIGKILL)
        if view == "chat":
            browser.type("#prompt", "Another one." + ENTER)
            browser.until(f"return document.querySelector('{LAST} .note.error')")
            assert "does not answer" in browser.text(f"{LAST} .note")
        else:
            browser.until("return document.querySelector('#live-state[data-kind=gone]')")
    with running(command, {}, port, tmp_path / "log2"):
        browser.until(_STATE, "ready")
        if view == "chat":
            browser.click(f"{LAST} [aria-label='Another answer']")
            browser.until(_ANSWERED)
            browser.until("return document.getElementById('stop').hidden")
        else:
            browser.until("return document.querySelector('#live-state[data-kind=ready]')")


def test_a_stream_that_a_death_cuts_keeps_its_text(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    command = [str(UNPACED), "serve", "--port", str(port), "-np", "1", "-t", "1", "--context-shift"]
    with running(command, {}, port, tmp_path / "log") as process:
        browser.open(f"http://127.0.0.1:{port}/")
        browser.until(_STATE, "ready")
        browser.click("#settings")
        browser.run(
            "const field = document.getElementById('more');"
            "field.value = '{\"ignore_eos\": true}'; field.dispatchEvent(new Event('input'))"
        )
        browser.click("#settings-close")
        browser.type("#prompt", "Tell me a story." + ENTER)
        browser.until(_ANSWERED)
        os.kill(process.pid, signal.SIGKILL)
        browser.until(f"return document.querySelector('{LAST} .note.error')")
        assert "was lost" in browser.text(f"{LAST} .note")
        assert browser.run(_ANSWERED)
        assert browser.run("return document.getElementById('stop').hidden")
