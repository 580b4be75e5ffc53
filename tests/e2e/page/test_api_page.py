"""GET /docs in a browser: every operation of the description, found by a field, unfolded."""

from tests.support.page.browser import Browser
from tests.support.scripted.scripted_server import ScriptedServer


def test_the_api_is_read_and_searched(browser: Browser, server: ScriptedServer) -> None:
    browser.open(f"{server.url}/docs")
    browser.until("return document.querySelectorAll('summary .method').length > 10")
    count = "return document.querySelectorAll('summary .method').length"
    described = browser.run(
        "const request = new XMLHttpRequest(); request.open('GET', 'openapi.json', false);"
        "request.send(); const { paths } = JSON.parse(request.responseText);"
        "return Object.values(paths).flatMap((one) => Object.keys(one)).length"
    )
    assert browser.run(count) == described
    browser.type("#find", "reasoning_control")
    browser.until(f"return ({count.removeprefix('return ')}) < {described}")
    unfold = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    # What is folded is made when it is unfolded.
    browser.until(f"{unfold}; return document.body.innerText.includes('max_tokens')")
    text = browser.run("return document.body.innerText")
    assert "reasoning_control" in text
    assert "`" not in text
