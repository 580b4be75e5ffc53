"""Headless Chromium by chromedriver's plain HTTP protocol (W3C WebDriver)."""

import base64
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx

from unpaced.cli.chat.own_server import short_folder

_FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=800,600",
)  # fmt: skip
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference
_TIMEOUT_S: Final = 30.0
ENTER, SHIFT, RELEASE = "\ue007", "\ue008", "\ue000"
TAB, ESCAPE, UP = "\ue004", "\ue00c", "\ue013"


def why_no_browser() -> str:
    """Why there is none to test with; empty: there is one."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


class Browser:
    """One window."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._session = f"/session/{session}"

    def open(self, url: str) -> None:
        """Load a page and wait until it is there."""
        self._post("/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns: the body of a function."""
        return self._post("/execute/sync", script=script, args=list(arguments))

    def click(self, css: str) -> None:
        """As a user: where it can be seen and nothing lies over it."""
        self._act(css, "click")

    def type(self, css: str, text: str) -> None:
        """Keys into an element; ENTER and SHIFT stand for those keys."""
        self._act(css, "value", text=text)

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus, one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def reload(self) -> None:
        """As a user who asks for the page again."""
        self._post("/refresh")

    def show(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """What the page sees of the screen: its size in CSS pixels, the colours wanted.

        A narrow one is a phone's, which is touched.
        """
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self._tell("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        self._tell("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", features=[scheme])

    def allow(self, *permissions: str) -> None:
        """What the page may do without asking."""
        self._tell("Browser.grantPermissions", permissions=permissions)

    def picture(self) -> bytes:
        """What is shown, as a PNG."""
        shown = self._client.get(self._session + "/screenshot").json()["value"]
        return base64.b64decode(shown)

    @contextlib.contextmanager
    def running_first(self, script: str) -> Iterator[None]:
        """Pages that are opened meanwhile run this before anything of their own."""
        told = self._tell("Page.addScriptToEvaluateOnNewDocument", source=script)
        try:
            yield
        finally:
            self._tell("Page.removeScriptToEvaluateOnNewDocument", identifier=told["identifier"])

    def _tell(self, command: str, **parameters: Any) -> Any:
        return self._post("/goog/cdp/execute", cmd=command, params=parameters)

    def text(self, css: str) -> str:
        """The text of all elements that match."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return "\n".join(self.run(script, css))

    def until(self, script: str, *arguments: Any) -> Any:
        """Wait for a script to return something true. Raises: TimeoutError."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            if found := self.run(script, *arguments):
                return found
            time.sleep(0.05)
        raise TimeoutError(script)

    def _act(self, css: str, action: str, **body: Any) -> None:
        # A page that draws itself anew gives a button's place to another one, as a user does not
        # even see.
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            response = self._client.post(
                f"{self._session}/element/{self._find(css)}/{action}", json=body
            )
            value = response.json()["value"]
            if response.status_code == 200:
                return
            assert "stale element" in value["error"] and time.monotonic() < deadline, value

    def _find(self, css: str) -> str:
        found = self._post("/element", using="css selector", value=css)
        return str(found[_ELEMENT])

    def _post(self, path: str, **body: Any) -> Any:
        response = self._client.post(self._session + path, json=body)
        value = response.json()["value"]
        assert response.status_code == 200, value
        return value


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """A browser with nothing in its profile."""
    # Chromium makes a Unix socket where temporary files go, and has to have room for its path.
    folder = short_folder()
    command, env = ["chromedriver", "--port=0"], os.environ | {"TMPDIR": folder}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True, dir=folder) as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as driver,
    ):
        try:
            assert driver.stdout is not None
            started = re.search(r"successfully on port (\d+)", _lines_until(driver.stdout, "port "))
            assert started is not None
            options = {"args": [*_FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
            base = f"http://127.0.0.1:{started[1]}"
            with httpx.Client(base_url=base, timeout=60, trust_env=False) as client:
                answer = client.post("/session", json={"capabilities": wanted}).json()["value"]
                session = answer["sessionId"]
                try:
                    yield Browser(client, session)
                finally:
                    client.delete(f"/session/{session}")
        finally:
            driver.terminate()


def _lines_until(stream: Any, word: str) -> str:
    lines = ""
    for line in stream:
        lines += line
        if "successfully" in line and word in line:
            break
    return lines
