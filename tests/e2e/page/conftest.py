"""A browser for all tests of the page, and for each a server on an engine that the test plays."""

from collections.abc import Iterator

import pytest

from tests.support.page.browser import Browser, browsing, why_no_browser
from tests.support.page.page_user import PageUser
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.scripted_server import ScriptedServer, scripted_server


@pytest.fixture(scope="package")
def started_browser() -> Iterator[Browser]:
    """Skips where there is none."""
    if reason := why_no_browser():
        pytest.skip(reason)
    with browsing() as opened:
        yield opened


@pytest.fixture
def browser(started_browser: Browser) -> Browser:
    """A window of a desktop's size."""
    started_browser.show(1200, 800)
    return started_browser


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(FakeEngine(n_ctx=8192), parallel=2) as running:
        yield running


@pytest.fixture
def user(browser: Browser, server: ScriptedServer) -> PageUser:
    return PageUser(browser, server)
